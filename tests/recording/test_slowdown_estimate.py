"""What a target loses by being watched: the estimate in numbers, and the default budget on a real process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.target_loss import recent_loss
from memtui.core.accessed_bits import SetCost
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import ProcessWindow
from memtui.probes.pages import accessed_bit_cost
from memtui.probes.pages.accessed_bit_cost import measure_set_cost
from memtui.recording.sampler.slowdown_estimate import Before, Machine, estimate, pages_set_again
from memtui.session.sample_arrays import SampleArrays
from memtui.session.session import Session
from tests.support.budgets import budgeted
from tests.support.cli import memtui
from tests.support.live import needs_root, needs_tracker, start, stop, wait_for_samples
from tests.support.sessions import MS, write_session

pytestmark = pytest.mark.real_clock

COUNTS = st.integers(0, 1 << 20)
TWO_CPUS = Machine(2, SetCost(250.0, 250.0))


def window(
    pages: int, *, faults: int | None = 0, faulted_in: int = 0, key: int = 1, huge: int = 0, rss: int | None = None
) -> ProcessWindow:
    touched = PageSet.from_pages(np.arange(pages, dtype=np.uint64))
    touched = replace(touched, huge=np.arange(1000, 1000 + huge, dtype=np.uint64))
    return ProcessWindow(
        key, 0, 1, pages=touched, minor_faults=faults, faulted_in_bytes=faulted_in * PAGE_BYTES, status="ok",
        rss_bytes=None if rss is None else rss * PAGE_BYTES,
    )  # fmt: skip


def loss(*windows: ProcessWindow, machine: Machine = TWO_CPUS, paused_ns=0, own_cpu_ns=0, busy=1.0, clears=True):
    before = {w.process: Before(0, 0) for w in windows}
    return estimate(windows, before, machine, paused_ns=paused_ns, own_cpu_ns=own_cpu_ns, busy_cpus=busy, clears=clears)


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 500), st.integers(0, 50), st.integers(0, 9000))
def test_pages_that_a_fault_brought_and_that_stayed_are_not_set_again(pages, faults, faulted_in, huge, growth):
    now = window(pages, faults=100 + faults, faulted_in=faulted_in, huge=huge, rss=700 + growth)
    count = pages_set_again(now, Before(100, 700 * PAGE_BYTES))
    assert count == max(pages + huge - max(faulted_in, min(faults + faulted_in, growth)), 0)
    assert pages_set_again(window(pages, faults=None, rss=900), Before(None, 0)) == pages
    assert pages_set_again(window(pages, faults=50, rss=None), Before(0, None)) == pages
    assert pages_set_again(window(pages, faults=50, rss=900), None) == pages


def test_what_every_step_allocates_and_frees_does_not_hide_what_stays():
    """A training that touches 14,000 pages and has 12,000 faults a step, in a window of many steps."""
    now = window(14_000, faults=400_000, rss=100_000)
    assert pages_set_again(now, Before(100_000, 100_000 * PAGE_BYTES)) == 14_000


def test_a_tracker_that_counts_by_mapping_counts_in_pages():
    by_vma = ProcessWindow(
        1, 0, 1, vma_wss_bytes=((0, 3 * PAGE_BYTES), (1 << 20, None)), minor_faults=1, rss_bytes=PAGE_BYTES
    )
    assert pages_set_again(by_vma, Before(0, 0)) == 2


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=4), st.floats(0, 64), COUNTS, COUNTS)
def test_a_loss_is_the_sum_of_its_parts_and_grows_with_each(counts, busy, paused_ns, own_cpu_ns):
    windows = [window(count, key=key) for key, count in enumerate(counts)]
    lost = loss(*windows, paused_ns=paused_ns, own_cpu_ns=own_cpu_ns, busy=busy)
    assert lost.set_again_ns is not None
    assert lost.lost_ns == paused_ns + lost.set_again_ns + lost.displaced_ns
    assert lost.set_again_ns == pytest.approx(sum(counts) * 250 / max(busy, 1), abs=1)
    more = loss(*windows, window(1000, key=99), paused_ns=paused_ns + 1, own_cpu_ns=own_cpu_ns + 1, busy=busy)
    assert more.lost_ns is not None
    assert more.lost_ns > lost.lost_ns


def test_memtui_displaces_only_a_program_that_leaves_no_cpu_free():
    assert loss(window(0), own_cpu_ns=5 * MS, busy=1.0).displaced_ns == 0
    assert loss(window(0), own_cpu_ns=5 * MS, busy=1.9).displaced_ns == 5 * MS
    assert loss(window(0), own_cpu_ns=-1, busy=2.0).displaced_ns == 0  # all of it was inside the pause


def test_a_tracker_that_clears_nothing_costs_no_bits_and_an_unknown_cost_is_none():
    assert loss(window(1000), clears=False).set_again_ns == 0
    unknown = loss(window(1000), machine=Machine(2, None), paused_ns=7)
    assert (unknown.set_again_ns, unknown.lost_ns) == (None, None)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20), st.integers(1, 10**9))
def test_windows_are_paid_for_by_what_follows_them(lost, next_ns):
    ends = np.cumsum(np.arange(1, len(lost) + 1) * 1000)
    share = recent_loss(np.array(lost, float), ends, next_ns)
    assert share == pytest.approx(sum(lost) / (ends[-1] - ends[0] + next_ns))
    assert recent_loss(np.array([*lost[1:], np.nan]), ends, next_ns) is None


def test_a_session_without_the_estimate_keeps_the_budget_it_had(tmp_path):
    path = write_session(tmp_path / "s.memtui", budgeted(50))
    overhead = json.loads(memtui("report", path, "--json").stdout)["overhead"]
    assert overhead["lost_fraction"] is None
    assert overhead["budget"]["fraction"] == overhead["paused_fraction"] + overhead["self_cpu_fraction"]


@needs_root
def test_what_a_bit_costs_is_measured_here():
    costs = [cost for _ in range(5) if (cost := measure_set_cost()) is not None]
    assert len(costs) == 5
    # A store into page tables is neither free nor as long as a page fault.
    assert 2 < np.median([cost.near_ns for cost in costs]) <= np.median([cost.far_ns for cost in costs]) < 20_000


def test_a_busy_machine_does_not_make_a_bit_dearer(monkeypatch):
    clock = accumulate(range(0, 10**12, 10**9))  # each wait for a CPU is longer than the last one
    monkeypatch.setattr(accessed_bit_cost.time, "perf_counter_ns", lambda: next(clock))
    before_ns = time.thread_time_ns()
    cost = measure_set_cost()
    if cost is None:
        pytest.skip("this kernel clears no single bits")
    assert cost.far_ns * accessed_bit_cost.PAGES < time.thread_time_ns() - before_ns


def test_the_dear_cost_is_of_entries_that_no_cache_holds(monkeypatch):
    """Clearing the bits loads the entries; other memory is read before they are set again."""
    done: list[str] = []
    for name in ("_time_to_read_ns", "_read"):
        original = getattr(accessed_bit_cost, name)
        monkeypatch.setattr(
            accessed_bit_cost, name, lambda *of, name=name, original=original: [done.append(name), original(*of)][1]
        )
    if measure_set_cost() is None:
        pytest.skip("this kernel clears no single bits")
    near, far = 1 + 2 * accessed_bit_cost.ROUNDS, 2 * accessed_bit_cost.ROUNDS_UNCACHED
    assert done == ["_time_to_read_ns"] * (near + 1) + ["_read", "_time_to_read_ns"] * far


def test_what_a_bit_costs_is_not_known_where_memory_has_no_room(monkeypatch):
    monkeypatch.setattr(accessed_bit_cost, "APART", 1 << 28)
    assert measure_set_cost() is None


@given(COUNTS, COUNTS)
def test_a_bit_among_many_costs_more_than_one_among_few(some, others):
    cost = SetCost(50.0, 350.0)
    fewer, more = sorted((some, others))
    assert cost.of_ns(fewer) <= cost.of_ns(more)
    assert 50 * more <= cost.of_ns(more) <= 350 * more
    assert cost.of_ns(SetCost.FEW_PAGES) == 50 * SetCost.FEW_PAGES
    assert cost.of_ns(SetCost.MANY_PAGES) == 350 * SetCost.MANY_PAGES
    assert cost.of_ns(1 << 13) == pytest.approx(200 * (1 << 13))  # half of the way


LATE_WINDOWS = 6
RANDOM_WRITES = """
import numpy as np
memory = np.zeros(256 << 20, np.uint8)
pages = np.random.default_rng(1).permutation(len(memory) // 4096) * 4096
print("ready", flush=True)
while True:
    memory[pages] += 1
"""


def _late(samples: SampleArrays) -> np.ndarray:
    """Which windows ended after the tenth second: each is paid for by the interval that follows it."""
    return samples.end_ns >= samples.start_ns[0] + 10 * 10**9


def _wait_for_late_windows(path: Path) -> None:
    """Wait for enough of them, but for 20 s at most: a window may cost so much that few come."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with closing(Session(path)) as reader:
            if _late(reader.samples).sum() >= LATE_WINDOWS:
                return
        time.sleep(0.2)


@needs_tracker
@pytest.mark.usefixtures("default_options")
def test_the_defaults_keep_a_hot_program_within_one_per_cent(tmp_path):
    path = tmp_path / "s.memtui"
    with subprocess.Popen([sys.executable, "-c", RANDOM_WRITES], stdout=subprocess.PIPE) as target:
        try:
            assert target.stdout is not None
            target.stdout.readline()
            recorder = start("record", target.pid, "-o", path)
            wait_for_samples(path, 1).close()
            _wait_for_late_windows(path)
            code, _, errors = stop(recorder)
        finally:
            target.kill()
    assert code == 0, errors
    reader = Session(path)
    samples = reader.samples
    assert reader.hello.options.max_overhead_ppm == 10_000
    reader.close()
    assert np.isfinite(samples.lost_ns).all()
    assert (samples.set_again_ns[1:] > 0).all()
    assert (samples.lost_ns >= samples.paused_ns + samples.set_again_ns).all()
    late = _late(samples)
    if not late.any():
        assert samples.next_ns[-1] > 5 * 10**9
        pytest.skip(f"a window costs so much here that the second is followed by {samples.next_ns[-1] / 1e9:.1f} s")
    paid = (samples.lost_ns <= 0.0101 * samples.next_ns)[late]
    assert paid.mean() >= 0.5  # a dear one is paid by several
    share = samples.lost_ns[late].sum() / max(samples.next_ns[late].sum(), 1)
    assert share <= 0.0101 * 1.2, "windows differ: what one costs more than those before it is paid back later"
