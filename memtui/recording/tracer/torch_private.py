"""The only module that uses interfaces of torch that are not public: its profiler's records, and dispatch modes.

Only the traced process imports this.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

try:
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:  # an old torch, or a future one: ``watching_problem`` reports it
    TorchDispatchMode = object  # type: ignore[misc,assignment]

BACKWARD = "autograd::engine"
_ERROR_LEVEL = 2  # of c10: warnings are 1


@dataclass(frozen=True, slots=True)
class RawEvent:
    """One allocation or free."""

    t_ns: int  # CLOCK_MONOTONIC
    ptr: int
    size_bytes: int  # a free is negative
    allocation_id: int | None  # None unless the profiler recorded shapes
    path: tuple[str, ...]  # names of the enclosing events, the innermost last
    op: str  # innermost enclosing operator of torch; "" when there are at most labels around
    sequence: int | None  # autograd's number of the nearest enclosing operation that has one
    thread: int
    device: str


@dataclass(frozen=True, slots=True)
class RawSpan:
    """An operator of torch or a label, from its start to its end."""

    start_ns: int  # CLOCK_MONOTONIC
    end_ns: int
    path: tuple[str, ...]  # as in RawEvent, its own name last
    op: str
    sequence: int | None
    thread: int


@dataclass(frozen=True, slots=True)
class RawStep:
    """The profiler's records, events and spans, sorted by (start) time."""

    events: list[RawEvent]
    spans: list[RawSpan]


def problem() -> str | None:
    """Return why this torch cannot report every allocation; None when it can."""
    missing = _missing()
    return f"torch {torch.__version__} does not tell every allocation ({missing})" if missing else None


def _missing() -> str | None:
    try:
        from torch._C._autograd import _ProfilerResult
        from torch._C._profiler import RecordScope, _EventType
    except ImportError as error:
        return str(error)
    profiler = torch.autograd.profiler.profile
    for holder, attribute in (
        (profiler, "_prepare_trace"),
        (torch.autograd, "_profiler_enabled"),
        (_ProfilerResult, "experimental_event_tree"),
        (_EventType, "Allocation"),
        (_EventType, "TorchOp"),
        (RecordScope, "USER_SCOPE"),
    ):
        if not hasattr(holder, attribute):
            return f"it has no {attribute}"
    return None if torch.profiler.kineto_available() else "it was built without its profiler"


class Turns:
    """Arbitrates between profilers: torch can only have one, and a second one may end the process.

    In torch 2.13 a profiler that starts while another one warms up is a segmentation fault, and one that starts while
    another one records silently takes the records away. So the program's profilers are noticed from when they are
    prepared, and always come first.
    """

    def __init__(self) -> None:
        self._others: weakref.WeakSet[Any] = weakref.WeakSet()
        self._ours: torch.profiler.profile | None = None
        self._give_way: Callable[[], object] | None = None
        self._starting = self._watching = False

    def watch(self) -> None:
        """Notice the profilers of the program from now on; to be called before the program creates one."""
        if self._watching or problem() is not None:
            return
        self._watching = True
        profiler: Any = torch.autograd.profiler.profile
        prepare, leave = profiler._prepare_trace, profiler.__exit__

        def _prepare_trace(other: Any) -> Any:
            if not self._starting:
                if self._give_way is not None:
                    self._give_way()
                self._others.add(other)
            return prepare(other)

        def __exit__(other: Any, *exception: Any) -> Any:
            self._others.discard(other)
            return leave(other, *exception)

        profiler._prepare_trace, profiler.__exit__ = _prepare_trace, __exit__

    def start(self, give_way: Callable[[], object]) -> torch.profiler.profile:
        """Return a running profiler; ``give_way`` must stop it and is called before the program starts its own.

        Raises:
            RuntimeError: another profiler runs, or torch refuses.
        """
        self.watch()
        if self._others or self._ours is not None or torch.autograd._profiler_enabled():
            raise RuntimeError("another profiler is on")
        profiler = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, record_shapes=False
        )
        self._starting = True
        try:
            profiler.start()
        finally:
            self._starting = False
        self._ours, self._give_way = profiler, give_way
        return profiler

    def stop(self, ours: torch.profiler.profile) -> None:
        """End a profiler that ``start`` returned."""
        self._ours = self._give_way = None
        ours.stop()


turns = Turns()


class CudaHistory:
    """The history of CUDA's allocator while a step is recorded; the program's own use of it always comes first."""

    def __init__(self) -> None:
        self._on = self._guarded = False
        self._before: dict[str, Any] = {}

    def start(self, most_entries: int) -> bool:
        """Start a history; False where the program does not use CUDA, or has one already."""
        cuda: Any = torch.cuda
        enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
        if enabled is None or not cuda.is_initialized() or enabled():
            return False
        self._guard(cuda.memory)
        cuda.memory._record_memory_history("all", context=None, max_entries=most_entries, clear_history=True)
        self._on = True
        self._before = cuda.memory._snapshot()
        return True

    def stop(self) -> tuple[dict[str, Any], dict[str, Any], int] | None:
        """Stop the history.

        Returns:
            The snapshots at its begin and its end, and CLOCK_MONOTONIC minus their times in ns; None where the program
            has taken it over.
        """
        if not self._on:
            return None
        memory: Any = torch.cuda.memory
        snapshot = memory._snapshot()
        self._on = False
        memory._record_memory_history(None)
        before, self._before = self._before, {}
        return before, snapshot, _monotonic_minus_epoch_ns()

    def _guard(self, memory: Any) -> None:
        """Leave a history that the program switches on or off from now on to the program."""
        if self._guarded:
            return
        self._guarded = True
        for name in ("_record_memory_history_impl", "_record_memory_history_legacy"):
            hidden = getattr(memory, name, None)
            if hidden is not None:
                setattr(memory, name, self._taking_over(hidden))

    def _taking_over(self, hidden: Callable[..., Any]) -> Callable[..., Any]:
        def record(*arguments: Any, **more: Any) -> Any:
            self._on = False
            return hidden(*arguments, **more)

        return record


cuda_history = CudaHistory()


def raw_step(prof: torch.profiler.profile) -> RawStep:
    """Return all records of a stopped profiler."""
    from torch._C._profiler import RecordScope, _EventType

    results: Any = prof.profiler.kineto_results if prof.profiler is not None else None
    if results is None:
        return RawStep([], [])
    offset_ns = _monotonic_minus_epoch_ns()
    step = RawStep([], [])
    # Children before later siblings, so that the order of equal times is that of the tree.
    stack: list[tuple[Any, tuple[str, ...], str, int | None, bool]] = [
        (node, (), "", None, False) for node in reversed(results.experimental_event_tree())
    ]
    while stack:
        node, path, op, sequence, backward = stack.pop()
        kind = node.tag
        start_ns = node.start_time_ns + offset_ns
        if kind == _EventType.Allocation:
            fields = node.extra_fields
            allocation_id = getattr(fields, "allocation_id", None)
            device, thread = str(fields.device), node.start_tid
            step.events.append(
                RawEvent(start_ns, fields.ptr, fields.alloc_size, allocation_id, path, op, sequence, thread, device)
            )
            continue
        if kind == _EventType.TorchOp:
            fields, name = node.extra_fields, node.name
            own = fields.sequence_number
            path = (*path, name)
            op = op if fields.scope == RecordScope.USER_SCOPE else name
            # Inside of backward the number is that of the engine's event: operations below may get new ones.
            engine = name.startswith(BACKWARD)
            backward = backward or engine
            if own >= 0 and (engine or not backward):
                sequence = own
            elif engine:
                sequence = None
            end_ns = node.end_time_ns + offset_ns
            step.spans.append(RawSpan(start_ns, end_ns, path, op, sequence if own >= 0 else None, node.start_tid))
        stack.extend((child, path, op, sequence, backward) for child in reversed(node.children))
    step.events.sort(key=lambda event: event.t_ns)
    step.spans.sort(key=lambda span: span.start_ns)
    return step


@dataclass(frozen=True, slots=True)
class RawUse:
    """An operator that computes something itself, and the addresses of the tensors it reads and allocates."""

    start_ns: int
    path: tuple[str, ...]  # as in RawSpan
    op: str
    reads: tuple[int, ...]
    makes: tuple[int, ...]


def raw_uses(prof: torch.profiler.profile) -> list[RawUse]:
    """Return the uses that a stopped profiler with recorded shapes saw, in order of time."""
    from torch._C._profiler import RecordScope, _EventType, _TensorMetadata

    results: Any = prof.profiler.kineto_results if prof.profiler is not None else None
    uses: list[RawUse] = []
    stack: list[tuple[Any, tuple[str, ...]]] = [(node, ()) for node in results.experimental_event_tree()]
    while stack:
        node, path = stack.pop()
        if node.tag != _EventType.TorchOp:
            continue
        path = (*path, node.name)
        stack += [(child, path) for child in node.children]
        if node.extra_fields.scope == RecordScope.USER_SCOPE:
            continue
        allocations = [child.extra_fields for child in node.children if child.tag == _EventType.Allocation]
        inner = any(child.tag == _EventType.TorchOp for child in node.children)
        if inner and not allocations:
            continue  # others do it
        given: list[Any] = []
        for value in node.extra_fields.inputs:
            given += value if isinstance(value, list) else [value]
        reads = [value.storage_data_ptr for value in given if isinstance(value, _TensorMetadata)]
        makes = tuple(value.ptr for value in allocations if value.alloc_size > 0)
        uses.append(RawUse(node.start_time_ns, path, node.name, tuple(filter(None, reads)), makes))
    return sorted(uses, key=lambda use: use.start_ns)


def _monotonic_minus_epoch_ns() -> int:
    """Return the offset of the profiler's times to CLOCK_MONOTONIC: of several readings the least interrupted one."""
    best: tuple[int, int] | None = None
    for _ in range(7):
        before = time.monotonic_ns()
        epoch = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = after - before, (before + after) // 2 - epoch
    assert best is not None
    return best[1]


@contextmanager
def hushed() -> Iterator[None]:
    """Keep torch from warning that it frees blocks older than the profiler, which is the rule here.

    The warning comes from C++ and passes by Python's filters; its level is raised for the time being only, so that
    the program's own messages stay as they are.
    """
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"), mode=os.RTLD_NOLOAD)
        level = ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level")
    except (OSError, ValueError):  # another build of torch: one line too many is harmless
        yield
        return
    before = level.value
    level.value = max(before, _ERROR_LEVEL)
    try:
        yield
    finally:
        level.value = before


def uncompiled(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is never compiled, also where compiled code calls it."""
    dynamo = sys.modules.get("torch._dynamo")  # without it nothing is compiled; importing it takes seconds
    return work if dynamo is None or not hasattr(dynamo, "disable") else dynamo.disable(work)


def compiled_frames() -> int:
    """Return how many pieces of the program were compiled so far."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return int(counters["frames"]["total"]) if counters is not None else 0


def watching_problem() -> str | None:
    """Return why operators of this program cannot be watched as they run; None when they can."""
    # Without this promise the compiler gives up where it meets a mode, and the program stays slow for good.
    if not hasattr(TorchDispatchMode, "ignore_compile_internals"):
        return f"torch {torch.__version__} cannot be watched without disturbing torch.compile"
    for holder, name in ((torch._C, "_len_torch_dispatch_stack"), (torch._C, "_current_graph_task_id")):
        if not hasattr(holder, name):
            return f"torch {torch.__version__} has no {name}"
    if compiled_frames():
        return "torch.compile has compiled parts of it"
    return None


class OperatorMode(TorchDispatchMode):
    """A mode that sees each operator of this thread, and of backward passes it starts, while it is on.

    A subclass implements ``__torch_dispatch__``, which must call the operator.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # a wrapper around each call, which compiled programs need and these are not

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let compiled parts run as without the mode."""
        return True

    def switch_on(self) -> bool:
        """Switch the mode on; False where the program has one of its own, which would have to leave first."""
        if torch._C._len_torch_dispatch_stack():
            return self._on_top  # it could not be switched off before
        self.__enter__()
        return True

    def switch_off(self) -> bool:
        """Switch the mode off; False where the program has put one of its own on top, or in another thread."""
        if not self._on_top:
            return False
        self.__exit__(None, None, None)
        return True

    @property
    def _on_top(self) -> bool:
        on = torch._C._len_torch_dispatch_stack()
        return on > 0 and torch._C._get_dispatch_stack_at(on - 1) is self


def in_backward() -> bool:
    """Whether autograd is running in this thread."""
    return int(torch._C._current_graph_task_id()) >= 0


def may_allocate(operator: Any) -> bool:
    """Whether an operator can return a new storage: one that returns its argument, or a view of it, cannot."""
    return any(returned.alias_info is None for returned in operator._schema.returns)
