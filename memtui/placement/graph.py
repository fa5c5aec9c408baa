"""The graph of a training step: its ops, its tensors, and the pools each tensor may lie in. Only data, no torch.

The vocabulary is that of nGraph's profiler and of AutoTM (Hildebrand et al., ASPLOS 2020), which came out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from memtui.placement.validation import Damaged, count, list_of, name, optional, required, rows, table, text

ARGUMENT, CONSTANT, INTERMEDIATE, RESULT = ROLES = ("argument", "constant", "intermediate", "result")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One value in the graph. A view is not a tensor: an operator that reads a view reads the tensor behind it.

    Attributes:
        name: unique in its graph.
        size_bytes: of its memory.
        role: of ``ROLES``. Arguments and constants exist before the step, results outlive it: these stay in fast
            memory and do not count against its limit; only intermediate tensors are placed.
        group: tensors of one group share their memory (an operator that writes in place); empty: its own.
        pools: names of the pools it may lie in; None: any pool.
    """

    name: str
    size_bytes: int
    role: str = INTERMEDIATE
    group: str = ""
    pools: tuple[str, ...] | None = None

    @property
    def storage(self) -> str:
        """Name of the tensor's memory: the group, or the tensor itself."""
        return self.group or self.name

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"name": self.name, "size_bytes": self.size_bytes, "role": self.role}
        if self.group:
            fields["group"] = self.group
        if self.pools is not None:
            fields["pools"] = list(self.pools)
        return fields

    @classmethod
    def from_dict(cls, value: Any, what: str = "tensor") -> Tensor:
        """Raise Damaged."""
        fields = table(value, what)
        pools = None if fields.get("pools") is None else list_of(fields, "pools", name)
        role = required(fields, "role", text)
        if role not in ROLES:
            raise Damaged(f"a tensor's role is one of {', '.join(ROLES)}")
        return cls(
            required(fields, "name", name),
            required(fields, "size_bytes", count),
            role,
            optional(fields, "group", text) or "",
            pools,
        )


@dataclass(frozen=True, slots=True)
class Op:
    """One kernel.

    Attributes:
        name: unique in its graph.
        kind: name of the operator, ``aten.mm.default``.
        inputs: tensors it reads, each once: of x + x there is one input, as AutoTM merges repeats (``Op.of``).
        outputs: tensors it writes, each once.
        key: everything but the placement that its time depends on (shapes, types, strides); ops of one kind and key
            share timings.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    key: str = ""

    @classmethod
    def of(cls, name: str, kind: str, inputs: Iterable[str], outputs: Iterable[str], key: str = "") -> Op:
        """Create an op from tensors that may be named several times."""
        return cls(name, kind, tuple(dict.fromkeys(inputs)), tuple(dict.fromkeys(outputs)), key)

    @property
    def tensors(self) -> tuple[str, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)

    @classmethod
    def from_dict(cls, value: Any, what: str = "op") -> Op:
        """Raise Damaged."""
        fields = table(value, what)
        return cls(
            required(fields, "name", name),
            required(fields, "kind", text),
            list_of(fields, "inputs", name),
            list_of(fields, "outputs", name),
            required(fields, "key", text),
        )


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """Pools of an op's inputs and outputs, in the order in which the op has them: ``(dram, pmem) -- (dram)``."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def pools(self) -> tuple[str, ...]:
        """Inputs, then outputs, as ``Op.tensors``."""
        return (*self.inputs, *self.outputs)

    def __str__(self) -> str:
        return f"({', '.join(self.inputs)}) -- ({', '.join(self.outputs)})"

    def to_dict(self) -> list[list[str]]:
        return [list(self.inputs), list(self.outputs)]

    @classmethod
    def from_dict(cls, value: Any, what: str = "configuration") -> Configuration:
        """Raise Damaged."""
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise Damaged(f"{what} is not a pair of lists")
        sides = {"inputs": value[0], "outputs": value[1]}
        return cls(list_of(sides, "inputs", name), list_of(sides, "outputs", name))


@dataclass(frozen=True, slots=True)
class Storage:
    """The memory of a tensor, or of a group of tensors that share it: the unit of placement and of limits.

    Attributes:
        name: ``Tensor.storage``.
        size_bytes: of the largest tensor in it.
        first: index of the op that writes the storage first; 0 where it existed before the step.
        last: index of the last op that accesses it: the storage is alive from first to last, both included.
        accesses: indices of all ops that read or write it, rising.
        writes: indices of the ops that write it.
        counted: whether it counts against a limit; arguments, constants and results do not.
        pools: names of the pools it may lie in; None: any pool.
    """

    name: str
    size_bytes: int
    first: int
    last: int
    accesses: tuple[int, ...]
    writes: tuple[int, ...]
    counted: bool
    pools: tuple[str, ...] | None

    def may_lie_in(self, pool: str) -> bool:
        return self.pools is None or pool in self.pools


@dataclass(frozen=True)
class Graph:
    """The kernels of a training step in the order in which they run. The constructor checks them: it raises Damaged."""

    name: str
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        if not self.ops:
            raise Damaged("the graph has no op")
        for what, names in (("op", self.index), ("tensor", self.tensor)):
            if len(names) != len(self.ops if what == "op" else self.tensors):
                raise Damaged(f"two {what}s have one name")
        self._check_order()
        for tensor in self.tensors:
            written = tensor.name in self.producer
            if written != (tensor.role in (INTERMEDIATE, RESULT)):
                raise Damaged(f"{tensor.role} {tensor.name} is {'written by an op' if written else 'written by no op'}")

    def _check_order(self) -> None:
        written = {tensor.name for tensor in self.tensors if tensor.role in (ARGUMENT, CONSTANT)}
        for op in self.ops:
            if len({*op.inputs}) != len(op.inputs) or len({*op.outputs}) != len(op.outputs):
                raise Damaged(f"op {op.name} has a tensor twice")
            for tensor in op.tensors:
                if tensor not in self.tensor:
                    raise Damaged(f"op {op.name} has a tensor that the graph has not: {tensor}")
            for tensor in op.inputs:
                if tensor not in written:
                    raise Damaged(f"op {op.name} reads {tensor} before it is written")
            for tensor in op.outputs:
                if tensor in written:
                    raise Damaged(f"op {op.name} writes {tensor}, which was there before")
                written.add(tensor)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Index of an op, by its name."""
        return {op.name: index for index, op in enumerate(self.ops)}

    @cached_property
    def tensor(self) -> Mapping[str, Tensor]:
        """A tensor by its name."""
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def producer(self) -> Mapping[str, Op]:
        """The op that writes a tensor, by the tensor's name; no op writes arguments and constants."""
        return {tensor: op for op in self.ops for tensor in op.outputs}

    @cached_property
    def users(self) -> Mapping[str, tuple[Op, ...]]:
        """The ops that read a tensor, in order, by the tensor's name."""
        readers: dict[str, list[Op]] = {tensor.name: [] for tensor in self.tensors}
        for op in self.ops:
            for tensor in op.inputs:
                readers[tensor].append(op)
        return {tensor: tuple(ops) for tensor, ops in readers.items()}

    @cached_property
    def storages(self) -> Mapping[str, Storage]:
        """All memory of the graph by name, in the order of the tensors."""
        members: dict[str, list[Tensor]] = {}
        for tensor in self.tensors:
            members.setdefault(tensor.storage, []).append(tensor)
        reads: dict[str, set[int]] = {of: set() for of in members}
        writes: dict[str, set[int]] = {of: set() for of in members}
        for index, op in enumerate(self.ops):
            for tensors, into in ((op.inputs, reads), (op.outputs, writes)):
                for each in tensors:
                    into[self.tensor[each].storage].add(index)
        return {of: self._storage(of, parts, reads[of], writes[of]) for of, parts in members.items()}

    def _storage(self, of: str, parts: list[Tensor], reads: set[int], writes: set[int]) -> Storage:
        accesses = tuple(sorted(reads | writes))
        counted = all(part.role == INTERMEDIATE for part in parts)
        limits = [set(part.pools) for part in parts if part.pools is not None]
        allowed = tuple(sorted(set.intersection(*limits))) if limits else None
        first, last = (accesses[0], accesses[-1]) if accesses else (0, 0)
        most = max(part.size_bytes for part in parts)
        return Storage(of, most, first if counted else 0, last, accesses, tuple(sorted(writes)), counted, allowed)

    def is_free(self, tensor: str, pools: Iterable[str]) -> bool:
        """Return whether there is a choice of pool for a tensor: its memory counts and may lie in several of these."""
        storage = self.storages[self.tensor[tensor].storage]
        return storage.counted and sum(storage.may_lie_in(pool) for pool in pools) > 1

    @cached_property
    def live_bytes(self) -> tuple[int, ...]:
        """Bytes of all memory that counts and is alive, while each op runs."""
        return self._live(1)

    def _live(self, page_bytes: int) -> tuple[int, ...]:
        change = [0] * (len(self.ops) + 1)
        for storage in self.storages.values():
            if storage.counted:
                size = -(-storage.size_bytes // page_bytes) * page_bytes
                change[storage.first] += size
                change[storage.last + 1] -= size
        live, now = [], 0
        for step in change[:-1]:
            now += step
            live.append(now)
        return tuple(live)

    @property
    def peak_bytes(self) -> int:
        """The most bytes that count and are alive at once: fast memory of this size holds everything."""
        return max(self.live_bytes)

    def peak_in_pages(self, page_bytes: int) -> int:
        """Return the peak with each tensor in whole pages, in bytes: limits of fast memory are compared with this."""
        return max(self._live(page_bytes))

    @classmethod
    def from_dict(cls, value: Any, what: str = "graph") -> Graph:
        """Raise Damaged."""
        fields = table(value, what)
        ops = tuple(Op.from_dict(op) for op in rows(fields, "ops"))
        tensors = tuple(Tensor.from_dict(tensor) for tensor in rows(fields, "tensors"))
        return cls(required(fields, "name", text), ops, tensors)
