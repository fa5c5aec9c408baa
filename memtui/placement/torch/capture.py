"""A whole training step as a graph of kernels: forward, backward and update. Imports torch.

``make_fx`` records the operators that one step calls, on tensors without data. A value that shares memory with an
earlier value is a view, not a tensor; a value that an operator writes in place is a new tensor in old memory.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_map

from memtui.core.json_fields import to_json
from memtui.placement.graph import ARGUMENT, CONSTANT, INTERMEDIATE, RESULT, Graph, Op, Tensor
from memtui.placement.torch import capture_errors
from memtui.placement.torch.decompositions import DECOMPOSITIONS, lstm_in_steps
from memtui.placement.torch.kernels import has_to_copy
from memtui.placement.torch.models import NoStep, TrainingStep

_LONGEST_KEY = 1000
_ALIGNED_BYTES = 64  # a line of a cache, and the longest vector; storages begin at pages
# These operators take only shape and type from their arguments, and do not read them.
_MAKES_NEW = re.compile(r"aten\.(new_\w+|(empty|full|ones|rand|randn|randint|zeros)_like)\.")


@dataclass(frozen=True)
class Layout:
    """Layout of a value in a storage: everything in which a view differs from its base.

    Attributes:
        storage: name, as in ``graph.Tensor.storage``.
        dtype: type of an element.
        shape: number of elements in each dimension.
        stride: elements from one index to the next in each dimension.
        offset: of the first element, in elements.
    """

    storage: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def over(self, memory: torch.Tensor) -> torch.Tensor:
        """Return the value as a view of the memory of its storage, given as bytes."""
        skipped = memory.storage_offset() // self.dtype.itemsize
        empty = torch.empty(0, dtype=self.dtype, device=memory.device)
        return empty.set_(memory.untyped_storage(), skipped + self.offset, self.shape, self.stride)

    @property
    def accessed_bytes(self) -> int:
        """Bytes of the elements; elements that a stride of 0 repeats count once."""
        count = self.dtype.itemsize
        for length, stride in zip(self.shape, self.stride, strict=True):
            count *= length if stride else min(length, 1)
        return count


@dataclass(frozen=True)
class Kernel:
    """An op with everything that a call of it needs.

    Attributes:
        op: the op of the graph.
        target: the operator.
        arguments: positional arguments of the call, with layouts in the place of tensors.
        keywords: keyword arguments of the call, likewise.
        new_layouts: for each result, its layout; None for a result that is not a new tensor.
        read_bytes: bytes that the op reads, by storage.
        written_bytes: bytes that the op writes, by storage.
        in_place: whether the op writes its arguments.
        copies: whether the results have to be copied to their place.
    """

    op: Op
    target: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    new_layouts: tuple[Layout | None, ...]
    read_bytes: Mapping[str, int]
    written_bytes: Mapping[str, int]
    in_place: bool
    copies: bool


@dataclass(frozen=True)
class Captured:
    """A graph with everything that running it needs.

    Attributes:
        graph: the graph without torch, as it is saved.
        kernels: kernels of the ops, in their order.
        given: bytes of each storage that exists before the step.
        results: layouts of the values that the step returns.
        changed: layouts of older values that the step changes, such as running means.
        module: the step as torch runs it, to compare with.
        inputs: arguments of the module.
    """

    graph: Graph
    kernels: tuple[Kernel, ...]
    given: Mapping[str, torch.Tensor]
    results: tuple[Layout, ...]
    changed: tuple[Layout, ...]
    module: torch.fx.GraphModule
    inputs: tuple[Any, ...]

    @property
    def fingerprint(self) -> str:
        """A digest of the graph: measurements are valid only for a graph with the same digest."""
        text = json.dumps(to_json(self.graph), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def capture(step: TrainingStep, name: str) -> Captured:
    """Record one step. Raises NoStep, which names the operator that prevents it."""
    state = step.state()
    flat, _ = tree_flatten(state)
    if any(tensor.device.type != "cpu" or tensor.layout != torch.strided for tensor in flat):
        raise NoStep(f"{name}: parameters and inputs have to be plain tensors in main memory")
    if not any(parameter.requires_grad for parameter in state[0].values()):
        why = "none of its parameters requires a gradient" if state[0] else "the model has no parameters"
        raise NoStep(f"{name}: nothing to train: {why}")
    try:
        with lstm_in_steps():
            recorder = make_fx(step, DECOMPOSITIONS, tracing_mode="fake", _allow_non_fake_inputs=True)
            module = recorder(*state)
    except NoStep as error:
        raise NoStep(f"{name}: {error}") from None
    except Exception as error:
        raise NoStep(f"{name} cannot be captured: {capture_errors.why(error, step, state)}") from error
    module.graph.eliminate_dead_code()
    module.recompile()
    given = {label: tensor.detach() for label, tensor in zip(step.names, flat, strict=True)}
    try:
        return _Reader(module, given).read(name, state)
    except NoStep as error:
        raise NoStep(f"{name}: {error}{capture_errors.first_of_values(step, state)}") from None


class _Reader:
    """Reads the nodes of a recorded step in their order."""

    def __init__(self, module: torch.fx.GraphModule, given: Mapping[str, torch.Tensor]) -> None:
        self._module, self._given = module, given
        self._storage_of: dict[int, str] = {}  # by address of the storage without data
        self._layouts: dict[torch.fx.Node, Any] = {}
        self._current: dict[str, str] = {}  # the latest tensor of each storage
        self._tensors: dict[str, Tensor] = {}
        self._bytes: dict[str, torch.Tensor] = {}
        self._kernels: list[Kernel] = []
        self._changed: dict[Layout, None] = {}
        self._copies: dict[tuple[str, str], bool] = {}  # by kind and key of an op
        self._references: list[Any] = []  # keeps storages alive, so that no address is used twice

    def read(self, name: str, state: tuple[Any, ...]) -> Captured:
        waiting = iter(self._given.items())
        results: tuple[Layout, ...] = ()
        for node in self._module.graph.nodes:
            if node.op == "placeholder":
                self._layouts[node] = self._argument(node, *next(waiting))
            elif node.op == "get_attr":
                self._layouts[node] = self._constant(node)
            elif node.op == "output":
                flat, _ = tree_flatten(node.args[0])
                results = tuple(self._layouts[n] for n in flat if isinstance(n, torch.fx.Node))
            elif getattr(node.target, "__name__", "") == "getitem" and not hasattr(node.target, "_schema"):
                source, index = node.args
                self._layouts[node] = self._layouts[source][index]
            else:
                self._call(node)
        if not self._kernels:
            raise NoStep("the step has no op")
        final = {layout.storage for layout in results}
        graph = Graph(
            name, tuple(k.op for k in self._kernels), tuple(_with_role(t, final) for t in self._tensors.values())
        )
        return Captured(graph, tuple(self._kernels), self._bytes, results, tuple(self._changed), self._module, state)

    def _argument(self, node: torch.fx.Node, name: str, real: torch.Tensor) -> Layout:
        """Return the layout of a value that exists before the step."""
        value = node.meta["val"]
        key = self._key(value)
        if key not in self._storage_of:
            self._storage_of[key] = name
            self._new(name, value, ARGUMENT)
            self._bytes[name] = _whole(real)
        return self._layout(value)

    def _constant(self, node: torch.fx.Node) -> Any:
        real = getattr(self._module, str(node.target), None)
        if not isinstance(real, torch.Tensor):
            raise NoStep(f"{node.target} of the recorded step is not a tensor")
        name = f"constant {str(node.target).removeprefix('_tensor_constant')}"
        if name not in self._tensors:
            self._new(name, real, CONSTANT)
            self._bytes[name] = _whole(real)
        value = node.meta.get("val", real)
        self._storage_of[self._key(value)] = name
        return self._layout(value)

    def _call(self, node: torch.fx.Node) -> None:
        if not isinstance(node.target, torch._ops.OpOverload):
            raise NoStep(
                f"{getattr(node.target, '__name__', node.target)} is not an operator that can be timed by itself"
            )
        value = node.meta.get("val")
        flat, _ = tree_flatten(value)
        for each in filter(lambda value: value is not None, flat):
            _check_fixed(node.target, each)
        reads = _read(node)
        read = [(layout, self._current[layout.storage]) for layout in self._leaves(reads)]
        written = list(self._leaves(self._written(node)))
        changed = [*written, *self._leaves(_secretly_written(node))]
        self._changed |= dict.fromkeys(layout for layout in changed if layout.storage in self._bytes)
        new = [each for each in flat if each is not None and self._key(each) not in self._storage_of]
        if new or written:
            self._kernel(node, flat, read, written)
        self._layouts[node] = tree_map(lambda v: None if v is None else self._layout(v), value)

    def _kernel(
        self,
        node: torch.fx.Node,
        values: Sequence[Any],
        read: Sequence[tuple[Layout, str]],
        written: Sequence[Layout],
    ) -> None:
        layouts: list[Layout | None] = []
        outputs: list[str] = []
        for number, value in enumerate(values):
            fresh = value is not None and self._key(value) not in self._storage_of
            if fresh:
                outputs.append(node.name if number == 0 else f"{node.name}.{number}")
                self._storage_of[self._key(value)] = outputs[-1]
                self._new(outputs[-1], value, INTERMEDIATE)
            layouts.append(self._layout(value) if fresh else None)
        for number, storage in enumerate(dict.fromkeys(layout.storage for layout in written)):
            base = self._tensors[storage]
            outputs.append(f"{node.name}.in_place{number or ''}")
            self._tensors[outputs[-1]] = Tensor(outputs[-1], base.size_bytes, INTERMEDIATE, group=storage)
            self._tensors[storage] = Tensor(base.name, base.size_bytes, base.role, group=storage)
            self._current[storage] = outputs[-1]
        arguments, keywords = self._with_layouts((node.args, node.kwargs))
        kind = str(node.target)
        key = _key_of(kind, arguments, keywords, layouts)
        op = Op.of(node.name, kind, [tensor for _, tensor in read], outputs, key)
        if (kind, key) not in self._copies:
            self._copies[kind, key] = _copies(node.target, arguments, keywords, layouts, bool(written))
        new = [layout for layout in layouts if layout is not None]
        self._kernels.append(
            Kernel(
                op,
                node.target,
                arguments,
                keywords,
                tuple(layouts),
                self._amounts(layout for layout, _ in read),
                self._amounts([*new, *written]),
                bool(written),
                self._copies[kind, key],
            )
        )

    def _written(self, node: torch.fx.Node) -> list[Any]:
        """Return the arguments that the operator writes according to its schema."""
        schema = node.target._schema.arguments  # type: ignore[union-attr]
        named = _named(node)
        return [named.get(a.name) for a in schema if a.alias_info is not None and a.alias_info.is_write]

    def _leaves(self, tree: Any) -> Iterable[Layout]:
        flat, _ = tree_flatten(tree)
        for each in flat:
            if isinstance(each, torch.fx.Node):
                yield self._layouts[each]

    def _with_layouts(self, tree: Any) -> Any:
        return tree_map(lambda leaf: self._layouts[leaf] if isinstance(leaf, torch.fx.Node) else leaf, tree)

    def _key(self, value: torch.Tensor) -> int:
        storage = value.untyped_storage()
        self._references.append(storage)
        return int(storage._cdata)

    def _new(self, name: str, value: torch.Tensor, role: str) -> None:
        self._tensors[name] = Tensor(name, value.untyped_storage().nbytes(), role)
        self._current[name] = name

    def _layout(self, value: torch.Tensor) -> Layout:
        storage = self._storage_of[self._key(value)]
        return Layout(
            storage,
            value.dtype,
            tuple(value.shape),
            tuple(value.stride()),
            int(value.storage_offset()),
        )

    def _amounts(self, layouts: Iterable[Layout]) -> dict[str, int]:
        amounts: dict[str, int] = {}
        for layout in layouts:
            most = self._tensors[layout.storage].size_bytes
            amounts[layout.storage] = min(most, amounts.get(layout.storage, 0) + layout.accessed_bytes)
        return amounts


def _copies(target: Any, arguments: Any, keywords: Any, results: Sequence[Layout | None], in_place: bool) -> bool:
    """Return whether results have to be copied to their place; a call on zeros shows it."""
    if in_place:
        return any(layout is not None for layout in results)
    with torch.no_grad():
        arguments, keywords = tree_map(_zeros, (arguments, dict(keywords)))
        return has_to_copy(target, arguments, keywords, [_zeros(layout) for layout in results])


def _zeros(leaf: Any) -> Any:
    """Return a tensor of zeros for a layout, and anything else unchanged."""
    if not isinstance(leaf, Layout):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride, dtype=leaf.dtype).zero_()


def _named(node: torch.fx.Node) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    return dict(zip((argument.name for argument in schema), node.args, strict=False)) | dict(node.kwargs)


def _read(node: torch.fx.Node) -> Any:
    """Return the arguments whose values the operator reads."""
    if _MAKES_NEW.match(str(node.target)):
        return ()
    if node.target is torch.ops.aten.copy_.default:
        return node.args[1:]
    return node.args, node.kwargs


def _secretly_written(node: torch.fx.Node) -> list[Any]:
    """Return the arguments that an operator writes against its schema: running means of a normalisation."""
    named = _named(node)
    if not str(node.target).startswith("aten.native_batch_norm.") or not named.get("training"):
        return []
    return [named.get("running_mean"), named.get("running_var")]


def _check_fixed(target: Any, value: Any) -> None:
    """Raise NoStep for a value that is not a tensor of a fixed shape."""
    if not isinstance(value, torch.Tensor):
        raise NoStep(f"the step cannot be captured: {target} makes a number of a tensor, which later ops depend upon")
    if value.layout != torch.strided:
        raise NoStep(f"the step cannot be captured: {target} makes a tensor that is not strided")
    if any(type(number) is not int for number in (*value.shape, *value.stride())):
        raise NoStep(f"the step cannot be captured: {target} makes a tensor whose shape depends on values")


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return all bytes of the memory of a value."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.detach().untyped_storage())


def _with_role(tensor: Tensor, final: set[str]) -> Tensor:
    """Return the tensor with its role: a tensor whose memory the step returns outlives the step."""
    if tensor.role != INTERMEDIATE or tensor.storage not in final:
        return tensor
    return Tensor(tensor.name, tensor.size_bytes, RESULT, tensor.group)


def _key_of(kind: str, arguments: Any, keywords: Any, results: Sequence[Layout | None]) -> str:
    """Return the facts that an op's time depends on: shapes, types, strides, repeated tensors, and numbers."""
    seen: dict[str, tuple[int, int]] = {}  # number of a storage, and where its first layout begins

    def describe(leaf: Any) -> str:
        if not isinstance(leaf, Layout):
            return repr(leaf)
        # Where in its storage a layout begins matters to its alignment alone, and to others of the same storage.
        repeated = leaf.storage in seen
        number, first = seen.setdefault(leaf.storage, (len(seen), leaf.offset))
        dtype = str(leaf.dtype).removeprefix("torch.")
        offset = leaf.offset - first if repeated else leaf.offset % (_ALIGNED_BYTES // leaf.dtype.itemsize)
        offset_text = f"{offset:+}" if offset else ""
        return f"{number}:{dtype}{list(leaf.shape)}/{list(leaf.stride)}{offset_text}"

    parts = [describe(leaf) for leaf in tree_flatten((arguments, dict(sorted(keywords.items()))))[0]]
    parts += ["->", *(describe(leaf) for leaf in results)]
    text = " ".join(parts)
    return text if len(text) <= _LONGEST_KEY else hashlib.sha256(f"{kind} {text}".encode()).hexdigest()
