"""``memtui place profile`` and ``solve --run`` as a user runs them, and what remains when they are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from memtui.placement.graph import Configuration
from memtui.placement.profile import Pool, Profile, Samples
from memtui.placement.profiling.planner import ProfilingStep
from memtui.placement.profiling.progress import ProfileProgress
from memtui.placement.profiling.text import about, lines
from memtui.placement.store import ProfileFile
from tests.support.placements import graph_of
from tests.support.repository import ROOT
from tests.support.schemas import check
from tests.support.terminals import Terminal, terminals

pytest.importorskip("torch")
pytest.importorskip("scipy")

BUSY = "is being measured by"  # another test run on this machine
COMMAND = [sys.executable, "-P", "-m", "memtui", "place"]
POOLS = "dram,emulated:2,1"
OWN = """
import torch
print("said by the model")
def make():
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(inplace=True), torch.nn.Linear(5, 2))
    return model, torch.randn(4, 6), lambda out: out.square().mean()
def item():
    class Asks(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * x.sum().item()
    return Asks(6, 2), torch.randn(4, 6), lambda out: out.sum()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    root = str(ROOT)
    return {**os.environ, "PYTHONPATH": root, "XDG_STATE_HOME": str(folder / "state"), "NO_COLOR": "1"}


def place(folder: Path, *argv: str | Path, code: int = 0) -> tuple[str, str]:
    """Return standard output, and standard error without the progress that a slow machine prints."""
    deadline = time.monotonic() + 120
    while True:
        done = subprocess.run(
            [*COMMAND, *map(str, argv), "--no-config"],
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=240,
        )
        if BUSY not in done.stderr or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    progress = r"(?m)^memtui place: (profiling|solving|comparing) .* \([\d.]+ (s|min)\)\n"
    return done.stdout, re.sub(progress, "", done.stderr)


def profiled(folder: Path, *more: str | Path) -> tuple[str, str]:
    argv = ("mlp", "--pools", POOLS, "--batch", "8", "--seconds", "0.001", "--threads", "1")
    return place(folder, "profile", *argv, *more)


def cached(path: Path) -> dict[str, str]:
    """Return the content of a cache by key; it is empty before the table exists.

    Opened for writing, as memtui does: the half of a write that a killed process left is undone by who looks next.
    """
    if not path.exists():
        return {}
    with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=10)) as db:
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return {}
        return dict(db.execute("SELECT key, value FROM measured"))


def test_profile_compare_solve_and_run(folder: Path) -> None:
    out, error = profiled(folder, "-o", "p.memtui")
    assert error == "memtui place: measuring 444 configurations (isolated, single, simultaneous)\n"
    assert "mlp: 32 ops" in out
    for mode in ("isolated", "single", "simultaneous"):
        assert f"{mode}: 148 configurations" in out
    assert "emulated, so no measurement of a machine: emulated:2,1" in out
    (folder / "p.memtui").stat()
    assert (folder / "state" / "memtui" / "place-cache.db").exists()

    out, _ = place(folder, "compare", "p.memtui", "--json")
    assert len(json.loads(out)["comparisons"]) == 2

    out, _ = place(folder, "solve", "p.memtui", "--ratio", "1:1", "--run", "--json")
    document = json.loads(out)
    check("place-solve", document)
    plan, touched = document["run"]
    assert plan["equal"]
    assert touched["equal"]
    assert (plan["formulation"], touched["formulation"]) == ("static", "first-touch")
    assert plan["emulated"]
    assert plan["predicted_ns"] == document["plan"]["predicted_ns"]
    assert plan["fast_bytes"] <= document["plan"]["limit_bytes"]
    assert plan["error"] == pytest.approx(plan["predicted_ns"] / plan["actual_ns"] - 1)

    out, _ = place(folder, "solve", "p.memtui", "--ratio", "1:1", "--formulation", "sync", "--run")
    assert "bit by bit" in out
    assert "is emulated: this checks the solver, and tells nothing of a machine" in out

    # Everything is known: a second profile measures nothing, and has the same times.
    cache = folder / "state" / "memtui" / "place-cache.db"
    first = cached(cache)
    out, _ = profiled(folder, "-o", "q.memtui")
    assert cached(cache) == first
    assert "444 of 444 times are from the cache, of " in out
    assert "bandwidths and times of moves are from the cache, of " in out
    assert "--again measures all of them now" in out
    before = ProfileFile(folder / "q.memtui").profile()
    # Unless it is asked to: then the profile and the cache have what was found now.
    out, _ = profiled(folder, "-o", "q.memtui", "--again", "--mode", "isolated", "--json")
    document = json.loads(out)
    check("place-profile", document)
    assert (document["times"]["measured_now"], document["times"]["from_the_cache"]) == (148, 0)
    assert document["bandwidths_cached"] is None
    after = ProfileFile(folder / "q.memtui").profile()
    assert {s.mode for s in after.samples} == {"isolated"}
    assert after.pools != before.pools
    assert cached(cache).keys() == first.keys()
    assert cached(cache) != first
    # The other way round, the bandwidths are those of the pools, and not of their places.
    argv = ("mlp", "--pools", ",".join(reversed(POOLS.split(",", 1))), "--batch", "8", "--seconds", "0.001")
    out, _ = place(folder, "profile", *argv, "--threads", "1", "--mode", "isolated", "-o", "r.memtui", "--json")
    turned = {pool["name"]: pool["bandwidth_bytes_per_s"] for pool in json.loads(out)["pools"]}
    assert turned["emulated:2,1"]["written"] < min(1e9, turned["dram"]["written"])
    assert json.loads(out)["bandwidths_cached"] is None
    _, error = place(folder, "profile", "mlp", "--pools", POOLS, "--batch", "9", "-o", "p.memtui", code=2)
    assert error.startswith("memtui place: p.memtui: is a profile of something else")


@pytest.mark.slow
def test_a_profile_that_is_killed_goes_on_and_repeats_nothing(folder: Path) -> None:
    cache = folder / "cache.db"
    argv = ["mlp", "--pools", POOLS, "--batch", "8", "--seconds", "0.02", "--threads", "1", "--cache", str(cache)]
    argv += ["--mode", "isolated,single", "-o", "p.memtui"]
    before: dict[str, str] = {}
    for ending in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        process = start_profile(folder, argv)
        deadline = time.monotonic() + 120
        while len(cached(cache)) < len(before) + 12:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        children = psutil.Process(process.pid).children()
        process.send_signal(ending)
        out, error = process.communicate(timeout=60)
        assert process.returncode in (-ending, 130), (out, error)
        assert b"Traceback" not in error
        if ending == signal.SIGINT:
            stored = len(ProfileFile(folder / "p.memtui").profile().samples)
            assert f"broken off, unfinished: p.memtui has {stored} of 296 configurations; the same".encode() in error
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive  # what measures does not outlive the one who started it
        now = cached(cache)
        assert before.items() <= now.items()
        before = now
    out, _ = place(folder, "profile", *argv)
    assert "isolated: 148 configurations" in out
    assert "single: 148 configurations" in out
    now = cached(cache)
    assert before.items() <= now.items()  # a repeated measurement would have another time


def start_profile(folder: Path, argv: list[str]) -> subprocess.Popen[bytes]:
    """Start a profile, once no other process measures on this machine."""
    deadline = time.monotonic() + 120
    while True:
        process = subprocess.Popen(
            [*COMMAND, "profile", *argv, "--no-config"],
            cwd=folder,
            env=environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        time.sleep(0.7)
        if process.poll() is None or time.monotonic() > deadline:
            return process
        _, error = process.communicate()
        assert BUSY.encode() in error, error


@pytest.mark.slow
def test_a_model_of_the_users_own_is_run_only_where_it_is_named(folder: Path) -> None:
    argv = ("--pools", POOLS, "--seconds", "0.001", "--threads", "1", "-o", "own.memtui", "--json")
    out, _ = place(folder, "profile", "own.py:make", *argv)
    assert json.loads(out)["model"].endswith("own.py:make")
    _, error = place(folder, "solve", "own.memtui", "--ratio", "1:1", "--run", code=2)
    assert "whose code would be run: say --model" in error
    out, _ = place(folder, "solve", "own.memtui", "--ratio", "1:1", "--run", "--model", "own.py:make", "--json")
    assert json.loads(out)["run"][0]["equal"]
    (folder / "own.py").write_text(OWN.replace("Linear(6, 5)", "Linear(6, 7)").replace("Linear(5, 2)", "Linear(7, 2)"))
    argv = ("solve", "own.memtui", "--ratio", "1:1", "--run", "--model", "own.py:make")
    _, error = place(folder, *argv, code=2)
    assert "its step is not the one that was profiled" in error


@pytest.mark.parametrize(
    ("argv", "code", "why"),
    [
        (["nothing", "-o", "p"], 2, "there is no model 'nothing'"),
        (["none.py:make", "-o", "p"], 2, "none.py: cannot be read: No such file"),
        (["mlp"], 2, "say where the profile goes: -o p.memtui"),
        (["mlp", "-o", "p", "--pools", "dram,numa:99"], 2, "numa:99: there is no memory on node 99"),
        (["mlp", "-o", "p", "--pools", "dram,file:/none"], 2, "file:/none: /none is not a folder"),
        (["mlp", "-o", "p", "--pools", "dram,pmem"], 2, "there is no pool 'pmem'"),
        (["mlp", "-o", "p", "--mode", "twice"], 2, "there is no way of timing 'twice'"),
        (["mlp", "-o", "p", "--cache", "own.py"], 2, "own.py is not a cache of memtui place"),
        (["mlp", "-o", "p", "--cache", "nodir/c.db"], 2, "nodir/c.db: cannot be written: there is no folder nodir"),
        (["mlp", "-o", "own.py"], 2, "own.py: exists and is not a placement profile"),
        (["own.py:item", "-o", "p"], 2, "x.sum().item())"),
        (["own.py:nobody", "-o", "p"], 2, "own.py has no function nobody; there are make, item"),
    ],
)
def test_bad_input_is_one_line(folder: Path, argv: list[str], code: int, why: str) -> None:
    out, error = place(folder, "profile", *argv, code=code)
    assert not out
    assert why in error
    assert error.count("\n") == 1
    assert not (folder / "p").exists()
    assert not (folder / "nodir").exists()


def test_the_command_line_imports_no_torch(folder: Path) -> None:
    script = (
        "import sys; from memtui.cli.main import main\n"
        "code = main(['place', 'profile', 'mlp', '--pools', 'dram,numa:99', '-o', 'p', '--no-config'])\n"
        "import memtui.placement.profiling.command, memtui.placement.run\n"
        "assert code == 2 and not {'torch', 'scipy'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment(folder), check=True, timeout=60)


@pytest.mark.slow
def test_the_screen_shows_the_matrix_while_it_fills(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    file = folder / "p.memtui"
    argv = ("place", "profile", "mlp", "--pools", POOLS, "--threads", "1", "-o", file, "--no-config")

    def count() -> int:
        return len(ProfileFile(file).profile().samples)

    with terminals() as start:
        terminal = start(*argv, "--batch", "16", "--seconds", "0.2")
        terminal.read(120, "EMULATED")
        terminal.read(60, " of 148 configurations, ")
        assert "isolated (1 of 3): " in terminal.text
        first = count()
        until(lambda: count() > first, terminal)
        children = psutil.Process(terminal.process.pid).children(recursive=True)
        assert children
        terminal.send("q")
        assert terminal.end(30) == 130  # as of ^C
        assert terminal.restored()
        assert not psutil.wait_procs(children, timeout=20)[1]
        stored = count()
        assert first < stored < 3 * 148
        message = (
            f"broken off, unfinished: {file} has {stored} of 444 configurations; the same command goes on from there"
        )
        assert message.encode() in terminal.output.replace(b"\r\n", b"")
        terminal = start(*argv, "--batch", "16", "--seconds", "0.001")
        terminal.read(120, "EMULATED")
        until(lambda: count() == 444, terminal)
        terminal.read(60, "finished; q leaves")
        until(lambda: not running(terminal.process.pid), terminal)
        terminal.send("q")
        assert terminal.end(30) == 0
        assert b"isolated: 148 configurations" in terminal.output


def finished_step(mode: str, ops: range, cached: int = 0, left_s: float | None = None) -> ProfilingStep:
    samples = tuple(Samples(f"op{n}", Configuration(("dram",), ("dram",)), mode, (1.0,), (0,)) for n in ops)
    return ProfilingStep(mode, samples, cached, 0, 0, left_s, (7,) * cached)


def test_progress_sentences() -> None:
    sentences: list[str] = []
    begun: list[str] = []
    shown = ProfileProgress(sentences.append, begun.append)
    shown.phase("starting PyTorch")
    assert sentences[-1] == "starting PyTorch ..."
    shown.tick()
    assert re.fullmatch(r"starting PyTorch \([\d.]+ [num]?s\)", sentences[-1])
    before = [(s.op, s.configuration, s.mode) for s in finished_step("isolated", range(3)).samples]
    shown.count(before, {"isolated": 148, "single": 148})
    shown.tick()  # before the first measurement there is nothing more to say
    assert sentences[-1] == "measuring 296 configurations (isolated, single), 3 of them known" == begun[-1]
    shown.step(finished_step("isolated", range(3, 8), cached=5))
    assert sentences[-1] == "isolated (1 of 2): 8 of 148 configurations, 5 known before"
    shown.step(finished_step("single", range(8), left_s=200.0))
    assert sentences[-1] == "single (2 of 2): 8 of 148 configurations, 3.3 min left, 5 known before"
    assert len(begun) == 1
    assert (shown.before, shown.cached, shown.measured) == (3, 5, 8)


def test_a_table_of_pools_with_long_names_and_one_op(tmp_path: Path) -> None:
    long = "file:/mnt/pmem0/a-folder-of-its-own"
    ways = {f"{pool} {way}": 5e9 for pool in ("dram", long) for way in ("read", "written")}
    profile = Profile(
        graph_of({"n": ("x", "t")}, {"t": 8}), (Pool("dram"), Pool(long)), (), 0.0, ways | {"results_copied": 1}
    )
    output = lines(about(profile, tmp_path / "p", ProfileProgress()))
    table = [line for line in output if line.startswith(("pool", "dram", "file:"))]
    assert len({len(line.removesuffix("  GB/s")) for line in table}) == 1
    assert "1 op cannot write where it is told to: its times have a copy in them" in output


def running(pid: int) -> list[psutil.Process]:
    """Return the running children of a process."""
    return [child for child in psutil.Process(pid).children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]


def until(condition: Callable[[], bool], terminal: Terminal) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        terminal.read(0.2)
        assert time.monotonic() < deadline, terminal.text
