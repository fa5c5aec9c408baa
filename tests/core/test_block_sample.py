"""A part of the memory in each window: how blocks are dealt out, what is estimated, and a real process."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.block_sample import SMALL_PAGE_BLOCKS, BlockSample, estimate
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import BLOCK_BYTES, PAGE_BYTES, PAGES_PER_BLOCK
from memtui.core.samples import SAMPLED, Status
from memtui.probes.pages.pagetable.walk import Walker
from memtui.probes.pages.self_test import own_pages
from memtui.reports.report import build_report
from memtui.session.session import Session
from memtui.tui.presenters.ranges import RangeTable
from memtui.widgets.vma_table import rest_of
from tests.support.cli import memtui
from tests.support.live import needs_tracker

pytestmark = pytest.mark.real_clock

SEEDS = st.integers(0, 2**63 - 1)
BLOCKS = st.lists(st.integers(0, 2**36 - 1), min_size=1, max_size=200, unique=True).map(
    lambda found: np.array(sorted(found), np.uint64)
)


def memory(blocks: np.ndarray, counts: np.ndarray, huge: np.ndarray | None = None) -> PageSet:
    """The first so many pages of each block."""
    bits = np.zeros((len(blocks), PAGES_PER_BLOCK), np.uint8)
    for row, count in enumerate(counts):
        bits[row, : int(count)] = 1
    masks = np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)
    return PageSet.from_blocks(blocks, masks, () if huge is None else huge)


@given(SEEDS, BLOCKS, st.sampled_from([10, 20, 640]))
def test_each_block_is_in_one_part(seed, blocks, parts):
    sample = BlockSample(seed, parts)
    pages = memory(blocks, np.full(len(blocks), 3))
    selected = [sample.select(pages, part) for part in range(parts)]
    assert sum(part_pages.page_count for part_pages in selected) == pages.page_count
    assert sorted(block for part_pages in selected for block in part_pages.blocks.tolist()) == blocks.tolist()


@given(SEEDS, BLOCKS, st.integers(0, 10**6))
def test_a_finer_sample_lies_in_the_coarser_one(seed, blocks, small_page_blocks):
    coarse = BlockSample(seed)
    fine = coarse.for_blocks(small_page_blocks)
    assert (fine.part_of(blocks) % coarse.parts == coarse.part_of(blocks)).all()
    assert small_page_blocks <= 2 * SMALL_PAGE_BLOCKS * fine.parts
    assert fine.parts == coarse.parts or small_page_blocks > SMALL_PAGE_BLOCKS * fine.parts


@given(SEEDS)
def test_parts_are_of_about_the_same_size(seed):
    counts = np.bincount(BlockSample(seed).part_of(np.arange(20_000, dtype=np.uint64)).astype(int), minlength=10)
    assert abs(counts - 2000).max() < 6 * (2000 * 0.9) ** 0.5


@given(SEEDS, st.integers(100, 2000), st.integers(0, PAGES_PER_BLOCK), st.integers(0, 9))
def test_where_blocks_are_alike_the_estimate_is_exact(seed, count, touched, part):
    blocks = np.arange(count, dtype=np.uint64) * np.uint64(7)
    sample = BlockSample(seed)
    there = sample.select(memory(blocks, np.full(count, PAGES_PER_BLOCK)), part)
    if not len(there.blocks):
        return
    result = estimate(sample.select(memory(blocks, np.full(count, touched)), part), there, count * BLOCK_BYTES)
    assert result is not None
    assert result.wss_bytes == pytest.approx(count * touched * PAGE_BYTES, rel=1e-9)
    assert result.low_bytes == pytest.approx(result.high_bytes, rel=1e-9) or result.blocks == 1


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(0, 40))
def test_an_interval_holds_the_estimate_and_stays_between_what_was_seen_and_what_is_there(seed, count, huge):
    random = np.random.default_rng(seed)
    blocks = np.arange(count, dtype=np.uint64)
    resident_pages = random.integers(1, PAGES_PER_BLOCK + 1, count)
    huge_blocks = np.arange(1000, 1000 + huge, dtype=np.uint64)
    there = memory(blocks, resident_pages, huge_blocks)
    touched = memory(blocks, random.integers(0, resident_pages + 1), huge_blocks[: huge // 2])
    rss = int(there.size_bytes * random.uniform(1, 20))
    result = estimate(touched, there, rss)
    assert result is not None
    assert touched.size_bytes <= result.low_bytes + 1
    assert result.low_bytes <= result.wss_bytes + 1 <= result.high_bytes + 2
    assert result.high_bytes <= max(rss, there.size_bytes) + 1


def test_what_another_observer_may_have_taken_is_in_the_interval():
    blocks = np.arange(100, dtype=np.uint64)
    there, touched = memory(blocks, np.full(100, 512)), memory(blocks, np.full(100, 50))
    rss = 10 * there.size_bytes
    sure = estimate(touched, there, rss)
    assert sure is not None
    doubtful_bytes = 200 * PAGE_BYTES
    some, all_of_it = estimate(touched, there, rss, doubtful_bytes), estimate(touched, there, rss, rss)
    assert some is not None
    assert all_of_it is not None
    assert (some.wss_bytes, some.low_bytes) == (sure.wss_bytes, sure.low_bytes)
    assert some.high_bytes == sure.high_bytes + 10 * doubtful_bytes
    assert all_of_it.high_bytes == rss


def test_intervals_hold_the_truth_as_often_as_they_say():
    random = np.random.default_rng(7)
    count, inside, tried = 4000, 0, 0
    blocks = np.arange(count, dtype=np.uint64)
    truth = random.choice([0, 40, 512], count, p=[0.6, 0.3, 0.1])
    there, touched = memory(blocks, np.full(count, 512)), memory(blocks, truth)
    for seed in range(40):
        sample = BlockSample(seed)
        for part in range(0, 10, 2):
            result = estimate(sample.select(touched, part), sample.select(there, part), count * BLOCK_BYTES)
            assert result is not None
            inside += result.low_bytes <= touched.size_bytes <= result.high_bytes
            tried += 1
    assert 0.90 <= inside / tried <= 0.99


def test_estimates_calculated_by_hand():
    def pages(*counts: int) -> PageSet:
        return memory(np.arange(len(counts), dtype=np.uint64), np.array(counts))

    def in_pages(touched: PageSet, there: PageSet, times: float) -> tuple[float, ...]:
        result = estimate(touched, there, round(times * there.size_bytes))
        assert result is not None
        assert (result.scale, result.blocks) == (max(times, 1), len(there.blocks))
        return tuple(value / PAGE_BYTES for value in (result.low_bytes, result.wss_bytes, result.high_bytes))

    # 140 of 600 pages; residuals of -13.3, -6.7 and 20, so a variance of 311; 1.96 * 10 * sqrt(0.9 * 3 * 311) = 568.
    assert in_pages(pages(10, 40, 90), pages(100, 200, 300), 10) == pytest.approx((831.94, 1400, 1968.06), abs=0.01)
    # 60 of 200 pages, residuals of 20 and -20, so a variance of 800: 1.96 * 2 * sqrt(0.5 * 2 * 800) = 110.9.
    assert in_pages(pages(50, 10), pages(100, 100), 2) == pytest.approx((60, 120, 230.87), abs=0.01)
    # One block shows no variance, so it is taken as 100 squared: 1.96 * 1.1 * sqrt((1 - 1 / 1.1) * 10,000) = 65.
    assert in_pages(pages(25), pages(100), 1.1) == pytest.approx((25, 27.5, 92.51), abs=0.01)
    # Pages that were given back since they were touched do not make the working set larger than the memory.
    assert in_pages(pages(100, 100), pages(50, 60), 2) == pytest.approx((200, 220, 220))
    # Of more memory in the part than the process has, all was read: nothing is uncertain.
    assert in_pages(pages(50, 10), pages(100, 100), 0.5) == (60, 60, 60)


def test_huge_pages_are_selected_by_their_part_and_giant_ones_never():
    sample, blocks = BlockSample(5), np.arange(1000, 1040, dtype=np.uint64)
    pages = PageSet.from_blocks((), (), blocks, (7, 8))
    selected = [sample.select(pages, part) for part in range(sample.parts)]
    for part, found in enumerate(selected):
        assert found.huge.tolist() == blocks[sample.part_of(blocks) == part].tolist()
        assert not len(found.giant)


def test_a_part_may_have_twice_as_many_small_blocks_before_it_is_divided():
    full = 2 * SMALL_PAGE_BLOCKS * BlockSample(1).parts
    assert [BlockSample(1).for_blocks(full + more).parts for more in (0, 1)] == [10, 20]


def test_what_is_not_known_is_no_estimate():
    pages = memory(np.arange(3, dtype=np.uint64), np.full(3, 5))
    assert estimate(pages, pages, None) is None
    assert estimate(PageSet.empty(), PageSet.empty(), 1 << 30) is None


@needs_tracker
@pytest.mark.parametrize("parts", [10, 40])
def test_the_walk_deals_blocks_out_in_the_same_way(parts):
    sample, walker = BlockSample(0x1234_5678_9ABC_DEF0, parts), Walker()
    try:
        with own_pages(40 * PAGES_PER_BLOCK) as mine:
            low, high = mine.address, mine.address + 40 * BLOCK_BYTES
            whole = walker.walk(os.getpid(), low=low, high=high)
            for part in (0, 3, parts - 1):
                following = (part + 1) % parts
                walk = walker.walk(os.getpid(), low=low, high=high, parts=(sample, part, following))
                expected = np.isin(sample.part_of(whole.pages.blocks), (part, following))
                assert walk.pages.blocks.tolist() == whole.pages.blocks[expected].tolist()
    finally:
        walker.close()


HOT = """
import mmap
import numpy as np
held = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held.madvise(mmap.MADV_NOHUGEPAGE)
memory = np.frombuffer(held, np.uint8)
memory[::4096] = 1
pages = np.random.default_rng(3).permutation(len(memory) // 4096)[: 60_000] * 4096
print("ready", flush=True)
while True:
    memory[pages] += 1
"""


@needs_tracker
def test_the_working_set_of_a_real_process_is_estimated(tmp_path):
    path = tmp_path / "s.memtui"
    with subprocess.Popen([sys.executable, "-c", HOT], stdout=subprocess.PIPE) as target:
        try:
            assert target.stdout is not None
            target.stdout.readline()
            argv = ("--pages", "sampled", "--interval", "0.3", "--duration", 5, "-o", path)
            done = memtui("record", target.pid, *argv)
        finally:
            target.kill()
    assert done.returncode == 0, done.stderr
    reader = Session(path)
    samples, (process,) = reader.samples, reader.processes.all()
    measured = np.isfinite(samples.wss_bytes)
    assert measured.sum() >= 5
    assert {samples.status[i] for i in np.flatnonzero(measured)} == {Status.APPROXIMATE}
    wss = samples.wss_bytes[measured]
    # The program touches its 60,000 pages and a few of the interpreter's in every window.
    assert np.median(wss) == pytest.approx(60_000 * PAGE_BYTES, rel=0.2)
    assert (samples.wss_low_bytes[measured] <= wss).all()
    assert (wss <= samples.wss_high_bytes[measured]).all()
    seen = [reader.pages.page_set(int(s), process.key) for s in samples.sample[measured]]
    assert all(pages is not None and pages.size_bytes < 0.35 * 60_000 * PAGE_BYTES for pages in seen)
    for sample, total in zip(samples.sample[measured].tolist(), wss.tolist(), strict=True):
        _, _, by_row = reader.vmas.wss(sample, sample)
        assert by_row.sum() == pytest.approx(total, rel=0.02)  # rows add up to the header
        table = RangeTable().view(reader, sample, reader.processes.all())
        assert "several processes" not in rest_of(table), "the rounding of its rows is nobody's memory"
    reader.close()
    reuse = build_report(path).reuse
    assert (reuse.median_bytes, reuse.reason) == (None, SAMPLED)


def test_only_one_tracker_reads_parts():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as target:
        done = memtui("record", target.pid, "--pages", "sampled", "--tracker", "referenced")
        target.kill()
    assert done.returncode == 2
    assert "--pages sampled" in done.stderr
