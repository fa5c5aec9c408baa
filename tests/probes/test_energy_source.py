"""One device's energy, read fast: a GPU by the compiled stand-in, CPU packages by files as the kernel has them."""

from __future__ import annotations

import time
from functools import partial
from math import isnan

import pytest

from memtui.probes.power.energy_source import NoSource, RaplEnergy
from tests.nvml_stub.build import COMPILER, compile_stand_in, run_with
from tests.support.recordings import recording

SETUP = """
import ctypes, json, math, time
import pynvml
from memtui.probes.power.energy_source import NoSource, NvmlEnergy, lock_path
def say(value):
    print(json.dumps(value))
def at(seconds):
    pynvml.nvmlLib.standin_set_time(ctypes.c_double(seconds))
"""
# A window of a load whose energy is known, measured as the bench does it and as one does who knows no better.
WINDOW = (
    SETUP
    + """
import numpy as np
from memtui.analysis.energy import from_counter, from_power
source = NvmlEnergy("stand-in-0")
S = 10**9
t, e, p = [], [], []
for ms in range(0, 9000):
    at(ms / 1000)
    energy, power = source.read()
    t.append(ms * 10**6); e.append(energy); p.append(power)
begin, length, truth_w = WHAT
end = begin + length
counter = from_counter(t, e, int(begin * S), int(end * S))
integral = from_power(t, p, int(begin * S), int(end * S))
naive = (e[int(end * 1000)] - e[int(begin * 1000)]) / length
say([counter.power_w / truth_w - 1, integral.power_w / truth_w - 1, naive / truth_w - 1])
"""
)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no C compiler (cc) to build the NVML stand-in")
    return partial(run_with, compile_stand_in(tmp_path_factory.mktemp("nvml")))


def test_counter_and_sensor_of_a_gpu(stand_in):
    result = stand_in(
        SETUP + "s = NvmlEnergy('GPU-stand-in-1')\nat(1)\na = s.read()\nat(3)\nb = s.read()\n"
        "say([b[0] - a[0], b[1], s.name, s.scope, s.limit_w, s.state(), str(lock_path(s))])",
        devices=2,
        power="0:100000",
    )
    assert result[:5] == [400.0, 200.0, "nvml counter", "gpu_board", 700.0]
    assert result[5] == {"sm_mhz": 1980, "memory_mhz": 2619, "temperature_c": 45, "held_down": []}
    assert result[6] == "/sys/devices/system/cpu/online", "there is no /dev/nvidia901 here"


def test_what_a_real_gpu_said_is_read_and_its_energy_is_the_counters_own(stand_in, tmp_path):
    """An H200 under a load that is on for a second and off for one, as its driver told it."""
    rows = recording("nvml-wave")["rows"]
    path = tmp_path / "wave"
    path.write_text("".join(f"{t / 1e9:.9f} {instant} {average} {energy}\n" for t, instant, average, energy in rows))
    code = (
        SETUP
        + """
import numpy as np
from memtui.analysis.energy import from_counter, from_power, tick_ns
from memtui.probes.gpu.nvml import NvmlProbe
source, probe = NvmlEnergy("stand-in-0"), NvmlProbe()
t, e, p = [], [], []
for ms in range(0, 3990, 2):
    at(ms / 1000)
    energy, power = source.read()
    t.append(ms * 10**6); e.append(energy); p.append(power)
S = 10**9
counted, integral = from_counter(t, e, S // 2, 3 * S + S // 2), from_power(t, p, S // 2, 3 * S + S // 2)
at(1.5)
(reading,) = probe.read(0)
say([counted.start_ns, counted.end_ns, counted.energy_j, counted.power_w, integral.power_w, tick_ns(t, e),
     reading.power_w, reading.energy_j, reading.source, source.sensor])
"""
    )
    start, end, joules, counted_w, integral_w, tick, power_w, energy_j, source, sensor = stand_in(code, recording=path)
    said = {round(t / 1e6): row for t, *row in rows}

    def energy_at(ns: int) -> float:
        return max(energy for ms, (_, _, energy) in said.items() if ms <= ns / 1e6 + 2) / 1000

    assert joules == pytest.approx(energy_at(end) - energy_at(start), abs=1e-6)
    assert 2.9e9 < end - start < 3.1e9
    assert tick == pytest.approx(100e6, abs=8e6)
    instant_mw, _, energy_mj = next(row for ms, row in reversed(said.items()) if ms <= 1500)
    assert (power_w, energy_j) == (instant_mw / 1000, energy_mj / 1000)
    assert (source, sensor) == ("nvml instant", "instant")
    assert 0.03 < integral_w / counted_w - 1 < 0.07, "the sensor sees a quarter of the time"


@pytest.mark.parametrize("tick_ms", [20, 50, 100])
@pytest.mark.parametrize("length", [0.5, 0.73, 2.0, 5.0])
def test_a_plateau_is_exact_where_a_naive_window_is_not(stand_in, tick_ms, length):
    code = WINDOW.replace("WHAT", f"1.537, {length}, 250.0")
    counter, integral, naive = stand_in(code, power="0:60000,1:250000", tick_ms=tick_ms)
    assert abs(counter) < 0.005
    assert abs(integral) < 0.005
    if tick_ms == 100 and length == 0.73:
        assert abs(naive) > 0.03, "what the edges are for"


def test_a_ramp_that_was_waited_for_does_no_harm(stand_in):
    ramp = ",".join(f"{1 + n / 20}:{60000 + n * 9500}" for n in range(20))
    counter, integral, _ = stand_in(
        WINDOW.replace("WHAT", "2.6, 2.0, 250.0"), power=f"0:60000,{ramp},2:250000", tick_ms=100
    )
    assert abs(counter) < 0.01
    assert abs(integral) < 0.01


def test_bursts(stand_in):
    bursts = ",".join(f"{n / 10}:300000,{n / 10 + 0.06}:120000" for n in range(90))
    counter, integral, _ = stand_in(WINDOW.replace("WHAT", "1.537, 5.0, 228.0"), power=bursts, tick_ms=100)
    assert abs(counter) < 0.01
    assert abs(integral) < 0.01


def test_constant_power_is_not_nothing(stand_in):
    result = stand_in(WINDOW.replace("WHAT", "1.5, 1.0, 250.0"), power="0:250000", tick_ms=100)
    assert result[0] == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"unsupported": "energy"}, "nvml instant"),
        ({"unsupported": "energy,instant"}, "nvml average"),
        ({"unsupported": "instant"}, "nvml counter"),
    ],
)
def test_what_a_card_lacks_is_nan(stand_in, settings, name):
    code = SETUP + "s = NvmlEnergy('stand-in-0')\nat(2)\nx = s.read()\nsay([s.name, *map(math.isnan, x)])"
    assert stand_in(code, **settings) == [name, "energy" in settings["unsupported"], False]


@pytest.mark.parametrize(
    ("uuid", "settings", "words"),
    [
        ("stand-in-0", {"unsupported": "energy,instant,usage"}, "neither energy nor power"),
        ("stand-in-0", {"mig": 1}, "MIG is on"),
        ("other", {}, "the NVIDIA library says"),
    ],
)
def test_why_there_is_none(stand_in, uuid, settings, words):
    code = SETUP + f"try:\n NvmlEnergy({uuid!r})\nexcept NoSource as e:\n say(str(e))"
    assert words in stand_in(code, **settings)


def test_why_the_clock_is_held_down_and_who_else_computes(stand_in):
    code = SETUP + (
        "import time\ns = NvmlEnergy('stand-in-0')\n"
        "say([s.state()['held_down'], sorted(s.computing(time.time_ns() - 10**9))])"
    )
    held_down = ["software power cap", "hardware thermal"]
    processes = "10:1000,11:2000,12:3000"
    # 12 used it before, 13 has it open only.
    used = stand_in(code, held_down="0x44", processes=processes, use="10:90,11:8,12:70/3000,13:0")
    assert used == [held_down, [10, 11]]
    assert stand_in(code, held_down="0x44", processes=processes)[1] == []
    assert stand_in(code, held_down="0x44", processes=processes, unsupported="use")[1] == [10, 11, 12]


def zone(root, name, energy_uj, label):
    directory = root / "class/powercap" / name
    directory.mkdir(parents=True)
    (directory / "name").write_text(label)
    (directory / "max_energy_range_uj").write_text("262143328850")
    (directory / "energy_uj").write_text(str(energy_uj))
    return directory / "energy_uj"


def test_cpu_packages_are_added_and_nothing_else(tmp_path):
    first = zone(tmp_path, "intel-rapl:0", 1_000_000, "package-0")
    second = zone(tmp_path, "intel-rapl:1", 262_143_000_000, "package-1")
    zone(tmp_path, "intel-rapl:0:0", 5_000_000, "dram")
    zone(tmp_path, "intel-rapl:2", 7_000_000, "psys")
    now = iter(range(10**9, 10**12, 10**9))
    source = RaplEnergy(sys_root=tmp_path, clock=lambda: next(now))
    before_j, power = source.read()
    assert isnan(power)
    first.write_text("31000000")  # 30 J
    second.write_text("19671149")  # 20 J, over the end of its range
    assert source.read()[0] - before_j == pytest.approx(50, abs=1e-4)
    source.close()


def test_why_there_is_no_energy_of_the_cpu(tmp_path):
    with pytest.raises(NoSource, match="no RAPL zone"):
        RaplEnergy(sys_root=tmp_path)
    counter = zone(tmp_path, "intel-rapl:0", 1, "package-0")
    counter.unlink()
    with pytest.raises(NoSource, match="cannot be opened"):
        RaplEnergy(sys_root=tmp_path, clock=time.monotonic_ns)
