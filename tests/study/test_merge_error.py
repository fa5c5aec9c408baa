"""The error of merged windows, from runs whose windows are fine and coarse in turn."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.slowdown import Block
from memtui.analysis.statistics import MedianInterval
from memtui.analysis.working_set import select
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import Window
from memtui.session.session import Session
from memtui.study.plan import ALTERNATE, Run
from memtui.study.recorded_run import Trace
from memtui.study.runs import container
from memtui.study.runs.messages import RunResult
from memtui.study.runs.runner import perform
from memtui.study.studies.base import Setting
from memtui.study.studies.sample_time.alternating import TurnPoint, conclude_turns, keeps, turns
from memtui.study.studies.sample_time.merge_error import MergeError, Stretch, is_as_long, merge_error, stretches_of
from tests.support.live import needs_tracker
from tests.support.sessions import MS, messages, write_session

COUNT = 5


def window(first: int, last: int) -> PageSet:
    return PageSet.from_pages(np.arange(first, last, dtype=np.uint64))


def ring(moments: range) -> PageSet:
    """Return the pages at these moments: 10 pages each, going round 80."""
    return PageSet.from_pages(np.unique([moment % 8 * 10 + page for moment in moments for page in range(10)]))


def pair_of(number: int, *, lost: int = 0) -> list[Stretch]:
    """Return blocks of 15 moments; a coarse window misses its first ``lost`` moments, like released memory."""
    fine = [ring(range(start, start + 1)) for start in range(number, number + 15)]
    coarse = [ring(range(start + lost, start + COUNT)) for start in range(number, number + 15, COUNT)]
    return [Stretch(number, True, fine), Stretch(number, False, coarse)]


def test_on_a_deterministic_pattern_merged_windows_are_the_coarse_ones():
    error = merge_error([stretch for number in range(6) for stretch in pair_of(number)], COUNT)
    assert error is not None
    assert (error.beyond.median, error.beyond.low, error.beyond.high) == (0, 0, 0)
    assert error.coarse_bytes == error.merged_bytes == 50 * PAGE_BYTES
    assert (error.coarse_windows, error.merged_windows) == (18, 18)


@pytest.mark.parametrize("lost", [1, 2])
def test_what_a_coarse_window_misses_is_the_error(lost):
    error = merge_error([stretch for number in range(9) for stretch in pair_of(number, lost=lost)], COUNT)
    assert error is not None
    assert error.beyond.median == pytest.approx(-lost / COUNT)
    assert error.beyond.count == 9


def test_fewer_than_six_pairs_give_no_interval_and_none_no_error():
    error = merge_error(pair_of(0), COUNT)
    assert error is not None
    assert error.beyond.low is None
    assert merge_error([pair_of(0)[0], pair_of(1)[1]], COUNT) is None, "blocks of different pairs are not compared"
    assert merge_error([], COUNT) is None


def test_a_window_that_does_not_count_takes_its_group_with_it():
    fine, coarse = pair_of(0)
    holed = replace(fine, windows=[*fine.windows[:7], None, *fine.windows[8:]])
    error = merge_error([holed, replace(coarse, windows=[None, *coarse.windows[1:]])], COUNT)
    assert error is not None
    assert (error.coarse_windows, error.merged_windows) == (2, 2)
    assert error.beyond.median == 0
    assert merge_error([replace(fine, windows=[None] * 15), coarse], COUNT) is None


def test_windows_are_those_of_their_block_as_long_as_asked_and_undisturbed(tmp_path):
    """Windows of 100 ms, each 103 ms after the one before: fine in one block, coarse in the other."""
    stream = []
    for message in messages(40, interval_ns=100 * MS):
        if isinstance(message, Window) and message.sample == 4:
            message = replace(message, disturbed="somebody")
        stream.append(message)
    trace = Trace(write_session(tmp_path / "a.memtui", stream), RunResult(first_step_ns=0, last_step_ns=3_700 * MS))
    blocks = [
        Block(0, True, 0.15, 1.03, 0.0, None, 0),
        Block(0, False, 1.2, 2.0, 0.0, None, 0),
        Block(1, True, 3.4, 4.0, 0.0, None, 0),
    ]
    (fine, coarse, late), left_out = stretches_of(trace, blocks, 0.1, 0.2)
    assert [pages is not None for pages in fine.windows] == [True, True, False, True, True, True, True, True]
    assert (fine.windows[0].pages() == trace.pages[2].pages()).all()
    assert len(coarse.windows) == 7
    assert all(pages is None for pages in coarse.windows), "half as long as asked"
    assert [pages is not None for pages in late.windows] == [True, False, False, False], "after the last step"
    assert left_out == 1 + 7 + 3
    trace.close()


def point(median, low, high, interval_s=0.5, malloc_keeps=False):
    error = MergeError(MedianInterval(median, low, high, 0.96, 9), 0.0, 0.0, 9, 9)
    return TurnPoint(interval_s, 0.1, malloc_keeps, error)


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ([point(0.01, -0.04, 0.03)], "a fine trace can stand for the others"),
        ([point(0.01, -0.04, 0.03), point(-0.02, -0.05, 0.05, 1.0)], "a fine trace can stand for the others"),
        ([point(-0.15, -0.2, -0.06)], "its windows see more than a long one"),
        ([point(0.0, -0.01, 0.01), point(0.15, 0.06, 0.2, 1.0)], "its windows see less than a long one"),
        ([point(-0.15, -0.2, -0.04)], "cannot be told"),
        ([point(0.01, -0.01, 0.01), point(0.01, -0.1, 0.01)], "cannot be told"),
        ([point(0.01, None, None)], "cannot be told"),
        ([TurnPoint(0.5, 0.1, False, None)], "is not known"),
        ([], "is not known"),
    ],
)
def test_the_verdict_comes_out_every_way(points, says):
    (sentence,) = conclude_turns(points, 1)
    assert says in sentence
    assert sentence.count("fine trace can") <= 1


@pytest.mark.parametrize(
    ("keeping", "says"),
    [
        (point(0.0, -0.05, 0.05, 1.0, True), "is seen by the short ones alone"),
        (point(-0.1, -0.2, -0.01, 1.0, True), "is not shown to make a difference"),
        (point(0.0, None, None, 1.0, True), "is not shown to make a difference"),
    ],
)
def test_what_is_left_where_no_memory_is_given_back_is_held_against_the_ordinary_run(keeping, says):
    first, second = conclude_turns([point(-0.15, -0.19, -0.14, 1.0), keeping], 1)
    assert "cannot stand" in first
    assert says in second
    assert len(conclude_turns([point(-0.15, -0.19, -0.14, 0.5), keeping], 1)) == 1, "other intervals are not compared"


@pytest.mark.parametrize(("quick", "threads", "lengths"), [(True, 1, 2), (True, 2, 1), (False, 1, 4), (False, 2, 4)])
def test_there_are_pairs_enough_for_an_interval_and_windows_in_each_block(quick, threads, lengths):
    runs = turns(Setting(quick, 2), threads, 0.1)
    assert len(runs) == lengths
    assert sum(map(keeps, runs)) == (lengths > 1)
    for run in runs:
        assert run.kind == ALTERNATE
        assert run.pairs >= 9
        assert run.block_s >= 3 * run.other_interval_s
        assert run.program[run.program.index("--epochs") + 1] == "0", "it is ended after the last block"
        assert run.key([]) != replace(run, other_interval_s=4.0).key([])
    if quick:
        assert runs[0].expected_s < 42


def error_of(tmp_path, arguments, pages: int, run: Run):
    """Return the error within the program's own mapping, and the released bytes of a long window (median)."""
    run = replace(run, program=(sys.executable, *arguments))
    result = perform(run, tmp_path / "turns", sorted(os.sched_getaffinity(0)), container.means(), lambda word: None)
    assert len(result.blocks) == 2 * run.pairs
    trace = Trace(tmp_path / "turns.memtui", result)
    reader = Session(tmp_path / "turns.memtui")
    (row,) = [row for row in reader.vmas.rows(trace.main.key) if row.end - row.start == pages * PAGE_BYTES]
    reader.close()
    stretches, _ = stretches_of(trace, result.blocks, run.interval_s, run.other_interval_s)
    assert {round(length, -8) for length in trace.samples.asked_ns.tolist()} == {100 * MS, 400 * MS}
    given_back = float(np.nanmedian(trace.given_back_bytes[trace.training & is_as_long(trace, run.other_interval_s)]))
    trace.close()
    inside = [
        replace(part, windows=[None if p is None else select(p, [row.start], [row.end], [True]) for p in part.windows])
        for part in stretches
    ]
    return merge_error(inside, 4), given_back


TURNS = Run("turns", (), 20.0, interval_s=0.1, other_interval_s=0.4, kind=ALTERNATE, pairs=6, block_s=1.4)

# Accesses one quarter after the other and prints its steps; with --lose it releases each before the next.
QUARTERS = """
import mmap, sys, time
size = 4 << 20
memory = mmap.mmap(-1, size)
memory.madvise(mmap.MADV_NOHUGEPAGE)
step = 0
while True:
    begin = step % 4 * (size // 4)
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        for at in range(begin, begin + size // 4, 4096):
            memory[at] = 1
    if "--lose" in sys.argv:
        memory.madvise(mmap.MADV_DONTNEED, begin, size // 4)
    step += 1
    print("step", step)
"""


@pytest.mark.real_clock(alone=False)
@needs_tracker
def test_in_one_run_the_union_of_fine_windows_is_the_coarse_one(tmp_path):
    """A ring of 1000 pages in 0.1 s: a union of four windows goes round it, and so does one of 0.4 s."""
    order = ("cyclic", "--pages", "1000", "--per-step", "250", "--pause-seconds", "0.02")
    arguments = ("-m", "memtui.study.workloads.known_accesses", *order)
    error, given_back = error_of(tmp_path, arguments, 1000, TURNS)
    assert error is not None
    assert error.beyond.median == 0
    assert error.coarse_bytes == pytest.approx(1000 * PAGE_BYTES, rel=0.02)
    assert given_back < 1 << 18


@needs_tracker
@pytest.mark.slow
@pytest.mark.parametrize("lose", [False, True])
def test_memory_that_is_given_back_is_seen_by_fine_windows_alone(tmp_path, lose):
    """A turn takes 0.4 s. Without releases both see all four quarters; with them a coarse window sees one or two."""
    path = tmp_path / "quarters.py"
    path.write_text(QUARTERS)
    arguments = (str(path), *(["--lose"] if lose else []))
    # An interval takes six whole pairs, and a busy machine spoils some.
    error, given_back = error_of(tmp_path, arguments, 1024, replace(TURNS, pairs=9))
    assert error is not None
    if lose:
        assert error.beyond.median < -0.3
        assert error.beyond.high < -0.05
        assert given_back > 2 << 20
    else:
        assert abs(error.beyond.median) < 0.15
        assert given_back < 1 << 18
