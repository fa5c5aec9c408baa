"""When memory will be full, and of whom nothing is foretold."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from memtui.core.readings import MemoryLimit
from memtui.core.samples import KILLED_FOR_MEMORY, PROBABLY_KILLED
from memtui.reports.redact import open_source
from memtui.reports.report import build_report
from memtui.reports.source import Source
from memtui.reports.text import format_report
from memtui.reports.verdict import out_of_memory
from memtui.reports.verdict.recent import Recent
from memtui.reports.verdict.verdict import last_verdict
from tests.support.growing_sessions import GIB, MIB, START_S, S, appending, filling, session_of, steady
from tests.support.verdicts import checks_of, rules_found


def test_the_limit_comes_first_and_says_what_to_do(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 300 + 5 * n, 30), appending(5), limit=filling)
    assert rules_found(path) == ["oom", "leak"]
    finding = checks_of(path)["oom"].finding
    assert finding.sentence.startswith("Cgroup /job will be out of memory in about 2.")
    assert finding.action == ("Save a checkpoint now, then raise the limit of cgroup /job or stop what grows.")
    with closing(open_source(path, redact=True)) as source:
        verdict = last_verdict(source)
        assert "/job" not in str(verdict)
        assert [finding.short for finding in verdict.findings][1].startswith("Memory grows by 5.")


@pytest.mark.parametrize("known", [True, False])
def test_of_a_program_that_was_killed_nothing_is_foretold(tmp_path, known):
    """The last reading of a program that is ending is of the topmost cgroup: old sessions have it."""
    start = KILLED_FOR_MEMORY if known else PROBABLY_KILLED

    def limit(n: int) -> MemoryLimit:
        return replace(filling(n), **({"cgroup": "", "limit_bytes": 24 * GIB} if n == 89 else {}))

    path = session_of(
        tmp_path / "s.memtui",
        lambda n: (20, 300 + 5 * n, 30),
        appending(5),
        limit=limit,
        how_it_ended=f"{start}cgroup /job reached its limit of 2.00 GiB",
    )
    finding = checks_of(path)["oom"].finding
    assert finding.sentence == f"The program was {start}cgroup /job reached its limit of 2.00 GiB."
    assert finding.action.startswith("Raise the limit of cgroup /job, or have the program need less: ")
    (read_last,) = finding.evidence
    assert read_last == "when it was read last: 1.33 GiB of 2.00 GiB in use without page cache, and 100 MiB page cache"
    assert checks_of(path, 60)["oom"].finding.action.startswith("Save a checkpoint now"), "that is what was known then"
    with closing(open_source(path, redact=True)) as source:
        assert "/job" not in str(last_verdict(source))
    page = format_report(build_report(path))
    assert "1.33 GiB of the 2.00 GiB of cgroup /job were in use at the end" in page
    assert "full in" not in page


def test_of_a_program_that_ended_by_itself_nothing_is_foretold(tmp_path):
    path = session_of(tmp_path / "s.memtui", steady, limit=filling, how_it_ended="exited")
    assert rules_found(path) == []
    assert "are in use" not in checks_of(path)["oom"].looked_at
    assert checks_of(path)["oom"].looked_at.endswith(" of the 2.00 GiB of cgroup /job in use at its end")
    assert rules_found(session_of(tmp_path / "t.memtui", steady, limit=filling)) == ["oom"], "it may go on"


def test_a_limit_far_away_leaves_time_to_plan(tmp_path):
    def slowly(n: int) -> MemoryLimit:
        return MemoryLimit((START_S + n) * S, "", 24 * GIB, 19 * GIB + n * MIB, 100 * MIB, 0)

    def action(name: str, resident) -> str:
        path = session_of(tmp_path / name, resident, appending(1), limit=slowly, windows=200)
        return checks_of(path)["oom"].finding.action

    plan = "Plan to use a machine with more memory, or stop what grows"
    assert action("a", lambda n: (20, 300 + n, 30)) == f"{plan}, before then."
    assert action("b", steady) == f"{plan}, which is not this program, before then."
    part = " (this program by 14.9 MiB/min, others by the rest)"
    assert action("c", lambda n: (20, 300 + n // 4, 30)) == f"{plan}{part}, before then."


def test_a_limit_without_growth(tmp_path):
    def same(n: int) -> MemoryLimit:
        return MemoryLimit((START_S + n) * S, "", 24 * GIB, 10 * GIB, GIB, 0)

    checks = checks_of(session_of(tmp_path / "s.memtui", steady, limit=same))
    assert checks["oom"].looked_at == (
        "limit of memory: 9.00 GiB of the 24.0 GiB of the machine in use, and 1.00 GiB more are page cache that the "
        "kernel takes back first; what is in use does not reach it soon"
    )
    assert not checks_of(session_of(tmp_path / "t.memtui", steady))["oom"].measured


@pytest.mark.parametrize(
    ("resident", "said"),
    [
        (lambda n: (20, 100 + 800 * (n >= 60), 30), "what grows"),  # in one step, as a program that starts
        (steady, "what grows, which is not this program"),
    ],
)
def test_others_are_named_only_where_the_program_did_not_grow(tmp_path, resident, said):
    with closing(Source(session_of(tmp_path / "s.memtui", resident))) as source:
        recent = Recent(source, len(source.samples) - 1)
        assert out_of_memory._what_grows(recent, SimpleNamespace(growth_bytes_per_s=15 * MIB)) == said
