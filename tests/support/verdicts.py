"""What rules say of a session, and a limit that is reached."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from memtui.core.readings import MemoryLimit
from memtui.reports.source import Source
from memtui.reports.verdict.recent import Check
from memtui.reports.verdict.verdict import last_verdict, verdict_at
from tests.support.growing_sessions import GIB, MIB, START_S, S


def checks_of(path: Path, index: int | None = None) -> dict[str, Check]:
    with closing(Source(path)) as source:
        verdict = last_verdict(source) if index is None else verdict_at(source, index)
        assert verdict is not None
        return {check.rule: check for check in verdict.checks}


def rules_found(path: Path) -> list[str]:
    return [rule for rule, check in checks_of(path).items() if check.finding is not None]


def full(n: int) -> MemoryLimit:
    return MemoryLimit((START_S + n) * S, "/job", GIB, GIB - 5 * MIB, 700 * MIB, 0)
