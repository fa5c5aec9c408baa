"""What is called a leak, and which growth is none."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from memtui.analysis.memory_growth import Growth
from memtui.analysis.resident import PSS, RSS
from memtui.core.page_set import PageSet
from memtui.reports.redact import open_source
from memtui.reports.source import Source
from memtui.reports.verdict import leak
from memtui.reports.verdict.recent import Recent
from memtui.reports.verdict.verdict import last_verdict, verdict_lines
from tests.support.growing_sessions import MIB, appending, pages, session_of, steady, tree_of
from tests.support.verdicts import checks_of, rules_found


def test_a_leak_is_found_with_its_mapping_within_a_minute(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20 + n // 10, 300 + n, 30), appending(1), windows=60)
    assert rules_found(path) == ["leak"]
    finding = checks_of(path)["leak"].finding
    assert finding.sentence.startswith("Memory grows by 1.1")
    assert finding.sentence.endswith("while the working set stays at 21.0 MiB; little of what is added is used again.")
    assert "loss.item()" in finding.action
    assert any(line == "memory of an allocator (no file): 59.0 MiB more" for line in finding.evidence), finding.evidence


@pytest.mark.parametrize(
    ("command", "file", "action"),
    [
        ("./solver", "/usr/lib/libc.so.6", "heaptrack"),
        ("python solver.py", "/usr/lib/libc.so.6", "a list, a cache"),
        ("./solver", "/usr/lib/libpython3.11.so.1.0", "a list, a cache"),
        ("./solver", "/data/set.bin", "a list, a cache"),  # its libraries are not known: filtered, or redacted
    ],
)
def test_a_program_without_python_gets_advice_for_native_memory(command, file, action, tmp_path):
    path = session_of(
        tmp_path / "s.memtui", lambda n: (20, 300 + n, 30), appending(1), windows=60, command=command, file=file
    )
    assert action in checks_of(path)["leak"].finding.action


def test_a_buffer_whose_samples_are_drawn_again_is_not_called_unused(tmp_path):
    """As the replay buffer of a program that learns: a part of all of it is touched in each window."""

    def drawn(n: int) -> PageSet:
        return appending(1)(n).union(pages((0, n // 4, 0), (0, 300 + n // 4, 0)))

    path = session_of(tmp_path / "s.memtui", lambda n: (20, 300 + n, 30), drawn)
    finding = checks_of(path)["leak"].finding
    assert "50.0 % of what was added was touched again soon after" in finding.sentence
    assert finding.action.startswith("Give it a bound where it is meant to grow")


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


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize(
    "name", ["/dev/zero (deleted)", "/memfd:ring (deleted)", "/dev/shm/psm_1", "/SYSV00000000 (deleted)"]
)
def test_shared_memory_is_not_page_cache(tmp_path, name, redact):
    """The kernel has nowhere to put it without swap; its mappings have names like those of files."""
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 300, 30 + n), file=name)
    with closing(open_source(path, redact=redact)) as source:
        checks = {check.rule: check for check in last_verdict(source).checks}
    assert checks["leak"].finding is not None


def test_an_uneven_growth_of_a_young_program_may_be_its_start(tmp_path):
    """A training whose allocator settles: some 90 MiB in a minute, up by 33 MiB at once and down by 3."""

    def settles(n):
        return 20, 300 + (0, 30, 27, 60, 57, 90)[n // 10], 30

    young = checks_of(session_of(tmp_path / "a.memtui", settles, windows=60, age_s=0))["leak"]
    assert young.undecided
    assert "unevenly, as in a program that settles down (look again when it is 5 min old)" in young.looked_at
    assert checks_of(session_of(tmp_path / "b.memtui", settles, windows=60))["leak"].finding is not None
    even = session_of(tmp_path / "c.memtui", lambda n: (20, 300 + n, 30), windows=60, age_s=0)
    assert checks_of(even)["leak"].finding is not None


def test_a_program_that_loads_its_data_is_not_a_leak_while_it_is_young(tmp_path):
    young = session_of(tmp_path / "a.memtui", lambda n: (20, 40 + 6 * n, 30), appending(6), age_s=0)
    assert "as fast as a program that loads its data" in checks_of(young)["leak"].looked_at
    with closing(Source(young)) as source:
        (line,) = verdict_lines(last_verdict(source))
    assert line.startswith("verdict      nothing to do yet; growth of RSS: ")
    assert "as fast as a program that loads its data (look again when it is 5 min old); looked at: " in line
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


def test_working_sets_are_compared_of_windows_that_are_alike():
    """The first windows of a recording are short ones."""
    ends_s = np.array([0.2, 2.5, 33.0, 64.0, 95.0])
    start_ns = np.concatenate(([0.0], ends_s[:-1])) * 1e9
    samples = SimpleNamespace(start_ns=start_ns, end_ns=ends_s * 1e9)
    wss = np.array([1.7, 6.2, 79.1, 83.5, 81.0]) * MIB
    recent = SimpleNamespace(
        source=SimpleNamespace(samples=samples), windows=slice(0, 5), t_s=ends_s - ends_s[-1], wss_bytes=wss
    )
    assert leak._working_set_growth(recent, Growth(1, 1, 1, 95.0)) == pytest.approx(1.9 * MIB)
    wss[:] = np.nan
    assert leak._working_set_growth(recent, Growth(1, 1, 1, 95.0)) is None


def test_between_readings_of_the_pss_the_rss_says_how_a_tree_grows(tmp_path):
    path = tree_of(tmp_path / "s.memtui", lambda n: 0, own=lambda n: 20 + 2 * n, use_every=2, read_every=40)
    check = checks_of(path)["leak"]
    assert check.finding.sentence.startswith("Memory grows by 8.00 MiB/s"), check.looked_at
    with closing(Source(path)) as source:
        kind, t_s, sizes = Recent(source, len(source.samples) - 1).resident_series()
    assert (kind, len(t_s)) == ("PSS", 45)
    assert np.allclose(np.diff(sizes), 2 * 4 * 2 * MIB), "four processes, and what they share counts once"


@pytest.mark.parametrize(("rss", "grown_mib"), [("leaks", 60), ("starts", 0), ("both", 60)])
def test_what_a_program_maps_as_it_starts_is_no_growth(rss, grown_mib):
    """Of a tree that is watched from its start: in its first second it gets all that it has."""
    t_s = np.arange(0, 61.0) - 60
    own = {"leaks": 300 + t_s, "starts": np.where(t_s < -59, 8, 348), "both": np.where(t_s < -59, 8, 348 + t_s)}[rss]
    recent = SimpleNamespace(rss_series=lambda: (t_s, own * MIB))
    grown = leak._newly_mapped_bytes(recent, Growth(1, 1, 1, 60.0))
    assert grown == pytest.approx(grown_mib * MIB, abs=2 * MIB)
    few = SimpleNamespace(rss_series=lambda: (t_s[[0, -1]], np.array([10.0, 30.0]) * MIB))
    assert leak._newly_mapped_bytes(few, Growth(1, 1, 1, 60.0)) == 20 * MIB


@pytest.mark.parametrize(("age_s", "span_s", "known"), [(44, 76, False), (44, 400, True), (14, 20, True)])
def test_of_a_pss_that_was_read_long_ago_it_is_not_said_that_it_does_not_grow(age_s, span_s, known):
    """Workers copied 8 MiB a second, at an RSS that stood still, and the last three readings said nothing of it."""
    recent = SimpleNamespace(pss_age_s=age_s, span_s=span_s)
    check = leak._not_steady(recent, PSS, np.array([600.0, 872]) * MIB)
    assert (check.measured, "none that is steady" in check.looked_at) == (known, known)
    assert "none that is steady" in leak._not_steady(recent, RSS, np.array([600.0, 872]) * MIB).looked_at
