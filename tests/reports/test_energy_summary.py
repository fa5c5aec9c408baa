"""Energy by part of the machine as lines of a report, and CO2 at the user's figure."""

from __future__ import annotations

import json

import pytest

from memtui.core.argtypes import grams_a_kwh
from memtui.core.json_fields import to_json
from memtui.core.readings import PowerReading
from memtui.core.samples import Status
from memtui.reports.energy_summary import energy_lines, energy_summary
from tests.support import sessions
from tests.support.cli import memtui
from tests.support.schemas import check

S = 1_000_000_000
NO_REST = "rest of the machine n/a (no sensor of the whole machine)"


def rising(device: str, scope: str, watts: float, source: str = "rapl", **more) -> list[PowerReading]:
    return [PowerReading(t * S, device, scope, source, watts, watts * t, **more) for t in range(3601)]


GPU = rising("GPU 0", "board", 400, "nvml instant", processes=3)
CPU = rising("CPU package 0", "package", 100)


def lines(*readings: list[PowerReading], gco2: float | None = None) -> list[str]:
    return [
        line[13:] for line in energy_lines(energy_summary([r for rows in readings for r in rows], 0, 3600 * S, gco2))
    ]


def test_each_part_with_a_figure_has_a_line():
    assert lines(GPU, CPU) == [
        "GPU boards: 1.44 MJ, nvml counter (GPU 0, 3 processes)",
        "CPU packages: 360 kJ, rapl counter (CPU package 0, with all that ran on it)",
        f"no total: DRAM n/a (no counter of its own); {NO_REST}",
    ]


def test_co2_of_what_was_measured_says_of_what():
    assert lines(GPU, CPU, gco2=380)[-1] == (
        "190 g CO2 at 380 g/kWh (your figure), of GPU boards and CPU packages, a part of the energy only"
    )
    machine = rising("machine", "chassis", 1000, "ipmi")
    assert lines(machine, gco2=50)[-2:] == [
        "total: 3.60 MJ",
        "50.0 g CO2 at 50 g/kWh (your figure), of the whole machine",
    ]


def test_without_any_figure_there_is_one_line_and_no_co2():
    nothing = [PowerReading(0, "CPU", "package", "rapl", status=Status.UNSUPPORTED, reason="no RAPL zone")]
    total, co2 = lines(nothing, gco2=380)
    assert total.startswith("no total: GPU boards n/a (not read); CPU packages and DRAM n/a (no RAPL zone)")
    assert co2 == "no CO2 at 380 g/kWh (your figure): no part was measured"
    assert energy_summary([], 0, S) is None
    assert energy_lines(None) == []


def test_what_may_be_inside_another_figure_has_no_co2():
    readings = [CPU, rising("CPU package 0", "uncore", 5), rising("CPU package 0", "dram", 10)]
    summary = energy_summary([r for rows in readings for r in rows], 0, 3600 * S, 360)
    assert summary.co2.of == ("CPU packages",)
    assert summary.co2.co2_g == pytest.approx(36)
    assert json.loads(json.dumps(to_json(summary))) == to_json(summary)


@pytest.mark.parametrize("text", ["x", "-1", "nan", "inf", "10001"])
def test_grams_that_are_refused(text):
    with pytest.raises(Exception, match="must be"):
        grams_a_kwh(text)


def test_the_report_of_a_session_in_all_forms(tmp_path):
    path = sessions.write_session(tmp_path / "s.memtui", sessions.messages(40))
    plain = json.loads(memtui("report", path, "--json").stdout)
    check("report", plain)
    assert plain["energy"]["co2"] is None
    document = json.loads(memtui("report", path, "--json", "--gco2-per-kwh", "400").stdout)
    check("report", document)
    assert document["energy"]["parts"][0]["energy_j"] == 2100
    assert document["energy"]["co2"]["of"] == ["GPU boards"]
    assert "CO2 at 400 g/kWh (your figure)" in memtui("report", path, "--gco2-per-kwh", "400").stdout
    page = memtui("report", path, "--html", "--gco2-per-kwh", "400").stdout
    assert "233 mg CO2 at 400 g/kWh (your figure), of GPU boards, a part of the energy only" in page
    assert '<td class="name">rest of the machine</td>' in page
