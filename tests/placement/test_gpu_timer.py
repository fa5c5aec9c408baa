"""The clock of a GPU, which is a machine of the test's own: a queue, and a host that takes time to fill it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from memtui.placement.torch.gpu_timer import LONGEST_SLEEP_NS, GpuTimer

US = 1000


class Gpu:
    """Begins work when it is queued and all before it has ended; stands for ``torch.cuda``."""

    def __init__(self) -> None:
        self.host_ns = self.idle_from_ns = self.slept_ns = 0

    def now_ns(self) -> int:
        return self.host_ns

    def work(self, host_ns: int, gpu_ns: int, *, waits: bool = False):
        def call() -> None:
            self.host_ns += host_ns
            self.idle_from_ns = max(self.host_ns, self.idle_from_ns) + gpu_ns
            if waits:
                self.host_ns = self.idle_from_ns

        return call

    def synchronize(self) -> None:
        self.host_ns = max(self.host_ns, self.idle_from_ns)

    def _sleep(self, cycles: int) -> None:
        self.slept_ns = cycles // 2
        self.work(US, self.slept_ns)()

    def Event(self, enable_timing: bool):  # noqa: N802
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.at_ns = gpu, 0

    def record(self) -> None:
        self.at_ns = max(self.gpu.host_ns, self.gpu.idle_from_ns)

    def synchronize(self) -> None:
        self.gpu.host_ns = max(self.gpu.host_ns, self.at_ns)

    def elapsed_time(self, other: Event) -> float:
        return (other.at_ns - self.at_ns) / 1e6


def timer() -> tuple[Gpu, GpuTimer]:
    gpu = Gpu()
    return gpu, GpuTimer(gpu, gpu.now_ns)


def test_the_time_to_start_calls_is_in_no_time() -> None:
    gpu, own = timer()
    calls = [gpu.work(12 * US, gpu_us * US) for gpu_us in (3, 40, 5)]
    assert own.times_ns(calls) == pytest.approx([15 * US, 49 * US, 5 * US])  # nobody knew how long to sleep
    for _ in range(3):
        assert own.times_ns(calls) == pytest.approx([3 * US, 40 * US, 5 * US])
    assert 36 * US < gpu.slept_ns < 2 * 36 * US


def test_the_sleep_grows_with_the_calls_and_forgets_an_accident() -> None:
    gpu, own = timer()
    own.times_ns([gpu.work(10 * US, US)])
    own.times_ns([gpu.work(10 * US, US)] * 50)
    assert gpu.slept_ns == pytest.approx(50 * 15 * US)
    own.times_ns([gpu.work(10**9, US)])
    own.times_ns([gpu.work(10 * US, US)])
    assert gpu.slept_ns == LONGEST_SLEEP_NS
    for _ in range(200):
        own.times_ns([gpu.work(10 * US, US)])
    assert gpu.slept_ns == pytest.approx(15 * US, rel=0.05)


def test_a_call_that_keeps_the_host_is_timed_as_it_is() -> None:
    gpu, own = timer()
    own.times_ns([gpu.work(10 * US, US)])
    before = gpu.slept_ns
    assert own.times_ns([gpu.work(5 * US, 300 * US, waits=True)], host_waits=True) == pytest.approx([305 * US])
    assert gpu.slept_ns == before
