"""Memory that would fit in huge pages: what the rule says of sessions whose pages are known."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.reports.source import Source
from memtui.reports.verdict.huge_pages import FULL_PAGES, LEAST_BYTES, LEAST_WINDOWS, huge_pages
from memtui.reports.verdict.recent import Check, Recent
from tests.support.growing_sessions import MIB, pages, session_of
from tests.support.sessions import DATA

BLOCK_PAGES, BLOCK_BYTES = 512, 2 * MIB
LEAST_MIB = LEAST_BYTES // MIB
FIRST = DATA // BLOCK_BYTES


def blocks(count: int, each: int = BLOCK_PAGES, first: int = FIRST) -> PageSet:
    """The first ``each`` pages of ``count`` blocks of 2 MiB, which follow on one another."""
    numbers = np.arange(first, first + count)[:, None] * BLOCK_PAGES + np.arange(each)
    return PageSet.from_pages(numbers.ravel())


def in_huge_pages(count: int, first: int = FIRST) -> PageSet:
    return replace(PageSet.empty(), huge=np.arange(first, first + count, dtype=np.uint64))


def checked(folder, touched, *, windows: int = 30, **options) -> Check:
    path = session_of(folder / "s.memtui", lambda n: (20, 1000, 30), touched, windows=windows, **options)
    with closing(Source(path)) as source:
        return huge_pages(Recent(source, len(source.samples) - 1))


@pytest.mark.parametrize(
    ("allowed", "action"),
    [
        ("madvise", "Try THP_MEM_ALLOC_ENABLE=1"),
        ("", "Try THP_MEM_ALLOC_ENABLE=1"),
        ("never", "Have an administrator allow them"),
        ("always", "The kernel allows them and gave none"),
    ],
)
def test_memory_that_is_used_whole_in_small_pages_is_found(allowed, action, tmp_path):
    finding = checked(tmp_path, lambda n: blocks(200), huge_page_mode=allowed).finding
    assert finding.sentence.startswith(
        "400 MiB of what it touches lie in pages of 4 KiB, where pages of 2 MiB would fit:"
    )
    assert finding.short == "Huge pages would fit 400 MiB of its memory."
    assert finding.action.startswith(action)
    assert finding.evidence == (
        "in the median of 5 windows of pid 4242: 400 MiB in 4 KiB pages fill blocks of 2 MiB, 0 B are in huge pages",
        f"transparent huge pages of this machine: {allowed or 'not read'}",
    )


def test_a_program_that_rests_most_of_the_time_needs_none(tmp_path):
    """It waits for something else than translations of addresses."""
    check = checked(tmp_path, lambda n: blocks(200), busy_cpus=0.2)
    assert (check.finding, check.measured) == (None, True)
    assert check.looked_at.endswith("0 B are in huge pages; it keeps 0.20 CPUs busy")
    (tmp_path / "busy").mkdir()
    assert checked(tmp_path / "busy", lambda n: blocks(200), busy_cpus=0.9).finding is not None


@pytest.mark.parametrize(
    ("touched", "why"),
    [
        (lambda n: blocks(LEAST_MIB // 2 - 1), "touched only 254 MiB in the last window"),
        (lambda n: blocks(LEAST_MIB // 2 - 1).union(pages((0, 0, 600))), "254 MiB in 4 KiB pages"),
        (lambda n: blocks(400, FULL_PAGES - 1), "0 B in 4 KiB pages"),  # a tenth of each block is not used
        (lambda n: in_huge_pages(200), "0 B in 4 KiB pages fill blocks of 2 MiB, 400 MiB are in huge pages"),
        (lambda n: blocks(200).union(in_huge_pages(201, FIRST + 200)), "402 MiB are in huge pages"),
        (lambda n: blocks(200 if n < 27 else 0).union(pages((0, 0, 600))), "0 B in 4 KiB pages"),  # not any more
        (lambda n: pages((0, 0, 600)), "0 B in 4 KiB pages"),  # a mapped file
    ],
)
def test_what_needs_no_huge_pages(touched, why, tmp_path):
    check = checked(tmp_path, touched)
    assert check.finding is None
    assert check.measured
    assert why in check.looked_at


def test_enough_is_used_whole(tmp_path):
    assert checked(tmp_path, lambda n: blocks(LEAST_MIB // 2 + 16, FULL_PAGES)).finding is not None


def test_a_block_outside_of_the_mappings_does_not_count(tmp_path):
    check = checked(tmp_path, lambda n: blocks(LEAST_MIB // 2 + 1, first=FIRST - 1))
    assert check.finding is not None
    assert "256 MiB in 4 KiB pages" in check.looked_at


def test_what_has_to_be_seen(tmp_path):
    few = checked(tmp_path, lambda n: blocks(200), windows=LEAST_WINDOWS - 1, apart_s=15.0)
    assert (few.measured, few.finding) == (False, None)
    assert few.looked_at == "huge pages that would fit: 2 windows in 30 s: from 3 windows and 20 s on"
    (tmp_path / "short").mkdir()
    short = checked(tmp_path / "short", lambda n: blocks(200), windows=19)
    assert (short.measured, short.finding) == (False, None)
    (tmp_path / "lost").mkdir()
    lost = checked(tmp_path / "lost", lambda n: None if n > 25 else blocks(200))
    assert (lost.measured, lost.finding) == (False, None)
    assert lost.looked_at == "huge pages that would fit: what was touched last is not known"
    (tmp_path / "blind").mkdir()
    blind = checked(tmp_path / "blind", lambda n: blocks(200), tracked=False)
    assert blind.looked_at == "huge pages that would fit: this tracker knows no sizes of pages"
    assert not blind.measured


@pytest.mark.parametrize(("apart_s", "measured"), [(90.0, True), (160.0, False)])
def test_windows_of_five_minutes_are_looked_at(apart_s, measured, tmp_path):
    check = checked(tmp_path, lambda n: blocks(200), windows=5, apart_s=apart_s)
    assert (check.measured, check.finding is not None) == (measured, measured)
