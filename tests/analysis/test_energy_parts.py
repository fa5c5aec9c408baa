"""Energy by part of the machine: what is added up, what is not, and why there is no sum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.energy_parts import CPU, DRAM, GPU, PARTS, REST, energy_of_machine, part_of
from memtui.core.readings import SOCKET_WITH_MEMORY, PowerReading
from memtui.core.samples import Status

S = 1_000_000_000
END = 100 * S


def counter(device: str, scope: str, watts: float, *, source="rapl", begin=0, end=100, **more) -> list[PowerReading]:
    """Readings of a counter every second."""
    return [
        PowerReading(t * S, device, scope, source, power_w=watts, energy_j=7 + watts * t, **more)
        for t in range(begin, end + 1)
    ]


def sensor(device: str, scope: str, watts: float, source="hwmon") -> list[PowerReading]:
    return [PowerReading(t * S, device, scope, source, power_w=watts) for t in range(101)]


def absent(device: str, scope: str, reason: str, status=Status.UNSUPPORTED, source="nvml") -> list[PowerReading]:
    return [PowerReading(0, device, scope, source, status=status, reason=reason)]


def parts(*readings: list[PowerReading]):
    found = energy_of_machine([r for rows in readings for r in rows], 0, END)
    assert tuple(part.part for part in found.parts) == PARTS
    return found, {part.part: part for part in found.parts}


GPU_0 = counter("GPU 0", "board", 300, source="nvml instant", processes=2)
PACKAGES = counter("CPU package 0", "package", 90) + counter("CPU package 1", "package", 80)
MEMORY = counter("CPU package 0", "dram", 10) + counter("CPU package 1", "dram", 11)
CHASSIS = sensor("machine", "chassis", 700)


def test_a_server_without_a_sensor_of_the_machine():
    found, part = parts(GPU_0, PACKAGES, MEMORY)
    assert [part[name].energy_j for name in PARTS] == [30_000, 17_000, 2_100, None]
    assert part[GPU].devices == ("GPU 0, 2 processes",)
    assert (part[GPU].source, part[CPU].source) == ("nvml counter", "rapl counter")
    assert (found.total_j, found.reason) == (None, "rest of the machine n/a (no sensor of the whole machine)")


def test_the_whole_machine_is_its_own_figure_and_the_rest_what_is_left():
    found, part = parts(GPU_0, PACKAGES, MEMORY, CHASSIS)
    assert (found.total_j, found.reason) == (70_000, "")
    assert part[REST].energy_j == pytest.approx(70_000 - 30_000 - 17_000 - 2_100)
    assert (part[REST].source, part[REST].status) == ("hwmon integrated", Status.OK)
    assert part[REST].reason == "the whole machine less the parts"


def test_parts_that_drew_all_of_the_machine_leave_nothing():
    found, part = parts(GPU_0, PACKAGES, MEMORY, counter("machine", "chassis", 491))
    assert (found.total_j, part[REST].energy_j, part[REST].status) == (49_100, 0, Status.OK)


def test_the_machine_is_known_without_its_parts_and_then_the_rest_is_not():
    found, part = parts(absent("CPU", "package", "no RAPL zone", source="rapl"), CHASSIS)
    assert found.total_j == 70_000
    assert (part[REST].energy_j, part[REST].reason) == (None, "known only where all other parts are")


def test_parts_that_drew_more_than_the_machine():
    found, part = parts(GPU_0, PACKAGES, MEMORY, sensor("machine", "chassis", 100))
    assert found.total_j is None
    assert (part[REST].energy_j, part[REST].status) == (None, Status.FAILED)
    assert "drew more than the sensor" in found.reason


def test_what_lies_in_another_figure_is_never_added():
    inside = [counter("CPU package 0", scope, 40) for scope in ("core", "uncore")]
    _, part = parts(counter("platform", "psys", 500), counter("CPU package 0", "package", 90), *inside)
    assert part[CPU].energy_j == 9_000
    assert [part_of(scope) for scope in ("psys", "core", "uncore", "module", "chassis", "whatever")] == [None] * 6


def test_memory_of_a_processor_with_graphics_may_be_in_its_package():
    package = counter("CPU package 0", "package", 90)
    found, part = parts(package, counter("CPU package 0", "uncore", 5), counter("CPU package 0", "dram", 10))
    assert (part[DRAM].energy_j, part[DRAM].added) == (1_000, False)
    assert "not added" in found.reason


def test_memory_of_one_package_is_not_that_of_all():
    _, part = parts(PACKAGES, counter("CPU package 0", "dram", 10))
    assert (part[DRAM].energy_j, part[DRAM].reason) == (None, "CPU package 1 has no counter of its memory")
    dies = counter("CPU package 0 die 0", "package", 5) + counter("CPU package 0 die 1", "package", 5)
    _, part = parts(dies, counter("CPU package 0 die 0", "dram", 10))
    assert part[DRAM].energy_j == 1_000


def test_a_socket_of_grace_has_its_memory():
    found, part = parts(GPU_0, sensor("CPU socket 0", SOCKET_WITH_MEMORY, 200), CHASSIS)
    assert (part[CPU].energy_j, part[DRAM].inside, part[DRAM].energy_j) == (20_000, CPU, None)
    assert part[REST].energy_j == pytest.approx(20_000)
    assert found.total_j == 70_000


def test_a_rest_that_is_not_known_is_named_after_memory_that_has_no_figure_of_its_own():
    found, _ = parts(GPU_0, sensor("CPU socket 0", SOCKET_WITH_MEMORY, 200))
    assert (found.total_j, found.reason) == (None, "rest of the machine n/a (no sensor of the whole machine)")


def test_memory_without_a_counter_says_so_or_what_the_packages_lack():
    _, part = parts(GPU_0, PACKAGES)
    assert (part[DRAM].reason, part[DRAM].status) == ("no counter of its own", Status.UNSUPPORTED)
    _, part = parts(absent("CPU", "package", "no RAPL zone", source="rapl"))
    assert (part[DRAM].part, part[DRAM].reason) == (DRAM, "no RAPL zone")
    still = counter("CPU package 0", "package", 0)
    _, part = parts(still)
    assert (part[CPU].devices, part[DRAM].devices) == (("CPU package 0",), ())
    assert (part[DRAM].reason, part[DRAM].status) == ("its counter did not move", Status.FAILED)
    _, part = parts(PACKAGES, counter("CPU package 0", "dram", 0), counter("CPU package 1", "dram", 5))
    assert part[DRAM].reason == "CPU package 0: its counter did not move"
    assert part[DRAM].devices == ("CPU package 0", "CPU package 1")


def test_a_board_without_a_figure_takes_it_from_all_boards():
    lost = absent("GPU 1", "board", "the GPU is lost", Status.FAILED)
    found, part = parts(GPU_0, lost, PACKAGES, MEMORY)
    assert (part[GPU].energy_j, part[GPU].reason, part[GPU].status) == (None, "GPU 1: the GPU is lost", "failed")
    assert found.reason.startswith("GPU boards n/a (GPU 1: the GPU is lost); rest of")


def test_no_driver_of_one_make_is_no_hole_where_there_is_a_board_of_another():
    board = counter("AMD GPU 0", "board", 100, source="amdsmi")
    _, part = parts(board, absent("GPU", "board", "no NVIDIA driver"))
    assert part[GPU].energy_j == 10_000
    _, part = parts(board, absent("GPU", "board", "stale", Status.FAILED))
    assert part[GPU].energy_j is None
    _, part = parts(GPU_0, absent("GPU", "board", "no answer yet", Status.FAILED))
    assert part[GPU].energy_j == 30_000


def test_without_any_board_each_reason_is_said():
    makes = absent("GPU", "board", "no NVIDIA driver"), absent("GPU", "board", "stale", Status.FAILED, "amdsmi")
    for readings, reason in ((makes[:1], "no NVIDIA driver"), (makes[1:], "stale")):
        _, part = parts(*readings)
        assert (part[GPU].reason, part[GPU].devices) == (reason, ())
    other = absent("AMD GPU", "board", "stale", Status.FAILED, "amdsmi")
    _, part = parts(makes[0], other)
    assert part[GPU].reason == "no NVIDIA driver; stale"


def test_a_device_without_a_number_is_one_where_it_was_read():
    _, part = parts(sensor("GPU", "board", 100))
    assert (part[GPU].energy_j, part[GPU].devices) == (10_000, ("GPU",))


def test_a_gpu_whose_board_is_not_measured_is_a_hole():
    package = counter("Intel GPU 0", "GPU package", 50, source="intel sysfs")
    _, part = parts(package, absent("GPU", "board", "no NVIDIA driver"))
    assert (part[GPU].energy_j, part[GPU].reason) == (None, "it counts the energy of its package only")
    assert (part[GPU].status, part[GPU].devices) == (Status.UNSUPPORTED, ("Intel GPU 0 GPU package",))
    _, part = parts(package, GPU_0)
    assert part[GPU].reason == "Intel GPU 0: it counts the energy of its package only"


def test_graphics_of_a_processor_are_no_board():
    graphics = counter("AMD GPU 0", "processor with CPU", 50, source="amdsmi")
    _, part = parts(graphics, GPU_0)
    assert part[GPU].energy_j == 30_000
    _, part = parts(graphics)
    assert (part[GPU].energy_j, part[GPU].reason) == (None, "its sensor has the CPU beside it, too")


def test_a_counter_that_stands_still_has_no_figure():
    _, part = parts(counter("AMD GPU 0", "board", 0, source="amdsmi"))
    assert (part[GPU].energy_j, part[GPU].reason) == (None, "its counter did not move")


@pytest.mark.parametrize("values", [(7, 9), (7, 7, 9), (7, 9, 9), (7, 7, 9, 9)])
def test_a_counter_has_a_figure_from_its_first_and_its_last_value(values):
    times = [round(number * END / (len(values) - 1)) for number in range(len(values))]
    rows = [PowerReading(t, "CPU package 0", "package", "rapl", energy_j=v) for t, v in zip(times, values, strict=True)]
    _, part = parts(rows)
    assert (part[CPU].energy_j, part[CPU].source, part[CPU].whole) == (2, "rapl counter", True)


def test_one_value_of_a_counter_is_no_figure_but_its_power_may_be():
    once = [PowerReading(0, "CPU package 0", "package", "rapl", energy_j=5.0)]
    _, part = parts(once)
    assert part[CPU].energy_j is None
    _, part = parts([PowerReading(0, "CPU package 0", "package", "rapl", power_w=5.0)])
    assert (part[CPU].reason, part[CPU].status) == ("only one reading", Status.FAILED)
    _, part = parts([PowerReading(t * S, "GPU 0", "board", "nvml", 50.0, 5.0 if t == 3 else None) for t in range(101)])
    assert (part[GPU].energy_j, part[GPU].source) == (5_000, "nvml integrated")


def test_a_sensor_that_says_nothing_is_drawn_does_not_work():
    _, part = parts(sensor("CPU socket 0", SOCKET_WITH_MEMORY, 0))
    assert (part[CPU].reason, part[CPU].status) == ("no energy was drawn: the sensor does not work", Status.FAILED)


@pytest.mark.parametrize(("gap", "known"), [(12, True), (13, False)])
def test_a_sensor_may_be_silent_for_twelve_seconds(gap, known):
    rows = [r for r in sensor("CPU socket 0", SOCKET_WITH_MEMORY, 200) if not 30 * S < r.t_ns < (30 + gap) * S]
    _, part = parts(rows)
    assert (part[CPU].energy_j, part[CPU].reason) == ((20_000, "") if known else (None, "no reading for 13 s"))


@pytest.mark.parametrize(
    ("start", "end", "first", "last", "whole"),
    [
        (0, 100, 5, 100, True),
        (0, 100, 0, 95, True),
        (0, 100, 2, 97, True),
        (0, 100, 6, 100, False),
        (0, 100, 3, 97, False),
        (0, 100, 3, 96, False),
        (0, 200, 5, 200, True),  # 5 s at most
        (0, 200, 6, 200, False),
        (10, 50, 12, 50, True),  # and a twentieth
        (10, 50, 13, 50, False),
        (10, 110, 0, 104, False),  # what was read before counts for nothing
        (10, 110, 16, 120, False),
        (10, 110, 0, 120, True),
    ],
)
def test_a_twentieth_of_a_recording_and_5_s_of_it_may_be_without_a_reading(start, end, first, last, whole):
    readings = counter("CPU package 0", "package", 90, begin=first, end=last)
    (_, cpu, _, _) = energy_of_machine(readings, start * S, end * S).parts
    assert (cpu.whole, cpu.measured_s, cpu.energy_j) == (whole, last - first, 90 * (last - first))


def test_a_counter_that_was_reset_has_no_figure():
    reset = counter("CPU package 0", "package", 90, end=50) + counter("CPU package 0", "package", 1, begin=51)
    _, part = parts(reset)
    assert (part[CPU].energy_j, part[CPU].status) == (None, "failed")
    assert "reset" in part[CPU].reason


def test_a_sensor_that_was_silent_for_long_has_no_figure():
    silent = [r for r in sensor("CPU socket 0", SOCKET_WITH_MEMORY, 200) if not 30 * S < r.t_ns < 50 * S]
    _, part = parts(silent)
    assert (part[CPU].energy_j, part[CPU].reason) == (None, "no reading for 20 s")


def test_a_part_of_the_time_has_a_figure_and_gives_no_sum():
    found, part = parts(counter("GPU 0", "board", 300, begin=20), PACKAGES, MEMORY, CHASSIS)
    assert (part[GPU].energy_j, part[GPU].measured_s, part[GPU].whole) == (24_000, 80, False)
    assert part[REST].energy_j is None
    assert found.total_j == 70_000
    found, _ = parts(counter("GPU 0", "board", 300, begin=20), PACKAGES, MEMORY)
    assert found.reason.startswith("GPU boards for 80.0 s only; ")


def test_nothing_was_read():
    found, part = parts()
    assert [part[name].energy_j for name in PARTS] == [None] * 4
    assert all(part[name].reason for name in PARTS)
    assert found.total_j is None


ROWS = st.lists(
    st.builds(
        PowerReading,
        st.integers(0, END),
        st.sampled_from(["GPU", "GPU 0", "AMD GPU 0", "CPU package 0", "CPU package 1", "machine"]),
        st.sampled_from(["board", "package", "dram", "psys", "uncore", SOCKET_WITH_MEMORY, "chassis"]),
        st.sampled_from(["nvml", "rapl", "hwmon"]),
        st.none() | st.floats(0, 1000),
        st.none() | st.floats(0, 1e6),
    ),
    max_size=40,
)


@given(ROWS)
def test_every_part_has_a_figure_or_a_reason_and_no_sum_has_a_hole(rows):
    found = energy_of_machine(sorted(rows, key=lambda row: row.t_ns), 0, END)
    for part in found.parts:
        assert (part.energy_j is None) == (part.status != Status.OK)
        assert part.energy_j is not None or part.reason
        assert part.energy_j is None or part.energy_j >= 0
    assert (found.total_j is None) == bool(found.reason)
    if found.total_j is not None:
        assert any(row.scope == "chassis" for row in rows), "the rest is known from a sensor of the machine only"
