"""Programs that the kernel holds up above ``memory.high``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from memtui.core.readings import MemoryLimit
from memtui.reports.redact import open_source
from memtui.reports.verdict.verdict import last_verdict
from tests.support.growing_sessions import GIB, MIB, START_S, S, session_of, steady
from tests.support.verdicts import checks_of, rules_found


def limits(events_per_s: float, used_bytes: int = 495 * MIB, cgroup: str = "/job"):
    """Limits of each second: a machine with room, and a boundary of 500 MiB."""

    def limit(n: int) -> MemoryLimit:
        machine = MemoryLimit((START_S + n) * S, "", 24 * GIB, 2 * GIB, 0, 0, "", n * S // 2, 0)
        high = {"high_cgroup": cgroup, "high_bytes": 500 * MIB, "high_used_bytes": used_bytes}
        return replace(machine, **high, high_events=round(7 + events_per_s * n))

    return limit


@pytest.mark.parametrize(
    ("events_per_s", "used", "found"),
    [(4.0, 495 * MIB, True), (1.0, 450 * MIB, True), (0.9, 495 * MIB, False), (4.0, 449 * MIB, False), (0, 0, False)],
)
def test_tasks_that_are_held_up_often_are_a_finding(events_per_s, used, found, tmp_path):
    path = session_of(tmp_path / "s.memtui", steady, limit=limits(events_per_s, used))
    check = checks_of(path)["throttled"]
    assert check.measured
    assert (check.finding is not None) is found
    assert rules_found(path) == ["throttled"] * found
    assert check.looked_at.startswith("memory.high of its cgroup: ")
    with closing(open_source(path, redact=True)) as source:
        assert bool(last_verdict(source).findings) is found


def test_it_says_whose_boundary_it_is_and_how_long_tasks_waited(tmp_path):
    path = session_of(tmp_path / "s.memtui", steady, limit=limits(4.0, cgroup="/slurm/uid_5/job_77/step_0"))
    finding = checks_of(path)["throttled"].finding
    assert finding.sentence == (
        "It is held up 4 times a second, because step 0 of Slurm job 77 is above its memory.high: 495 MiB in use of "
        "500 MiB, in the last 60 s."
    )
    assert finding.action.startswith("Raise memory.high of step 0 of Slurm job 77 ")
    assert finding.evidence[0] == "events above memory.high: 4.0 a second"
    assert finding.evidence[1].startswith("tasks of the machine waited for memory 50.0 % of the time")


def test_without_such_a_boundary_it_says_nothing(tmp_path):
    path = session_of(tmp_path / "s.memtui", steady, limit=lambda n: MemoryLimit((START_S + n) * S, "", GIB, 1, 0, 0))
    check = checks_of(path)["throttled"]
    assert (check.finding, check.measured, check.applies) == (None, False, False)


def test_another_boundary_begins_anew(tmp_path):
    def limit(n: int) -> MemoryLimit:
        return limits(4.0, cgroup="/job" if n < 80 else "/job/step")(n)

    check = checks_of(session_of(tmp_path / "s.memtui", steady, limit=limit))["throttled"]
    assert (check.finding, check.measured) == (None, False)
    assert "from 20 s on" in check.looked_at
