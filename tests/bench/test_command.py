"""``memtui bench`` as it is typed."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from itertools import pairwise
from statistics import fmean

import pytest

from memtui.bench import command, window_length
from memtui.bench.configuration import make
from memtui.bench.jobs import from_environment, part
from memtui.bench.operators import CATALOGUE
from memtui.bench.store import Database
from memtui.cli.main import main
from memtui.core.errors import UserError
from memtui.core.file_lock import lock_holder
from memtui.probes.power.energy_source import WHOLE_MACHINE
from tests.support.bench_database import add, row
from tests.support.cli import memtui
from tests.support.in_process import memtui_here
from tests.support.networks import write_networks

COMMAND = (sys.executable, "-m", "memtui")
FAST = ("--windows", "2", "--seconds", "0.05", "--threads", "1", "--cache", "warm", "--warm-up", "0.1")
SILENT_S = 10.0 + 1.0  # without a terminal: a line every 9 s, and a second for a machine that is busy


def rows_in(path) -> list[dict]:
    with closing(Database(path)) as database:
        return list(database.rows())


def test_operators_are_listed():
    result = memtui("bench", "list")
    assert result.returncode == 0
    assert all(name in result.stdout for name in CATALOGUE)
    document = json.loads(memtui("bench", "list", "--json").stdout)
    assert {one["name"] for one in document["operators"]} == set(CATALOGUE)
    assert document["operators"][0]["parameters"]["cin"] == 64


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("conv4d",), "there is no operator conv4d; did you mean conv"),
        (("zzz",), "there is no operator zzz; memtui bench list names them"),
        (("relu", "more"), "unexpected argument 'more'"),
        (("relu", "--grid", "cin=3"), "relu has no parameter cin; it has elements"),
        (("relu", "--grid", "elements"), "not of the form key=value"),
        (("conv2d", "--grid", "h=2,56", "--grid", "k=7", "--grid", "p=0"), "a kernel of 7 does not fit"),
        (("relu", "--grid", "elements=5", "--space", "small"), "one of them"),
        (("gelu", "--space", "resnet50"), "the space resnet50 has no gelu; it has conv2d"),
        (("relu", "--dtype", "tf32"), "tf32 is a type of CUDA devices"),
        (("relu", "--device", "gpu"), "must be cpu or cuda:N, not 'gpu'"),
        (("relu", "--shard", "4/4"), "shard 4 is out of range: of 4 they are 0 to 3"),
        (("relu", "--shard", "one"), "'one' is not of the form i/n"),
        (("relu", "--shard", "3/4"), "shard 3/4 has none of 1 configurations"),
        (("relu", "--windows", "0"), "must be a whole number from 1 to 1000"),
        (("relu", "--assume-watts", "-3"), "must be above 0 watts"),
        (
            ("relu", "--config", "/nowhere.toml"),
            "/nowhere.toml: cannot be read: No such file or directory; check the name",
        ),
        (("resolution",), "name an operator: memtui bench resolution conv2d"),
        (("resolution", "conv4d"), "there is no operator conv4d; did you mean conv"),
        (("resolution", "relu", "--grid", "elements=1,2"), "of one configuration, not of 2"),
        (("resolution", "relu", "--seconds", "3"), "--seconds has no meaning"),
        (("resolution", "relu", "--windows", "1"), "two windows of each length"),
        (("resnet50", "--mode", "forward-backward"), "resnet50 has no backward pass"),
        (("resnet50", "--grid", "n=0"), "n=0 is too small"),
        (("resnet50", "--grid", "n"), "'n' is not of the form key=value"),
        (("nowhere.py:build",), "nowhere.py: cannot be read: No such file"),
        ((f"{__file__}:build", "more"), "unexpected argument 'more'"),
        ((f"{__file__}:build", "--mode", "forward-backward"), "network has no backward pass"),
        ((f"{__file__}:build", "--dtype", "tf32"), "tf32 is a type of CUDA devices"),
        ((f"{__file__}:build", "--grid", "n=3"), "brings its own input"),
        ((f"{__file__}:build", "--space", "small"), "are for configurations of an operator"),
        ((f"{__file__}:build", "--print-sbatch"), "are for configurations of an operator, which come in parts"),
        (("timm:resnet18", "--config", __file__), "are for configurations of an operator"),
        (("network",), "there is no operator network"),
        (("compare", "a.db"), "name two databases"),
        (("db", "shrink"), "bench db info, bench db merge FILE"),
        (("db", "info", "--db", "/nowhere.db"), "/nowhere.db: No such file"),
    ],
)
def test_bad_input_is_one_line(argv, message):
    result = memtui_here("bench", *argv)
    assert result.returncode == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is not None, reason="torchvision is installed")
def test_a_library_that_is_missing_says_how_to_install_it():
    result = memtui("bench", "torchvision:resnet18")
    assert (result.returncode, result.stdout) == (2, "")
    assert "needs torchvision, which is not installed: pip install torchvision" in result.stderr


def test_malformed_toml_names_the_line(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text("[relu.grid]\nelements = [1,\n\nx = ]\n")
    result = memtui("bench", "relu", "--config", path)
    assert result.returncode == 2
    assert "line 4" in result.stderr


def test_a_foreign_database_is_refused(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE t(x)")
    result = memtui("bench", "relu", "--db", path)
    assert (result.returncode, "is not a database of memtui bench" in result.stderr) == (2, True)


@pytest.mark.real_clock
class TestMeasured:
    """With torch."""

    @pytest.fixture(autouse=True)
    def torch(self):
        pytest.importorskip("torch", reason="torch is not installed")

    def test_rows_are_printed_and_kept(self, tmp_path):
        path = tmp_path / "bench.db"
        argv = ("bench", "relu", "--grid", "elements=1000,2000", *FAST, "--db", path, "--assume-watts", "50")
        result = memtui(*argv, timeout=120)
        assert result.returncode == 0, result.stderr
        lines = result.stdout.splitlines()
        assert lines[0].split()[:8] == ["time", "+-", "IQR", "watts", "J/call", "TFLOP/s", "GB/s", "configuration"]
        assert lines[0].endswith("configuration (all: cache=warm)"), "what is the same in all rows is told once"
        assert sum("relu elements=" in line for line in lines) == 2
        assert any("~ is an estimate" in line for line in lines)
        assert len(rows_in(path)) == 2

        again = memtui(*argv, timeout=120)
        assert "2 configurations were measured before" in again.stdout
        assert len(rows_in(path)) == 2

        document = json.loads(memtui(*argv, "--json", "--again", timeout=120).stdout)
        assert len(document["rows"]) == 2
        one = document["rows"][0]
        assert one["call_ns"] > 0
        assert one["parameters"]["elements"] in (1000, 2000)
        assert (one["energy_j"] is None) == (one["energy_status"] == "unavailable")
        assert one["energy_status"] != "unavailable" or one["energy_reason"]

    @pytest.mark.slow
    def test_a_network_of_the_users_is_held_against_its_operators(self, tmp_path):
        file, path = write_networks(tmp_path), tmp_path / "bench.db"
        fast = ("--windows", "1", "--seconds", "0.05", "--threads", "1", "--warm-up", "0.1", "--db", path)
        result = memtui("bench", f"{file}:strange", *fast, "--no-tui", timeout=120)
        assert result.returncode == 0, result.stderr
        lines = result.stdout.splitlines()
        assert sum("network name=" in line for line in lines[:4]) == 1
        assert any(line.startswith("operators cover 1 of 2 leaf modules and ") for line in lines)
        assert any(line.startswith("  not covered: sort in Sorting (1 calls, ") for line in lines)
        assert any(line.startswith("sum of 2 operators") and "by the network: time" in line for line in lines)
        assert not any("convolutions were measured" in line for line in lines), "it has none"
        assert Counter(row["op"] for row in rows_in(path)) == {"network": 1, "relu": 1, "linear": 1}

        document = json.loads(memtui("bench", f"{file}:small", *fast, "--json", timeout=120).stdout)
        assert document["network"]["name"] == f"{file}:small"
        assert document["convolutions"] == 3
        assert document["coverage"]["leaf_modules"] == document["coverage"]["leaf_modules_covered"] == 9
        assert document["coverage"]["not_covered"] == []
        assert document["network_ns"] > 0
        assert document["time"]["all"]["sum_ns"] > document["time"]["conv2d"]["sum_ns"] > 0
        assert (document["energy"] is None) == bool(document["energy_reason"])

    def test_a_network_that_cannot_be_run_is_one_line(self, tmp_path):
        result = memtui("bench", f"{write_networks(tmp_path)}:wrong_input", "--quick", "--json", timeout=120)
        assert (result.returncode, result.stdout) == (2, "")
        *progress, error = result.stderr.splitlines()
        assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied" in error
        assert all("taking" in line for line in progress), "on a slow machine it says what takes so long"

    @pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
    def test_what_is_finished_survives_and_is_not_repeated(self, tmp_path, how):
        path = tmp_path / "bench.db"
        grid = "elements=" + ",".join(str(1000 * n) for n in range(1, 7))
        argv = [*COMMAND, "bench", "relu", "--grid", grid, *FAST, "--windows", "1", "--db", str(path)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as bench:
            seen = 0
            while seen < 3:  # the head and two rows
                assert bench.stdout.readline()
                seen += 1
            bench.send_signal(how)
            rest = bench.communicate(timeout=20)[0]
        assert ("left before its end: " in rest) == (how == signal.SIGINT)
        before = {r["configuration"] for r in rows_in(path)}
        assert 2 <= len(before) < 6
        assert bench.returncode == (130 if how == signal.SIGINT else -how)
        end = time.monotonic() + 10
        while True:  # the worker of a killed one ends by itself, and the lock was the dead one's
            result = subprocess.run(argv, capture_output=True, text=True)
            if result.returncode == 0 or time.monotonic() > end:
                break
        assert result.returncode == 0, result.stderr
        assert f"{len(before)} configurations were measured before" in result.stdout
        after = rows_in(path)
        assert len(after) == len({r["configuration"] for r in after}) == 6

    def test_a_log_hears_of_a_sweep_with_json(self, tmp_path):
        argv = ["bench", "relu", *FAST, "--db", str(tmp_path / "a.db"), "--seconds", "60", "--json"]
        with subprocess.Popen([*COMMAND, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as bench:
            try:
                lines = iter(bench.stderr.readline, "")
                line = next(line for line in lines if "measuring" in line)
            finally:
                bench.send_signal(signal.SIGINT)
            out, _ = bench.communicate(timeout=20)
        assert re.match(
            r"memtui bench: measuring: 1 of 1, visit 1 of 2, (data|warm-up|window 1 of 1), relu elements=\d+", line
        )
        assert out == "", "standard output is for the document"

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "options",
        [
            # Small images and short windows see the same sooner, but for what is left out at the end of a minute.
            ("--grid", "size=32", "--seconds", "0.02", "--warm-up", "0.02", "--threads", "1"),
            (),
        ],
    )
    def test_a_quick_look_at_resnet50_ends_in_a_minute_and_is_never_silent(self, tmp_path, options):
        argv = [*COMMAND, "bench", "resnet50", "--quick", "--no-tui", "--json", "--db", str(tmp_path / "a.db")]
        start_s = time.monotonic()
        at_s = [start_s]
        with (tmp_path / "out").open("w+") as out:
            with subprocess.Popen([*argv, *options], stdout=out, stderr=subprocess.PIPE, text=True) as bench:
                lines = []
                for line in bench.stderr:
                    lines.append(line)
                    at_s.append(time.monotonic())
            at_s.append(time.monotonic())
            assert bench.returncode == 0, lines
            out.seek(0)
            document = json.load(out)
        longest_gap_s = max(after - before for before, after in pairwise(at_s))
        assert longest_gap_s < SILENT_S, f"silent for {longest_gap_s:.1f} s: {lines}"
        assert at_s[-1] - start_s < 90, "a minute, on a machine that others keep busy"
        assert all(line.startswith("memtui bench: ") for line in lines)
        assert (document["parameters"], document["convolutions"]) == (25_557_032, 53)
        assert document["macs"] == (85_458_944 if options else 4_089_184_256)
        covered = document["covered"]["all"]
        assert covered["of_calls"] == 174
        assert 0 < covered["operators"] <= covered["of_operators"]
        assert document["network_ns"] > 0

    def test_a_second_bench_on_the_device_names_the_first(self, tmp_path):
        argv = [*COMMAND, "bench", "relu", *FAST, "--db", str(tmp_path / "a.db"), "--seconds", "20"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
            try:
                fd = os.open(WHOLE_MACHINE, os.O_RDONLY)
                end = time.monotonic() + 60
                while lock_holder(fd) != first.pid:
                    assert time.monotonic() < end
                    time.sleep(0.01)
                os.close(fd)
                result = memtui("bench", "relu", *FAST, "--db", tmp_path / "b.db")
                assert result.returncode == 1
                assert f"cpu is being measured by process {first.pid}: wait" in result.stderr.splitlines()[-1]
            finally:
                first.kill()

    def test_a_study_of_windows(self, tmp_path, monkeypatch, capsys):
        """What is printed follows from the windows that were measured, and a call takes as long in each length."""
        lengths_s, path = (0.02, 0.05, 0.2), tmp_path / "x.db"
        monkeypatch.setattr(window_length, "QUICK_LENGTHS_S", lengths_s)
        studied = []
        points_of = window_length.study
        monkeypatch.setattr(window_length, points_of.__name__, lambda rows: (studied.extend(rows), points_of(rows))[1])
        argv = ("bench", "resolution", "relu", "--quick", *FAST[:2], *FAST[4:], "--db", str(path), "--json")
        assert main(list(argv)) == 0
        points = json.loads(capsys.readouterr().out)["points"]
        rows = sorted(studied, key=lambda row: row.plan.seconds)
        assert [point["seconds"] for point in points] == [row.plan.seconds for row in rows] == list(lengths_s)
        assert sorted(row["seconds"] for row in rows_in(path)) == list(lengths_s)
        means_ns = [fmean(window.call_ns for window in row.windows) for row in rows]
        for point, measured, mean_ns in zip(points, rows, means_ns, strict=True):
            assert point["windows"] == len(measured.windows) == 2
            assert point["time"]["error"] == pytest.approx(mean_ns / means_ns[-1] - 1)
            for window in measured.windows:
                assert window.calls >= len(window.block_ns)
                assert 0.999 * min(window.block_ns) <= window.call_ns <= 1.001 * max(window.block_ns)
        assert points[-1]["time"]["error"] == 0
        # Whatever else runs, one of many blocks is undisturbed: as fast in short windows as in those ten times as long.
        fastest_ns = [min(block for window in row.windows for block in window.block_ns) for row in rows]
        assert max(fastest_ns) < 4 * min(fastest_ns)


def test_databases_are_merged_and_told_of(tmp_path):
    paths = [tmp_path / "a.db", tmp_path / "b.db"]
    for path, m in zip(paths, (1, 2), strict=True):
        with closing(Database(path)) as database:
            add(database, row(make("linear", {"m": m})))
    result = memtui("bench", "db", "merge", paths[1], "--db", paths[0])
    assert (result.returncode, "1 new rows" in result.stdout) == (0, True)
    lines = memtui("bench", "db", "info", "--db", paths[0]).stdout.splitlines()
    assert [lines[0], *(line.partition(":")[0] for line in lines[1:])] == [str(paths[0]), "rows", "measured"]
    document = json.loads(memtui("bench", "db", "info", "--db", paths[0], "--json").stdout)
    assert document["measurements"] == {"linear": 2}
    out = tmp_path / "rows.csv"
    assert memtui("bench", "db", "export", out, "--db", paths[0]).returncode == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [r["p_m"] for r in rows] == ["1", "2"]
    assert float(rows[0]["energy_j"]) == pytest.approx(0.25, rel=0.01)
    refused = memtui("bench", "db", "export", out, "--db", paths[0])
    assert (refused.returncode, "--force" in refused.stderr) == (2, True)


def test_shards_are_disjoint_and_whole():
    configurations = [make("relu", {"elements": n}) for n in range(1, 12)]
    parts = [part(configurations, (i, 4)) for i in range(4)]
    assert sorted(c.key for p in parts for c in p) == sorted(c.key for c in configurations)
    assert {len(p) for p in parts} == {2, 3}
    assert part(list(reversed(configurations)), (1, 4)) == parts[1], "the order in which they were said is nothing"


@pytest.mark.parametrize(
    ("environment", "shard"),
    [
        ({"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "5"}, (2, 4)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "RANK": "5", "WORLD_SIZE": "6"}, (1, 2)),
        ({"RANK": "5", "WORLD_SIZE": "6"}, (5, 6)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "3"}, None),
        ({}, None),
    ],
)
def test_schedulers_say_which_part(environment, shard):
    assert from_environment(environment) == shard


@pytest.mark.parametrize("rank", ["6", "-1", "x"])
def test_schedulers_that_say_nonsense(rank):
    with pytest.raises(UserError, match=r"RANK=.*is not part of the whole; --shard"):
        from_environment({"RANK": rank, "WORLD_SIZE": "6"})


def test_every_machine_keeps_its_own_database(tmp_path, monkeypatch):
    from argparse import Namespace

    from memtui.bench.request import database_path

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert database_path(Namespace(db=None), None).name == "bench.db"
    assert database_path(Namespace(db=None), (1, 4)).name == "bench-1-of-4.db"
    assert os.fspath(database_path(Namespace(db=tmp_path / "x"), (1, 4))).endswith("/x")


@pytest.mark.parametrize(
    ("grid", "whole"), [((), True), (("n=8", "size=64"), True), (("n=1,8",), False), (("dtype=fp32",), False)]
)
def test_a_network_of_one_size_is_compared_with_its_operators(monkeypatch, grid, whole):
    seen = []
    monkeypatch.setattr(command, "_network", lambda args, context: seen.append("network") or 0)
    monkeypatch.setattr(command, "_operator", lambda *_: seen.append("row") or 0)
    assert main(["bench", "resnet50", "--no-tui", *(word for text in grid for word in ("--grid", text))]) == 0
    assert seen == ["network" if whole else "row"]


@pytest.mark.parametrize("option", [("--engine", "submitit"), ("--print-sbatch",)])
def test_a_network_of_one_size_is_an_operator_in_jobs(monkeypatch, capsys, option):
    monkeypatch.setattr(command.submitit_engine, "measure", lambda args, configurations, _: print(*configurations) or 0)
    monkeypatch.setattr(command.jobs, "script", lambda args, configurations: " ".join(map(str, configurations)) + "\n")
    assert main(["bench", "resnet50", "--no-tui", "--grid", "n=4", *option]) == 0
    assert "'n': 4" in capsys.readouterr().out
    assert main(["bench", "resnet50", "--no-tui", *option]) == 2
