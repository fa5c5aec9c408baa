"""Plan and state of studies: the order of runs, and the state after a crash."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.errors import UserError
from memtui.core.files import write_safely
from memtui.study.plan import Run, TimeLeft, interleaved
from memtui.study.state import NAME, State
from memtui.study.studies.base import Setting
from memtui.study.studies.catalogue import STUDIES

RUN = Run("bare", ("python", "train.py"), 10.0)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 99))
def test_each_repeat_does_every_run_once_before_the_next_begins(repeats, groups, seed):
    plan = [[Run(f"g{g}", ("x",), 1.0, repeat=r) for g in range(groups)] for r in range(repeats)]
    order = interleaved(plan, seed)
    assert [run.repeat for run in order] == sorted(run.repeat for run in order)
    assert {(run.group, run.repeat) for run in order} == {(run.group, run.repeat) for runs in plan for run in runs}
    assert order == interleaved(plan, seed)


def test_a_key_changes_with_what_decides_a_run_and_with_nothing_else():
    key = RUN.key(["kernel=6"])
    assert key == replace(RUN, expected_s=99.0).key(["kernel=6"])
    others = [
        replace(RUN, seed=1),
        replace(RUN, interval_s=0.5),
        replace(RUN, filter="default"),
        replace(RUN, program=("python", "other.py")),
        replace(RUN, repeat=1),
        replace(RUN, place="container"),
        replace(RUN, needs_steps=True),
        replace(RUN, needs_steps=True, memory_share=0.5),
        replace(RUN, other_interval_s=0.5),
    ]
    assert len({key, RUN.key(["kernel=7"]), *(run.key(["kernel=6"]) for run in others)}) == 2 + len(others)


def test_time_left_learns_from_what_runs_took():
    left = TimeLeft([10.0, 10.0, 10.0])
    assert left.seconds == 30
    left.done(10.0, 20.0)
    assert left.seconds == 40
    left.done(10.0, 20.0)
    left.done(10.0, 20.0)
    assert left.seconds == 0


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("command", [(), ("python", "train.py", "--batch", "{batch}")])
def test_every_study_can_say_beforehand_what_it_runs(quick, command):
    setting = Setting(quick, 4, command)
    for study in STUDIES.values():
        runs = [run for repeat in study.runs(setting) for run in repeat]
        assert len({run.key([]) for run in runs}) == len(runs)
        assert all(run.expected_s > 0 and 1 <= run.cpus <= 4 for run in runs)
        if command:
            assert not any("{" in word for run in runs for word in run.program)


def test_a_quick_round_of_all_is_short_and_a_whole_one_is_told_to_be_long():
    def seconds(quick: bool) -> float:
        return sum(r.expected_s for s in STUDIES.values() for runs in s.runs(Setting(quick, 2)) for r in runs)

    assert seconds(quick=True) < 18 * 60
    assert seconds(quick=False) > 2 * 3600


def test_what_was_done_is_done_after_a_new_start(tmp_path):
    state = State(tmp_path)
    (tmp_path / "a.memtui").touch()
    state.add("a", {"files": ["a.memtui"], "seconds": 1.5})
    state.close()
    again = State(tmp_path)
    assert again.row("a") == {"files": ["a.memtui"], "seconds": 1.5}
    assert again.row("b") is None
    (tmp_path / "a.memtui").unlink()
    assert again.row("a") is None, "a session that is gone has to be made again"
    again.close()


def test_a_crash_while_writing_leaves_the_state_before(tmp_path, monkeypatch):
    state = State(tmp_path)
    state.add("a", {"files": []})

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", crash)
    with pytest.raises(KeyboardInterrupt):
        state.add("b", {"files": []})
    monkeypatch.undo()
    state.close()
    again = State(tmp_path)
    assert (again.row("a"), again.row("b")) == ({"files": []}, None)
    again.add("c", {"files": []})  # what the crash left beside it is in nobody's way
    again.close()
    assert set(json.loads((tmp_path / NAME).read_text())["rows"]) == {"a", "c"}
    assert oct((tmp_path / NAME).stat().st_mode)[-3:] == "600"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"memtui_study": 99, "rows": {}}', '{"memtui_study": 1, "rows": {"a": {"files": ["../x"]}}}'],
)
def test_a_foreign_state_is_one_line(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    with pytest.raises(UserError, match="is not a state of a study"):
        State(tmp_path)


def test_two_studies_do_not_write_into_one_folder(tmp_path):
    state = State(tmp_path)
    with pytest.raises(UserError, match="another study, writes there now"):
        State(tmp_path)
    state.close()
    State(tmp_path).close()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="name another folder"):
        State(tmp_path / "file" / "below")
    with pytest.raises(UserError, match="name another folder"):
        write_safely(tmp_path / "no such folder" / "x", "")
