"""The load of a GPU, on a simulated device: calls are queued by the host and run one after another on the device."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from memtui.bench import loop
from memtui.bench.plan import BenchPlan

US, MS = 1000, 1_000_000
WAKE_NS = 60 * US  # until a host that waits for the device goes on
PLAN = BenchPlan(windows=3, seconds=0.5, warm_up_s=5.0)


class Machine:
    """A host and a device, each with a time of its own until the host waits.

    Attributes:
        now: of the host.
        free_at: when the device has ended all that was queued.
        idle_ns: time in which the device had nothing to do after its first call.
    """

    def __init__(self, launch_ns: int, call_ns: int) -> None:
        self.now, self.free_at, self.idle_ns = 0, 0, 0
        self._launch_ns, self._call_ns = launch_ns, call_ns
        self.cuda = SimpleNamespace(
            Event=lambda enable_timing: Event(self), synchronize=lambda: self.wait(self.free_at)
        )

    def call(self, _input, _weights) -> None:
        self.now += self._launch_ns
        if self.free_at:
            self.idle_ns += max(0, self.now - self.free_at)
        self.free_at = max(self.free_at, self.now) + self._call_ns

    def wait(self, until: int) -> None:
        if until > self.now:
            self.now = until + WAKE_NS
        else:
            self.now += US


class Event:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def record(self) -> None:
        self.at = max(self._machine.free_at, self._machine.now)

    def synchronize(self) -> None:
        self._machine.wait(self.at)

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) / MS


def measured(machine: Machine, monkeypatch):
    monkeypatch.setattr(loop.time, "monotonic_ns", lambda: machine.now)
    operator = SimpleNamespace(bind=lambda torch, parameters: machine.call)
    configuration = SimpleNamespace(operator=operator, parameters={}, dtype="fp32", both_ways=False)
    torch = SimpleNamespace(cuda=machine.cuda, inference_mode=nullcontext)
    forever = SimpleNamespace(walk=lambda: (iter(int, 1), iter(int, 1)))
    load = loop.Load(torch, "cuda:0", configuration, forever)

    def settled() -> bool:
        machine.now += 5 * US
        return False

    idle: list[int] = []

    def send(phase) -> None:
        machine.now += 300 * US  # a message to the other process takes a while
        if phase.at == "window":
            idle.append(machine.idle_ns)

    windows, is_settled, share = loop.measure(load, PLAN, send, settled)
    return windows, is_settled, share, machine.idle_ns - idle[0]


@pytest.mark.parametrize("call_us", [20, 130, 900, 30_000])
def test_a_gpu_never_waits_during_windows(call_us, monkeypatch):
    windows, is_settled, share, idle_ns = measured(Machine(6 * US, call_us * US), monkeypatch)
    assert idle_ns == 0
    assert is_settled
    assert share < 0.95
    assert len(windows) == 3
    for window in windows:
        assert window.wall_ns / window.calls == pytest.approx(call_us * US, rel=1e-4)
        assert window.block_ns == pytest.approx([call_us * US] * len(window.block_ns), rel=1e-6)
        assert window.busy_ns == pytest.approx(window.calls * call_us * US, rel=1e-6)
        assert window.wall_ns >= 0.499e9


@pytest.mark.parametrize(("launch_us", "call_us"), [(12, 1), (12, 5), (500, 130)])
def test_a_host_that_is_slower_than_the_gpu_is_seen(launch_us, call_us, monkeypatch):
    windows, _, share, idle_ns = measured(Machine(launch_us * US, call_us * US), monkeypatch)
    assert share > 0.95
    assert idle_ns > 0
    assert windows[0].wall_ns / windows[0].calls == pytest.approx(launch_us * US, rel=0.02)
