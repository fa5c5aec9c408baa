"""Programs that wait for pages because memory is full, and programs that only read their data."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from memtui.core.readings import MemoryLimit
from memtui.reports.redact import open_source
from memtui.reports.verdict.verdict import last_verdict
from tests.support.growing_sessions import GIB, MIB, START_S, S, session_of, steady
from tests.support.verdicts import checks_of, full, rules_found


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


@pytest.mark.parametrize(("windows", "measured"), [(4, True), (3, False)])
def test_long_windows_are_enough_where_there_are_four(tmp_path, windows, measured):
    path = session_of(
        tmp_path / "s.memtui", steady, windows=windows, apart_s=31.0, faults=lambda n: 31 * 400 * n, limit=full
    )
    check = checks_of(path)["thrashing"]
    assert (check.measured, check.finding is not None) == (measured, measured)
    assert ("400 times a second in the median of the last 93 s" in check.looked_at) is measured, check.looked_at
