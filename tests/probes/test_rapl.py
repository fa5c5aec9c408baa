"""The RAPL probe on trees as the kernel lays them out, with counters and a clock moved by hand."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from memtui.probes.power.rapl import NO_ZONE, RaplProbe, _moved

RANGE_UJ = 262_143_328_850
SECOND = 1_000_000_000


class Machine:
    """A sysfs tree with RAPL zones, and a clock."""

    def __init__(self, root: Path, zones: dict[str, tuple[str, int]]) -> None:
        self.root, self.now_ns = root, 5 * SECOND
        self.powercap = root / "class" / "powercap"
        for directory, (name, energy) in zones.items():
            real = root / "devices" / "virtual" / "powercap" / "intel-rapl" / directory
            real.mkdir(parents=True)
            (real / "name").write_text(f"{name}\n")
            (real / "energy_uj").write_text(f"{energy}\n")
            (real / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
            self.powercap.mkdir(parents=True, exist_ok=True)
            (self.powercap / directory).symlink_to(real)
        if zones:
            (self.powercap / "intel-rapl").mkdir()  # the driver itself, no zone

    def clock(self) -> int:
        return self.now_ns

    def probe(self) -> RaplProbe:
        return RaplProbe(sys_root=self.root, clock=self.clock)

    def count(self, directory: str, energy: int, after_ns: int = SECOND) -> None:
        (self.powercap / directory / "energy_uj").write_text(f"{energy}\n")
        self.now_ns += after_ns


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Without root's right to read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_one_package(tmp_path):
    machine = Machine(tmp_path, {"intel-rapl:0": ("package-0", 1_000_000)})
    probe = machine.probe()
    machine.count("intel-rapl:0", 43_000_000)
    (reading,) = probe.read(77)
    assert (reading.t_ns, reading.device, reading.scope, reading.source) == (77, "CPU package 0", "package", "rapl")
    assert (reading.power_w, reading.energy_j, reading.status, reading.reason) == (42.0, 42.0, "ok", "")
    machine.count("intel-rapl:0", 53_000_000, SECOND // 2)
    (reading,) = probe.read(78)
    assert (reading.power_w, reading.energy_j) == (20.0, 52.0)
    assert probe.capabilities()[0].ok
    probe.close()
    assert probe.read(79)[0].reason == "the probe is closed"


def test_two_packages_with_their_parts_in_order(tmp_path):
    zones = {
        "intel-rapl:1": ("package-1", 0),
        "intel-rapl:0": ("package-0", 0),
        "intel-rapl:0:1": ("dram", 0),
        "intel-rapl:0:0": ("core", 0),
        "intel-rapl:1:0": ("dram", 0),
        "intel-rapl:2": ("psys", 0),
        "intel-rapl:10": ("package-2-die-1", 0),
        "intel-rapl-mmio:0": ("package-0", 0),  # the same counter by another way: not a second package
    }
    machine = Machine(tmp_path, zones)
    probe = machine.probe()
    for number, directory in enumerate(zones, start=1):
        machine.count(directory, number * 1_000_000, 0)
    machine.now_ns += SECOND
    readings = probe.read(0)
    assert [(reading.device, reading.scope) for reading in readings] == [
        ("CPU package 0", "package"),
        ("CPU package 0", "core"),
        ("CPU package 0", "dram"),
        ("CPU package 1", "package"),
        ("CPU package 1", "dram"),
        ("platform", "psys"),
        ("CPU package 2 die 1", "package"),
    ]
    assert [reading.power_w for reading in readings] == [2.0, 4.0, 3.0, 1.0, 5.0, 6.0, 7.0]


def test_a_counter_that_turns(tmp_path):
    machine = Machine(tmp_path, {"intel-rapl:0": ("package-0", RANGE_UJ - 10_000_000)})
    probe = machine.probe()
    machine.count("intel-rapl:0", 89_999_999)  # 10 J to the end, one step to 0, 89.999999 J from there
    (reading,) = probe.read(0)
    assert (reading.power_w, reading.energy_j, reading.status) == (100.0, 100.0, "ok")


@given(
    before=st.integers(0, RANGE_UJ),
    watts=st.integers(1, 900),
    seconds=st.floats(0.01, 200),
)
def test_any_move_within_the_range_is_found_again(before, watts, seconds):
    moved = int(watts * seconds * 1e6)
    after = (before + moved) % (RANGE_UJ + 1)
    assert _moved(before, after, RANGE_UJ, int(seconds * 1e9)) == (moved, "")


def test_a_counter_that_was_set_back_gives_no_power_and_a_new_count(tmp_path):
    machine = Machine(tmp_path, {"intel-rapl:0": ("package-0", 90_000_000)})
    probe = machine.probe()
    machine.count("intel-rapl:0", 1_000_000)
    (reading,) = probe.read(0)
    assert (reading.power_w, reading.energy_j, reading.status) == (None, 0.0, "failed")
    assert reading.reason == "the counter was set back"
    machine.count("intel-rapl:0", 31_000_000)
    (reading,) = probe.read(0)
    assert (reading.power_w, reading.energy_j, reading.status) == (30.0, 30.0, "ok")


def test_too_long_a_pause_is_not_guessed_over(tmp_path):
    machine = Machine(tmp_path, {"intel-rapl:0": ("package-0", 0)})
    probe = machine.probe()
    machine.count("intel-rapl:0", 50_000_000, 300 * SECOND)
    (reading,) = probe.read(0)
    assert (reading.power_w, reading.status) == (None, "failed")
    assert "more than once" in reading.reason


def test_readings_too_close_together_lose_no_energy(tmp_path):
    machine = Machine(tmp_path, {"intel-rapl:0": ("package-0", 0)})
    probe = machine.probe()
    machine.count("intel-rapl:0", 0, 1_000_000)
    (reading,) = probe.read(0)
    assert (reading.power_w, reading.energy_j) == (None, 0.0)
    assert reading.reason == "only 1.0 ms since the reading before"
    machine.count("intel-rapl:0", 0, 9_000_000)
    assert "did not move in 10 ms" in probe.read(0)[0].reason
    machine.count("intel-rapl:0", 2_000_000, 10_000_000)
    (reading,) = probe.read(0)
    assert (reading.power_w, reading.energy_j) == (100.0, 2.0)


def test_a_counter_that_stands_still_is_not_zero_watts(tmp_path):
    machine = Machine(tmp_path, {"intel-rapl:0": ("package-0", 5), "intel-rapl:0:0": ("uncore", 5)})
    probe = machine.probe()
    machine.now_ns += SECOND
    package, uncore = probe.read(0)
    assert (package.power_w, package.status) == (None, "failed")
    assert "stands still" in package.reason
    assert (uncore.power_w, uncore.status) == (0.0, "ok")  # a graphics core can be off


def test_counters_of_root_alone():
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        machine = Machine(root, {"intel-rapl:0": ("package-0", 0), "intel-rapl:0:0": ("dram", 0)})
        for path in root.rglob("energy_uj"):
            path.chmod(0o400 if os.geteuid() == 0 else 0)
        with ordinary_user():
            probe = machine.probe()
        machine.now_ns += SECOND
        readings = probe.read(0)
        assert [(reading.power_w, reading.energy_j, reading.status) for reading in readings] == [
            (None, None, "denied")
        ] * 2
        (capability,) = probe.capabilities()
        assert not capability.ok
        assert capability.reason == "the RAPL counters are readable by root only"
        assert "root" in capability.remedy


def test_no_tree_no_zone_and_an_empty_one(tmp_path):
    (tmp_path / "empty" / "class" / "powercap").mkdir(parents=True)
    for root in (tmp_path, tmp_path / "empty"):
        probe = RaplProbe(sys_root=root)
        (reading,) = probe.read(3)
        assert (reading.device, reading.power_w, reading.status) == ("CPU", None, "unsupported")
        assert reading.reason == NO_ZONE
        (capability,) = probe.capabilities()
        assert (capability.name, capability.ok, capability.reason) == ("rapl", False, NO_ZONE)
        assert "modprobe" in capability.remedy
        probe.close()


def test_odd_files(tmp_path):
    machine = Machine(tmp_path, {"intel-rapl:0": ("package-0", 9_000_000), "intel-rapl:1": ("package-1", 0)})
    (machine.powercap / "intel-rapl:0" / "max_energy_range_uj").unlink()
    (machine.powercap / "intel-rapl:0" / "name").unlink()
    (machine.powercap / "intel-rapl:1" / "energy_uj").unlink()
    probe = machine.probe()
    machine.count("intel-rapl:0", 1_000_000)
    first, second = probe.read(0)
    assert (first.device, first.status) == ("CPU 0", "failed")
    assert "where it turns is not known" in first.reason
    assert (second.device, second.status) == ("CPU package 1", "failed")
    assert "cannot be opened" in second.reason
    assert probe.capabilities()[0].ok
    machine.count("intel-rapl:0", 0)
    (machine.powercap / "intel-rapl:0" / "energy_uj").write_text("?")
    assert "cannot be read" in probe.read(0)[0].reason
    machine.count("intel-rapl:0", 7)
    assert "from the next one on" in probe.read(0)[0].reason
