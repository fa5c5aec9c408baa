"""A profile's file: what it returns, survives and refuses."""

from __future__ import annotations

import json
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings

from memtui.core.errors import UserError
from memtui.placement.file_header import is_profile
from memtui.placement.plan import PlacementPlan
from memtui.placement.profile import Profile, Samples
from memtui.placement.solvers.pareto import ParetoPoint
from memtui.placement.store import ProfileFile
from tests.support.placement_profiles import CASE, written
from tests.support.placements import SLOW, plans, profiles, slow_pool
from tests.support.users import ran_as_nobody


@given(profiles())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_profile_comes_back(tmp_path: Path, profile: Profile) -> None:
    assert written(tmp_path / "p.memtui", profile).profile() == profile


@given(plans())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_plan_comes_back(tmp_path: Path, plan: PlacementPlan) -> None:
    file = written(tmp_path / "p.memtui")
    file.store_plan(plan)
    file.store_plan(plan)
    assert file.plans() == [plan]


def test_a_curve_comes_back(tmp_path: Path) -> None:
    file = written(tmp_path / "p.memtui")
    points = [ParetoPoint(0, 5.0, 0.0, None), ParetoPoint(4, 4.0, None, 4.5)]
    file.store_curve("static", SLOW, "single", points)
    assert file.curves() == {("static", SLOW, "single"): points}


def test_samples_add_up_round_by_round(tmp_path: Path) -> None:
    file = ProfileFile.create(tmp_path / "p.memtui", CASE.graph, CASE.pools)
    first = CASE.samples[0]
    file.add([first])
    file.add([Samples(first.op, first.configuration, first.mode, (11.0, 12.0), (1, 2))])
    (samples,) = file.profile().samples
    assert (samples.time_ns, samples.run) == ((10.0, 11.0, 12.0), (0, 1, 2))
    assert file.measured() == {(first.op, first.configuration, first.mode)}


def test_an_op_that_is_measured_anew_is_of_one_sitting(tmp_path: Path) -> None:
    file = written(tmp_path / "p.memtui")
    first, *others = CASE.samples
    of_op = [Samples(s.op, s.configuration, s.mode, (11.0,), (0,)) for s in CASE.samples if s.op == first.op]
    file.replace(of_op)
    times = file.profile().times
    assert {times[s.op, s.configuration, s.mode].time_ns for s in of_op} == {(11.0,)}
    assert all(times[s.op, s.configuration, s.mode] == s for s in others if s.op != first.op)


def test_a_renewed_profile_has_new_bandwidths_and_nothing_else(tmp_path: Path) -> None:
    file = written(tmp_path / "p.memtui")
    file.store_curve("static", SLOW, "single", [])
    file.renew((CASE.fast, slow_pool(3, 4, fixed_ns=5)), 7.0, {"seed": 1})
    assert file.profile() == Profile(CASE.graph, (CASE.fast, slow_pool(3, 4, fixed_ns=5)), (), 7.0, {"seed": 1})
    assert (file.plans(), file.curves()) == ([], {})


def test_the_file_is_one_private_file(tmp_path: Path) -> None:
    path = tmp_path / "p.memtui"
    written(path)
    assert [p.name for p in tmp_path.iterdir()] == ["p.memtui"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert is_profile(path)


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "p.memtui"
    written(path)
    with pytest.raises(UserError, match="exists already; --force overwrites it"):
        ProfileFile.create(path, CASE.graph, CASE.pools)
    other = tmp_path / "thesis.txt"
    other.write_text("years of work")
    with pytest.raises(UserError, match="exists and is not a placement profile"):
        ProfileFile.create(other, CASE.graph, CASE.pools, force=True)
    assert other.read_text() == "years of work"


def test_a_file_that_cannot_be_written_is_read() -> None:
    with tempfile.TemporaryDirectory() as name:  # in a place that others may enter
        folder = Path(name)
        file = written(folder / "p.memtui")
        (folder / "p.memtui").chmod(0o444)
        folder.chmod(0o555)

        def read() -> None:
            assert file.profile() == CASE
            with pytest.raises(UserError, match="cannot be written"):
                file.add(CASE.samples)

        done = ran_as_nobody(read)
        folder.chmod(0o755)
    assert done


def test_a_log_that_cannot_be_folded_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "p.memtui")
    with monkeypatch.context() as patched:
        patched.setattr("memtui.placement.store.seal", Mock(side_effect=sqlite3.OperationalError("disk I/O error")))
        with pytest.raises(UserError, match=r"p.memtui: cannot be written: disk I/O error"):
            file.add(CASE.samples)
        with pytest.raises(UserError, match=r"q.memtui: cannot be written: disk I/O error"):
            ProfileFile.create(tmp_path / "q.memtui", CASE.graph, CASE.pools)


@pytest.mark.real_clock(alone=False)
def test_a_writer_that_is_killed_leaves_whole_rounds(tmp_path: Path) -> None:
    path = tmp_path / "p.memtui"
    ProfileFile.create(path, CASE.graph, CASE.pools)
    program = (
        "import sys; from pathlib import Path; from tests.support.placement_profiles import CASE\n"
        "from memtui.placement.store import ProfileFile\n"
        "made = ProfileFile(Path(sys.argv[1]))\n"
        "while True:\n    made.add(CASE.samples); print(flush=True)\n"
    )
    for rounds in (1, 2, 3, 5, 8):
        with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(rounds):
                child.stdout.readline()
            child.send_signal(signal.SIGKILL)
        counts = {len(samples.time_ns) for samples in ProfileFile(path).profile().samples}
        assert len(counts) == 1, "a round is there as a whole or not at all"
        assert counts.pop() >= rounds
    ProfileFile(path).add(CASE.samples)


def _edit(path: Path, *queries: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for query in queries:
            connection.execute(query)
        connection.commit()


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda p: p.unlink(), "no such file"),
        (lambda p: p.write_bytes(b""), "is empty, not a placement profile"),
        (lambda p: p.write_text("hello" * 40), "is not a memtui placement profile"),
        (lambda p: p.write_bytes(p.read_bytes()[:50]), "is truncated"),
        (lambda p: p.write_bytes(p.read_bytes()[:5000]), "cannot be read"),
        (lambda p: _edit(p, "PRAGMA application_id=7"), "is an SQLite file, but not a placement profile"),
        (lambda p: _edit(p, "PRAGMA user_version=99"), "has format 99, and this memtui knows 1"),
        (lambda p: _edit(p, "CREATE TRIGGER t AFTER INSERT ON plan BEGIN DELETE FROM meta; END"), "its tables are not"),
        (lambda p: _edit(p, "DELETE FROM meta WHERE key = 'graph'"), "is damaged: graph is missing"),
        (lambda p: _edit(p, "UPDATE meta SET value = '{'"), "is damaged: it holds what is not a profile"),
        (lambda p: _edit(p, "UPDATE meta SET value = 7"), "is damaged"),
        (lambda p: _edit(p, "UPDATE sample SET op = 'none'"), "an op that the graph has not: none"),
        (lambda p: _edit(p, "UPDATE sample SET time_ns = x'00'"), "is damaged"),
        (lambda p: _edit(p, "UPDATE sample SET time_ns = 'text'"), "is damaged"),
        (lambda p: _edit(p, "UPDATE sample SET time_ns = x'000000000000f87f'"), "time_ns is not a number from 0"),
        (lambda p: _edit(p, f"UPDATE meta SET value = '{'[' * 100_000}'"), "is damaged"),
    ],
)
def test_foreign_and_damaged_files_are_one_line(tmp_path: Path, harm: Callable[[Path], object], why: str) -> None:
    path = tmp_path / "p.memtui"
    file = written(path)
    harm(path)
    with pytest.raises(UserError, match=why) as error:
        file.profile()
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_damaged_plans_are_one_line(tmp_path: Path) -> None:
    file = written(tmp_path / "p.memtui")
    file.store_curve("static", SLOW, "single", [])
    for text in ("{}", "[1]", json.dumps({"limit_bytes": -1}), "null", "7"):
        _edit(file.path, f"INSERT OR REPLACE INTO plan VALUES ('static', 'slow', 'single', 1, 1, '{text}')")
        _edit(file.path, f"UPDATE curve SET text = '{text}'")
        with pytest.raises(UserError, match="is damaged"):
            file.plans()
        with pytest.raises(UserError, match="is damaged"):
            file.curves()
