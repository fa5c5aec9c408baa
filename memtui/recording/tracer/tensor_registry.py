"""Tensors whose use is known at one moment: of modules and optimisers, inputs, and others that Python references."""

from __future__ import annotations

import gc
import itertools
import sys
import time
import weakref
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.core.procfs import PROC, rss_bytes_of
from memtui.core.tracer_messages import MAIN_MEMORY

WEIGHTS, GRADIENTS, ACTIVATIONS, OPTIMISER_STATE, INPUTS, BUFFERS, TEMPORARIES, UNKNOWN = range(len(CATEGORIES))
_TENSORS = (torch.Tensor, nn.Parameter)  # the tensors inside a subclass are among them
_MOST_IN_ATTRIBUTE = 64  # of a data set: a list of thousands of samples is not searched
_REST_FACTOR = 100  # a search is repeated after this many times its duration ...
_REST_FACTOR_GROWN = 10  # ... or after this many, where resident memory grew by more than this share since then
_GROWN_SHARE = 0.05


class Storage(NamedTuple):
    """A storage: its bytes, the layer it belongs to, and its part of that ("weight", "weight exp_avg")."""

    size_bytes: int
    layer: str = ""
    part: str = ""


Storages = dict[int, Storage]  # by address


@dataclass(frozen=True, slots=True)
class TensorRegistry:
    """Storages whose use is known at one moment, by address."""

    weights: Storages = field(default_factory=dict)
    gradients: Storages = field(default_factory=dict)
    optimiser_state: Storages = field(default_factory=dict)
    buffers: Storages = field(default_factory=dict)
    inputs: Storages = field(default_factory=dict)
    others: Storages = field(default_factory=dict)
    """Of tensors that belong to no model and no optimiser: a data set, a second copy of the weights."""
    devices: dict[int, str] = field(default_factory=dict)
    """Of the addresses that are not in main memory. Those of GPUs are not addresses of main memory."""

    def device(self, ptr: int) -> str:
        """Return the device of an address."""
        return self.devices.get(ptr, MAIN_MEMORY)

    def by_category(self) -> tuple[tuple[int, Storages], ...]:
        """Return (category, storages): where an address is in several, the first one counts."""
        return (
            (WEIGHTS, self.weights),
            (GRADIENTS, self.gradients),
            (OPTIMISER_STATE, self.optimiser_state),
            (BUFFERS, self.buffers),
            (INPUTS, self.inputs),
            (UNKNOWN, self.others),
        )

    def find(self, ptr: int) -> tuple[int, str] | None:
        """Return (category, layer) of an address, or None."""
        for category, storages in self.by_category():
            if ptr in storages:
                return category, storages[ptr].layer
        return None


_Owners = dict[int, tuple[torch.Tensor, str, str]]  # by identity, as tensors compare by value: layer and name


def build_registry(
    modules: Iterable[nn.Module],
    optimizers: Iterable[torch.optim.Optimizer],
    inputs: object = (),
    others: Iterable[torch.Tensor] = (),
    holders: Mapping[int, str] | None = None,
) -> TensorRegistry:
    """Return the storages of modules, optimisers, nested ``inputs`` and ``others``; each storage once.

    ``holders`` names the data set of an address: a name for what belongs to no module and no optimiser.
    A parameter that an optimiser has and no module is a weight without a layer.
    """
    registry = TensorRegistry()
    seen: set[int] = set()
    named = list(named_modules(modules))
    optimizers = list(optimizers)
    owners = _owners(named, optimizers)
    for tensor, layer, name in owners.values():
        _take(registry, registry.weights, tensor, layer, name, seen)
    for tensor, layer, name in owners.values():
        if tensor.grad is not None:
            _take(registry, registry.gradients, tensor.grad, layer, name, seen)
    for optimizer in optimizers:
        for tensor, layer, name in _state_of(optimizer, owners):
            _take(registry, registry.optimiser_state, tensor, layer, name, seen)
    for layer, module in named:
        for name, buffer in module.named_buffers(recurse=False):
            _take(registry, registry.buffers, buffer, layer, name, seen)
    for storages, loose in ((registry.inputs, tensors_in(inputs)), (registry.others, others)):
        for tensor in loose:
            holder = (holders or {}).get(located(tensor)[1])
            _take(registry, storages, tensor, "", f"{described(tensor)} of {holder}" if holder else None, seen)
    return registry


def _owners(named: Iterable[tuple[str, nn.Module]], optimizers: Iterable[torch.optim.Optimizer]) -> _Owners:
    """Return the parameters of modules and optimisers."""
    owners: _Owners = {}
    for layer, module in named:
        for name, parameter in module.named_parameters(recurse=False):
            owners.setdefault(id(parameter), (parameter, layer, name))
    for optimizer in optimizers:
        for tensor in tensors_in([group["params"] for group in optimizer.param_groups]):
            owners.setdefault(id(tensor), (tensor, "", described(tensor)))
    return owners


def _state_of(optimizer: torch.optim.Optimizer, owners: _Owners) -> Iterator[tuple[torch.Tensor, str, str]]:
    """Yield the tensors of an optimiser's state with layer and name."""
    for owner, state in list(optimizer.state.items()):
        _, layer, name = owners.get(id(owner), (owner, "", ""))
        for key, part in state.items() if isinstance(state, dict) else [("", state)]:
            for tensor in tensors_in(part):
                yield tensor, layer, f"{name} {key}".strip()


def _take(
    registry: TensorRegistry, storages: Storages, tensor: torch.Tensor, layer: str, part: str | None, seen: set[int]
) -> None:
    storage, ptr, size_bytes = located(tensor)
    if storage is not None and size_bytes and ptr and ptr not in seen:
        seen.add(ptr)
        storages[ptr] = Storage(size_bytes, layer, described(tensor) if part is None else part)
        if (device := device_of(tensor)) != MAIN_MEMORY:
            registry.devices[ptr] = device


def described(tensor: torch.Tensor) -> str:
    """Return a description of a tensor without a name: type and shape of its numbers.

    A tensor that is part of a larger storage is described by its type alone.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    _, _, size_bytes = located(tensor)
    whole = size_bytes == tensor.numel() * tensor.element_size()
    return f"{dtype}{list(tensor.shape)}" if whole else dtype


def located(tensor: torch.Tensor) -> tuple[torch.UntypedStorage | None, int, int]:
    """Return (storage, its address, its bytes); (None, 0, 0) of sparse and other tensors without a storage."""
    try:
        storage = tensor.untyped_storage()
        return storage, storage.data_ptr(), storage.nbytes()
    except (NotImplementedError, RuntimeError):
        return None, 0, 0


def device_of(tensor: torch.Tensor) -> str:
    """Return the device of a tensor."""
    return MAIN_MEMORY if tensor.is_cpu else str(tensor.device)


class LastingTensors:
    """Plain tensors and parameters that Python references for longer than a step.

    Only the garbage collector lists them, which takes some tens of milliseconds. So they are listed now and then, and
    sooner where memory grew (a data set was loaded). Only tensors of the last list that still exist count: a batch is
    not among them.
    """

    def __init__(self) -> None:
        self._tensors: list[weakref.ref[torch.Tensor]] = []
        self._datasets: list[weakref.ref[Any]] = []
        self._ended_ns = self._took_ns = self._rss_bytes = 0  # the last search, and what was resident then

    def now(self) -> list[torch.Tensor]:
        """Return the lasting tensors; to be called when a step begins or ends."""
        start_ns = time.monotonic_ns()
        lasting = [tensor for ref in self._tensors if (tensor := ref()) is not None]
        if self._is_due(start_ns):
            listed = _tensors_and_datasets()
            self._tensors = [weakref.ref(item) for item in listed if type(item) in _TENSORS]
            self._datasets = _references(item for item in listed if type(item) not in _TENSORS)
            del listed
            self._ended_ns, self._rss_bytes = time.monotonic_ns(), _rss_bytes()
            self._took_ns = self._ended_ns - start_ns
        return lasting

    def _is_due(self, now_ns: int) -> bool:
        rested_ns = now_ns - self._ended_ns
        if rested_ns >= _REST_FACTOR * self._took_ns:
            return True
        return rested_ns >= _REST_FACTOR_GROWN * self._took_ns and _rss_bytes() > (1 + _GROWN_SHARE) * self._rss_bytes

    def holders(self) -> dict[int, str]:
        """Return the attribute of a data set by address of its tensors now: "TensorDataset.tensors"."""
        names: dict[int, str] = {}
        for ref in self._datasets:
            dataset = ref()
            for name, value in getattr(dataset, "__dict__", {}).copy().items():
                if isinstance(value, torch.Tensor) or (
                    isinstance(value, (list, tuple, dict)) and len(value) <= _MOST_IN_ATTRIBUTE
                ):
                    for tensor in tensors_in(value):
                        names.setdefault(located(tensor)[1], f"{type(dataset).__name__}.{name}")
        return names


def _rss_bytes() -> int:
    """Return what is resident of this process; 0 where that cannot be read."""
    try:
        return rss_bytes_of(PROC / "self")
    except (OSError, ValueError, IndexError):
        return 0


class _Wanted(dict[type, bool]):
    """Whether a type is one of plain tensors or of data sets; runs no code of the program."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(_TENSORS, True))
        self._dataset = getattr(sys.modules.get("torch.utils.data"), "Dataset", None)

    def __missing__(self, kind: type) -> bool:
        self[kind] = self._dataset in kind.__mro__
        return self[kind]


def _tensors_and_datasets() -> list[Any]:
    """Return the plain tensors and data sets among all objects, in one pass without Python code for each object."""
    objects = gc.get_objects()
    return list(itertools.compress(objects, map(_Wanted().__getitem__, map(type, objects))))


def _references(objects: Iterable[Any]) -> list[weakref.ref[Any]]:
    references = []
    for item in objects:
        with suppress(TypeError):  # a class with slots may not allow it
            references.append(weakref.ref(item))
    return references


class _StorageRef(weakref.ref[Any]):
    __slots__ = ("ptr",)
    ptr: int


class Departures:
    """Notes when the storages of some tensors are freed: torch's profiler has no events of memory older than itself."""

    def __init__(self, tensors: Iterable[torch.Tensor], wanted: Container[int]) -> None:
        """Watch the storages at the addresses that are wanted."""
        self.freed_ns: dict[int, int] = {}
        """By address; CLOCK_MONOTONIC."""
        self._refs: list[_StorageRef] = []
        for tensor in tensors:
            storage, ptr, _ = located(tensor)
            if storage is not None and ptr in wanted:
                self._refs.append(_StorageRef(storage, self._gone))
                self._refs[-1].ptr = ptr

    def _gone(self, ref: Any) -> None:
        self.freed_ns[ref.ptr] = time.monotonic_ns()


def tensors_in(holder: object) -> Iterator[torch.Tensor]:
    """Return all tensors in nested containers."""
    stack = [holder]
    while stack:
        item = stack.pop()
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, dict):
            stack.extend(reversed(list(item.values())))
        elif isinstance(item, (list, tuple)):
            stack.extend(reversed(item))


def named_modules(modules: Iterable[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """Yield (name, module) of all modules and those inside, each once.

    The name is the path from the root, or the class of the root itself; with several roots their classes come first.
    """
    roots = list(modules)
    seen: set[int] = set()
    titles: dict[str, int] = {}
    for root in roots:
        title = type(root).__name__
        titles[title] = titles.get(title, 0) + 1
        if titles[title] > 1:
            title = f"{title}#{titles[title]}"
        for path, module in root.named_modules():
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield (".".join(filter(None, (title, path))) if len(roots) > 1 else path or title), module
