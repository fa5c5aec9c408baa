"""A captured step with its tensors in pools: buffers, and programs that run it with each tensor in its pool.

All buffers exist before anything runs, so a program is a list of calls with their tensors bound, and the time of an op
includes no allocation. Imports torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_map

from memtui.placement.torch.capture import Captured, Kernel, Layout
from memtui.placement.torch.clock import Clock
from memtui.placement.torch.gpu_timer import GpuTimer
from memtui.placement.torch.kernels import caller
from memtui.placement.torch.pools import Pool

MOST_QUEUED = 100  # calls: each is some kernels, and a GPU's queue takes about a thousand

Where = Callable[[str], str]  # pool of a storage, by name
Locate = Callable[[str, str], torch.Tensor]  # bytes of a storage in a pool


@dataclass
class Call:
    """One op with its tensors.

    Attributes:
        run: executes the op.
        wait_ns: time that emulated memory adds.
        before: copies of inputs to the device on which the op runs, as (target, source).
        after: copies of outputs to their pools, as (target, source).
        host_waits: whether starting it on a GPU takes as long as a copy: one of pageable memory.
    """

    run: Callable[[], object]
    wait_ns: float = 0.0
    before: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    after: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    host_waits: bool = False

    def start(self) -> None:
        """Copy inputs, run the op and copy outputs; on a GPU, queue all that."""
        for to, of in self.before:
            to.copy_(of, non_blocking=True)
        self.run()
        for to, of in self.after:
            to.copy_(of, non_blocking=True)


class Machine:
    """A captured step and the pools that its tensors can lie in."""

    def __init__(self, captured: Captured, pools: Sequence[Pool], clock: Clock) -> None:
        """Take the pools; the first is the fast one, on whose device ops run. Raises NoMemory."""
        self.captured, self.clock = captured, clock
        self.pools = {pool.name: pool for pool in pools}
        self.fast = pools[0]
        self._gpu = GpuTimer() if self.fast.device.type == "cuda" else None
        self._buffers: dict[tuple[str, str], torch.Tensor] = {}
        self._sizes = {name: storage.size_bytes for name, storage in captured.graph.storages.items()}

    def buffer(self, storage: str, pool: str) -> torch.Tensor:
        """Return the buffer of a storage in a pool, the same at every call. Raises NoMemory."""
        key = (storage, pool)
        if key not in self._buffers:
            self._buffers[key] = self.pools[pool].take(self._sizes[storage])
        return self._buffers[key]

    def reset(self, seed: int) -> None:
        """Put back arguments, constants and random numbers as they were before the first step."""
        torch.manual_seed(seed)
        for storage, given in self.captured.given.items():
            self.buffer(storage, self.fast.name).copy_(given)
        self.wait_for_device()

    def call(self, kernel: Kernel, where: Where, locate: Locate | None = None) -> Call:
        """Return the call of an op with its tensors in these pools."""
        locate = locate or self.buffer
        call = Call(lambda: None)
        staged: dict[str, torch.Tensor] = {}

        def reachable(storage: str) -> torch.Tensor:
            """Return the bytes of a storage, or of a copy on the device on which ops run."""
            pool = self.pools[where(storage)]
            here = locate(storage, pool.name)
            if pool.device == self.fast.device:
                return here
            if storage not in staged:
                staged[storage] = locate(storage, self.fast.name)
                if storage in kernel.read_bytes:
                    call.before.append((staged[storage], here))
                if storage in kernel.written_bytes:
                    call.after.append((here, staged[storage]))
            return staged[storage]

        def value(leaf: Any) -> Any:
            return leaf.over(reachable(leaf.storage)) if isinstance(leaf, Layout) else leaf

        arguments, keywords = tree_map(value, (kernel.arguments, dict(kernel.keywords)))
        if "device" in keywords:
            keywords["device"] = self.fast.device
        results = [None if layout is None else value(layout) for layout in kernel.new_layouts]
        call.run = caller(kernel.target, arguments, keywords, results, kernel.copies)
        copies = (*call.before, *call.after) if self._gpu else ()
        call.host_waits = any(not (t.is_cuda or t.is_pinned()) for pair in copies for t in pair)
        for amounts, which in ((kernel.read_bytes, "read_wait_ns"), (kernel.written_bytes, "write_wait_ns")):
            call.wait_ns += sum(getattr(self.pools[where(s)], which)(size) for s, size in amounts.items())
        return call

    def program(self, placed: Mapping[str, str]) -> list[Call]:
        """Return the whole step as calls; storages that are not placed lie in the fast pool."""
        where = lambda storage: placed.get(storage, self.fast.name)  # noqa: E731
        return [self.call(kernel, where) for kernel in self.captured.kernels]

    def timed_ns(self, call: Call) -> float:
        """Run a call, and return its time with copies and waits."""
        return self.times_ns([call])[0]

    def times_ns(self, calls: Sequence[Call]) -> list[float]:
        """Run calls one after another, and return the time of each with copies and waits.

        On a GPU it is the time between the ends of calls by the GPU's clock. All are queued beforehand, as far as that
        can be done: the time to start them is in none.
        """
        if self._gpu is None:
            return [self._timed_on_cpu(call) for call in calls]
        times: list[float] = []
        for host_waits, group in itertools.groupby(calls, lambda call: call.host_waits):
            starts = [call.start for call in group]
            for first in range(0, len(starts), MOST_QUEUED):
                times += self._gpu.times_ns(starts[first : first + MOST_QUEUED], host_waits=host_waits)
        return times

    def _timed_on_cpu(self, call: Call) -> float:
        clock = self.clock
        start_ns = clock.now_ns()
        call.start()
        if call.wait_ns:
            clock.wait(call.wait_ns)
        return float(clock.now_ns() - start_ns)

    def wait_for_device(self) -> None:
        if self.fast.device.type == "cuda":
            torch.cuda.synchronize()

    def results(self) -> list[torch.Tensor]:
        """Return copies in main memory of the step's results, and of values that the step changed in place."""
        left = (*self.captured.results, *self.captured.changed)
        return [layout.over(self.buffer(layout.storage, self.fast.name)).to("cpu", copy=True) for layout in left]

    def written(self, kernel: Kernel) -> list[str]:
        """Return the storages that an op overwrites, so that a second call would read other values."""
        return [*kernel.written_bytes] if kernel.in_place else []

    def refresh(self, seed: int) -> None:
        """Put back the values that the last run of the step changed, before another timed run.

        No other memory is accessed, so that caches hold the same data as in a training.
        """
        if self.captured.changed:
            self.reset(seed)
