"""Sweeps with the real worker: rows land in the database whatever is killed, and nothing is measured twice."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.bench import sweep as sweep_module
from memtui.bench.configuration import make
from memtui.bench.cpu_speed import References
from memtui.bench.plan import BenchPlan
from memtui.bench.store import Database
from memtui.bench.sweep import (
    REFERENCE_EVERY,
    VISITED_IN_TURN,
    Request,
    Sweep,
    SweepProgress,
    _in_turn,
    _with_references,
)
from memtui.core.errors import UserError
from memtui.core.file_lock import exclusively
from memtui.probes.power.energy_source import EnergySource, NoSource
from tests.support.shared_worker import no_worker_is_left, shared_worker  # noqa: F401 (fixtures)

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.usefixtures("shared_worker"), pytest.mark.real_clock(alone=False)]
PLAN = BenchPlan(windows=2, seconds=0.05, warm_up_s=0.1, phase_ns=1)
TWO = [make("relu", {"elements": 1000 * n, "cache": "warm"}) for n in (1, 2)]
WATTS, TICK_NS = 250.0, 20_000_000


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch):
    """Tests measure nothing that others could spoil, and nobody waits for them."""
    path = tmp_path / "device"
    path.touch()
    monkeypatch.setattr(sweep_module, "lock_path", lambda source: path)
    monkeypatch.setattr(sweep_module, "IDLE_S", 0.2)
    return path


@pytest.fixture(autouse=True)
def no_energy(monkeypatch):
    def none(device, uuid):
        raise NoSource("none in this test")

    monkeypatch.setattr(sweep_module, "open_source", none)


@pytest.fixture
def database(tmp_path):
    with closing(Database(tmp_path / "bench.db")) as opened:
        yield opened


def run(database, configurations=TWO, tell=lambda progress: None, **more):
    with Sweep(Request(configurations, more.pop("plan", PLAN), threads=1, **more), database, tell) as sweep:
        return sweep.run()


def test_rows_are_measured_and_stored(database):
    reported: list[SweepProgress] = []
    rows = run(database, tell=reported.append, assumed_w=10.0)
    assert {row.configuration for row in rows} == set(TWO)
    for row in rows:
        assert row.status == "ok"
        assert len(row.windows) == PLAN.windows
        # As many calls as took 50 ms before: a busy machine may have become faster since.
        assert all(w.calls * row.call_ns > 0.002e9 and w.end_ns > w.start_ns for w in row.windows)
        assert 100 < row.call_ns < 1e6
        assert row.estimate_j == pytest.approx(10 * row.call_ns / 1e9)
        assert (row.energy_j, row.energy_reason) == (None, "none in this test")
    assert {r["configuration"] for r in database.rows()} == {c.key for c in TWO}
    assert [p.phase for p in reported if p.row] == ["done", "done"]
    assert [p.number for p in reported if p.row] == [1, 2]
    assert {"data", "warm-up", "window"} <= {p.phase for p in reported}
    assert any("none in this test" in p.notice for p in reported)


def test_the_time_that_is_left_goes_on_while_a_row_is_measured(database):
    reported: list[SweepProgress] = []
    run(database, tell=reported.append)
    first = next(n for n, progress in enumerate(reported) if progress.row)
    lefts = [progress.left_s for progress in reported[first : first + 4]]
    assert None not in lefts
    assert lefts == sorted(lefts, reverse=True)
    assert lefts[-1] < lefts[0]


def test_all_sweeps_have_the_reference_speed_of_the_first(database, tmp_path):
    request = Request(TWO, PLAN, threads=1, again=True)
    result, read = set(), 0
    for _ in range(10):  # others may disturb all readings of a sweep
        references = References(tmp_path / "speed.json")
        with Sweep(request, database, lambda progress: None, None, references) as sweep:
            reference_ns = {row.reference_ns for row in sweep.run()} - {None}
        result |= reference_ns
        read += bool(reference_ns)
        if read == 2:
            break
    assert read == 2, "all others were disturbed"
    (reference_ns,) = result
    assert 1000 < reference_ns < 1e9, "nanoseconds of a yardstick of 45 us, on a machine that may be busy"
    assert {r["reference_ns"] for r in database.rows()} - {None} == result


def test_visits_of_configurations_take_turns(database):
    reported: list[SweepProgress] = []
    rows = run(database, tell=reported.append, plan=replace(PLAN, windows=3, visits=2))
    assert [len(row.windows) for row in rows] == [3, 3]
    first, second = (sorted(w.start_ns for w in row.windows) for row in rows)
    assert first[1] < second[0], "two windows in the first visit"
    assert second[1] < first[2] < second[2]
    seen = dict.fromkeys((p.configuration, p.visit, p.visits) for p in reported if p.phase == "window")
    order = [row.configuration for row in rows]
    assert [*seen] == [(c, visit, 2) for visit in (1, 2) for c in order]
    assert [p.number for p in reported if p.row] == [1, 2]


def test_what_fails_in_one_visit_is_one_row(database):
    huge = make("matmul", {"m": 10**6, "n": 10**6, "k": 10**6})
    rows = run(database, [huge, *TWO], plan=replace(PLAN, visits=2))
    assert sorted(row.status for row in rows) == ["failed", "ok", "ok"]
    assert database.counts()["measurement"] == 3


@given(st.lists(st.integers(1, 3), max_size=30))
def test_visits_are_made_in_groups(visits):
    turns = _in_turn(visits)
    assert {entry: turns.count(entry) for entry in set(turns)} == dict(enumerate(visits))
    for first in range(0, len(visits), VISITED_IN_TURN):
        own = [index for index, entry in enumerate(turns) if first <= entry < first + VISITED_IN_TURN]
        assert own == [*range(own[0], own[-1] + 1)], "whoever kills the sweep loses one group at most"
        group = [turns[index] for index in own]
        if len({visits[entry] for entry in group}) == 1 < len({*group}):
            assert all(a != b for a, b in pairwise(group)), "somebody else's lies between two of one configuration"


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 5))
def test_windows_are_shared_among_visits(windows, visits, medians):
    plan = BenchPlan(windows=windows, visits=min(visits, windows), medians=medians)
    parts = [plan.of_visit(number) for number in range(plan.visits)]
    assert sum(part.windows for part in parts) == windows
    assert max(part.windows for part in parts) - min(part.windows for part in parts) <= 1
    assert {(part.visits, part.parts) for part in parts} == {(1, plan.parts)}


def test_what_is_there_is_not_measured_again(database):
    run(database, TWO[:1])
    reported: list[SweepProgress] = []
    rows = run(database, tell=reported.append)
    assert [row.configuration for row in rows] == TWO[1:]
    assert reported[-1].skipped == 1
    assert run(database) == []
    assert len(run(database, again=True)) == 2


def test_a_larger_tensor_takes_longer(database):
    """What can be known on a machine that others use, too: a thousand times the work."""
    small, large = (make("sigmoid", {"elements": n, "cache": "warm"}) for n in (2_000, 2_000_000))
    rows = {row.configuration: row.call_ns for row in run(database, [small, large])}
    assert 30 < rows[large] / rows[small] < 3000


def test_backward_passes_and_learning_rules_run(database):
    configurations = [
        make("conv2d", {"n": 1, "cin": 8, "cout": 8, "h": 8, "mode": "forward-backward"}),
        make("batchnorm", {"n": 2, "c": 3, "h": 4, "train": True, "mode": "forward-backward"}),
        make("embedding", {"vocab": 50, "dim": 4, "tokens": 8, "mode": "forward-backward"}),
        make("adamw", {"elements": 100}),
        make("linear", {"m": 4, "in": 8, "out": 8, "dtype": "bf16", "weight_zeros": 50, "zeros": "2:4"}),
    ]
    assert {row.reason for row in run(database, configurations)} == {""}


def test_what_does_not_fit_into_memory_is_a_row_and_the_sweep_goes_on(database):
    huge = make("matmul", {"m": 10**6, "n": 10**6, "k": 10**6})
    rows = {row.configuration: row for row in run(database, [huge, *TWO])}
    assert rows[huge].status == "failed"
    assert rows[huge].flags == ("out_of_memory",)
    assert [rows[c].status for c in TWO] == ["ok", "ok"]


def test_a_worker_that_is_killed_is_a_row_and_the_sweep_goes_on(database):
    sweep = Sweep(Request(TWO, PLAN, threads=1), database, lambda progress: None)

    def kill_first(progress):
        if progress.phase == "window" and progress.number == 0:
            os.kill(sweep._worker.pid, signal.SIGKILL)

    sweep._report = kill_first
    with sweep:
        rows = sweep.run()
    assert [row.status for row in rows] == ["failed", "ok"]
    assert "killed by SIGKILL" in rows[0].reason
    assert database.counts()["measurement"] == 2


def test_a_worker_ends_with_the_one_who_started_it(database):
    code = (
        "import sys, time\nfrom memtui.bench.worker_client import WorkerProcess\n"
        "from memtui.bench.configuration import make\nfrom memtui.bench.plan import BenchPlan\n"
        "w = WorkerProcess('cpu', 1)\nplan = BenchPlan(seconds=60.0, warm_up_s=1.0)\n"
        "w.measure(make('relu', {'cache': 'warm'}), plan)\n"
        "print(w.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        worker = os.pidfd_open(int(owner.stdout.readline()))
        time.sleep(random.Random(1).uniform(0, 2))
        owner.kill()
    import select

    assert select.select([worker], [], [], 10)[0], "it is still there"
    os.close(worker)


def test_one_bench_at_a_time_on_a_device(database, own_lock):
    code = f"import fcntl, time; f = open({str(own_lock)!r}); fcntl.flock(f, 2); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(UserError, match=f"cpu is being measured by process {other.pid}"):
            run(database)
        other.kill()
    assert len(run(database)) == 2


def test_the_lock_is_let_go(own_lock):
    with exclusively(own_lock, "{who}"):
        pass
    with own_lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_device_that_is_not_there(database):
    with pytest.raises(UserError, match=r"cuda:0 cannot be measured: cuda:0: this PyTorch .* finds no CUDA device"):
        run(database, device="cuda:0")


class Constant(EnergySource):
    """A device of constant power with a counter in steps; its truth is in closed form."""

    name, scope, limit_w = "constant", "gpu_board", 300.0
    held_down: tuple[str, ...] = ()
    others: frozenset[int] = frozenset()

    def read(self):
        now = time.monotonic_ns()
        return now // TICK_NS * TICK_NS * WATTS / 1e9, nan

    def state(self):
        return {"held_down": list(self.held_down)}

    def computing(self, since_wall_ns):
        return set(self.others)


def test_energy_of_a_call_is_power_times_its_time(database, monkeypatch):
    monkeypatch.setattr(sweep_module, "open_source", lambda device, uuid: Constant())
    (row,) = run(database, TWO[:1], plan=BenchPlan(windows=2, seconds=0.5, warm_up_s=0.1))
    assert row.energy_status == "measured"
    # How exact the estimate is, test_energy_source tells in virtual time; here a busy machine may read a step late.
    assert row.energy_j == pytest.approx(WATTS * row.mean_ns / 1e9, rel=0.1)
    assert row.power_w == pytest.approx(WATTS, rel=0.1)
    assert row.above_idle_j == pytest.approx(0, abs=0.2 * row.energy_j), "it draws as much when idle"
    assert not {"throttled", "neighbours"} & set(row.flags)


def test_idle_power_is_measured_only_where_something_else_is(database, monkeypatch):
    """It takes seconds, and there would be nothing to hold it against."""
    monkeypatch.setattr(sweep_module, "open_source", lambda device, uuid: Constant())
    phases = []
    for _ in range(2):
        reported: list[SweepProgress] = []
        run(database, TWO[:1], tell=reported.append)
        phases.append({p.phase for p in reported})
    assert "idle" in phases[0]
    assert phases[1] == {"start"}


def test_a_held_down_clock_and_neighbours_are_flagged(database, monkeypatch):
    class Troubled(Constant):
        held_down = ("idle", "hardware thermal")
        others = frozenset((1,))

    monkeypatch.setattr(sweep_module, "open_source", lambda device, uuid: Troubled())
    (row,) = run(database, TWO[:1])
    assert {"throttled", "neighbours"} <= set(row.flags)


def test_a_reference_is_measured_again_and_again():
    order = [make("relu", {"elements": n}) for n in range(1, 2 * REFERENCE_EVERY + 1)]
    result = _with_references(order, order[0])
    assert [index for index, (_, reference) in enumerate(result) if reference] == [
        0,
        REFERENCE_EVERY + 1,
        len(result) - 1,
    ]
    assert [c for c, reference in result if not reference] == order
    assert {c for c, reference in result if reference} == {order[0]}
    assert all(not reference for _, reference in _with_references(order[:5], order[0]))


def test_what_has_no_room_in_the_budget_is_not_begun(database):
    """The first is measured in any case, the others in the order that was asked for."""
    reported: list[SweepProgress] = []
    many = [make("relu", {"elements": 1000 * n, "cache": "warm"}) for n in range(9, 0, -1)]
    assert [row.configuration for row in run(database, many, reported.append, budget_s=0.001)] == many[:1]
    assert any("8 of 9 have no room" in p.notice for p in reported)
    assert [row.configuration for row in run(database, many[:3], budget_s=600, again=True)] == many[:3]
    twice = run(database, many[:2], budget_s=600, again=True, rounds=2)
    assert [row.configuration for row in twice] == many[:2] * 2
