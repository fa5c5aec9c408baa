"""What a working set is made of, in parts: against a naive count page by page, and on sessions whose truth is known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.heat_map import HeatRange, Layout
from memtui.analysis.non_tensor_pages import REST, Mapped, rest_bytes
from memtui.analysis.tensor_pages import NO_KIND, TensorMap, bin_kinds
from memtui.analysis.tensor_sums import Grouping, TensorNumbers, TensorSums, Window, grouped, groups
from memtui.core.page_set import PageSet
from tests.support.tensor_maps import made, maps

PAGES = st.frozensets(st.integers(0, 60), max_size=40)
NAMES = ("", "[heap]", "[anon:libc]", "/lib/x.so", "[stack]", "[vdso]", "/dev/shm/y")
PART = dict(zip(NAMES, (0, 0, 0, 1, 2, 1, 1), strict=True))


@st.composite
def mappings(draw) -> list[SimpleNamespace]:
    """Ranges that may lie in one another; each has another length, so that the shortest is one."""
    result = []
    for pages in draw(st.lists(st.integers(1, 50), unique=True, max_size=6)):
        start = draw(st.integers(0, 60 - pages // 2))
        name = draw(st.sampled_from(NAMES))
        result.append(SimpleNamespace(start=start << 12, end=(start + pages) << 12, perms="rw-p", name=name))
    return result


@given(maps(), mappings(), PAGES)
def test_every_page_belongs_to_a_tensor_or_to_one_part_of_the_rest(tensors, ranges, touched):
    each, rest = [0] * len(tensors.names), [0] * len(REST)
    for page in touched:
        held = [
            n
            for n, (start, size, _) in enumerate(tensors.columns.T.tolist())
            if start < (page + 1) << 12 and page << 12 < start + size
        ]
        around = [one for one in ranges if one.start <= page << 12 < one.end]
        for n in held:
            start, size, _ = tensors.columns.T.tolist()[n]
            each[n] += min(start + size, (page + 1) << 12) - max(start, page << 12)
        if held:
            continue
        if around:
            rest[PART[min(around, key=lambda one: one.end - one.start).name]] += 4096
        else:
            rest[REST.index("no known range")] += 4096
    rest[REST.index("page rounding")] = 4096 * len(touched) - sum(each) - sum(rest)
    pages = PageSet.from_pages(sorted(touched))
    assert tensors.touched_each(pages).tolist() == each
    assert rest_bytes(pages, tensors, Mapped.of(ranges)).tolist() == rest
    assert sum(each) + sum(rest) == pages.size_bytes


@given(maps(), mappings(), st.frozensets(st.integers(0, 2)), PAGES)
def test_parts_add_up_with_large_pages_too(tensors, ranges, huge, touched):
    small = [page for page in touched if page >> 9 not in huge]
    pages = PageSet.from_pages(small)
    pages = PageSet(pages.blocks, pages.bits, np.array(sorted(huge), np.uint64), pages.giant)
    rest = rest_bytes(pages, tensors, Mapped.of(ranges))
    assert (rest >= 0).all()
    assert int(tensors.touched_each(pages).sum() + rest.sum()) == pages.size_bytes


def test_a_tensor_keeps_its_number_when_it_moves():
    numbers = TensorNumbers()
    before = TensorMap.of(np.array([[0, 4096, 9000], [10, 10, 10], [0, 0, 4]]), ("a", "a", "b"))
    after = TensorMap.of(np.array([[50_000, 70_000, 20_000], [10, 10, 10], [4, 0, 0]]), ("b", "a", "a"))
    assert numbers.of(before).tolist() == [0, 1, 2]
    assert numbers.of(after).tolist() == [0, 2, 1]  # a, b, a by address; which of the two a is which nobody can tell


WINDOWS = st.lists(st.dictionaries(st.integers(0, 5), st.sampled_from([0, 4096, 8192]), min_size=1), max_size=6)


@given(WINDOWS)
def test_sums_over_windows(windows):
    reported = [
        Window(n, np.array(list(one), np.intp), np.array(list(one.values()), np.int64), np.zeros(len(REST), np.int64))
        for n, one in enumerate(windows)
    ]
    sums = TensorSums.of(reversed(reported), 6)
    for tensor in range(6):
        seen = [(n, one[tensor]) for n, one in enumerate(windows) if tensor in one]
        assert sums.windows[tensor] == len(seen)
        assert sums.touched_bytes[tensor] == sum(size for _, size in seen)
        assert sums.touched_windows[tensor] == sum(size > 0 for _, size in seen)
        assert sums.last_sample[tensor] == max((n for n, size in seen if size), default=-1)
        assert sums.mean_bytes()[tensor] == (np.mean([size for _, size in seen]) if seen else 0)


TENSORS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 99)), min_size=1, max_size=8)


@pytest.mark.parametrize("by", list(Grouping))
@given(TENSORS)
def test_groups_are_sums(by, tensors):
    category, layer, values = (list(column) for column in zip(*tensors, strict=True))
    group, first = groups(category, layer, by)
    expected: dict[object, int] = {}
    for n, (kind, name, value) in enumerate(tensors):
        key = {"kind": kind, "layer": name, "layer and kind": (kind, name), "tensor": n}[by]
        expected[key] = expected.get(key, 0) + value
    assert grouped(np.array(values, np.int64), group, len(first)).tolist() == list(expected.values())
    assert [group[index] for index in first] == list(range(len(first)))


def test_no_tensors_at_all():
    nothing = made()
    pages = PageSet.from_pages([1, 2])
    assert rest_bytes(pages, nothing, Mapped.of([])).tolist() == [0, 0, 0, 8192, 0]
    assert len(CATEGORIES) == len(nothing.exists_bytes())


@given(maps(), st.integers(1, 12), st.lists(st.integers(0, 59), unique=True, min_size=1, max_size=6))
def test_kinds_of_the_rows_of_a_heat_map(tensors, rows, starts):
    """A bin is of the kind with the most bytes in it, where tensors hold a quarter; counted byte by byte."""
    edges = sorted(starts)
    ranges = [
        HeatRange(n, a << 12, b << 12, "x", 1) for n, (a, b) in enumerate(zip(edges, [*edges[1:], 60], strict=True))
    ]
    layout = Layout.build([one for one in ranges if one.start < one.end], rows, 2)
    kinds = bin_kinds(layout, tensors)
    assert len(kinds) == rows * 2
    for number, source in enumerate(layout.source.tolist()):
        held = [0] * len(CATEGORIES)
        for low, high in layout.addresses_of(source) if source >= 0 else ():
            for start, size, kind in tensors.columns.T.tolist():
                held[kind] += max(0, min(high, start + size) - max(low, start))
        if source < 0 or sum(held) * 4 < layout.bin_bytes[source] or not sum(held):
            assert kinds[number] == NO_KIND
        else:
            assert held[kinds[number]] == max(held)


@given(maps(), st.integers(0, 200_000), st.integers(1, 50_000))
def test_the_largest_tensor_in_a_range(tensors, start, size_bytes):
    held = [
        max(0, min(start + size_bytes, first + size) - max(start, first))
        for first, size, _ in tensors.columns.T.tolist()
    ]
    largest = tensors.largest_in(start, start + size_bytes)
    assert (held[largest] == max(held)) if largest is not None else not any(held)
