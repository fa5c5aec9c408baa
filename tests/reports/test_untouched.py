"""Memory that nobody touches, and memory of which that cannot be told."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from memtui.core.readings import MemoryUse
from memtui.reports.redact import open_source
from memtui.reports.verdict.recent import Check
from memtui.reports.verdict.verdict import last_verdict
from tests.support.growing_sessions import MIB, START_S, S, filling, pages, session_of, tree_of
from tests.support.verdicts import checks_of, rules_found


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


@pytest.mark.parametrize("swap_bytes", [0, 8 * MIB])
def test_swap_is_advised_where_there_is_some(tmp_path, swap_bytes):
    path = session_of(
        tmp_path / "s.memtui",
        lambda n: (20, 600, 30),
        lambda n: pages((10, 20, 30)),
        windows=60,
        limit=lambda n: replace(filling(n), swap_bytes=swap_bytes),
    )
    action = checks_of(path)["untouched"].finding.action
    assert action.startswith("Free it, or make the pool smaller")
    assert ("swapped out" in action) == bool(swap_bytes)


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
        (
            (20, 150, 900),
            (10, 10, 0),
            90,
            True,
            "20.0 MiB were touched in the last window, and 170 MiB are in no mapped file",
        ),
        (
            (20, 150, 90),
            (10, 10, 0),
            90,
            True,
            "memory that is not touched: 20.0 MiB of all 260 MiB were touched in the last window",
        ),
        (
            (20, 900, 0),
            (10, 500, 0),
            90,
            True,
            "510 MiB were touched in the last window, and 920 MiB are in no mapped file",
        ),
        ((20, 900, 0), (10, 10, 0), 30, False, "seen for 30 s: from 45 s on"),
    ],
)
def test_what_is_not_untouched(tmp_path, resident, touched, windows, known, why):
    path = session_of(tmp_path / "s.memtui", lambda n: resident, lambda n: pages(touched), windows=windows)
    check = checks_of(path)["untouched"]
    assert (check.finding, check.measured) == (None, known)
    assert why in check.looked_at


def test_of_processes_of_a_moment_it_says_that_they_are_not_looked_at(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 150, 90), lambda n: pages((10, 10, 0)), windows=90)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE sample SET gaps = 2 WHERE sample = 50")
    assert checks_of(path)["untouched"].looked_at == (
        "memory that is not touched (without short-lived processes): 20.0 MiB of all 260 MiB were touched in the last "
        "window"
    )


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


@pytest.mark.parametrize(("windows", "found"), [(16, True), (15, False)])
def test_a_start_ends_as_soon_as_enough_time_is_left(windows, found, tmp_path):
    """Of windows of 3.1 s the first one writes all: 46 and 43 s are left after it."""
    path = session_of(
        tmp_path / "s.memtui",
        lambda n: (20, 900, 0),
        lambda n: pages((10, 900 if n == 0 else 10, 0)),
        windows=windows,
        apart_s=3.1,
    )
    check = checks_of(path)["untouched"]
    assert (check.finding is not None, check.measured) == (found, True)


def test_of_a_tree_only_memory_that_is_not_shared_is_untouched(tmp_path):
    shared = checks_of(tree_of(tmp_path / "s.memtui", lambda n: 0))["untouched"]
    assert (shared.finding, shared.measured) == (None, True)
    subject = "memory that is not touched (of the largest process)"
    assert shared.looked_at.startswith(f"{subject}: at least 0 B of 620 MiB in no mapped file not touched")
    unread = checks_of(tree_of(tmp_path / "t.memtui", lambda n: 0, read_every=None))["untouched"]
    assert (unread.finding, unread.measured) == (None, False)
    own = checks_of(tree_of(tmp_path / "u.memtui", lambda n: 0, own=lambda n: 500, shared=100))["untouched"]
    # It touches 20 MiB, perhaps of its own 500: of the other 100 others may touch all.
    assert own.finding.sentence == "At least 480 MiB of 600 MiB of pid 4242 (80.0 %) were not touched in the last 90 s."
    hot = tree_of(tmp_path / "v.memtui", lambda n: 0, own=lambda n: 500, shared=600, touched=500)
    assert checks_of(hot)["untouched"].finding is None, "what it shares is not its own, however much of that it has"


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize("name", ["/dev/zero (deleted)", "/memfd:pool (deleted)", "/dev/shm/psm_1"])
def test_a_pool_in_shared_memory_that_nobody_touches(tmp_path, name, redact):
    path = session_of(
        tmp_path / "s.memtui", lambda n: (20, 30, 600), lambda n: pages((20, 20, 10)), windows=60, file=name
    )
    with closing(open_source(path, redact=redact)) as source:
        (finding,) = [check.finding for check in last_verdict(source).checks if check.rule == "untouched"]
    assert finding.sentence == "600 MiB of 650 MiB (92.3 %) were not touched in the last 60 s: 50.0 MiB are in use."


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


def test_what_a_filter_leaves_out_was_touched_all_the_same(tmp_path):
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 150, 900), lambda n: pages((10, 10, 40)), left_out="file")
    assert (
        "60.0 MiB were touched in the last window, and 170 MiB are in no mapped file"
        in checks_of(path)["untouched"].looked_at
    )
