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
from memtui.reports.verdict.throttled import throttled
from memtui.reports.verdict.unsharing import unsharing
from memtui.reports.verdict.untouched import untouched

RULES: tuple[Callable[[Recent], Check], ...] = (
    out_of_memory,
    thrashing,
    throttled,
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

    @property
    def without_findings(self) -> str:
        """What to say where nothing was found: that there is nothing to do, or that it is too early to say so."""
        if any(check.undecided for check in self.checks):
            return "nothing to do yet"
        if not any(check.measured for check in self.checks if check.rule == LEAK):
            return "nothing found"
        return "nothing to do"

    @property
    def looked_at(self) -> list[Check]:
        return [check for check in self.checks if check.measured]

    @property
    def not_known(self) -> list[Check]:
        """The rules that this program may need, and whose figures the session does not have."""
        return [check for check in self.checks if check.applies and not check.measured]


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
    """Return the lines of the report: each finding and what to do, or that there is none, and what was looked at."""
    if verdict is None:
        return []
    if findings := verdict.findings:
        return [f"verdict      {finding.sentence} {finding.action}" for finding in findings]
    parts = [verdict.without_findings, *(check.looked_at for check in verdict.checks if check.undecided)]
    subjects = [check.looked_at.partition(": ")[0] for check in verdict.looked_at if not check.undecided]
    parts += [f"looked at: {', '.join(subjects)}"] * bool(subjects)
    subjects = [check.looked_at.partition(": ")[0] for check in verdict.not_known]
    parts += [f"not known (--json says why): {', '.join(subjects)}"] * bool(subjects)
    return [f"verdict      {'; '.join(parts)}"]


def finding_forms(finding: Finding) -> Forms:
    """Return a finding as a sentence of the screen in several forms, the longest first."""
    return tuple(dict.fromkeys((f"{finding.sentence} {finding.action}", finding.sentence, finding.short)))
