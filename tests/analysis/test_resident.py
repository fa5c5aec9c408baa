"""Which figure of resident memory a session has, and the part of it that is touched."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.resident import (
    PSS,
    RSS,
    SUM_OF_RSS,
    Resident,
    ResidentKind,
    has_all_processes,
    is_comparable,
    resident,
    touched_fraction,
)
from memtui.core.readings import MemoryUse
from memtui.core.samples import Process

NAN = np.nan


def samples(rss, pss, processes, wss=()):
    """A table of samples; a number of processes of -1 is one that was not stored."""
    return SimpleNamespace(
        sample=np.arange(len(rss)),
        wss_bytes=np.array(wss, float) if len(wss) else np.full(len(rss), NAN),
        rss_bytes=np.array(rss, float),
        pss_bytes=np.array(pss, float),
        processes=np.array(processes),
    )


def tree(*pids):
    return [Process(key, pid, 1, 0, key, "python") for key, pid in enumerate(pids)]


def of(rss, *, name=RSS):
    return Resident(name, np.array(rss, float))


def test_a_process_that_was_always_alone_has_its_rss():
    found = resident(samples([100, 200], [90, 180], [1, 1]), tree(7, 8))
    assert (found.name, found.bytes.tolist()) == (RSS, [100, 200])


def test_of_a_tree_it_is_the_pss_and_the_rss_where_one_was_alone():
    found = resident(samples([100, 300, 400], [NAN, 180, 250], [1, 2, 3]), tree(7, 8, 9))
    assert (found.name, found.bytes.tolist()) == (PSS, [100, 180, 250])


def test_a_pss_below_what_was_touched_is_resident_memory_and_counts_for_no_share():
    """It was read before the tree grew, or before a child copied what it shared."""
    wss = np.array([60, 181, 90, NAN])
    table = samples([100, 300, 300, 300], [90, 180, 180, 180], [1, 2, 2, 2], wss)
    found = resident(table, tree(7, 8))
    assert (found.name, found.bytes.tolist()) == (PSS, [100, 180, 180, 180])
    assert is_comparable(wss, found.bytes, PSS).tolist() == [True, False, True, False]
    assert touched_fraction(wss, found) == (75 / 140, 140)
    assert touched_fraction(wss[1:2], found, slice(1, 2)) is None
    assert is_comparable(wss, found.bytes, RSS).tolist() == [True, True, True, False]


def test_where_children_come_and_go_resident_memory_lacks_some_and_no_share_is_taken_of_it():
    gaps = np.array([0, 2, 0])
    assert has_all_processes(gaps).tolist() == [True, False, True]


def test_without_any_pss_the_sum_of_a_tree_is_called_one():
    found = resident(samples([100, 300], [NAN, NAN], [1, 2]), tree(7, 8))
    assert (found.name, found.bytes.tolist()) == (SUM_OF_RSS, [100, 300])


@pytest.mark.parametrize(
    ("uses", "name"),
    [
        ([], RSS),
        ([MemoryUse(1, 1, 5), MemoryUse(2, 1, 6, 6)], RSS),
        ([MemoryUse(1, 1, 5), MemoryUse(2, 2, 9)], SUM_OF_RSS),
        ([MemoryUse(1, 2, 9), MemoryUse(2, 3, 9, 7)], PSS),
        ([MemoryUse(1, 2, 9), MemoryUse(2, 1, 9, 7)], SUM_OF_RSS),
    ],
)
def test_children_between_windows_make_a_tree_of_a_process_that_is_alone_in_each(uses, name):
    found = resident(samples([5, 6], [NAN, NAN], [1, 1]), tree(7, 8), uses)
    assert (found.name, found.bytes.tolist()) == (name, [5, 6])


def test_the_pss_of_windows_goes_before_readings_between_them():
    of_windows = samples([9, 8], [5, 6], [2, 2])
    assert resident(of_windows, tree(7, 8), [MemoryUse(1, 2, 9)]).name == PSS


def test_a_session_without_numbers_of_processes_was_alone_where_it_recorded_one_pid():
    without = samples([100, 300], [NAN, NAN], [-1, -1])
    assert resident(without, tree(7, 7)).name == RSS  # one that called exec
    assert resident(without, tree(7, 8)).name == SUM_OF_RSS


class Column:
    """A column of a table that says which samples of it were looked at."""

    def __init__(self, values) -> None:
        self.values, self.seen = np.array(values, float), []

    def __getitem__(self, which):
        self.seen += np.arange(len(self.values))[which].ravel().tolist()
        return self.values[which]


@given(st.data(), st.permutations(range(6)), st.sampled_from((tree(7), tree(7, 8))))
def test_the_kind_of_a_table_that_grows_is_that_of_the_whole_table(data, order, processes):
    """Samples come at the end, or between those that are there already."""
    counts = data.draw(st.lists(st.sampled_from((1, 1, 1, 2, -1)), min_size=6, max_size=6))
    pss = data.draw(st.lists(st.sampled_from((NAN, NAN, NAN, 5.0)), min_size=6, max_size=6))
    sizes = sorted(data.draw(st.lists(st.integers(0, 6), max_size=4)))
    kind = ResidentKind()
    for size in sizes:
        rows = sorted(order[:size])
        table = SimpleNamespace(
            sample=np.array(rows, np.int64), processes=np.array(counts)[rows], pss_bytes=np.array(pss)[rows]
        )
        alone = all(counts[row] == 1 for row in rows) or len(processes) == 1
        any_pss = any(not np.isnan(pss[row]) for row in rows)
        assert kind.of(table, processes) == (RSS if alone else PSS if any_pss else SUM_OF_RSS)


def test_each_sample_is_looked_at_once():
    kind, seen = ResidentKind(), []
    for length in (1, 2, 2, 5, 9):
        table = SimpleNamespace(
            sample=np.arange(length), processes=Column([1] * length), pss_bytes=Column([NAN] * length)
        )
        assert kind.of(table, tree(7, 8)) == RSS
        seen += table.processes.seen
        assert table.pss_bytes.seen == table.processes.seen
    assert seen == list(range(9))


def test_the_fraction_is_that_of_two_medians_of_the_windows_that_have_both():
    wss = np.array([10, NAN, 30, 20, 1000.0])
    assert touched_fraction(wss, of([100, 900, 200, 400, NAN])) == (pytest.approx(20 / 200), 200)


def test_the_fraction_of_some_windows():
    assert touched_fraction(np.array([30.0, 50]), of([1, 100, 200, 1]), slice(1, 3)) == (pytest.approx(40 / 150), 150)


@pytest.mark.parametrize(
    ("wss", "memory"),
    [
        ([10], of([100], name=SUM_OF_RSS)),  # pages counted several times below, and once above
        ([NAN, 10], of([100, NAN])),
        ([0], of([0])),
    ],
)
def test_there_is_no_fraction_of_what_is_not_known(wss, memory):
    assert touched_fraction(np.array(wss, float), memory) is None
