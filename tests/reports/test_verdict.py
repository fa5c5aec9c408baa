"""What the rules say of streams whose faults are known, and that they say nothing of healthy ones."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from memtui.analysis import memory_growth
from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.memory_sentences import fitting
from memtui.analysis.tensor_pages import TensorMap
from memtui.cli.main import main
from memtui.core.samples import KILLED_FOR_MEMORY, PROBABLY_KILLED, MemoryLimit, MemoryUse, Process
from memtui.reports.redact import open_source
from memtui.reports.report import build_report
from memtui.reports.source import Source
from memtui.reports.text import format_report
from memtui.reports.verdict import (
    huge_pages,
    leak,
    numa,
    out_of_memory,
    recording_cost,
    swap,
    thrashing,
    unsharing,
    untouched,
)
from memtui.reports.verdict.recent import NO_FILE, Check, Recent
from memtui.reports.verdict.verdict import RULES, Verdict, finding_forms, last_verdict, verdict_at, verdict_lines
from memtui.session.vma_row import VmaRow
from tests.support.growing_sessions import GIB, MIB, START_S, S, appending, filling, pages, session_of, steady, tree_of
from tests.support.repository import ROOT


def checks_of(path: Path, index: int | None = None) -> dict[str, Check]:
    with closing(Source(path)) as source:
        verdict = last_verdict(source) if index is None else verdict_at(source, index)
        assert verdict is not None
        return {check.rule: check for check in verdict.checks}


def rules_found(path: Path) -> list[str]:
    return [rule for rule, check in checks_of(path).items() if check.finding is not None]


# Memory that grows


def test_a_leak_is_found_with_its_mapping_within_a_minute(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20 + n // 10, 300 + n, 30), appending(1), windows=60)
    assert rules_found(path) == ["leak"]
    finding = checks_of(path)["leak"].finding
    assert finding.sentence.startswith("Memory grows by 1.1")
    assert "while the working set stays at 21.0 MiB" in finding.sentence
    assert "loss.item()" in finding.action
    assert any(line == "memory of an allocator (no file): 59.0 MiB more" for line in finding.evidence), finding.evidence


def test_a_leak_is_seen_at_the_cursor_and_not_before_it_began(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 300 + max(n - 100, 0), 30), windows=160)
    assert checks_of(path, 99)["leak"].finding is None
    assert checks_of(path, 159)["leak"].finding is not None


@pytest.mark.parametrize(
    ("resident", "why"),
    [
        (steady, "none that is steady"),
        (lambda n: (20, 300 + n % 30, 30), "none that is steady"),  # a saw-tooth
        (lambda n: (20, 300 + min(n, 20) * 5, 30), "none that is steady"),  # a start
        (lambda n: (20, 300 + n // 15, 30), "too little to tell"),
        (lambda n: (20, 300, 30 + n), "most of it mapped files"),
    ],
)
def test_what_is_not_a_leak(tmp_path, resident, why):
    check = checks_of(session_of(tmp_path / "s.memtui", resident))["leak"]
    assert check.finding is None
    assert check.measured
    assert why in check.looked_at


def test_a_redacted_report_has_the_same_verdict(tmp_path):
    """Files have labels in place of paths there."""
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 20, 600 + n), lambda n: pages((10, 10, 0)))
    with closing(Source(path)) as plain, closing(open_source(path, redact=True)) as redacted:
        assert last_verdict(redacted) == last_verdict(plain)
        assert last_verdict(plain).findings == []


def test_a_program_that_loads_its_data_is_not_a_leak_while_it_is_young(tmp_path):
    young = session_of(tmp_path / "a.memtui", lambda n: (20, 40 + 6 * n, 30), appending(6), age_s=0)
    assert "as fast as a program that loads its data" in checks_of(young)["leak"].looked_at
    with closing(Source(young)) as source:
        (line,) = verdict_lines(last_verdict(source))
    assert line.startswith("verdict      nothing to do yet; growth of RSS: ")
    assert line.endswith("as fast as a program that loads its data (look again when it is 5 min old)")
    slow = session_of(tmp_path / "c.memtui", lambda n: (20, 40 + n, 30), windows=60, age_s=12)
    assert rules_found(slow) == ["leak"], "a small program that was started a minute ago"
    old = session_of(tmp_path / "b.memtui", lambda n: (20, 40 + 3 * n, 30), age_s=600)
    assert checks_of(old)["leak"].finding is not None


def test_memory_that_is_used_again_is_not_a_leak(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 300 + n, 30), lambda n: pages((10, 10 + n, 0)))
    check = checks_of(path)["leak"]
    assert check.finding is None
    assert "the working set grows, too" in check.looked_at


def test_growth_needs_time_and_a_working_set(tmp_path):
    short = checks_of(session_of(tmp_path / "a.memtui", lambda n: (20, 300 + 2 * n, 30), windows=40))["leak"]
    assert not short.measured
    assert short.looked_at == "growth of RSS: recorded for 40 s: from 45 s on"
    blind = checks_of(session_of(tmp_path / "b.memtui", lambda n: (20, 300 + n, 30), lambda n: None))["leak"]
    assert not blind.measured
    assert "whether that is used again is not known" in blind.looked_at


# The limit


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


def test_copies_of_which_nothing_is_known_lately_are_not_called_growth_of_others(tmp_path):
    """PSS is read for half a minute; later it seems not to grow."""
    path = tree_of(tmp_path / "s.memtui", lambda n: 4 * n, use_every=2, read_every=6, last_read=36)
    forecast = SimpleNamespace(growth_bytes_per_s=20 * MIB)
    with closing(Source(path)) as source:
        recent = Recent(source, len(source.samples) - 1)
        assert recent.pss_age_s == 53.5
        assert out_of_memory._what_grows(recent, forecast) == "what grows"
    finding = checks_of(path)["unsharing"].finding
    assert finding.sentence == "Its processes stopped sharing memory: they copied 324 MiB in 36 s until 54 s ago."
    assert finding.short == "Its processes stopped sharing memory."


def test_readings_after_the_last_window_count(tmp_path):
    """A window was 40 s long when the program ended."""
    how = {"use_every": 2, "read_every": 6, "window_every": 40, "windows": 79, "ended": True}
    check = checks_of(tree_of(tmp_path / "s.memtui", lambda n: 4 * n, **how))["unsharing"]
    assert check.finding.sentence.endswith(" in the last 78 s.")
    ending = tree_of(tmp_path / "t.memtui", lambda n: 4 * n, workers=lambda n: 3 if n < 77 else 0, **how)
    assert checks_of(ending)["unsharing"].finding.sentence.endswith(" in the last 72 s."), "until its processes end"


@pytest.mark.parametrize("ended", [True, False])
def test_a_program_that_ends_its_workers_first_has_what_they_did(ended, tmp_path):
    """Its last windows are of the parent alone; of a program that goes on, they are of what is left."""
    path = tree_of(
        tmp_path / "s.memtui",
        lambda n: 4 * n,
        workers=lambda n: 3 if n < 86 else 0,
        use_every=1,
        ended=ended,
    )
    check = checks_of(path)["unsharing"]
    assert (check.finding is not None, check.measured) == (ended, ended)


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


# Workers that copy what they shared


def test_workers_that_copy_what_they_shared_are_found(tmp_path):
    path = tree_of(tmp_path / "s.memtui", lambda n: 4 * n)
    assert rules_found(path) == ["unsharing"]
    finding = checks_of(path)["unsharing"].finding
    assert finding.short == "Its processes stop sharing memory: they copy 9.00 MiB/s."
    assert finding.sentence.endswith("9.00 MiB/s, 765 MiB in the last 85 s.")
    assert "numpy array" in finding.action
    assert finding.evidence[:2] == (  # by mapping it is read less often
        "pid 4243: 20.0 MiB to 360 MiB of its own (300 MiB in [heap])",
        "pid 4244: 20.0 MiB to 360 MiB of its own (300 MiB in [heap])",
    )
    with closing(open_source(path, redact=True)) as source:
        assert last_verdict(source).findings[0].short == finding.short


def test_workers_of_a_data_loader_are_named_as_such(tmp_path):
    path = tree_of(tmp_path / "s.memtui", lambda n: 4 * n, role="loader RANK=0")
    finding = checks_of(path)["unsharing"].finding
    assert finding.short == "Its DataLoader workers stop sharing memory: they copy 9.00 MiB/s."
    assert finding.evidence[0].startswith("pid 4243 (DataLoader worker): 20.0 MiB to 360 MiB of its own")
    with closing(open_source(path, redact=True)) as source:
        assert last_verdict(source).findings[0].short == finding.short


@pytest.mark.parametrize(
    ("private", "how", "why"),
    [
        (lambda n: 0, {}, "0 B less than 85 s before"),
        (lambda n: min(n, 15) * 7, {}, "less than 85 s before"),  # a start
        (lambda n: n // 4, {}, "less than 85 s before"),  # little
        (lambda n: 0, {"own": lambda n: 20 + 2 * n}, "0 B less than 85 s before"),  # new memory
    ],
)
def test_what_is_not_unsharing(tmp_path, private, how, why):
    path = tree_of(tmp_path / "s.memtui", private, **how)
    check = checks_of(path)["unsharing"]
    assert (check.finding, check.measured) == (None, True)
    assert why in check.looked_at


def test_much_that_was_copied_counts_though_it_has_ended(tmp_path):
    finding = checks_of(tree_of(tmp_path / "s.memtui", lambda n: min(n, 15) * 10))["unsharing"].finding
    assert finding.sentence == "Its processes stopped sharing memory: they copied 338 MiB in the last 85 s."
    assert finding.short == "Its processes stopped sharing memory."
    large = tree_of(tmp_path / "t.memtui", lambda n: min(n, 15) * 10, own=lambda n: 800)
    assert checks_of(large)["unsharing"].finding is None, "less than a quarter of its memory"


@pytest.mark.parametrize(("slower", "still"), [(2, True), (1, False)])
def test_copies_that_become_slower_are_still_copies(slower, still, tmp_path):
    """Of three workers: 18 MiB/s for half a minute, and then 4.5 or 2.25 MiB/s."""
    path = tree_of(tmp_path / "s.memtui", lambda n: 8 * min(n, 30) + slower * max(n - 30, 0))
    finding = checks_of(path)["unsharing"].finding
    assert ("they copy" in finding.sentence) is still, finding.sentence


def test_a_leak_of_a_tree_is_not_unsharing(tmp_path):
    checks = checks_of(tree_of(tmp_path / "s.memtui", lambda n: 0, own=lambda n: 200 + 2 * n))
    assert checks["unsharing"].finding is None
    assert "as processes stop sharing memory" not in checks["leak"].looked_at
    copies = checks_of(tree_of(tmp_path / "t.memtui", lambda n: 4 * n))
    assert copies["leak"].finding is None
    assert "as processes stop sharing memory" in copies["leak"].looked_at


def test_readings_between_windows_are_enough(tmp_path):
    path = tree_of(tmp_path / "s.memtui", lambda n: 4 * n, use_every=2, read_every=6, window_every=20, windows=61)
    assert rules_found(path) == ["unsharing"]
    finding = checks_of(path)["unsharing"].finding
    assert finding.short == "Its processes stop sharing memory: they copy 9.00 MiB/s."
    assert finding.evidence[0] == "pid 4243: 20.0 MiB to 260 MiB of its own (240 MiB in [heap])"
    fewer = tree_of(
        tmp_path / "t.memtui",
        lambda n: 0,
        own=lambda n: 200 + 2 * n,
        use_every=2,
        read_every=2,
        window_every=20,
        windows=61,
    )
    assert rules_found(fewer) == ["leak"]
    assert checks_of(fewer)["leak"].finding.sentence.startswith("Memory grows by 8.00 MiB/s")


def test_what_was_copied_has_the_name_of_its_use():
    """Two ranges of Python's arenas count together; memory that became less does not."""
    arenas = [(2 << 40) + n * (64 << 20) + (1 << 20) for n in (0, 1)]
    vmas = [
        *((start, start + 3 * MIB, "rw-p", "") for start in arenas),
        (1 << 40, (1 << 40) + GIB, "rw-p", "[heap]"),
        (3 << 40, (3 << 40) + MIB, "r-xp", "/usr/lib/libpython3.11.so.1.0"),
    ]
    rows = [VmaRow(number, 1, 7, *vma, 0, 9, "") for number, vma in enumerate(vmas)]
    by_row = {2: {0: 1, 2: 50}, 5: {0: 2, 1: 1, 2: 40}, 8: {0: 3, 1: 3}}
    readings = [(sample, 1, {row: mib * MIB for row, mib in of.items()}) for sample, of in by_row.items()]
    recent = recent_with(rows, readings, {})
    process = Process(1, 4243, 4242, 7, 0, "python")
    assert unsharing._Places(recent, 2).grown(process) == [("Python objects (probably)", 5 * MIB)]
    assert unsharing._Places(recent, 5).grown(process) == [("Python objects (probably)", 3 * MIB)]
    assert unsharing._Places(recent, 5).grown(replace(process, key=2)) == []


@pytest.mark.parametrize(
    ("tensor_mib", "grown_mib", "names", "where"),
    [
        (200, 150, ("Rows.data", ""), "Rows.data"),
        (200, 150, ("", ""), "weights"),
        (60, 150, ("Rows.data", ""), NO_FILE),  # most of what grew is something else
        (4, 6, ("Rows.data", ""), NO_FILE),  # too small to be told apart from what lies beside it
    ],
)
def test_what_was_copied_has_the_name_of_a_tensor_of_the_parent(tensor_mib, grown_mib, names, where):
    start = 1 << 40
    rows = [VmaRow(0, 1, 7, start, start + 300 * MIB, "rw-p", "", 0, 9, "")]
    readings = [(2, 1, {0: 10 * MIB}), (8, 1, {0: (10 + grown_mib) * MIB})]
    columns = np.array([[start + 4096], [tensor_mib * MIB], [CATEGORIES.index("weights")]])
    tensors = TensorMap.of(columns, names[:1], names[1:])
    recent = recent_with(rows, readings, {4242: tensors})
    grown = unsharing._Places(recent, 2).grown(Process(1, 4243, 4242, 7, 0, "python"))
    assert grown == [(where, grown_mib * MIB)]
    assert unsharing._Places(recent, 2).grown(Process(1, 4243, 1, 7, 0, "python")) == [(NO_FILE, grown_mib * MIB)]


def recent_with(rows, readings, tensors):
    """Ten windows with these rows of one process, its private bytes, and tensors by pid."""
    source = SimpleNamespace(
        samples=SimpleNamespace(sample=np.arange(10)),
        drawn_rows=lambda _: rows,
        vma_private=lambda *_: readings,
        latest_tensors=lambda pid, _: tensors.get(pid),
    )
    return SimpleNamespace(source=source, windows=slice(0, 10), sample=9, end_ns=0)


def test_unsharing_is_of_the_same_processes(tmp_path):
    more = tree_of(tmp_path / "s.memtui", lambda n: 4 * n, workers=lambda n: 3 + (n > 80))
    check = checks_of(more)["unsharing"]
    assert (check.finding, check.measured) == (None, False)
    assert check.looked_at == "memory that processes share: 1 reading of the same processes: from 3 in 20 s on"
    alone = checks_of(session_of(tmp_path / "t.memtui", steady))["unsharing"]
    assert (alone.measured, alone.looked_at) == (False, "memory that processes share: there is one process")


@pytest.mark.parametrize(
    ("helpers", "over"),
    [
        (lambda n: n % 20 in (7, 8), "90 s"),  # now and then
        (lambda n: n >= 88, "87 s"),  # at the end
        (lambda n: 20 <= n < 40, "48 s"),  # not for a moment: workers like the others
        (lambda n: -(n == 40), "48 s"),  # one of them ended
    ],
)
def test_a_helper_of_a_moment_does_not_change_who_shares(tmp_path, helpers, over):
    path = tree_of(
        tmp_path / "s.memtui", lambda n: 8 * n, workers=lambda n: 3 + helpers(n), use_every=1, read_every=3, windows=91
    )
    finding = checks_of(path)["unsharing"].finding
    assert finding.sentence.endswith(f"in the last {over}."), finding.sentence


# Memory that is not touched


def test_a_pool_that_nobody_touches(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 600, 30), lambda n: pages((10, 20, 30)), windows=60)
    assert rules_found(path) == ["untouched"]
    finding = checks_of(path)["untouched"].finding
    assert finding.sentence == ("590 MiB of 620 MiB (95.2 %) were not touched in the last 60 s: 30.0 MiB are in use.")
    assert finding.evidence == (
        "memory of an allocator (no file) of 2.00 GiB: 580 MiB not touched",
        "[heap] of 512 MiB: 10.0 MiB not touched",
        "looked at: 60 windows of pid 4242; mapped files are not counted",
    )


def with_uses(path: Path, *uses: MemoryUse) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = [(use.t_ns, use.processes, use.rss_bytes, use.pss_bytes) for use in uses]
        connection.executemany(
            "INSERT INTO memory_use (t_ns, processes, rss_bytes, pss_bytes) VALUES (?, ?, ?, ?)", rows
        )
    return path


@pytest.mark.parametrize(
    ("more_mib", "processes", "said"),
    [
        (600, 3, "processes that began or ended may have touched it unseen"),  # forked ones, that share the pool
        (20, 3, "not touched in 60 s"),  # a helper that was executed
        (600, 1, "not touched in 60 s"),  # the program had more itself
    ],
)
def test_of_a_pool_that_children_may_have_touched_nothing_is_told(tmp_path, more_mib, processes, said):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 600, 30), lambda n: pages((10, 20, 30)), windows=60)
    use = MemoryUse((START_S + 30) * S, processes, (650 + more_mib) * MIB, None)
    check = checks_of(with_uses(path, use))["untouched"]
    assert check.looked_at.endswith(said), check.looked_at
    assert check.measured == (check.finding is not None) == ("touched in" in said)


def test_data_whose_turn_will_come_is_not_called_untouched(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 900, 30), lambda n: pages((10, 5, 0), (0, 3 * n, 0)))
    check = checks_of(path)["untouched"]
    assert check.finding is None
    assert "still reaching new memory" in check.looked_at


@pytest.mark.parametrize(
    ("resident", "touched", "windows", "known", "why"),
    [
        ((20, 150, 900), (10, 10, 0), 90, True, "170 MiB without a file, 20.0 MiB of all touched in a window"),
        ((20, 150, 90), (10, 10, 0), 90, True, "memory that is not touched: 20.0 MiB of 260 MiB touched in a window"),
        ((20, 900, 0), (10, 500, 0), 90, True, "without a file, 510 MiB of all touched in a window"),
        ((20, 900, 0), (10, 10, 0), 30, False, "seen for 30 s: from 45 s on"),
    ],
)
def test_what_is_not_untouched(tmp_path, resident, touched, windows, known, why):
    path = session_of(tmp_path / "s.memtui", lambda n: resident, lambda n: pages(touched), windows=windows)
    check = checks_of(path)["untouched"]
    assert (check.finding, check.measured) == (None, known)
    assert why in check.looked_at


@pytest.mark.parametrize(("until", "found"), [(29, True), (40, False)])
def test_what_a_start_touches_does_not_count(until, found, tmp_path):
    """It writes all of its memory once, in the first third of the time or longer."""
    path = session_of(
        tmp_path / "s.memtui",
        lambda n: (20, 900, 0),
        lambda n: pages((10, 900 if n < until else 10, 0)),
        windows=90,
    )
    check = checks_of(path)["untouched"]
    assert (check.finding is not None, check.measured) == (found, True)
    if found:
        assert check.finding.sentence.startswith("900 MiB of 920 MiB (97.8 %) were not touched in the last 60 s")


def test_of_a_tree_only_memory_that_is_not_shared_is_untouched(tmp_path):
    shared = checks_of(tree_of(tmp_path / "s.memtui", lambda n: 0))["untouched"]
    assert (shared.finding, shared.measured) == (None, True)
    assert shared.looked_at.startswith("memory that is not touched: 20.0 MiB of 620 MiB without a file not touched")
    unread = checks_of(tree_of(tmp_path / "t.memtui", lambda n: 0, read_every=None))["untouched"]
    assert (unread.finding, unread.measured) == (None, False)
    own = checks_of(tree_of(tmp_path / "u.memtui", lambda n: 0, own=lambda n: 500, shared=100))["untouched"]
    assert own.finding.sentence.startswith("500 MiB of 600 MiB (83.3 %) were not touched")


def test_a_lost_window_starts_the_time_anew(tmp_path):
    path = session_of(
        tmp_path / "s.memtui", lambda n: (20, 900, 0), lambda n: None if n == 50 else pages((10, 10, 0)), windows=90
    )
    check = checks_of(path)["untouched"]
    assert not check.measured
    assert "seen for 26 s" in check.looked_at, "without the rest of its group"
    few = session_of(
        tmp_path / "t.memtui",
        lambda n: (20, 900, 0),
        lambda n: None if n == 5 else pages((10, 10, 0)),
        windows=30,
        apart_s=3.0,
    )
    assert "72 s: 20.0 MiB are in use" in checks_of(few)["untouched"].finding.sentence


def test_a_tracker_without_pages(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 900, 0), lambda n: None, tracked=False)
    assert checks_of(path)["untouched"] == Check(
        "untouched", "memory that is not touched: this tracker knows no pages", measured=False
    )


# Waiting for the disk


def full(n: int) -> MemoryLimit:
    return MemoryLimit((START_S + n) * S, "/job", GIB, GIB - 5 * MIB, 700 * MIB, 0)


def test_thrashing_needs_faults_and_full_memory(tmp_path):
    path = session_of(tmp_path / "s.memtui", steady, faults=lambda n: 400 * n, limit=full)
    assert rules_found(path) == ["thrashing"]
    assert checks_of(path)["thrashing"].finding.sentence == (
        "It waits 400 times a second for pages from disk or swap, because cgroup /job is full: 319 MiB in use and "
        "700 MiB page cache of 1.00 GiB."
    )
    assert rules_found(session_of(tmp_path / "a.memtui", steady, faults=lambda n: 10 * n, limit=full)) == []
    first_read = session_of(
        tmp_path / "b.memtui",
        steady,
        faults=lambda n: 400 * n,
        limit=lambda n: MemoryLimit((START_S + n) * S, "/job", 2 * GIB, GIB, 500 * MIB, 0),
    )
    assert "read for the first time" in checks_of(first_read)["thrashing"].looked_at
    assert not checks_of(session_of(tmp_path / "c.memtui", steady, faults=lambda n: 400 * n))["thrashing"].measured


@pytest.mark.parametrize(("again", "found"), [(None, True), (49, False), (50, True), (4000, True)])
def test_pages_that_are_read_for_the_first_time_are_no_thrashing(again, found, tmp_path):
    """Memory is full of page cache that nobody wants again."""

    def limit(n: int) -> MemoryLimit:
        return replace(full(n), refaults=None if again is None else 10**6 + again * n)

    path = session_of(tmp_path / "s.memtui", steady, faults=lambda n: 400 * n, limit=limit)
    check = checks_of(path)["thrashing"]
    assert check.measured
    assert (check.finding is not None) is found
    if not found:
        assert check.looked_at.endswith(
            "; pages read again that had been dropped: 49 a second: they are read for the first time"
        )
    elif again is not None:
        assert f"pages read again that had been dropped: {again:,} a second" in check.finding.evidence


@pytest.mark.parametrize(
    ("again", "waited", "found"), [(2560, 0.1, True), (2559, 0.5, False), (9000, 0.09, False), (None, 0.5, False)]
)
def test_few_faults_that_read_far_ahead_are_thrashing_where_tasks_wait(again, waited, found, tmp_path):
    def limit(n: int) -> MemoryLimit:
        stalls = {"stall_cgroup": "/job", "some_stall_ns": round(n * S * waited)}
        return replace(full(n), refaults=None if again is None else again * n, **stalls)

    path = session_of(tmp_path / "s.memtui", steady, faults=lambda n: 7 * n, limit=limit)
    check = checks_of(path)["thrashing"]
    assert check.measured
    assert (check.finding is not None) is found
    if found:
        assert check.finding.sentence.startswith(
            "It reads 10.0 MiB/s again that had been dropped, because cgroup /job is full: 319 MiB in use"
        )
        roomy = session_of(
            tmp_path / "t.memtui",
            steady,
            faults=lambda n: 7 * n,
            limit=lambda n: replace(limit(n), limit_bytes=2 * GIB),
        )
        assert checks_of(roomy)["thrashing"].finding is None


def test_the_count_of_another_limit_is_left_out(tmp_path):
    def limit(n: int) -> MemoryLimit:
        """The machine's until the 30th second, whose count is larger."""
        return replace(full(n), cgroup="" if n < 30 else "/job", refaults=10**9 + n if n < 30 else 100 * n)

    path = session_of(tmp_path / "s.memtui", steady, faults=lambda n: 400 * n, limit=limit)
    evidence = checks_of(path)["thrashing"].finding.evidence
    assert "pages read again that had been dropped: 100 a second" in evidence


def test_thrashing_says_how_long_tasks_waited(tmp_path):
    def waiting(n: int) -> MemoryLimit:
        """The machine's until the 30th second, and then a fifth of the time all tasks of the cgroup."""
        stalls = ("", 10 * S, S) if n < 30 else ("/job", n * S // 2, n * S // 5)
        return replace(full(n), **dict(zip(("stall_cgroup", "some_stall_ns", "full_stall_ns"), stalls, strict=True)))

    path = session_of(tmp_path / "s.memtui", steady, faults=lambda n: 400 * n, limit=waiting)
    check = checks_of(path)["thrashing"]
    waits = "tasks of cgroup /job waited for memory 50.0 % of the time, and all of them at once 20.0 %"
    assert check.finding.evidence[-1] == waits
    assert check.looked_at.endswith(waits)
    with closing(open_source(path, redact=True)) as source:
        (redacted,) = (c for c in last_verdict(source).checks if c.rule == "thrashing")
        assert "/job" not in redacted.looked_at
        assert "50.0 % of the time" in redacted.looked_at


def test_a_burst_of_faults_is_not_thrashing(tmp_path):
    path = session_of(tmp_path / "s.memtui", steady, faults=lambda n: 4000 * (n >= 60), limit=full)
    check = checks_of(path)["thrashing"]
    assert check.finding is None
    assert check.looked_at == ("waiting for pages from disk or swap: 0 times a second in the median of the last 60 s")


def test_faults_that_are_not_known(tmp_path):
    assert not checks_of(session_of(tmp_path / "s.memtui", steady, faults=lambda n: None, limit=full))[
        "thrashing"
    ].measured


def test_what_comes_back_from_swap_is_no_leak(tmp_path):
    """It was there before, and the working set may stay as it is."""
    grows = session_of(tmp_path / "a.memtui", lambda n: (20, 300 + n, 30), swapped=lambda n: 800 * MIB)
    assert checks_of(grows)["leak"].finding is not None
    returns = session_of(tmp_path / "b.memtui", lambda n: (20, 300 + n, 30), swapped=lambda n: 800 * MIB - n * MIB)
    check = checks_of(returns)["leak"]
    assert check.finding is None
    assert check.looked_at.endswith("as memory comes back from swap")


def half_full(n: int) -> MemoryLimit:
    return MemoryLimit((START_S + n) * S, "/job", 2 * GIB, GIB, 100 * MIB, 0)


def test_pages_that_come_back_from_swap_with_memory_left(tmp_path):
    def swapped(n: int) -> int:
        return 800 * MIB - n * 4 * MIB  # 1,024 pages a second

    path = session_of(tmp_path / "s.memtui", steady, faults=lambda n: 200 * n, swapped=swapped, limit=half_full)
    assert rules_found(path) == ["swap"]
    finding = checks_of(path)["swap"].finding
    assert finding.sentence == (
        "It waits for 200 pages a second to come back from swap, with memory left: 444 MiB of it are still swapped "
        "out, and 1.10 GiB are free."
    )
    assert finding.evidence[0] == "in swap: 684 MiB, and 444 MiB 60 s later"
    assert len(finding.short) < 80
    full_one = session_of(tmp_path / "f.memtui", steady, faults=lambda n: 200 * n, swapped=swapped, limit=full)
    assert rules_found(full_one) == ["thrashing"], "more memory is what helps there"
    assert "while memory is full" in checks_of(full_one)["swap"].looked_at


@pytest.mark.parametrize(
    ("swapped", "faults", "text"),
    [
        (
            lambda n: 800 * MIB,
            lambda n: 200 * n,
            "what it reads does not come from there",
        ),  # a file, for the first time
        (lambda n: 800 * MIB, lambda n: 0, "memory in swap: 800 MiB"),  # nobody wants it back
        (lambda n: 800 * MIB - n * MIB, lambda n: 10 * n, "memory in swap: 711 MiB"),  # seldom
        (lambda n: 0, lambda n: 0, "memory in swap: 0 B"),
    ],
)
def test_memory_in_swap_that_nobody_waits_for(tmp_path, swapped, faults, text):
    path = session_of(tmp_path / "s.memtui", steady, faults=faults, swapped=swapped, limit=half_full)
    check = checks_of(path)["swap"]
    assert check.measured
    assert check.finding is None
    assert check.looked_at.endswith(text)


def test_swap_that_was_not_read_and_a_limit_that_is_not_known(tmp_path):
    assert checks_of(session_of(tmp_path / "a.memtui", steady))["swap"] == Check(
        "swap", "memory in swap: not read", measured=False
    )
    back = session_of(
        tmp_path / "b.memtui", steady, faults=lambda n: 200 * n, swapped=lambda n: 800 * MIB - n * 4 * MIB
    )
    check = checks_of(back)["swap"]
    assert (check.measured, check.finding) == (False, None)


# What watching costs


@pytest.mark.parametrize(
    ("lost", "ppm", "finds", "text"),
    [
        (0.03, 10_000, True, "cost of watching: about 3 % of its time"),
        (0.012, 10_000, False, "cost of watching: about 1 % of its time in the last 60 s, with a budget of 1 %"),
        (0.03, None, False, "cost of watching: about 3 % of its time, without a budget"),
        (None, 10_000, False, "cost of watching: not known"),
    ],
)
def test_the_cost_of_watching(tmp_path, lost, ppm, finds, text):
    check = checks_of(session_of(tmp_path / "s.memtui", steady, lost_share=lost, max_overhead_ppm=ppm))["cost"]
    assert check.looked_at == text
    assert (check.finding is not None) is finds
    if finds:
        assert "--interval 3.0s" in check.finding.action


# All together


def test_a_healthy_program_has_nothing_to_do(tmp_path, capsys):
    path = session_of(
        tmp_path / "s.memtui", steady, limit=lambda n: MemoryLimit((START_S + n) * S, "", 24 * GIB, GIB, 0, 0)
    )
    assert rules_found(path) == []
    assert main(["report", str(path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("verdict")]
    assert line == (
        "verdict      nothing to do; looked at: limit of memory, waiting for pages from disk or swap, growth of RSS, "
        "memory that is not touched, cost of watching, huge pages that would fit"
    )
    assert main(["report", "--json", str(path)]) == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert [check["rule"] for check in verdict["checks"]] == [
        "oom",
        "thrashing",
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
    assert verdict_lines(Verdict(tuple(Check(check.rule, "", measured=False) for check in verdict.checks))) == []
    assert verdict_lines(None) == []
    assert verdict_lines(Verdict((Check("oom", "limit of memory: 1 of 2"), Check("leak", "", measured=False)))) == []


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
    modules = (out_of_memory, thrashing, swap, leak, unsharing, untouched, recording_cost, numa, huge_pages)
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
