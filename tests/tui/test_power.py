"""Power over time: what the gauge shows at a moment, and that no reading is read or added up twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memtui.core.readings import GPU_COUNTERS, PowerReading
from memtui.tui.presenters import power
from memtui.tui.presenters.power import LATE_NS, PowerLog, counter_lines
from memtui.widgets.power_gauge import PowerGauge
from memtui.widgets.views.memory import DevicePower, PowerView
from tests.support.screen_text import drawn


class _Log:
    def __init__(self, *readings: PowerReading) -> None:
        self.readings, self.devices = readings, self  # the reader of devices, too

    def power(self, first_ns: int, last_ns: int) -> list[PowerReading]:
        return [r for r in self.readings if first_ns <= r.t_ns < last_ns]


def gpu(t_ns: int, watts: float | None, reason: str = "", processes: int | None = None, scope: str = "board"):
    return PowerReading(t_ns, "GPU 0", scope, "nvml", watts, reason=reason, processes=processes)


def log_of(*readings: PowerReading, seen_until: tuple[int, ...]) -> PowerLog:
    log = PowerLog()
    for latest_ns in seen_until:
        log.update(_Log(*readings), type("Playhead", (), {"latest_ns": latest_ns}))
    return log


def test_the_label_says_how_many_share_the_board():
    second = 10**9
    log = log_of(gpu(second, 300, processes=1), gpu(2 * second, 310, processes=3), seen_until=(3 * second,))
    assert [log.view(t * second).devices[0].note for t in (1, 2)] == ["board, 1 process", "board, 3 processes"]
    cut = log_of(gpu(second, 300, scope="board (shared by MIG)"), seen_until=(second,))
    assert cut.view(second).devices[0].note == "board (shared by MIG)"
    assert log_of(gpu(second, 300), seen_until=(second,)).view(second).devices[0].note == ""


def test_a_silence_is_told_from_its_moment_on_and_no_longer():
    second = 10**9
    readings = gpu(second, 300), gpu(4 * second, None, "stale since 12:00:01"), gpu(9 * second, 280)
    log = log_of(*readings, seen_until=(10 * second,))
    shown = [(d.now_w, d.note) for t in (2, 5, 9) for d in log.view(t * second).devices]
    assert shown == [(300, ""), (None, "stale since 12:00:01"), (280, "")]


def test_counters_of_the_moment_stand_in_lines():
    """Those that are not known are left out, and a link without traffic; none of a moment without a reading."""
    second = 10**9
    busy = dict(zip(GPU_COUNTERS, (0.946, 0.14, 0.919, 0.154, 1 << 20, 2.5 * (1 << 20), 0.0, 0.0), strict=True))
    log = log_of(
        gpu(second, 300),
        replace(gpu(2 * second, 300), **busy),
        replace(gpu(3 * second, 300), **busy | {"sm_occupancy": None, "pcie_tx_bytes_per_s": None}),
        replace(gpu(4 * second, 300), **busy | {"nvlink_rx_bytes_per_s": 450e9, "nvlink_tx_bytes_per_s": 449e9}),
        gpu(5 * second, None, "stale"),
        seen_until=(9 * second,),
    )
    shares, pcie = ("SM 95 % occup. 14 %", "tensor 92 % mem 15 %"), "PCIe in 2.5M/s out 1M/s"
    assert [log.view(t * second).devices[0].counters for t in range(1, 6)] == [
        (), (*shares, pcie), ("SM 95 %", shares[1]), (*shares, pcie, "NVLink in 419G/s out 418G/s"), (),
    ]  # fmt: skip


def test_a_reading_that_is_stored_late_is_not_missed():
    late = 20 * 10**9
    log = PowerLog()
    log.update(_Log(), type("Playhead", (), {"latest_ns": late}))
    log.update(_Log(gpu(late - LATE_NS // 2, 300)), type("Playhead", (), {"latest_ns": late + 10**8}))
    assert log.view(late).devices[0].now_w == 300


@pytest.mark.parametrize(
    ("device", "height", "shown"),
    [
        (DevicePower("GPU 0", 412, 388, 455, 18_400, 700, note="board, 3 processes"), 6, "board, 3 processes"),
        (DevicePower("GPU 0", None, 388, 455, 18_400, 700, note="stale since 12:00:01"), 6, "stale since 12:00:01"),
        (DevicePower("GPU 0", None, 388, 455, 18_400, 700, note="stale since 12:00:01"), 3, "stale since 12:00:01"),
    ],
)
async def test_the_gauge_shows_it(device, height, shown):
    assert shown in await drawn(PowerGauge(PowerView((device,))), 29, height + 2)


@pytest.mark.parametrize("cursors", [(1, 2, 3, 900), (900, 5, 700), (3, 3, 1)])
def test_a_cursor_anywhere_has_the_figures_until_there(cursors):
    second, random = 10**9, np.random.default_rng(0)
    readings = [
        PowerReading(
            n * second, "GPU 0", "board", "nvml",
            None if n % 5 == 0 else float(random.integers(1, 700)), None if n % 7 == 0 else 10.0 * n,
            sm_active=n / 1000,
        )
        for n in range(1, 1000)
        if n % 35
    ]  # fmt: skip
    log = log_of(*readings, seen_until=(500 * second, 1000 * second))
    for cursor in cursors:
        before = [r for r in readings if r.t_ns <= cursor * second]
        watts = [r.power_w for r in before if r.power_w is not None]
        joules = [r.energy_j for r in before if r.energy_j is not None]
        (shown,) = log.view(cursor * second).devices
        assert shown.now_w == before[-1].power_w
        assert (shown.mean_w, shown.peak_w) == (pytest.approx(np.mean(watts)), max(watts))
        assert shown.energy_j == (joules[-1] - joules[0] if len(joules) > 1 else None)
        assert shown.counters == (() if shown.now_w is None else counter_lines(counters(before[-1])))


def counters(reading: PowerReading) -> list[float]:
    return [np.nan if (value := getattr(reading, name)) is None else value for name in GPU_COUNTERS]


def test_a_live_cursor_reads_and_adds_up_no_reading_twice(monkeypatch):
    second = 10**9
    readings = [PowerReading(n * second, "CPU package 0", "package", "rapl", 5.0, 5.0 * n) for n in range(1, 3000)]
    log, reader, added = PowerLog(), _Log(*readings), 0
    add = power._Sums.add

    def counted(sums, watts, joules):
        nonlocal added
        added += len(watts)
        add(sums, watts, joules)

    monkeypatch.setattr(power._Sums, "add", counted)
    for latest in range(1, 3000):
        log.update(reader, type("Playhead", (), {"latest_ns": latest * second}))
        monkeypatch.setattr(log, "_read", lambda first_ns, last_ns: pytest.fail("read again"))
        log.view(latest * second)
    assert added == len(readings)


def test_a_cursor_that_stands_still_reads_its_counters_once(monkeypatch):
    second, reads = 10**9, []
    readings = [
        replace(gpu(n * second, 300), device=f"GPU {board}", sm_active=n / 10) for n in (1, 2, 3) for board in (0, 1)
    ]
    log = log_of(*readings, seen_until=(4 * second,))
    read = log._read
    monkeypatch.setattr(log, "_read", lambda first_ns, last_ns: (reads.append(first_ns), read(first_ns, last_ns))[1])
    for _ in range(3):
        assert [device.counters for device in log.view(second).devices] == [("SM 10 %",)] * 2
    assert reads == [second]
    assert [device.counters for device in log.view(2 * second).devices] == [("SM 20 %",)] * 2
