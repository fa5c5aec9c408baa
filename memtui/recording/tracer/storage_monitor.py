"""A cheap monitor of tensor memory, operator by operator, while a training runs; used inside the traced process.

It sees the storages that operators return, on every device, and when they are freed; not scratch memory inside an
operator.
"""

from __future__ import annotations

import os
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.tensor_usage import stretches
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.recording.tracer import tensor_registry
from memtui.recording.tracer.progress_batch import Seen
from memtui.recording.tracer.tensor_registry import (
    ACTIVATIONS,
    GRADIENTS,
    INPUTS,
    TEMPORARIES,
    UNKNOWN,
    TensorRegistry,
    located,
)
from memtui.recording.tracer.torch_private import OperatorMode, in_backward, may_allocate, watching_problem

LASTING_EVERY_NS = 1_000_000_000  # how often the lasting tensors are updated
LEAST_BYTES = 4096  # of a tensor of unknown use, to be counted in the steps after the one that allocated it
MOST_OTHERS = 1024  # of the tensors that existed before anything was watched: the largest
MOST_EVENTS = 1 << 17  # of one step: a bound on memory, whatever runs between two steps of the optimiser
_TRIES, _LAYERS = 5, 6  # to measure what watching an operator costs here
_monotonic_ns = time.monotonic_ns


_Event = tuple[int, int, int, Any, bool]  # when, address, bytes or -1 for a free, operator, in backward


class _Alive(weakref.ref[Any]):
    """Weak reference to a storage, with its address and size."""

    __slots__ = ("ptr", "size_bytes")
    ptr: int
    size_bytes: int


class _Operators(OperatorMode):
    """Notes storages that are allocated and freed."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[_Event] = []
        self.alive: dict[int, _Alive] = {}
        self.ignored: set[int] = set()  # addresses of lasting tensors
        self.devices: dict[int, str] = {}  # of addresses that are not in main memory
        self._allocating: dict[Any, bool] = {}  # by operator
        self.calls = 0
        self.noting = False
        self.broken = ""
        self.by_hand = 0  # open backward passes by hand

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs) if kwargs else func(*args)
        if self.noting:
            try:
                self.calls += 1
                allocates = self._allocating.get(func)
                if allocates is None:
                    allocates = self._allocating[func] = may_allocate(func)
                if not allocates:
                    return out
                if isinstance(out, torch.Tensor):
                    self._see(out, func, args)
                elif isinstance(out, (tuple, list)):
                    for item in out:
                        if isinstance(item, torch.Tensor):
                            self._see(item, func, args)
            except Exception as error:  # the program matters more than its trace
                self.noting, self.broken = False, f"{type(error).__name__}: {error}"
        return out

    def _see(self, tensor: torch.Tensor, func: Any, args: Any) -> None:
        if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
            return  # the tensors inside a subclass are seen by themselves
        storage, ptr, size_bytes = located(tensor)
        if storage is None or not ptr or ptr in self.alive or ptr in self.ignored:
            return
        if len(self.events) >= MOST_EVENTS:
            self.noting = False
            self.events.clear()
            return
        self.watch_storage(tensor, storage, ptr, size_bytes)
        if any(isinstance(argument, torch.Tensor) and located(argument)[1] == ptr for argument in args):
            return  # an older storage, of which this is a view or a new value
        self.events.append((_monotonic_ns(), ptr, size_bytes, func, self.by_hand > 0 or in_backward()))

    def watch_storage(self, tensor: torch.Tensor, storage: torch.UntypedStorage, ptr: int, size_bytes: int) -> None:
        """Note when a storage is freed."""
        alive = self.alive[ptr] = _Alive(storage, self._gone)
        alive.ptr, alive.size_bytes = ptr, size_bytes
        if (device := tensor_registry.device_of(tensor)) != MAIN_MEMORY:
            self.devices[ptr] = device
        elif self.devices:
            self.devices.pop(ptr, None)

    def _gone(self, ref: Any) -> None:
        ptr = ref.ptr
        if self.alive.get(ptr) is ref:
            del self.alive[ptr]
            if self.noting:
                self.events.append((_monotonic_ns(), ptr, -1, None, False))


class TensorWatch:
    """Watches one training step after another.

    Between ``start`` and ``end`` a step is watched; ``end`` returns the stretches of ``tensor_usage``.
    """

    def __init__(self) -> None:
        self._mode = _Operators()
        self._per_call_ns = 0
        self._lasting: TensorRegistry = TensorRegistry()
        self._lasting_ns = -LASTING_EVERY_NS
        self._existing: dict[int, tuple[int, int, str]] = {}  # lasting tensors: (bytes, category, device)
        self._older = 0  # count of events, the first ones, for tensors of earlier steps
        self._notes: list[tuple[int, int, set[int]]] = []  # row, category, addresses of that category at that moment
        self._start_ns = 0
        self.cost_ns = 0
        """What watching the step that ended last took at least."""
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _close(mine()))

    def problem(self) -> str:
        """Return why nothing can be watched; empty when it can."""
        return watching_problem() or (f"it failed: {self._mode.broken}" if self._mode.broken else "")

    def start(self, lasts: Callable[[], TensorRegistry]) -> bool:
        """Watch a step; ``lasts`` returns lasting tensors. False where the program watches its operators itself."""
        start_ns = _monotonic_ns()
        mode = self._mode
        if not mode.switch_on():
            return False
        self._per_call_ns = self._per_call_ns or self._measure()
        if start_ns - self._lasting_ns >= LASTING_EVERY_NS:
            self._lasting, self._lasting_ns = lasts(), start_ns
        lasting = replace(self._lasting, gradients={})
        self._existing = {
            ptr: (storage.size_bytes, category, lasting.device(ptr))
            for category, storages in reversed(lasting.by_category())
            for ptr, storage in storages.items()
        }
        mode.ignored = set(self._existing)
        older = [ref for ref in mode.alive.values() if ref.size_bytes >= LEAST_BYTES and ref.ptr not in mode.ignored]
        mode.alive = {ref.ptr: ref for ref in older}
        mode.devices = {ptr: device for ptr, device in mode.devices.items() if ptr in mode.alive}
        self._start_ns = _monotonic_ns()
        mode.events, mode.calls = [(self._start_ns, ref.ptr, ref.size_bytes, None, False) for ref in older], 0
        self._older = len(older)
        self._notes = []
        mode.noting = True
        self.cost_ns = _monotonic_ns() - start_ns
        return True

    def add_others(self, tensors: Iterable[torch.Tensor]) -> None:
        """Add tensors that exist before anything is watched, of any use: the largest that are not known yet."""
        mode, candidates = self._mode, dict[int, tuple[int, torch.Tensor, torch.UntypedStorage]]()
        for tensor in tensors:
            storage, ptr, size_bytes = located(tensor)
            if storage is not None and ptr and size_bytes >= LEAST_BYTES and ptr not in mode.alive:
                candidates[ptr] = size_bytes, tensor, storage
        largest = sorted(candidates.items(), key=lambda item: -item[1][0])[:MOST_OTHERS]
        for ptr, (size_bytes, tensor, storage) in largest:
            mode.watch_storage(tensor, storage, ptr, size_bytes)

    @property
    def by_hand(self) -> int:
        """Count of open backward passes that the program computes itself."""
        return self._mode.by_hand

    @by_hand.setter
    def by_hand(self, depth: int) -> None:
        self._mode.by_hand = depth

    def add_gradients(self, parameters: Iterable[Any]) -> None:
        """Add gradients that exist now: when a step begins, and before the optimiser uses them."""
        start_ns = _monotonic_ns()
        mode, addresses = self._mode, set()
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            storage, ptr, size_bytes = located(gradient)
            if storage is None or not ptr or ptr in addresses:  # several may lie in one storage
                continue
            addresses.add(ptr)
            if ptr in mode.ignored or ptr in mode.alive:
                continue
            mode.watch_storage(gradient, storage, ptr, size_bytes)
            if mode.noting:
                mode.events.append((self._start_ns, ptr, size_bytes, None, False))
        self._notes.append((len(mode.events), GRADIENTS, addresses))
        self.cost_ns += _monotonic_ns() - start_ns

    def add_inputs(self, tensors: Iterable[Any]) -> None:
        """Add the tensors that the model was called with."""
        self._notes.append((len(self._mode.events), INPUTS, {located(tensor)[1] for tensor in tensors}))

    def end(self, step: int) -> Mapping[str, Seen] | None:
        """Return the tensor memory in the step that ends now, by device; None: not watched."""
        end = _monotonic_ns()
        mode = self._mode
        if not mode.noting:
            self.pause()
            return None
        mode.noting = False
        events, mode.events = mode.events, []
        usage = self._usage(events, end, step)
        off = self.pause()
        self.cost_ns += mode.calls * self._per_call_ns + _monotonic_ns() - end
        return usage if off else None

    def pause(self) -> bool:
        """Watch nothing; the program runs as without the monitor."""
        self._mode.noting = False
        return self._mode.switch_off()

    def close(self) -> None:
        """Stop for good."""
        self.pause()
        self._mode.alive.clear()
        self._mode.broken = self._mode.broken or "closed"

    def _measure(self) -> int:
        """Return the nanoseconds that watching adds to an operator on this machine."""
        mode = self._mode
        sample = _Sample()
        mode.calls, mode.noting = 0, True
        watched_ns = min(sample.time_ns() for _ in range(_TRIES))
        calls = mode.calls // _TRIES
        mode.noting = False
        mode.switch_off()
        unwatched_ns = min(sample.time_ns() for _ in range(_TRIES))
        mode.switch_on()
        return max(1, (watched_ns - unwatched_ns) // max(1, calls))

    def _usage(self, events: list[_Event], end_ns: int, step: int) -> dict[str, Seen]:
        """Classify each storage by its lifetime, and add up by device. The rules are those of ``step_recorder``."""
        backward = _starts_of(events)
        born: dict[int, int] = {}  # address: row
        category = [TEMPORARIES] * len(events)
        sizes = [0] * len(events)
        for row, (_, ptr, size_bytes, _, _) in enumerate(events):
            if size_bytes >= 0:
                born[ptr] = row
                sizes[row] = size_bytes
                continue
            first = born.pop(ptr, None)
            if first is not None:
                sizes[row] = -sizes[first]
                category[first] = category[row] = self._kind(events, first, row, backward)
        for first in born.values():
            category[first] = self._kind(events, first, None, backward)
        base = {MAIN_MEMORY: np.zeros(len(CATEGORIES), np.int64)}
        for size_bytes, kind, device in self._existing.values():
            base.setdefault(device, np.zeros(len(CATEGORIES), np.int64))[kind] += size_bytes
        changes = np.zeros((len(events) + 1, len(CATEGORIES)), np.int64)
        if events:
            changes[np.arange(1, len(events) + 1), category] = sizes
        devices = self._mode.devices
        if not devices and len(base) == 1:
            return {MAIN_MEMORY: self._added_up(events, changes, base[MAIN_MEMORY], end_ns, step)}
        where = [devices.get(event[1], MAIN_MEMORY) for event in events]
        zero, by_device = np.zeros(len(CATEGORIES), np.int64), {}
        for device in {**base, **dict.fromkeys(where)}:
            own = [n for n, d in enumerate(where) if d == device]
            of_device = np.concatenate((changes[:1], changes[1:][own]))
            some = [events[n] for n in own]
            by_device[device] = self._added_up(some, of_device, base.get(device, zero), end_ns, step)
        return by_device

    def _added_up(
        self, events: list[_Event], changes: NDArray[np.int64], base: NDArray[np.int64], end_ns: int, step: int
    ) -> Seen:
        """Return the sums of one device: ``changes`` is i8[1 + events, categories], the first for ``base``."""
        changes[0] = base
        # The event of a gradient that existed before has the time of the start.
        t_ns = np.maximum.accumulate(np.array([self._start_ns, *(event[0] for event in events)], np.int64))
        sums = np.cumsum(changes, axis=0)
        rows = np.arange(-1, len(events))  # stands for the operator until the few that are needed are named
        columns = stretches(t_ns, sums, rows, self._start_ns, end_ns, step)
        names: dict[str, int] = {}
        for column, row in enumerate(columns[3].tolist()):
            while row >= 0 and events[row][3] is None:
                row -= 1
            columns[3, column] = names.setdefault(events[row][3].name(), len(names)) if row >= 0 else -1
        return columns, tuple(names)

    def _kind(self, events: list[_Event], first: int, last: int | None, backward: list[int]) -> int:
        ptr = events[first][1]
        for row, kind, addresses in self._notes:
            if ptr in addresses and first < row and (last is None or row <= last):
                return kind
        if first < self._older:
            return UNKNOWN
        following = bisect_right(backward, first)
        if not events[first][4] and following < len(backward) and (last is None or last > backward[following]):
            return ACTIVATIONS
        return UNKNOWN if last is None else TEMPORARIES


def _close(watch: TensorWatch | None) -> None:
    if watch is not None:
        watch.close()


def _starts_of(events: list[_Event]) -> list[int]:
    """Return the rows with which backward passes begin; a free belongs to the pass around it."""
    starts, inside = [], False
    for row, event in enumerate(events):
        if event[2] < 0:
            continue
        if event[4] and not inside:
            starts.append(row)
        inside = event[4]
    return starts


class _Sample:
    """A small training step: operators forward and backward, which allocate tensors and free them."""

    def __init__(self) -> None:
        self._weights = [torch.ones(4, 4, requires_grad=True) for _ in range(_LAYERS)]
        self._x = torch.ones(4, 4)

    def time_ns(self) -> int:
        start_ns = _monotonic_ns()
        with torch.enable_grad():
            x = self._x
            for weight in self._weights:
                x = torch.nn.functional.linear(x, weight).relu()
            torch.autograd.grad(x.sum(), self._weights)
        return _monotonic_ns() - start_ns
