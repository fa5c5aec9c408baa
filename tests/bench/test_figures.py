"""Figures of ``memtui bench``, from databases whose rows are known and from a real measurement."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memtui.bench import sweep
from memtui.bench.configuration import Titles, make, product
from memtui.bench.figures import costs, network, output
from memtui.bench.network_vs_operators import compose
from memtui.bench.plan import BenchWindow
from memtui.bench.predict import figures as predicted
from memtui.bench.predict.estimator import Samples
from memtui.bench.predict.evaluation import Answers
from memtui.bench.predict.features import describe
from memtui.bench.predict.ranges import Ranged
from memtui.bench.result import BenchRow, failed
from memtui.bench.store import Database
from memtui.cli.main import main
from memtui.core.errors import UserError
from tests.support.bench_database import add, of_another_version, row
from tests.support.bench_readings import PLAN
from tests.support.cli import memtui, refused

CONFIGURATIONS = product("linear", {"m": [1, 2, 3], "in": [8, 16]})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bench.db"


def filled(path, *rows, name="here"):
    with closing(Database(path)) as database:
        add(database, *rows, name=name)
    return path


def charts_of(path, **more):
    with closing(Database(path, writable=False)) as database:
        return costs.charts(costs.read(database, **more)[0])


def text_of(file) -> str:
    return " ".join("".join(element.itertext()) for element in ElementTree.parse(file).iter())


class TestCosts:
    def test_a_row_for_each_configuration_with_time_power_and_energy(self, path):
        (chart,) = charts_of(filled(path, *map(row, CONFIGURATIONS)))
        assert [axis.name for axis in chart.axes] == ["time of a call", "power", "energy of a call"]
        assert [r.name for r in chart.rows] == [
            "m=1 in=8",
            "m=1 in=16",
            "m=2 in=8",
            "m=2 in=16",
            "m=3 in=8",
            "m=3 in=16",
        ]
        assert {tuple(bar.text for bar in r.bars) for r in chart.rows} == {("1.00 ms", "250 W", "250 mJ")}
        assert "all: out=" in " ".join(chart.subtitle), "what is common stands once"
        assert any("here" in text for text in chart.subtitle)

    def test_without_a_source_of_energy_the_reason_is_a_note(self, path):
        without = {"energy_j": None, "power_w": None, "energy_status": "unavailable", "energy_reason": "no RAPL zone"}
        (chart,) = charts_of(filled(path, row(**without)))
        assert [axis.name for axis in chart.axes] == ["time of a call"]
        assert "power and energy: n/a: no RAPL zone" in chart.notes

    def test_what_is_absent_in_one_row_is_na_there(self, path):
        without = {"energy_j": None, "power_w": None, "energy_status": "unavailable", "energy_reason": "it stood still"}
        first, second = CONFIGURATIONS[:2]
        (chart,) = charts_of(filled(path, row(first), row(second, **without)))
        assert [bar.text for bar in chart.rows[1].bars[1:]] == ["n/a", "n/a"]
        assert chart.rows[1].bars[2].value is None
        assert "energy: n/a in 1 of 2 rows: it stood still" in chart.notes

    def test_an_estimate_is_called_so(self, path):
        guess = {"energy_j": None, "power_w": None, "energy_status": "unavailable", "energy_reason": "none"}
        (chart,) = charts_of(filled(path, row(**guess, estimate_j=2.0, estimate_model="user watts x wall")))
        assert chart.rows[0].bars[-1].text == "~2.00 J"
        assert any(note.startswith("~ is an estimate") for note in chart.notes)

    def test_a_failure_has_its_reason_and_undoes_no_measurement(self, path):
        first, second = CONFIGURATIONS[:2]
        rows = row(first), failed(first, PLAN, "out of memory", "20 GiB"), failed(second, PLAN, "out of memory", "")
        (chart,) = charts_of(filled(path, *rows))
        assert chart.rows[0].bars[0].text == "1.00 ms"
        assert (chart.rows[1].bars, chart.rows[1].reason) == ((), "out of memory")

    def test_the_newest_row_counts(self, path):
        filled(path, row(call_ns=1e6))
        (chart,) = charts_of(filled(path, row(call_ns=2e6)))
        assert [r.bars[0].text for r in chart.rows] == ["2.00 ms"]

    def test_flags_are_marked_and_explained(self, path):
        (chart,) = charts_of(filled(path, row(flags=("noisy",))))
        assert chart.rows[0].name.endswith(" *")
        assert any(note.startswith("* noisy (1): its blocks vary") for note in chart.notes)

    def test_devices_and_operators_have_charts_of_their_own(self, path):
        filled(path, row(), row(make("relu", {})), name="first")
        filled(path, row(), name="second")
        names = [chart.name for chart in charts_of(path)]
        assert names == ["costs-linear-device-1", "costs-relu-device-1", "costs-linear-device-2"]

    def test_what_was_wanted_comes_in_its_order_and_of_the_device_that_measured_last(self, path):
        filled(path, *map(row, CONFIGURATIONS), name="old")
        filled(path, *map(row, CONFIGURATIONS[:3]), name="new")
        wanted = [CONFIGURATIONS[2], CONFIGURATIONS[0]]
        (chart,) = charts_of(path, wanted=wanted)
        assert [r.name for r in chart.rows] == ["m=2", "m=1"]
        assert "new" in chart.subtitle[0]

    def test_many_configurations_are_divided(self, path, monkeypatch):
        monkeypatch.setattr(costs, "ROWS", 4)
        charts = charts_of(filled(path, *map(row, CONFIGURATIONS)))
        assert [(chart.name, len(chart.rows)) for chart in charts] == [
            ("costs-linear-1-of-2", 3),
            ("costs-linear-2-of-2", 3),
        ]


class TestNetwork:
    NETWORK, CONV, RELU = make("resnet50", {"size": 64}), make("conv2d", {"n": 1}), make("relu", {})

    def composed(self, *, energy=True):
        times = {self.NETWORK: 100.0, self.CONV: 20.0, self.RELU: 4.0}
        rows = [
            BenchRow(c, PLAN, call_ns=1.0, windows=(BenchWindow(0, 1, 1, (ns,)),),
                     energy_j=ns / 50 if energy else None, energy_reason="" if energy else "no RAPL")
            for c, ns in times.items()
        ]  # fmt: skip
        return compose(self.NETWORK, {self.CONV: 3, self.RELU: 5}, rows)

    def test_operators_stand_one_after_another_until_they_are_the_sum(self):
        chart = network.chart(self.composed(), "cpu here")
        assert [r.name for r in chart.rows] == ["the network", "conv2d, 3", "relu, 5", "sum of 8 calls"]
        starts = [(r.bars[0].start, r.bars[0].value) for r in chart.rows[1:3]]
        assert starts == [(0.0, pytest.approx(60e-9)), (pytest.approx(60e-9), pytest.approx(20e-9))]
        assert chart.rows[3].bars[0].value == pytest.approx(80e-9)
        assert chart.rows[1].bars[0].text == "60.0 ns, 60.0 %"
        assert chart.rows[3].bars[1].value == pytest.approx(1.6)
        assert "time: the sum is 80.0 % of the network; energy: the sum is 80.0 % of the network" in chart.subtitle

    def test_without_energy_the_reason_is_a_note(self):
        chart = network.chart(self.composed(energy=False), "cpu here")
        assert [axis.name for axis in chart.axes] == ["time of a pass"]
        assert "energy is unavailable: no RAPL" in chart.notes

    def test_what_was_not_compared_is_not_drawn(self):
        assert network.chart(replace(self.composed(), time=None, reason="out of memory"), "here") is None


class TestPredictions:
    SAMPLES = Samples(
        tuple(map(describe, CONFIGURATIONS)), np.log(np.arange(1.0, 7.0) * 1e6), tuple("abcdef"), np.zeros(6, bool)
    )

    def test_points_are_values_in_the_unit_of_the_axis(self):
        log = self.SAMPLES.log
        answers = Answers({"trees": Ranged(log + np.log(1.1), log - 1, log + 1)}, np.array([True] + [False] * 5))
        chart = predicted.against_measured("time", "trees", answers, self.SAMPLES, "cpu here", ["energy: n/a: none"])
        (points,) = chart.groups.values()
        assert list(chart.groups) == ["linear (6)"]
        assert [point.measured for point in points] == pytest.approx([n * 1e-3 for n in range(1, 7)])
        assert points[0].predicted == pytest.approx(1.1e-3)
        assert [point.outside for point in points] == [True] + [False] * 5
        assert chart.error == pytest.approx(0.1)
        assert "mean error 10.0 %" in chart.subtitle[1]
        assert "energy: n/a: none" in chart.notes

    def test_predicted_costs_have_their_range_and_the_measured_value(self):
        wanted = CONFIGURATIONS[:2]
        document = {"call_ns": 2e6, "low_ns": 1e6, "high_ns": 4e6, "power_w": None, "energy_j": None,
                    "energy_reason": "no RAPL", "outside": [], "measured_ns": 3e6, "measured_j": None}  # fmt: skip
        documents = [document, {**document, "outside": ["log2 flops"], "measured_ns": None}]
        (chart,) = predicted.of_configurations("What it costs", Titles(wanted), wanted, documents, "cpu here")
        assert [axis.name for axis in chart.axes] == ["time of a call"]
        first, second = (row.bars[0] for row in chart.rows)
        assert (first.value, first.low, first.high, first.mark) == pytest.approx((2e-3, 1e-3, 4e-3, 3e-3))
        assert second.mark is None
        assert [row.name.endswith("(outside)") for row in chart.rows] == [False, True]
        assert "power and energy: n/a: no RAPL" in chart.notes
        assert any("which the model was fitted to" in note for note in chart.notes)

    @pytest.mark.parametrize("form", ["svg", "html"])
    def test_many_configurations_are_divided_and_one_table_has_all(self, form, tmp_path, monkeypatch):
        monkeypatch.setattr(costs, "ROWS", 4)
        document = {"call_ns": 2e6, "low_ns": 1e6, "high_ns": 4e6, "energy_reason": "no RAPL", "outside": []}
        wanted, documents = CONFIGURATIONS, [document] * len(CONFIGURATIONS)
        charts = predicted.of_configurations("What it costs", Titles(wanted), wanted, documents, "here")
        assert [(chart.name, chart.title, len(chart.rows)) for chart in charts] == [
            ("predict-1-of-2", "What it costs, part 1 of 2", 3),
            ("predict-2-of-2", "What it costs, part 2 of 2", 3),
        ]
        files = output.FigureOptions(form, tmp_path / "out", False).write_predictions("here", charts)
        names = ["predict.html"] if form == "html" else ["predict-1-of-2.svg", "predict-2-of-2.svg"]
        assert files == [str(tmp_path / "out" / name) for name in names]
        if form == "html":
            page = (tmp_path / "out" / "predict.html").read_text()
            assert "part 2 of 2" in page
            assert f"Predictions ({len(wanted)})" in page
            cells = page.partition("<tbody>")[2]
            assert all(titled in cells for titled in ("m=1 in=8", "m=3 in=16"))

    def test_a_network_is_the_sum_of_its_calls(self):
        wanted = CONFIGURATIONS[:2]
        document = {"call_ns": 1e6, "low_ns": 0.5e6, "high_ns": 2e6, "power_w": 50.0, "power_low_w": 40.0,
                    "power_high_w": 60.0, "energy_j": 0.05, "energy_reason": "", "outside": [], "calls": 2}  # fmt: skip
        whole = {"call_ns": 7e6, "power_w": 50.0, "energy_j": 0.35, "outside": 0, "operators": 2}
        documents = [document, {**document, "calls": 5}]
        (chart,) = predicted.of_network("net", whole, Titles(wanted), wanted, documents, "here")
        assert [row.name for row in chart.rows] == ["the network, one pass", "5 x linear in=16", "2 x linear in=8"]
        assert [row.bars[0].value for row in chart.rows] == pytest.approx([7e-3, 5e-3, 2e-3])
        assert [row.bars[1].value for row in chart.rows] == [50.0] * 3, "watts of many calls are those of one"
        assert [axis.name for axis in chart.axes] == ["time of these calls", "power", "energy of these calls"]


class TestCommand:
    def test_the_database_is_drawn_as_svg_and_as_a_page(self, path, tmp_path):
        filled(path, *map(row, CONFIGURATIONS))
        done = memtui("bench", "db", "export", "--to", "svg", "-o", tmp_path / "out", "--db", path)
        assert done.stdout.split() == [str(tmp_path / "out" / "costs-linear.svg")]
        assert "m=3 in=16" in text_of(tmp_path / "out" / "costs-linear.svg")
        done = memtui("bench", "db", "export", "linear", "--to", "html", "-o", tmp_path / "out", "--db", path)
        page = (tmp_path / "out" / "costs.html").read_text()
        assert page.count("<svg") == 1
        assert "linear m=3 in=16" in page
        assert "Content-Security-Policy" in page

    def test_files_that_are_there_stay(self, path, tmp_path):
        filled(path, row())
        argv = "bench", "db", "export", "--to", "svg", "-o", tmp_path / "out", "--db", path
        assert memtui(*argv).returncode == 0
        refused(memtui(*argv), "exists already; choose another folder or add --force")
        assert memtui(*argv, "--force").returncode == 0

    @pytest.mark.parametrize(
        ("argv", "says"),
        [
            (("relu", "--to", "svg"), "both a form and a folder: --to svg -o DIR"),
            (("relu", "-o", "out"), "both a form and a folder"),
            (("relu", "--to", "svg", "-o", "out", "--json"), "not both"),
            (("list", "--to", "svg", "-o", "out"), "figures are of an operator, a network"),
            (("db", "info", "--to", "svg", "-o", "out"), "figures are of an operator, a network"),
            (("predict", "fit", "--to", "svg", "-o", "out"), "predict fit has no figures"),
            (("relu", "--to", "svg", "-o", "out", "--print-sbatch"), "jobs draw nothing"),
            (("db", "export", "rela", "--to", "svg", "-o", "out"), "there is no operator rela; did you mean"),
        ],
    )
    def test_bad_input_is_one_line(self, argv, says):
        refused(memtui("bench", *argv), says)

    def test_an_empty_answer_is_refused(self, path, tmp_path):
        filled(path, row())
        argv = "bench", "db", "export", "relu", "--to", "svg", "-o", tmp_path / "out", "--db", path
        refused(memtui(*argv), "has no measurement of relu to draw")
        assert not (tmp_path / "out").exists()

    def test_rows_of_another_version_are_left_out_and_counted(self, path, tmp_path, capsys):
        filled(path, *map(row, CONFIGURATIONS[:2]))
        of_another_version(path, CONFIGURATIONS[0], "lineal")
        paths = output.FigureOptions("svg", tmp_path / "out", False).write_costs(path)
        assert len(paths) == 1
        assert "1 row is left out, which another version of memtui wrote" in capsys.readouterr().err

    def test_a_folder_that_is_a_file_is_refused_before_measuring(self, tmp_path):
        (tmp_path / "out").write_text("")
        with pytest.raises(UserError, match="is not a folder"):
            output.FigureOptions("svg", tmp_path / "out", False).check(output.COSTS)

    def test_a_folder_that_takes_no_file_is_refused_before_measuring(self):
        with pytest.raises(UserError, match=r"^/proc/1/out: cannot be written: .*with -o"):
            output.FigureOptions("svg", Path("/proc/1/out"), False).check(output.COSTS)
        with pytest.raises(UserError, match=r"^/proc/1: cannot be written: .*with -o"):
            output.FigureOptions("svg", Path("/proc/1"), False).check(output.COSTS)

    def test_the_check_of_a_folder_leaves_nothing(self, tmp_path):
        output.FigureOptions("html", tmp_path / "out" / "deep", False).check(output.COSTS)
        assert not (tmp_path / "out").exists()
        (tmp_path / "costs.html").write_text("old")
        output.FigureOptions("html", tmp_path, True).check(output.COSTS)
        assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]

    def test_a_measurement_is_drawn_when_it_ends(self, path, tmp_path, monkeypatch, capsys):
        pytest.importorskip("torch")
        lock = tmp_path / "lock"  # of this test alone
        lock.touch()
        monkeypatch.setattr(sweep, "lock_path", lambda source: lock)
        fast = "--windows 2 --seconds 0.05 --warm-up 0.1 --threads 1 --cache warm --grid elements=1000,100000"
        argv = ["bench", "relu", *fast.split(), "--db", str(path), "--to", "svg", "-o", str(tmp_path / "out")]
        assert main(argv) == 0
        assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "out" / "costs-relu.svg")
        assert {"elements=1000", "elements=100000"} <= set(text_of(tmp_path / "out" / "costs-relu.svg").split())
