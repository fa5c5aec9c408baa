"""``memtui bench predict`` as it is typed, on databases of a device whose law is known."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from memtui.bench.configuration import make
from memtui.bench.plan import BenchPlan
from memtui.bench.predict.training import load
from memtui.bench.result import BenchRow, failed
from memtui.bench.spaces import in_space
from memtui.bench.store import Database
from memtui.core.errors import UserError
from tests.support.bench_database import of_another_version, row
from tests.support.cli import memtui
from tests.support.imports import loaded
from tests.support.in_process import memtui_here
from tests.support.networks import write_networks
from tests.support.synthetic_device import NOISE, call_ns
from tests.support.terminals import terminals

PLAN = BenchPlan(windows=3, seconds=1.0)
WATTS = 80.0
CONVOLUTIONS = in_space("predict", "conv2d", {})


def rows(configurations, *, slow=1.0, plan=PLAN, flags=(), **energy) -> list[BenchRow]:
    """One of each, ``slow`` times as long as on the device of that law."""
    chance = np.random.default_rng(3)
    return [
        BenchRow(c, plan, call_ns=slow * call_ns(c) * float(np.exp(chance.normal(0, NOISE))), flags=flags, **energy)
        for c in configurations
    ]


def with_energy(found: list[BenchRow], source="rapl") -> list[BenchRow]:
    return [
        replace(r, energy_status="measured", energy_source=source, energy_scope="cpu_package",
                energy_j=WATTS * r.call_ns / 1e9)
        for r in found
    ]  # fmt: skip


def add(path, found: list[BenchRow], *, name="here", threads=1) -> str:
    """A run of them on a device; its name."""
    with closing(Database(path)) as database:
        device, environment = database.device("cpu", name, ""), database.environment({"threads": threads})
        run = database.start_run(PLAN, None, "")
        for one in found:
            database.add(one, run, device, environment)
    return run


def loaded_from(path, **more):
    with closing(Database(path, writable=False)) as database:
        return load(database, **more)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bench.db"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "predict fit [OP...], predict eval [OP...], or predict run OP|NETWORK"),
        (("learn",), "bench predict has no 'learn'"),
        (("run",), "name one operator or network"),
        (("run", "relu", "gelu"), "name one operator or network"),
        (("run", "conv4d"), "there is no operator conv4d; did you mean conv"),
        (("fit", "conv4d"), "there is no operator conv4d"),
        (("run", "conv2d", "--grid", "q=3"), "conv2d has no parameter q"),
        (("run", "conv2d", "--grid", "h=7", "--space", "small"), "one of them"),
        (("eval", "--grid", "h=7"), "predict eval takes what was measured"),
        (("fit", "--dtype", "bf16"), "predict fit takes what was measured"),
        (("fit", "--db", "/nowhere.db"), "/nowhere.db: No such file"),
    ],
)
def test_bad_input_is_one_line(argv, message):
    if "--db" in argv:
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    result = memtui_here("bench", "predict", *argv)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


def test_without_scikit_learn_it_says_what_to_install(path):
    add(path, rows(CONVOLUTIONS[:30]))
    code = "import sys; sys.modules['sklearn'] = None; from memtui.cli.main import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", code, "bench", "predict", "fit", "--db", str(path)]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "pip install 'memtui[predict]'" in result.stderr


def test_nothing_else_loads_scikit_learn():
    assert "sklearn" not in loaded("import memtui.bench.command, memtui.bench.predict.command")


class TestRows:
    """Which of a database are taken."""

    def test_only_the_finished_ones_and_each_configuration_once(self, path):
        measured = rows(CONVOLUTIONS[:30])
        lost = [failed(c, PLAN, "out of memory", "") for c in CONVOLUTIONS[30:40]]
        add(path, [*measured, *lost, replace(measured[0], reference=True, call_ns=1.0)])
        result = loaded_from(path)
        assert {row.configuration for row in result.rows} == set(CONVOLUTIONS[:30])
        assert result.left_out == {}
        assert min(row.call_ns for row in result.rows) > 1

    def test_what_has_no_time_or_is_unknown_is_left_out_and_told(self, path):
        first, second, *others = rows(CONVOLUTIONS[:30])
        add(path, [replace(first, call_ns=None), replace(second, call_ns=0.0), *others])
        of_another_version(path, CONVOLUTIONS[5], "conv9d")
        result = loaded_from(path)
        assert len(result.rows) == 27
        assert result.left_out == {"without a time": 2, "of a configuration that this memtui does not know": 1}

    def test_the_longest_measurement_counts_and_the_newest_of_these(self, path):
        first, second = rows(CONVOLUTIONS[:30], slow=2), rows(CONVOLUTIONS[:30])
        short = rows(CONVOLUTIONS[:30], slow=3, plan=BenchPlan(windows=3, seconds=0.05))
        add(path, [*first, *second, *short])
        result = loaded_from(path)
        assert [row.call_ns for row in result.rows] == [row.call_ns for row in second]
        assert result.left_out == {"measured again": 60}

    def test_of_one_device_and_one_environment(self, path):
        old = add(path, rows(CONVOLUTIONS[:25], slow=10), name="other")
        add(path, rows(CONVOLUTIONS[:40], slow=5), threads=8)
        add(path, rows(CONVOLUTIONS[:20]))
        newest = add(path, rows(CONVOLUTIONS[20:30]))
        result = loaded_from(path)
        assert (result.measured_on.device, result.measured_on.environment, result.measured_on.run) == (
            "here",
            {"threads": 1},
            newest,
        )
        assert len(result.rows) == 30, "all runs of the place"
        assert max(row.call_ns / call_ns(row.configuration) for row in result.rows) < 1.5
        assert [(p.device, p.configurations) for p in result.others] == [("here", 40), ("other", 25)]
        assert loaded_from(path, runs=[old[:6]]).measured_on.device == "other"
        with pytest.raises(UserError, match="no run whose name begins with zz"):
            loaded_from(path, runs=["zz"])

    def test_of_operators_that_are_named(self, path):
        add(path, rows(CONVOLUTIONS[:30]))
        relu = [BenchRow(make("relu", {"elements": 100 * n}), PLAN, call_ns=100.0 * n) for n in range(1, 25)]
        add(path, relu, name="other")
        assert loaded_from(path, operators=("conv2d",)).measured_on.device == "here"
        assert {row.configuration.op for row in loaded_from(path).rows} == {"relu"}
        with pytest.raises(UserError, match="has no finished row of gelu"):
            loaded_from(path, operators=("gelu",))

    def test_too_few_are_refused(self, path):
        add(path, [*rows(CONVOLUTIONS[:15]), *rows(CONVOLUTIONS[15:22], flags=("noisy",))])
        assert len(loaded_from(path).rows) == 22
        with pytest.raises(UserError, match=r"15 usable rows are too few .* needs 20 \(7 more are flagged\)"):
            loaded_from(path, unflagged=True)

    def test_many_batches_of_a_few_shapes_are_refused(self, path):
        add(path, rows([make("conv2d", {"n": n, "h": h}) for n in range(1, 11) for h in (7, 14, 28, 56)]))
        with pytest.raises(UserError, match="rows of 4 shapes are too few for a model, which needs 5"):
            loaded_from(path)

    def test_energy_of_one_source_without_a_doubt(self, path):
        sure = with_energy(rows(CONVOLUTIONS[:25]))
        doubted = with_energy(rows(CONVOLUTIONS[25:30], flags=("sensor_disagreement",)))
        add(path, [*with_energy(rows(CONVOLUTIONS[30:40]), "another"), *rows(CONVOLUTIONS[40:50]), *doubted, *sure])
        result = loaded_from(path)
        assert (result.energy_source, result.energy_reason) == ("rapl cpu_package", "")
        assert np.exp(result.energy().log) == pytest.approx([r.energy_j for r in sure])
        assert len(result.time().rows) == 50

    @pytest.mark.parametrize(
        ("count", "message"), [(0, "it was not measured: no RAPL"), (4, "4 usable rows are too few")]
    )
    def test_without_energy_there_is_a_reason(self, path, count, message):
        some = rows(CONVOLUTIONS[:30], energy_reason="no RAPL")
        add(path, [*with_energy(some[:count]), *some[count:]])
        result = loaded_from(path)
        assert result.energy() is None
        assert message in result.energy_reason


class TestFitted:
    """With scikit-learn."""

    @pytest.fixture(autouse=True)
    def few_trees(self, monkeypatch):
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")
        from memtui.bench.predict import trees

        monkeypatch.setattr(trees, "TREES", 20)

    def test_fit_says_on_what_and_by_what(self, path):
        add(path, with_energy(rows(CONVOLUTIONS[:200])))
        document = json.loads(memtui_here("bench", "predict", "fit", "--db", path, "--json", timeout=120).stdout)
        assert (document["rows"], document["time"]["rows"], document["energy"]["rows"]) == (200, 200, 200)
        for target in ("time", "energy"):
            result = document[target]["features"]
            assert sum(one["importance"] for one in result) == pytest.approx(1)
            assert result == sorted(result, key=lambda one: -one["importance"])
            assert {"log2 flops", "log2 bytes", "way=conv2d depthwise"} <= {one["name"] for one in result}
            assert all(one["low"] < one["high"] for one in result)
        text = memtui("bench", "predict", "fit", "--db", path, timeout=120).stdout
        assert "fitted to 200 rows of" in text
        assert "conv2d depthwise: ns for each\n" in text
        assert "conv2d depthwise: nJ for each\n" in text
        units = document["time"]["steps"]["conv2d blocks of channels"]
        assert all(value >= 0 for value in units.values())
        assert units["operations, filled"] > 0

    def test_eval_puts_the_model_beside_baselines(self, path):
        add(path, [*rows(CONVOLUTIONS[:80], energy_reason="no RAPL"),
                   *rows(CONVOLUTIONS[80:160], flags=("noisy",), energy_reason="no RAPL"),
                   *(BenchRow(make("relu", {"elements": 1 << n}), PLAN, call_ns=2.0**n, energy_reason="no RAPL")
                     for n in range(5, 20))])  # fmt: skip
        result = memtui_here("bench", "predict", "eval", "--db", path, "--json", timeout=240)
        assert result.returncode == 0, result.stderr
        document = json.loads(result.stdout)
        sections = {(s["kind"], s["op"]): s for s in document["time"]["sections"]}
        shapes = sections["shapes", ""]["scores"]
        assert set(shapes) == {"steps and trees", "log-linear", "nearest"}
        assert shapes["steps and trees"]["rows"] == 175
        assert shapes["steps and trees"]["mape"] < min(shapes["log-linear"]["mape"], shapes["nearest"]["mape"])
        assert shapes["steps and trees"]["coverage"] == pytest.approx(0.9, abs=0.08)
        assert sections["unflagged", ""]["scores"]["nearest"]["rows"] == 95
        assert sections["of operator", "relu"]["scores"]["log-linear"]["rows"] == 15
        assert sections["left out", "relu"]["scores"]["nearest"]["rows"] == 15
        assert (sections["left out", "conv2d"]["scores"], document["energy"]["sections"]) == ({}, [])
        assert "the others have 15 rows" in sections["left out", "conv2d"]["reason"]
        assert document["energy"]["reason"] == "it was not measured: no RAPL"
        draw = ("--to", "svg", "-o", path.parent / "out")
        text = memtui_here("bench", "predict", "eval", "conv2d", "--unflagged", "--db", path, *draw, timeout=240).stdout
        assert text.endswith(f"{path.parent / 'out' / 'predict-time.svg'}\n"), "no figure without energy"
        figure = (path.parent / "out" / "predict-time.svg").read_text()
        assert "conv2d (80)" in figure
        assert "energy and power: n/a: it was not measured: no RAPL" in figure
        assert text.count("steps and trees") == 1 + ("outside" in text)
        assert "rows: 80, 0 of them flagged; left out: 80 flagged" in text

    @pytest.mark.slow
    def test_a_terminal_hears_what_it_does(self, path):
        add(path, rows(CONVOLUTIONS[:80], energy_reason="no RAPL"))
        with terminals() as start:
            terminal = start("bench", "predict", "eval", "--db", path)
            assert terminal.end(240) == 0
            text = terminal.output.decode()
        assert "memtui bench: predict eval: fitting models to 80 rows" in text
        assert text.rindex("steps and trees") > text.rindex("fitting models"), "the answer is alone in the end"

    def test_run_predicts_with_a_range(self, path):
        add(path, with_energy(rows(CONVOLUTIONS[::2])))
        argv = ("bench", "predict", "run", "conv2d", "--space", "predict", "--db", path, "--json")
        document = json.loads(memtui_here(*argv, timeout=120).stdout)
        unseen = [one for one in document["predictions"] if one["measured_ns"] is None]
        true = {c.key: call_ns(c) for c in CONVOLUTIONS}
        assert (len(document["predictions"]), len(unseen)) == (240, 120)
        inside = [one["low_ns"] < true[one["key"]] < one["high_ns"] for one in unseen]
        assert np.mean(inside) == pytest.approx(0.9, abs=0.1)
        errors = [abs(one["call_ns"] / true[one["key"]] - 1) for one in unseen]
        assert np.median(errors) < 0.2
        watts = [one["energy_j"] / one["call_ns"] * 1e9 for one in unseen]
        assert np.median(watts) == pytest.approx(WATTS, rel=0.05)
        assert all(one["energy_low_j"] < one["energy_j"] < one["energy_high_j"] for one in unseen)

    def test_run_predicts_watts_beside_time_and_joules(self, path):
        """A law with two powers: convolutions of one pixel draw less."""
        found = with_energy(rows(CONVOLUTIONS))
        found = [replace(r, energy_j=r.energy_j / (2 if r.configuration.parameters["k"] == 1 else 1)) for r in found]
        add(path, found)
        argv = ("bench", "predict", "run", "conv2d", "--grid", "k=1,3", "--grid", "n=8", "--db", path)
        document = json.loads(memtui_here(*argv, "--json", timeout=120).stdout)
        watts = {one["parameters"]["k"]: one["power_w"] for one in document["predictions"]}
        assert watts == {1: pytest.approx(WATTS / 2, rel=0.05), 3: pytest.approx(WATTS, rel=0.05)}
        assert all(one["power_low_w"] < one["power_w"] < one["power_high_w"] for one in document["predictions"])
        text = memtui_here(*argv, timeout=120).stdout
        assert "J/call" in text
        assert any(line.split()[:1] == ["time"] and "watts" in line for line in text.splitlines())

    def test_a_network_is_predicted_as_the_sum_of_its_operators(self, path):
        add(path, with_energy(rows(in_space("predict", "conv2d", {"cache": "warm", "weights": "same"}))))
        argv = ("bench", "predict", "run", "resnet50", "--db", path)
        document = json.loads(memtui_here(*argv, "--json", timeout=120).stdout)
        network, parts = document["network"], document["predictions"]
        assert (network["calls"], network["operators"], len(parts)) == (174, 48, 48)
        assert sum(one["calls"] for one in parts) == 174
        for key in ("call_ns", "low_ns", "high_ns", "energy_j", "energy_low_j", "energy_high_j"):
            assert network[key] == pytest.approx(sum(one["calls"] * one[key] for one in parts))
        assert network["power_w"] == pytest.approx(network["energy_j"] / network["call_ns"] * 1e9)
        assert network["outside"] >= 25, "nothing but convolutions was measured"
        assert 0 < network["outside_time_share"] < 1
        text = memtui_here(*argv, timeout=120).stdout
        assert "resnet50 n=1 size=224 cache=warm weights=same: 174 calls of 48 operators a pass" in text
        assert any(line.split()[:1] == ["calls"] for line in text.splitlines())

    def test_a_network_of_the_users_is_predicted_and_held_against_its_row(self, tmp_path, path):
        pytest.importorskip("torch", reason="torch is not installed")
        file = write_networks(tmp_path)
        add(path, rows(in_space("predict", "conv2d", {"cache": "warm", "weights": "same"}), energy_reason="no RAPL"))
        argv = ("bench", "predict", "run", f"{file}:small", "--db", path, "--json")
        first = json.loads(memtui_here(*argv, timeout=120).stdout)["network"]
        assert (first["calls"], first["measured_ns"], first["power_w"]) == (14, None, None)
        assert first["coverage"]["leaf_modules_covered"] == 9
        whole = make("network", {"cache": "warm", "weights": "same", **first["parameters"]})
        add(path, [BenchRow(whole, PLAN, call_ns=12345.0, energy_reason="no RAPL")])
        again = json.loads(memtui_here(*argv, timeout=120).stdout)
        assert again["network"]["measured_ns"] == 12345.0
        assert again["network"]["call_ns"] == pytest.approx(first["call_ns"]), "no model is fitted to a whole network"
        assert again["rows"] == 240

    @pytest.mark.slow
    def test_several_devices_are_fitted_together(self, path):
        """A second device, three times as slow, of which ten rows are too few for a model of its own."""
        first = add(path, with_energy(rows(CONVOLUTIONS)), name="fast")
        add(path, with_energy(rows(CONVOLUTIONS[::24], slow=3)), name="slow")
        argv = ("bench", "predict", "run", "conv2d", "--space", "predict", "--db", path, "--json")
        alone = memtui_here(*argv, timeout=120)
        assert (alone.returncode, "10 usable rows are too few" in alone.stderr) == (2, True)
        document = json.loads(memtui_here(*argv, "--from-run", "all", timeout=120).stdout)
        assert (document["place"]["device"], [p["device"] for p in document["together"]]) == ("slow", ["fast"])
        assert (document["rows"], document["others"]) == (250, [])
        predictions, true = document["predictions"], {c.key: 3 * call_ns(c) for c in CONVOLUTIONS}
        assert sum(one["measured_ns"] is not None for one in predictions) == 10, "rows of the other are not its own"
        errors = [abs(one["call_ns"] / true[one["key"]] - 1) for one in predictions if one["measured_ns"] is None]
        assert np.median(errors) < 0.35
        assert np.median([one["power_w"] for one in predictions]) == pytest.approx(WATTS, rel=0.05)
        other = json.loads(memtui_here(*argv, "--from-run", first[:8], "--from-run", "all", timeout=120).stdout)
        assert other["place"]["device"] == "fast", "the first that is named is predicted for"
        text = memtui_here("bench", "predict", "run", "conv2d", "--db", path, "--from-run", "all", timeout=120).stdout
        assert "fitted together with 240 of cpu fast (threads 1)" in text

    def test_the_clock_is_a_feature_where_it_is_known(self, path):
        """A GPU whose time goes with its clock, each half of its rows measured at another one."""
        template, chance = row(), np.random.default_rng(5)
        found = [
            replace(
                template, configuration=c, call_ns=call_ns(c) * 1000 / mhz, states=({"sm_mhz": mhz},) * 3,
                energy_j=call_ns(c) / 1e7,
            )
            for c in CONVOLUTIONS
            for mhz in [int(chance.choice((1000, 2000)))]
        ]  # fmt: skip
        add(path, found)
        assert {r.clock_mhz for r in loaded_from(path).rows} == {1000.0, 2000.0}
        argv = ("bench", "predict", "run", "conv2d", "--space", "small", "--db", path)
        slow, fast = (
            json.loads(memtui_here(*argv, "--clock", mhz, "--json", timeout=120).stdout) for mhz in ("1000", "2000")
        )
        pairs = zip(slow["predictions"], fast["predictions"], strict=True)
        assert np.median([one["call_ns"] / other["call_ns"] for one, other in pairs]) == pytest.approx(2, rel=0.2)
        beyond = memtui_here(*argv, "--clock", "3000", timeout=120).stdout
        assert "clock that is predicted for: 3000 MHz" in beyond
        assert "log2 clock MHz" in beyond, "outside of what was measured"
        bad = memtui_here(*argv, "--clock", "-1")
        assert (bad.returncode, "must be from above 0 to 100000 MHz" in bad.stderr) == (2, True)

    def test_run_flags_what_is_outside(self, path):
        add(path, rows(CONVOLUTIONS, energy_reason="no RAPL"))
        grid = ("--grid", "h=28,500", "--grid", "n=8", "--grid", "groups=1", "--grid", "cin=64", "--grid", "cout=64")
        result = memtui("bench", "predict", "run", "conv2d", *grid, "--db", path, timeout=120)
        assert result.returncode == 0, result.stderr
        inside, outside = (line for line in result.stdout.splitlines() if "  conv2d h=" in line)
        assert "configuration (all: n=8 cin=64 cout=64" in result.stdout
        assert "[outside: " not in inside
        assert "[outside: log2 flops" in outside
        assert "1 of 2 are outside of what was measured" in result.stdout
        assert "energy: n/a: it was not measured: no RAPL" in result.stdout
        document = json.loads(
            memtui_here("bench", "predict", "run", "gelu", "--db", path, "--json", timeout=120).stdout
        )
        (one,) = document["predictions"]
        assert one["outside"] == ["op=gelu"]
        assert (one["energy_j"], one["energy_low_j"]) == (None, None)
