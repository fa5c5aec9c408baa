"""Watches one pass of a network: every call of PyTorch's library, the module that makes it, and its time.

A mode of PyTorch sees the calls, whether a module makes them or a function between modules does (``x + y``,
``functional.relu``). In inference mode it sees them before PyTorch takes them apart: ``linear``, not ``addmm``. Hooks
around the calls of all modules say which module is being called.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from memtui.bench.decomposition.aten_call import MISSING, AtenCall, FoundOperator, NotAnOperator, Operators
from memtui.bench.decomposition.rules import RULES, operators_of
from memtui.bench.operators import CATALOGUE

_NO_WORK = ("empty", "new_empty", "as_strided", "_local_scalar_dense", "is_nonzero", "sym_")  # beginnings of names


@dataclass(slots=True)
class SeenModule:
    """A module that was called.

    Attributes:
        kind: its class.
        calls_modules: whether it called another one.
        covered: whether all of its own calls are operators.
    """

    kind: str
    calls_modules: bool = False
    covered: bool = True


@dataclass(slots=True)
class SeenCall:
    """A call that computes or moves something.

    Attributes:
        function: as PyTorch names it.
        module: kind of the module that makes it.
        time_ns: how long it took.
        operators: what it is here.
        reason: why it is not an operator; "" where it is.
    """

    function: str
    module: str
    time_ns: int
    operators: tuple[FoundOperator, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class Pass:
    """One pass of a network."""

    calls: list[SeenCall] = field(default_factory=list)
    modules: dict[int, SeenModule] = field(default_factory=dict)

    @property
    def leaves(self) -> list[SeenModule]:
        """Modules that called no other module."""
        return [module for module in self.modules.values() if not module.calls_modules]


def watch(model: torch.nn.Module, call: Callable[[], Any], synchronize: Callable[[], None]) -> tuple[Pass, Any]:
    """Return a pass of a network, and what it returned.

    Args:
        model: the network.
        call: calls it.
        synchronize: waits for the device.
    """
    seen = Pass()
    stack: list[SeenModule] = []
    with torch.inference_mode(), _hooks(seen, stack), _Mode(model, seen, stack, synchronize):
        result = call()
    return seen, result


@contextmanager
def _hooks(seen: Pass, stack: list[SeenModule]) -> Iterator[None]:
    """Have the modules that are being called on the stack."""

    def enter(module: torch.nn.Module, _: Any) -> None:
        if stack:
            stack[-1].calls_modules = True
        stack.append(seen.modules.setdefault(id(module), SeenModule(type(module).__name__)))

    def leave(module: torch.nn.Module, _: Any, __: Any) -> None:
        stack.pop()

    # Hooks of single modules would keep PyTorch from taking its faster ways through attention.
    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Mode(TorchDispatchMode):
    """Sees every call."""

    def __init__(
        self, model: torch.nn.Module, seen: Pass, stack: list[SeenModule], synchronize: Callable[[], None]
    ) -> None:
        super().__init__()
        self._seen, self._stack, self._synchronize = seen, stack, synchronize
        self._weights = {_memory(t) for t in (*model.parameters(), *model.buffers())}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = name_of(func)
        if name not in RULES and func._can_decompose():
            return self._in_parts(func, args, kwargs)
        self._synchronize()
        start = time.perf_counter_ns()
        result = func(*args, **kwargs)
        self._synchronize()
        took_ns = time.perf_counter_ns() - start
        if name not in RULES and _does_nothing(func, name, (args, kwargs), result):
            return result
        operators, reason = _checked(AtenCall(name, _arguments(func, args, kwargs), result, self._is_weight))
        # A call without an operator is perhaps made of calls that have one. One that changes its input is over.
        if operators is None and func._can_decompose() and not func._schema.is_mutable:
            first = len(self._seen.calls)
            result = self._in_parts(func, args, kwargs)
            for part in self._seen.calls[first:]:
                if part.reason and reason != MISSING:  # of the whole, which the user calls
                    part.function, part.reason = name, reason
            return result
        if operators is None or operators:
            self._note(name, took_ns, tuple(operators or ()), reason)
        return result

    def _in_parts(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self:
            return func.decompose(*args, **kwargs)

    def _note(self, name: str, took_ns: int, operators: tuple[FoundOperator, ...], reason: str) -> None:
        module = self._stack[-1] if self._stack else None
        if module is not None and not operators:
            module.covered = False
        self._seen.calls.append(SeenCall(name, module.kind if module else "no module", took_ns, operators, reason))

    def _is_weight(self, tensor: Any) -> bool:
        return _memory(tensor) in self._weights


def _checked(call: AtenCall) -> tuple[Operators, str]:
    """Return the operators of a call, and the reason where it is none. One odd call is not an error of the network."""
    try:
        operators = operators_of(call)
    except NotAnOperator as error:
        return None, str(error)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        return None, f"its form is not known here ({type(error).__name__}: {error})"
    try:
        for op, parameters in operators or ():
            CATALOGUE[op].resolve(parameters)
    except ValueError as error:
        return None, str(error)
    return operators, MISSING if operators is None else ""


def name_of(func: Any) -> str:
    """Return the name of a function of PyTorch's library, the same for its form that works in place."""
    space, _, name = func._schema.name.partition("::")
    name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    return name if space == "aten" else f"{space}::{name}"


def _arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments by name, with the defaults of those that are not given."""
    schema = func._schema.arguments
    values = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    return values | {argument.name: value for argument, value in zip(schema, args, strict=False)} | kwargs


def _does_nothing(func: Any, name: str, given: Any, result: Any) -> bool:
    """Whether a call computes and moves nothing: it returns another view of its input, new memory, or a number."""
    if name.startswith(_NO_WORK):
        return True
    tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if func._schema.is_mutable:
        return False
    memories = {_memory(leaf) for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)}
    return all(tensor.numel() == 0 or _memory(tensor) in memories for tensor in tensors)


def _memory(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a tensor without memory of its own, such as a sparse one
        return id(tensor)
