"""The hwmon probe on trees as kernels lay them out for Grace, and on sensors whose meaning nobody knows."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.energy_parts import part_of
from memtui.core.readings import SOCKET_WITH_MEMORY
from memtui.core.samples import Status
from memtui.probes.power.hwmon import _LABELS, NO_SENSOR, HwmonProbe, domain_of
from memtui.probes.power.probe import PowerProbe
from memtui.tui.presenters.power import short_name

MS = 1_000_000
# The order in which a GH200 has its four meters, each a hwmon device of its own with its files in device/.
GH200 = {
    "Module Power Socket 0": 271_000_000,
    "Grace Power Socket 0": 95_000_000,
    "CPU Power Socket 0": 41_000_000,
    "SysIO Power Socket 0": 17_500_000,
}


def meter(root: Path, number: int, files: dict[str, object], *, name="power_meter", in_device=True) -> Path:
    monitor = root / "class" / "hwmon" / f"hwmon{number}"
    folder = monitor / "device" if in_device else monitor
    folder.mkdir(parents=True)
    (monitor / "name").write_text(f"{name}\n")
    for file, value in files.items():
        (folder / file).write_text(f"{value}\n")
    return folder


def grace(root: Path, meters=GH200, *, interval_ms=50, in_device=True) -> None:
    for number, (label, microwatts) in enumerate(meters.items()):
        files = {
            "power1_average": microwatts,
            "power1_average_interval": interval_ms,
            "power1_oem_info": label,
            "power1_is_battery": 0,
        }
        meter(root, number, files, in_device=in_device)


def seen(probe: HwmonProbe, t_ns: int = 0) -> list[tuple[str, str, float | None]]:
    return [(r.device, r.scope, r.power_w) for r in probe.read(t_ns)]


def test_a_grace_hopper_module(tmp_path):
    for in_device in (True, False):  # as the driver has them, and as newer drivers do
        root = tmp_path / str(in_device)
        grace(root, in_device=in_device)
        probe = HwmonProbe(sys_root=root)
        assert seen(probe) == [
            ("CPU socket 0", "socket with memory", 95.0),
            ("CPU socket 0", "CPU rail", 41.0),
            ("CPU socket 0", "SoC rail", 17.5),
            ("module 0", "module with GPU", 271.0),
        ]
        reading = probe.read(60 * MS)[0]
        assert (reading.source, reading.name, reading.energy_j) == ("hwmon average", "Grace Power Socket 0", None)
        (capability,) = probe.capabilities()
        assert (capability.ok, capability.reason) == (True, "")


def test_only_the_socket_is_added_to_other_parts():
    scopes = [scope for _, scope in _LABELS.values()]
    assert [scope for scope in scopes if part_of(scope)] == [SOCKET_WITH_MEMORY]
    assert [short_name(f"{device} 1", scope) for device, scope in _LABELS.values()] == [
        "MOD 1", "CPU 1", "CORES 1", "SoC 1"
    ]  # fmt: skip


def test_a_mean_of_a_second_is_read_once_a_second(tmp_path):
    grace(tmp_path, {"Grace Power Socket 1": 95_000_000}, interval_ms=1000)
    probe = HwmonProbe(sys_root=tmp_path)
    assert [len(probe.read(t * MS)) for t in (0, 500, 1000, 1500, 2100)] == [1, 0, 1, 0, 1]


def test_what_has_no_meaning_is_named_and_not_read(tmp_path):
    meter(tmp_path, 0, {"power1_average": 350_000_000, "power1_average_interval": 1000})
    meter(tmp_path, 1, {"power1_input": 12, "power1_label": "CPU power"}, name="apm_xgene", in_device=False)
    meter(tmp_path, 2, {"power1_average": 9, "power1_label": "PPT"}, name="amdgpu", in_device=False)
    meter(tmp_path, 3, {"temp1_input": 40_000}, name="nvme", in_device=False)
    probe = HwmonProbe(sys_root=tmp_path)
    assert probe.read(0) == ()
    (capability,) = probe.capabilities()
    assert not capability.ok
    assert capability.reason == (
        f"{NO_SENSOR}; not read, as it is not known what they measure: "
        "power_meter power1 (no label), apm_xgene power1 (CPU power)"
    )


def test_a_sensor_with_mean_and_moment_gives_the_mean(tmp_path):
    files = {"power1_average": 7_000_000, "power1_input": 9_000_000, "power1_label": "Grace Power Socket 0"}
    meter(tmp_path, 0, files)
    assert HwmonProbe(sys_root=tmp_path).read(0)[0].power_w == 7
    del files["power1_average"]
    meter(tmp_path / "moment", 0, files)
    assert HwmonProbe(sys_root=tmp_path / "moment").read(0)[0].source == "hwmon instant"


def test_a_sensor_that_fails_says_why(tmp_path):
    grace(tmp_path)
    probe = HwmonProbe(sys_root=tmp_path)
    files = [tmp_path / f"class/hwmon/hwmon{n}/device/power1_average" for n in range(4)]
    files[0].write_text("0\n")
    files[1].write_text("what\n")
    files[2].unlink()
    readings = probe.read(0)
    assert {r.status for r in readings if r.name != "SysIO Power Socket 0"} == {Status.FAILED}
    assert all(r.reason for r in readings if r.power_w is None)
    assert "reads 0 W, which cannot be" in next(r.reason for r in readings if r.device == "module 0")
    (capability,) = probe.capabilities()
    assert capability.ok, "one of them can be read"
    assert "cannot be read" in capability.reason


def test_no_hwmon_at_all(tmp_path):
    probe = HwmonProbe(sys_root=tmp_path)
    assert (probe.read(0), probe.scopes) == ((), set())
    assert [(c.name, c.ok, c.reason) for c in probe.capabilities()] == [("hwmon", False, NO_SENSOR)]


def test_on_grace_nothing_is_said_of_rapl(tmp_path):
    grace(tmp_path)
    probe = PowerProbe(sys_root=tmp_path, nvml=False)
    assert {reading.source for reading in probe.read(0)} == {"nvml", "hwmon average"}
    probe.close()


@given(st.text() | st.from_regex(r"(Module|Grace|CPU|SysIO|GPU) Power Socket [0-9]{1,3}", fullmatch=True))
def test_no_other_label_has_a_meaning(label):
    place = domain_of(label)
    if place is None:
        assert not any(label == f"{known} {n}" for known in _LABELS for n in range(1000))
    else:
        assert place[0].rpartition(" ")[2] == str(int(label.rpartition(" ")[2]))
        assert label.startswith(tuple(_LABELS))


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    grace(tmp_path, {"Grace Power Socket 0": 1})
    probe = HwmonProbe(sys_root=tmp_path)

    def refuse(path: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "read_text", refuse)
    (reading,) = probe.read(0)
    assert (reading.status, reading.reason) == (Status.DENIED, "the power sensor is readable by root only")
