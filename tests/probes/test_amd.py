"""AMD's GPUs through a stand-in for amdsmi: what each card tells, what it does not, and a driver that hangs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.readings import GPU_WITH_CPU, PowerReading
from memtui.core.samples import Status
from memtui.probes.gpu import amd as module
from memtui.probes.gpu.amd import NO_AMD_GPU, SHARED, AmdProbe, amd, energy_of, no_device, power_of
from memtui.probes.gpu.client import GpuProcess
from tests.support.repository import ROOT

STUB = ROOT / "tests" / "amdsmi_stub"
MI300X = {
    "gpu_device_bdf": "0000:0c:00.0",
    "gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
    "gpu_vram_info": {"vram_type": 4},
    "power_cap_info": {"power_cap": 750_000_000},
    "power_info": {"socket_power": 612, "current_socket_power": 612, "average_socket_power": "N/A"},
    "energy_count": {"energy_accumulator": 65_359_477, "counter_resolution": 15.3, "timestamp": 1},
    "gpu_activity": {"gfx_activity": 97, "umc_activity": 40, "mm_activity": "N/A"},
    "gpu_vram_usage": {"vram_total": 196_592, "vram_used": 1024},
    "gpu_process_list": [{"pid": 7}, {"pid": 7}, {"pid": 9}],
}
W7900 = MI300X | {
    "gpu_device_bdf": "0000:03:00.0",
    "gpu_asic_info": {"market_name": "N/A"},
    "gpu_vram_info": {"vram_type": 22},
    "power_info": {"socket_power": 60, "current_socket_power": "N/A", "average_socket_power": 60},
    "energy_count": 2,
}


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return a function that tells the stand-in its GPUs."""
    path = tmp_path / "told.json"
    monkeypatch.setenv("AMDSMI_STUB", str(path))
    monkeypatch.setenv("PYTHONPATH", f"{STUB}:{ROOT}")
    monkeypatch.syspath_prepend(str(STUB))
    monkeypatch.setattr(module.procfs, "in_initial_pid_namespace", lambda: True)
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)

    def tell(*gpus: dict[str, Any], **more: Any) -> None:
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"gpus": list(gpus), **more}))
        new.rename(path)

    yield tell
    sys.modules.pop("amdsmi", None)


def test_a_card_that_tells_everything(told):
    told(MI300X)
    probe = AmdProbe()
    assert probe.read(5) == (
        PowerReading(
            5,
            "AMD GPU 0",
            "board",
            "amdsmi instant",
            power_w=612,
            energy_j=pytest.approx(1000, rel=1e-6),
            limit_w=750,
            memory_used_bytes=1 << 30,
            utilization=0.97,
            name="AMD Instinct MI300X",
            processes=2,
        ),
    )
    assert [(c.name, c.ok) for c in probe.capabilities()] == [("amdsmi", True)]
    assert probe.holdings()[0].gpu_bytes is None


def test_an_older_card_has_a_mean_and_no_counter(told):
    told(W7900)
    (reading,) = AmdProbe().read(0)
    assert (reading.power_w, reading.source, reading.energy_j, reading.name) == (60, "amdsmi average", None, "")
    assert (reading.status, reading.reason) == ("ok", "energy counter: the AMD library says: Feature not supported")


def test_others_processes_are_known_to_root_only(told, monkeypatch):
    told(MI300X)
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    assert AmdProbe().read(0)[0].processes is None


def test_partitions_are_one_board(told):
    told(*(MI300X | {"gpu_device_bdf": f"0000:0c:00.{n}"} for n in range(4)), W7900)
    readings = AmdProbe().read(0)
    assert [(r.device, r.scope) for r in readings] == [("AMD GPU 0", SHARED), ("AMD GPU 1", "board")]


@pytest.mark.parametrize(
    "changes",
    [{"gpu_vram_info": {"vram_type": 12}}, {"gpu_asic_info": {"market_name": "AMD Instinct MI300A"}}],
)
def test_the_power_of_a_processor_is_no_boards(told, changes):
    told(MI300X | changes)
    assert AmdProbe().read(0)[0].scope == GPU_WITH_CPU


def test_a_die_without_power_has_no_energy(told):
    told(MI300X | {"power_info": {"socket_power": 0, "current_socket_power": "N/A", "average_socket_power": "N/A"}})
    (reading,) = AmdProbe().read(0)
    assert (reading.power_w, reading.energy_j, reading.status) == (None, None, "unsupported")
    assert reading.reason == "power: the driver tells none of this GPU"


def test_a_card_that_fails(told):
    told(MI300X)
    probe = AmdProbe()
    told(MI300X | {"power_info": 40})
    (reading,) = probe.read(0)
    assert (reading.status, reading.power_w, reading.memory_used_bytes) == ("failed", None, None)
    assert reading.reason == "power: the AMD library says: No data was found for given input"
    told(MI300X)
    assert probe.read(1)[0].power_w == 612


@pytest.mark.parametrize(
    ("code", "status", "says"),
    [(34, "failed", "Driver not loaded"), (10, "denied", "Permission Denied")],
)
def test_a_library_that_does_not_start(told, code, status, says):
    told(MI300X, init=code)
    probe = AmdProbe()
    (reading,) = probe.read(0)
    assert (reading.device, reading.status) == (NO_AMD_GPU, status)
    assert says in reading.reason
    (capability,) = probe.capabilities()
    assert not capability.ok
    assert ("render" in capability.remedy) == (code == 10)


def test_no_card_and_no_library(told, monkeypatch, tmp_path):
    told()
    assert AmdProbe().read(0)[0].reason == "the AMD driver shows no GPU"
    for text, says in (("raise ImportError", "not installed"), ("print(1); {}['libamd_smi.so']", "no libamd_smi.so")):
        folder = tmp_path / says.replace(" ", "")
        folder.mkdir()
        (folder / "amdsmi.py").write_text(text)
        sys.modules.pop("amdsmi", None)
        monkeypatch.syspath_prepend(str(folder))
        probe = AmdProbe()
        assert says in probe.read(0)[0].reason
        assert probe.capabilities()[0].remedy


def test_it_is_asked_only_where_there_is_a_device(tmp_path):
    assert amd(tmp_path, tmp_path / "kfd") is None
    assert not no_device().ok
    driver = tmp_path / "bus" / "pci" / "drivers" / "amdgpu"
    driver.mkdir(parents=True)
    card = tmp_path / "class" / "drm" / "card1" / "device"
    card.mkdir(parents=True)
    (card / "driver").symlink_to(driver)
    assert amd(tmp_path, tmp_path / "kfd").source == "amdsmi"
    (tmp_path / "kfd").touch()
    assert amd(tmp_path / "nothing", tmp_path / "kfd") is not None


def wait_for(process: GpuProcess, status: str) -> PowerReading:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        begin = time.monotonic()
        readings = process.read(time.monotonic_ns())
        assert time.monotonic() - begin < 0.5, "it waited for the driver"
        if readings and readings[0].status == status:
            return readings[0]
        time.sleep(0.02)
    raise AssertionError("it did not come")


def test_a_driver_that_hangs_is_told_and_nobody_waits_for_it(told, tmp_path):
    hang = tmp_path / "hang"
    told(MI300X, hang=str(hang))
    process = GpuProcess(amd(tmp_path, Path("/dev/null")), stale_ns=1_500_000_000)
    try:
        assert wait_for(process, Status.OK).power_w == 612
        assert process.capabilities()[0].ok
        hang.touch()
        stale = wait_for(process, Status.FAILED)
        assert (stale.device, stale.power_w) == ("AMD GPU 0", None)
        assert stale.reason.endswith("the AMD driver does not answer")
        hang.unlink()
        assert wait_for(process, Status.OK).power_w == 612
    finally:
        process.close()
    assert "amdsmi" not in sys.modules, "the library belongs to the other process"


VALUES = st.none() | st.just("N/A") | st.integers() | st.floats() | st.booleans()


@given(st.dictionaries(st.sampled_from(["current_socket_power", "average_socket_power", "socket_power"]), VALUES))
def test_power_is_a_number_above_zero_or_absent(info):
    watts, source = power_of(info)
    assert watts is None or (watts > 0 and watts < float("inf"))
    assert (source == "amdsmi") == (watts is None)


@given(st.dictionaries(st.sampled_from(["energy_accumulator", "power", "counter_resolution"]), VALUES))
def test_energy_is_a_number_above_zero_or_absent(count):
    joules = energy_of(count)
    assert joules is None or 0 <= joules < float("inf")
