"""Both power sources together, and what stands in the place of one that is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from memtui.core.readings import PowerReading
from memtui.core.samples import Status
from memtui.probes.power.probe import PowerProbe
from tests.nvml_stub.build import COMPILER, compile_stand_in, run_with


def test_every_source_speaks_even_when_there_is_none(tmp_path):
    probe = PowerProbe(sys_root=tmp_path, nvml=False)
    gpu, cpu = probe.read(9)
    assert gpu == PowerReading(
        9, "GPU", "board", "nvml", status=Status.UNSUPPORTED, reason="GPU readings are switched off"
    )
    assert (cpu.t_ns, cpu.device, cpu.source, cpu.power_w, cpu.status) == (9, "CPU", "rapl", None, "unsupported")
    assert [(capability.name, capability.ok) for capability in probe.capabilities()] == [
        ("nvml", False),
        ("amdsmi", False),
        ("intel sysfs", False),
        ("rapl", False),
        ("hwmon", False),
        ("ipmi dcmi", False),
    ]
    probe.close()


def test_on_this_machine_every_missing_value_has_a_reason():
    probe = PowerProbe()
    readings = probe.read(1)
    assert {reading.device[:3] for reading in readings if reading.scope in ("board", "package")} == {"GPU", "CPU"}
    for reading in readings:
        assert (reading.power_w is not None) == (reading.status == Status.OK)
        assert reading.power_w is not None or reading.reason
    for capability in probe.capabilities():
        assert capability.ok or capability.reason
    probe.close()


@pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc) to build the NVML stand-in")
def test_gpus_and_cpu_in_one_reading(tmp_path):
    zone = tmp_path / "class" / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    for name, text in {"name": "package-0", "energy_uj": "0", "max_energy_range_uj": "262143328850"}.items():
        (zone / name).write_text(text)
    code = f"""
import json, pathlib, time
from memtui.probes.power.probe import PowerProbe
probe = PowerProbe(sys_root={str(tmp_path)!r})
time.sleep(0.01)
pathlib.Path({str(zone / "energy_uj")!r}).write_text("1000000")
readings, end = probe.read(1), time.monotonic() + 20
while len(readings) == 1 and time.monotonic() < end:
    time.sleep(0.01)  # until the GPU reader has begun
    readings = probe.read(1)
probe.close()
print(json.dumps([[one.device, one.status, one.power_w is not None] for one in readings]))
"""
    readings = run_with(compile_stand_in(tmp_path / "nvml"), code, devices=2)
    assert [reading[:2] for reading in readings] == [
        ["GPU 0", "ok"],
        ["GPU 1", "ok"],
        ["CPU package 0", readings[2][1]],
    ]
    assert [reading[2] for reading in readings[:2]] == [True, True]


def test_the_probe_is_light():
    code = (
        "import sys; from memtui.probes.power.probe import PowerProbe; PowerProbe().read(0);"
        "print(sorted({'torch', 'textual', 'rich', 'sqlite3', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
