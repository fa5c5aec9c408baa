"""All rules together: which findings are told, in which words, and that a healthy program has none."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace

import pytest

from memtui.analysis import memory_growth
from memtui.analysis.memory_sentences import fitting
from memtui.cli.main import main
from memtui.core.readings import MemoryLimit
from memtui.reports.redact import open_source
from memtui.reports.source import Source
from memtui.reports.verdict import (
    huge_pages,
    leak,
    numa,
    out_of_memory,
    recording_cost,
    swap,
    thrashing,
    throttled,
    unsharing,
    untouched,
)
from memtui.reports.verdict.recent import Check, Recent
from memtui.reports.verdict.verdict import RULES, Verdict, finding_forms, last_verdict, verdict_lines
from memtui.tui.screens.verdict import verdict_rows
from tests.support.growing_sessions import GIB, MIB, START_S, S, appending, filling, pages, session_of, steady, tree_of
from tests.support.repository import ROOT
from tests.support.verdicts import checks_of, full, rules_found


def test_a_redacted_report_has_the_same_verdict(tmp_path):
    """Files have labels in place of paths there."""
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 20, 600 + n), lambda n: pages((10, 10, 0)))
    with closing(Source(path)) as plain, closing(open_source(path, redact=True)) as redacted:
        assert last_verdict(redacted) == last_verdict(plain)
        assert last_verdict(plain).findings == []


def test_readings_after_the_last_window_count(tmp_path):
    """A window was 40 s long when the program ended."""
    how = {"use_every": 2, "read_every": 6, "window_every": 40, "windows": 79, "ended": True}
    check = checks_of(tree_of(tmp_path / "s.memtui", lambda n: 4 * n, **how))["unsharing"]
    assert check.finding.sentence.endswith(" in the last 78 s.")
    ending = tree_of(tmp_path / "t.memtui", lambda n: 4 * n, workers=lambda n: 3 if n < 77 else 0, **how)
    assert checks_of(ending)["unsharing"].finding.sentence.endswith(" in the last 72 s."), "until its processes end"


def test_a_finding_fits_into_one_line_of_a_narrow_screen(tmp_path):
    """At 80x24 there is one line, and a finding that does not fit makes room for figures that say nothing of it."""
    cgroup = "/kubepods.slice/kubepods-burstable.slice/" + "x" * 60

    def limit(n: int) -> MemoryLimit:
        return replace(filling(n), cgroup=cgroup)

    dying = session_of(tmp_path / "s.memtui", lambda n: (20, 300 + 5 * n, 30), appending(5), limit=limit)
    waiting = session_of(
        tmp_path / "t.memtui", steady, faults=lambda n: 4000 * n, limit=lambda n: replace(full(n), cgroup=cgroup)
    )
    for path, rule in ((dying, "oom"), (waiting, "thrashing")):
        finding = checks_of(path)[rule].finding
        (line,) = fitting([finding_forms(finding), ("In a window",)], 78, 1)
        assert line.startswith(finding.short)
        assert len(finding.short) <= 78


def test_a_healthy_program_has_nothing_to_do(tmp_path, capsys):
    path = session_of(
        tmp_path / "s.memtui", steady, limit=lambda n: MemoryLimit((START_S + n) * S, "", 24 * GIB, GIB, 0, 0)
    )
    assert rules_found(path) == []
    assert main(["report", str(path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("verdict")]
    assert line == (
        "verdict      nothing to do; looked at: limit of memory, waiting for pages from disk or swap, growth of RSS, "
        "memory that is not touched, cost of watching, huge pages that would fit; not known (--json says why): "
        "memory in swap"
    )
    assert main(["report", "--json", str(path)]) == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert [check["rule"] for check in verdict["checks"]] == [
        "oom",
        "thrashing",
        "throttled",
        "swap",
        "leak",
        "unsharing",
        "untouched",
        "cost",
        "numa",
        "huge-pages",
    ]
    assert all(check["finding"] is None for check in verdict["checks"])


def test_the_report_says_what_was_found_and_what_to_do(tmp_path, capsys):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 300 + 5 * n, 30), appending(5), limit=filling)
    assert main(["report", str(path)]) == 0
    first, second = [line for line in capsys.readouterr().out.splitlines() if line.startswith("verdict")]
    assert first.startswith("verdict      Cgroup /job will be out of memory")
    assert re.search(r"; its working set is [\d.]+ MiB in windows of 1\.0 s\. ", first)
    assert second.startswith("verdict      Memory grows by")


def test_at_most_three_are_told_and_what_is_too_short_says_nothing(tmp_path):
    path = session_of(
        tmp_path / "s.memtui",
        lambda n: (20, 600 + 5 * n, 30),
        limit=lambda n: MemoryLimit((START_S + n) * S, "/job", 2 * GIB, 2 * GIB - (90 - n) * 5 * MIB, 0, 0),
        faults=lambda n: 400 * n,
        lost_share=0.05,
    )
    with closing(Source(path)) as source:
        verdict = last_verdict(source)
    assert sum(check.finding is not None for check in verdict.checks) > 3
    assert len(verdict.findings) == 3
    assert verdict.findings[0] == next(check.finding for check in verdict.checks if check.rule == "oom")
    assert verdict_lines(None) == []


@pytest.mark.parametrize(
    ("checks", "line"),
    [
        ([Check("oom", "limit: 1 of 2"), Check("leak", "growth: none")], "nothing to do; looked at: limit, growth"),
        (
            [Check("oom", "limit: 1 of 2"), Check("leak", "growth: recorded for 9 s: from 45 s on", measured=False)],
            "nothing found; looked at: limit; not known (--json says why): growth",
        ),
        (
            [
                Check("oom", "limit: not read", measured=False),
                Check("leak", "growth: fast (look again)", undecided=True),
            ],
            "nothing to do yet; growth: fast (look again); not known (--json says why): limit",
        ),
        (
            [Check("leak", "growth: none"), Check("numa", "nodes: there is one", measured=False, applies=False)],
            "nothing to do; looked at: growth",
        ),
    ],
)
def test_without_findings_the_report_says_what_was_looked_at_and_what_is_not_known(checks, line):
    """On the screen these are the same words, in lists."""
    verdict = Verdict(tuple(checks))
    assert verdict_lines(verdict) == [f"verdict      {line}"]
    rows = [row.cells[0] for row in verdict_rows(verdict, 200)]
    assert rows[0] == f"{line.partition(';')[0]}."
    assert ("Does not apply" in rows) == any(not check.applies for check in checks)


def test_a_finding_has_shorter_forms_for_narrow_screens(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 300 + n, 30))
    finding = checks_of(path)["leak"].finding
    assert finding_forms(finding) == (f"{finding.sentence} {finding.action}", finding.sentence, finding.short)
    assert len(finding.short) < 80


def test_only_the_last_ten_minutes_count(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 300 + min(n, 30) * 10, 30), windows=100, apart_s=10.0)
    with closing(Source(path)) as source:
        last = Recent(source, 99)
        assert last.span_s == pytest.approx(610, abs=10)
        assert (last.t_s[-1], last.t_s[0]) == (0, -600)
        assert last.sample_before(25.0) == 97
        first = Recent(source, 0)
        assert (first.span_s, first.sample_before(25.0)) == (10.0, 0)


def test_the_guide_lists_every_rule_and_its_thresholds():
    guide = (ROOT / "docs/guide/verdicts.md").read_text()
    modules = (out_of_memory, thrashing, throttled, swap, leak, unsharing, untouched, recording_cost, numa, huge_pages)
    assert len(modules) == len(RULES)
    for module in modules:
        assert f"`{module.RULE}`" in guide
        assert f"{module.__name__.rpartition('.')[2]}.py" in guide
    for text in (
        f"{leak.LEAST_BYTES >> 20} MiB",
        f"{leak.LEAST_SHARE:.0%}".replace("%", " %"),
        f"{untouched.LEAST_BYTES >> 20} MiB",
        f"{untouched.MOST_WINDOWS} windows",
        f"{unsharing.LEAST_BYTES >> 20} MiB",
        f"{thrashing.FAULTS_PER_S:.0f} times a second",
        f"{thrashing.FULL_SHARE:.0%}".replace("%", " %"),
        "half of what major faults read",
        f"{recording_cost.MOST_TIMES} times",
        f"{huge_pages.LEAST_BYTES >> 20} MiB of them",
        f"and {numa.LEAST_BYTES >> 20} MiB or more",
        f"{memory_growth.LONGEST_S / 60:.0f} minutes",
        f"{memory_growth.SHORTEST_S:.0f} s",
    ):
        assert text in guide, text
