"""Intel's GPUs on trees of sysfs as i915 and xe lay them out, with counters and a clock moved by hand."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from memtui.core.readings import GPU_PACKAGE
from memtui.core.samples import Status
from memtui.probes.gpu.intel import NO_INTEL_GPU, IntelProbe, _Card, _power, intel, no_counter
from memtui.probes.power.probe import PowerProbe
from memtui.tui.presenters.power import short_name

SECOND = 1_000_000_000
XE = {"energy1_input": 5_000_000, "energy2_input": 4_000_000, "power1_max": 300_000_000, "power2_max": 0}
I915 = {"energy1_input": 7_000_000, "power1_max": 190_000_000, "power1_rated_max": 190_000_000}


class Machine:
    def __init__(self, root: Path) -> None:
        self.root, self.now_ns, self.monitors = root, SECOND, []

    def card(self, name: str, files: dict[str, int], *, address="0000:03:00.0", pci="8086:56A0") -> Path:
        """Add a card with its connector and monitors, as links from class/drm."""
        device = self.root / "devices" / "pci0000:00" / address
        monitor = device / "hwmon" / f"hwmon{len(self.monitors)}"
        monitor.mkdir(parents=True)
        (device / "uevent").write_text(f"DRIVER={name}\nPCI_ID={pci}\n")
        drm = self.root / "class" / "drm"
        for entry in (f"card{len(self.monitors)}", f"card{len(self.monitors)}-DP-1"):
            (drm / entry).mkdir(parents=True)
            (drm / entry / "device").symlink_to(device)
        (monitor / "name").write_text(f"{name}\n")
        for file, value in files.items():
            (monitor / file).write_text(f"{value}\n")
        self.monitors.append(monitor)
        return monitor

    def probe(self) -> IntelProbe:
        return IntelProbe(self.root, clock=lambda: self.now_ns)


def test_a_card_of_xe_and_one_of_i915(tmp_path):
    machine = Machine(tmp_path)
    xe, i915 = machine.card("xe", XE), machine.card("i915", I915, address="0000:83:00.0")
    probe = machine.probe()
    first = probe.read(1)
    assert [(r.device, r.scope, r.power_w, r.energy_j) for r in first] == [
        ("Intel GPU 0", "board", None, 5.0),
        ("Intel GPU 1", GPU_PACKAGE, None, 7.0),
    ]
    assert {r.status for r in first} == {Status.FAILED}
    machine.now_ns += SECOND // 2
    (xe / "energy1_input").write_text("105000000\n")
    (i915 / "energy1_input").write_text("17000000\n")
    second = probe.read(2)
    assert [(r.power_w, r.energy_j, r.limit_w, r.status) for r in second] == [
        (200, 105, 300, "ok"),
        (20, 17, 190, "ok"),
    ]
    assert second[0].name == "Intel GPU 8086:56A0"
    assert [short_name(r.device, r.scope) for r in second] == ["Intel 0", "Intel 1"]
    assert [(c.ok, c.reason) for c in probe.capabilities()] == [(True, "")]


def test_a_card_of_xe_that_counts_its_package_only(tmp_path):
    machine = Machine(tmp_path)
    machine.card("xe", {key: value for key, value in XE.items() if key != "energy1_input"})
    (reading,) = machine.probe().read(0)
    assert (reading.scope, reading.energy_j, reading.limit_w) == (GPU_PACKAGE, 4.0, None)


def test_what_is_no_counter_of_a_card(tmp_path):
    machine = Machine(tmp_path)
    machine.card("i915_gt0", I915)
    machine.card("amdgpu", {"power1_average": 1}, address="0000:43:00.0")
    machine.card("xe", {"temp1_input": 1}, address="0000:63:00.0")
    assert intel(tmp_path) is None
    (reading,) = machine.probe().read(0)
    assert (reading.device, reading.status, reading.reason) == (NO_INTEL_GPU, "unsupported", no_counter().reason)
    assert machine.probe().capabilities() == [no_counter()]


def test_a_counter_that_cannot_be_read_or_was_set_back(tmp_path):
    machine = Machine(tmp_path)
    counter = machine.card("xe", XE) / "energy1_input"
    probe = machine.probe()
    probe.read(0)
    machine.now_ns += SECOND
    counter.write_text("1\n")
    assert probe.read(1)[0].reason == "the counter was set back"
    counter.write_text("what\n")
    (reading,) = probe.read(2)
    assert (reading.energy_j, reading.reason) == (None, "the counter cannot be read")
    assert [(c.ok, c.reason) for c in probe.capabilities()] == [(False, "the counter of Intel GPU 0 cannot be read")]


def test_a_counter_that_stands_still(tmp_path):
    machine = Machine(tmp_path)
    machine.card("xe", XE)
    probe = machine.probe()
    reasons = []
    for _ in range(6):
        reasons.append(probe.read(0)[0].reason)
        machine.now_ns += 2 * SECOND
    assert reasons[1] == "the counter did not move since the reading before"
    assert reasons[-1] == "the counter stands still"


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**9)), min_size=2))
def test_power_times_time_is_what_was_counted(steps):
    card = _Card("", "board", Path(), Path(), "")
    now_ns, now_uj = 0, 10**6
    counted_j = 0.0
    for passed_ns, moved_uj in steps:
        before_ns = card.last[0] if card.last else 0
        now_ns, now_uj = now_ns + passed_ns, now_uj + moved_uj
        watts, reason = _power(card, now_ns, now_uj)
        assert (watts is None) == bool(reason)
        counted_j += (watts or 0.0) * (now_ns - before_ns) / 1e9
    begun_uj = 10**6 + steps[0][1]
    assert abs(counted_j - (card.last[1] - begun_uj) / 1e6) <= 1e-6 * max(1.0, counted_j)


def test_a_process_of_its_own_reads_them(tmp_path):
    machine = Machine(tmp_path)
    machine.card("xe", XE)
    probe = PowerProbe(sys_root=tmp_path, nvml=False)
    try:
        end = time.monotonic() + 20
        readings = probe.read(1)
        while not any(r.energy_j for r in readings) and time.monotonic() < end:
            time.sleep(0.02)
            readings = probe.read(1)
        assert [(r.device, r.energy_j) for r in readings] == [("Intel GPU 0", 5.0), ("CPU", None)]
        assert "intel sysfs" in [c.name for c in probe.capabilities() if c.ok]
    finally:
        probe.close()
