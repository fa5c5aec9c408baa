"""All rules together: at most three findings, and what was looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memtui.analysis.memory_sentences import Forms
from memtui.reports.verdict.huge_pages import huge_pages
from memtui.reports.verdict.leak import RULE as LEAK
from memtui.reports.verdict.leak import leak
from memtui.reports.verdict.numa import numa
from memtui.reports.verdict.out_of_memory import out_of_memory
from memtui.reports.verdict.recent import Check, Finding, Recent, RecentSource, UnionCache
from memtui.reports.verdict.recording_cost import recording_cost
from memtui.reports.verdict.swap import swap
from memtui.reports.verdict.thrashing import thrashing
from memtui.reports.verdict.unsharing import unsharing
from memtui.reports.verdict.untouched import untouched

RULES: tuple[Callable[[Recent], Check], ...] = (
    out_of_memory,
    thrashing,
    swap,
    leak,
    unsharing,
    untouched,
    recording_cost,
    numa,
    huge_pages,
)
"""The rules, what matters most first."""
MOST_FINDINGS = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say of one moment of a session, in the order of ``RULES``."""

    checks: tuple[Check, ...]

    @property
    def findings(self) -> list[Finding]:
        """The findings that matter most."""
        return [check.finding for check in self.checks if check.finding is not None][:MOST_FINDINGS]


def verdict_at(source: RecentSource, index: int, cache: UnionCache | None = None) -> Verdict:
    """Return what the rules say at the end of the window at ``index``; ``cache`` is for the next call, too.

    Raises SessionError.
    """
    recent = Recent(source, index, cache)
    return Verdict(tuple(rule(recent) for rule in RULES))


def last_verdict(source: RecentSource) -> Verdict | None:
    """Return what the rules say at the end of a session; None where it has no window. Raises SessionError."""
    return verdict_at(source, len(source.samples) - 1) if len(source.samples) else None


def verdict_lines(verdict: Verdict | None) -> list[str]:
    """Return the lines of the report: each finding and what to do, or that there is nothing to do."""
    if verdict is None:
        return []
    if findings := verdict.findings:
        return [f"verdict      {finding.sentence} {finding.action}" for finding in findings]
    if not any(check.measured for check in verdict.checks if check.rule == LEAK):
        return []  # too short to tell
    if undecided := [check.looked_at for check in verdict.checks if check.undecided]:
        return [f"verdict      nothing to do yet; {'; '.join(undecided)}"]
    subjects = [check.looked_at.partition(":")[0] for check in verdict.checks if check.measured]
    return [f"verdict      nothing to do; looked at: {', '.join(subjects)}"]


def finding_forms(finding: Finding) -> Forms:
    """Return a finding as a sentence of the screen in several forms, the longest first."""
    return tuple(dict.fromkeys((f"{finding.sentence} {finding.action}", finding.sentence, finding.short)))
