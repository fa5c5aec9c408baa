"""The GPU probe against a compiled stand-in of the driver's library, through the real bindings."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import pytest

from memtui.core.readings import GPU_COUNTERS
from memtui.probes.gpu import nvml
from memtui.probes.gpu.counters import FIRST, IN_SLICES, UNSUPPORTED
from tests.nvml_stub.build import COMPILER, compile_stand_in, run_with

SETUP = """
import json, time
from dataclasses import asdict
from memtui.probes.gpu.nvml import NvmlProbe
probe = NvmlProbe()
def at(seconds):
    import pynvml, ctypes
    pynvml.nvmlLib.standin_set_time(ctypes.c_double(seconds))
    return [asdict(reading) for reading in probe.read(int(seconds * 1e9))]
def say(value):
    print(json.dumps(value))
"""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no C compiler (cc) to build the NVML stand-in")
    return partial(run_with, compile_stand_in(tmp_path_factory.mktemp("nvml")))


@pytest.fixture(scope="module")
def old_stand_in(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no C compiler (cc) to build the NVML stand-in")
    return partial(run_with, compile_stand_in(tmp_path_factory.mktemp("old_nvml"), "OLD_DRIVER"))


def test_every_value_of_two_gpus(stand_in):
    first, second = stand_in(SETUP + "say(at(4.0))", devices=2, power="0:100000,2:300000")
    assert first == {
        "t_ns": 4_000_000_000,
        "device": "GPU 0",
        "scope": "board",
        "source": "nvml instant",
        "power_w": 300.0,
        "energy_j": 1000.0 + 2 * 100 + 2 * 300,
        "limit_w": 700.0,
        "memory_used_bytes": 1 << 30,
        "utilization": 0.75,
        "name": "NVML stand-in 0 (no hardware)",
        "status": "ok",
        "reason": "",
        "processes": 0,
        "sm_active": None,
        "sm_occupancy": None,
        "tensor_active": None,
        "dram_active": None,
        "pcie_tx_bytes_per_s": None,
        "pcie_rx_bytes_per_s": None,
        "nvlink_tx_bytes_per_s": None,
        "nvlink_rx_bytes_per_s": None,
        "counters_reason": FIRST,
    }
    assert (second["device"], second["power_w"], second["energy_j"]) == ("GPU 1", 600.0, 1000.0 + 1600)


def test_instant_and_average_power_are_told_apart(stand_in):
    """A quarter of a second after a step from 100 to 300 W the mean of the last second is 150 W."""
    trace = {"power": "0:100000,2:300000"}
    (instant,) = stand_in(SETUP + "say(at(2.25))", **trace)
    assert (instant["source"], instant["power_w"]) == ("nvml instant", 300.0)
    (average,) = stand_in(SETUP + "say(at(2.25))", **trace, unsupported="instant")
    assert (average["source"], average["power_w"], average["status"]) == ("nvml average", 150.0, "ok")


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ({"arch": 6, "cc": "7.5"}, "nvml instant"),
        ({"arch": 7, "cc": "8.0"}, "nvml instant"),
        ({"arch": 7, "cc": "8.6"}, "nvml average"),
        ({"unsupported": "architecture"}, "nvml"),
    ],
)
def test_what_the_plain_call_means_depends_on_the_card(old_stand_in, settings, source):
    (reading,) = old_stand_in(SETUP + "say(at(5))", **settings)
    assert (reading["source"], reading["power_w"], reading["status"]) == (source, 250.0, "ok")


def test_an_old_driver_lacks_calls_and_that_is_no_failure(old_stand_in):
    (reading,) = old_stand_in(SETUP + "say(at(5))")
    assert reading["memory_used_bytes"] == (1 << 30) + (600 << 20)
    assert reading["reason"] == ""


def test_energy_is_the_integral_of_the_power(stand_in):
    """Both as the probe reads them, on a trace of steps: 3.7 s in readings 50 ms apart."""
    code = SETUP + "say([at(step / 20)[0] for step in range(75)])"
    readings = stand_in(code, power="0:90000,0.5:410000,1.25:120000,2:700000,3.1:95000")
    integral = sum(reading["power_w"] * 0.05 for reading in readings[:-1])
    assert readings[-1]["energy_j"] - readings[0]["energy_j"] == pytest.approx(integral, rel=1e-6)
    assert integral == pytest.approx(90 * 0.5 + 410 * 0.75 + 120 * 0.75 + 700 * 1.1 + 95 * 0.6)


def test_a_counter_with_ticks_moves_in_steps(stand_in):
    code = SETUP + "say([at(step / 100)[0]['energy_j'] for step in range(30)])"
    energies = stand_in(code, tick_ms=100, power="0:200000")
    assert sorted(set(energies)) == [1000.0, 1020.0, 1040.0]


def test_a_real_clock_gives_the_power_back(stand_in):
    code = SETUP + "a = asdict(probe.read(0)[0]); time.sleep(0.2); b = asdict(probe.read(0)[0]); say([a, b])"
    before, after = stand_in(code, power="0:400000")
    assert 75 < after["energy_j"] - before["energy_j"] < 400


@pytest.mark.parametrize(
    ("missing", "value", "words"),
    [
        ("energy", "energy_j", "energy counter: not supported by this GPU"),
        ("limit", "limit_w", "power limit: not supported by this GPU"),
        ("utilization", "utilization", "utilisation: not supported by this GPU"),
        ("memory,memory_v2", "memory_used_bytes", "memory: not supported by this GPU"),
    ],
)
def test_a_missing_value_is_none_with_its_reason_and_the_others_stand(stand_in, missing, value, words):
    (first,), (second,) = stand_in(SETUP + "say([at(1), at(2)])", unsupported=missing)
    assert first[value] is None
    assert first["reason"] == words
    assert (first["power_w"], first["status"]) == (250.0, "ok")
    assert second[value] is None
    others = {"energy_j", "limit_w", "utilization", "memory_used_bytes"} - {value}
    assert all(second[name] is not None for name in others)


def test_no_power_at_all_is_unsupported_not_zero(stand_in):
    (reading,) = stand_in(SETUP + "say(at(1))", unsupported="instant,usage")
    assert (reading["power_w"], reading["status"]) == (None, "unsupported")
    assert reading["reason"] == "power: not supported by this GPU"
    assert reading["energy_j"] == 1250.0


def test_zero_watts_are_not_believed(stand_in):
    (reading,) = stand_in(SETUP + "say(at(1))", zero="instant")
    assert (reading["power_w"], reading["source"]) == (250.0, "nvml average")
    (reading,) = stand_in(SETUP + "say(at(1))", zero="instant,usage")
    assert (reading["power_w"], reading["status"]) == (None, "failed")


def test_a_lost_gpu_fails_and_the_others_go_on(stand_in):
    first, second = stand_in(SETUP + "say([at(1), at(3)])", devices=2, lost="0@2")
    assert [reading["status"] for reading in first] == ["ok", "ok"]
    lost, other = second
    assert (lost["power_w"], lost["energy_j"], lost["status"]) == (None, None, "failed")
    assert "the GPU is lost" in lost["reason"]
    assert (other["power_w"], other["status"]) == (500.0, "ok")


def test_a_gpu_that_is_lost_from_the_start_keeps_its_number(stand_in):
    code = SETUP + "say([at(1), [asdict(capability) for capability in probe.capabilities()]])"
    (lost, other), (capability,) = stand_in(code, devices=2, no_handle=0)
    assert (lost["device"], lost["status"]) == ("GPU 0", "failed")
    assert (other["device"], other["power_w"]) == ("GPU 1", 500.0)
    assert capability["ok"]
    assert capability["reason"].startswith("GPU 0: the GPU is lost")


def test_a_slow_driver_is_told(stand_in):
    (reading,) = stand_in(SETUP + "say(at(1))", slow_ms=60)
    assert reading["power_w"] == 250.0
    assert reading["reason"].startswith("slow: this reading took")


def test_power_under_mig_is_that_of_the_whole_board(stand_in):
    (reading,) = stand_in(SETUP + "say(at(1))", mig=1)
    assert reading["scope"] == "board (shared by MIG)"


def test_a_board_counts_everybodys_compute_processes(stand_in):
    (reading,) = stand_in(SETUP + "say(at(1))", processes="11:4096,12:-,99:5,11:7")
    assert reading["processes"] == 3
    (reading,) = stand_in(SETUP + "say(at(1))", unsupported="processes")
    assert reading["processes"] is None
    assert reading["reason"] == "compute processes: not supported by this GPU"


def test_in_a_container_no_process_is_not_known_to_be_none(stand_in):
    inside = SETUP + "probe._sees_own_processes_only = True; "
    (reading,) = stand_in(inside + "say(at(1))")
    assert (reading["processes"], reading["power_w"]) == (None, 250.0)
    (reading,) = stand_in(inside + "say(at(1))", processes="11:4096")
    assert reading["processes"] == 1


@pytest.mark.parametrize(
    ("settings", "status", "reason"),
    [
        ({"init": 9}, "unsupported", "the NVIDIA driver is not loaded"),
        ({"init": 4}, "denied", "the driver refuses it to this user"),
        ({"init": 18}, "failed", "the NVIDIA library and the loaded driver are of different versions"),
        ({"init": 77}, "failed", "the NVIDIA library says: stand-in error 77"),
        ({"devices": 0}, "unsupported", "the NVIDIA driver shows no GPU"),
    ],
)
def test_a_driver_that_does_not_work_says_why(stand_in, settings, status, reason):
    code = SETUP + "say([asdict(probe.read(1)[0]), asdict(probe.capabilities()[0]), probe.close()])"
    reading, capability, _ = stand_in(code, **settings)
    assert (reading["device"], reading["power_w"], reading["status"], reading["reason"]) == (
        "GPU",
        None,
        status,
        reason,
    )
    assert (capability["ok"], capability["reason"]) == (False, reason)


def test_reading_after_close_says_so(stand_in):
    code = SETUP + "probe.close(); probe.close(); say([asdict(probe.read(1)[0]), asdict(probe.holdings()[0])])"
    reading, holding = stand_in(code)
    assert (reading["status"], reading["reason"]) == ("failed", "the probe is closed")
    assert (holding["gpu_bytes"], holding["reason"]) == (None, "the probe is closed")


def test_a_machine_without_the_library(monkeypatch):
    def no_library(name: str):
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(nvml.ctypes, "CDLL", no_library)
    probe = nvml.NvmlProbe()
    (capability,) = probe.capabilities()
    assert not capability.ok
    assert capability.reason == "no NVIDIA driver (libnvidia-ml.so.1 not found)"
    assert "driver" in capability.remedy
    (reading,) = probe.read(5)
    assert asdict(reading)["status"] == "unsupported"
    assert reading.reason == capability.reason
    (nobody,) = probe.holdings()
    assert (nobody.gpu_bytes, nobody.status, nobody.reason) == (None, "unsupported", capability.reason)
    probe.close()


def test_a_broken_library_is_not_called_missing(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("no library at all")
    reading, capability = run_with(tmp_path, SETUP + "say([asdict(probe.read(1)[0]), asdict(probe.capabilities()[0])])")
    assert reading["status"] == "failed"
    assert "cannot be loaded" in capability["reason"]


# -- counters

COUNTED = SETUP + "say([at(1.0 + step / 2)[{board}] for step in range({readings})])"


def counters(reading) -> dict[str, float | None]:
    return {name: reading[name] for name in GPU_COUNTERS}


def test_counters_are_means_between_two_readings_in_their_units(stand_in):
    """As an H200 at work answers, but for NVLink, which has one board there and is still."""
    first, second, third = stand_in(
        COUNTED.format(board=0, readings=3), metrics="2:94.5,3:14,5:91.75,10:15.5,20:1,21:2.5,60:7,61:0"
    )
    assert set(counters(first).values()) == {None}
    assert first["counters_reason"] == FIRST
    assert counters(second) == pytest.approx({
        "sm_active": 0.945, "sm_occupancy": 0.14, "tensor_active": 0.9175, "dram_active": 0.155,
        "pcie_tx_bytes_per_s": 1 << 20, "pcie_rx_bytes_per_s": 2.5 * (1 << 20),
        "nvlink_tx_bytes_per_s": 0, "nvlink_rx_bytes_per_s": 7 << 20,
    })  # fmt: skip
    assert counters(third) == counters(second), "the samples take turns: the older one is always the first"
    assert (second["counters_reason"], second["reason"]) == ("", "")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"gpm": 0}, UNSUPPORTED),
        ({"unsupported": "gpm"}, UNSUPPORTED),
        ({"denied": "gpm"}, "the driver refuses it to this user"),
        ({"denied": "gpm_sample"}, "the driver refuses it to this user"),
        ({"unsupported": "gpm_sample"}, "not supported by this GPU"),
        ({"unsupported": "gpm_metrics"}, "not supported by this GPU"),
        ({"mig": 1}, IN_SLICES),
    ],
)
def test_a_board_without_counters_says_why_and_has_its_power(stand_in, settings, why):
    reading = stand_in(COUNTED.format(board=0, readings=3), **settings)[-1]
    assert set(counters(reading).values()) == {None}
    assert reading["counters_reason"] == why
    assert (reading["power_w"], reading["status"], reading["reason"]) == (250.0, "ok", "")


def test_a_driver_without_the_calls(old_stand_in):
    reading = old_stand_in(COUNTED.format(board=0, readings=2))[-1]
    assert (reading["sm_active"], reading["counters_reason"]) == (None, "not known to this driver")


def test_single_counters_that_are_missing_or_cannot_be(stand_in):
    reading = stand_in(COUNTED.format(board=0, readings=2), metrics="2:50,3:nan,5:-,10:0,20:-1,21:0,60:0,61:0")[-1]
    assert [reading[name] for name in GPU_COUNTERS] == [0.5, None, None, 0.0, None, 0.0, 0.0, 0.0]
    assert reading["counters_reason"] == (
        "sm occupancy: the driver reads nan, which cannot be; tensor active: not supported by this GPU; "
        "pcie tx: the driver reads -1, which cannot be"
    )


def test_two_boards_have_counters_of_their_own(stand_in):
    first, second = stand_in(SETUP + "at(1.0); say(at(2.0))", devices=2, denied="gpm_sample@0")
    assert (first["sm_active"], second["sm_active"]) == (None, 0.945)


def test_samples_are_allocated_once_and_given_back(stand_in):
    code = SETUP + (
        "import pynvml; live = lambda: pynvml.nvmlLib.standin_live_samples(); [at(1.0 + s) for s in range(9)];"
        "before = live(); probe.close(); say([before, live()])"
    )
    assert stand_in(code, devices=2) == [4, 0]


def test_a_reading_that_is_lost_lengthens_the_next_mean(stand_in):
    """A sample that could not be taken leaves the one before in its place."""
    code = SETUP + (
        "import os; at(1.0); os.environ['STANDIN_DENIED'] = 'gpm_sample'; lost = at(2.0)[0];"
        "del os.environ['STANDIN_DENIED']; say([lost, at(3.0)[0], at(3.0)[0], at(4.0)[0]])"
    )
    lost, found, same, after = stand_in(code)
    assert (lost["sm_active"], lost["counters_reason"]) == (None, "the driver refuses it to this user")
    assert (found["sm_active"], after["sm_active"]) == (0.945, 0.945)
    assert (same["sm_active"], same["counters_reason"]) == (None, "the NVIDIA library says: Invalid Argument")
