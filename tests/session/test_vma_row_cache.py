"""Rows of processes on the screen, kept from one picture to the next: what they are, and what is read again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from memtui.session import vma_row_cache
from memtui.session.vma_row import VmaRow
from memtui.session.vma_row_cache import VmaRowCache


def row(id_: int, process: int, start: int, *, last_sample: int | None = None) -> VmaRow:
    """Still mapped where no last sample is given."""
    is_open = last_sample is None
    return VmaRow(id_, process, 40 + process, start, start + 4096, "rw-p", "", 0, last_sample or 0, "", is_open)


@dataclass
class Store:
    """A session of rows, which answers the conditions of the cache and notes them."""

    rows: dict[int, VmaRow] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def put(self, *rows: VmaRow) -> None:
        self.rows.update({one.id: one for one in rows})

    def read(self, condition: str, *values: int) -> list[VmaRow]:
        numbers = list(values)
        found = list(self.rows.values())
        asked = []
        for part in re.split(r" AND (?=vma)", condition):
            column, sign, listed = re.fullmatch(r"vma\.(\w+) (>|=|BETWEEN|IN) (.*)", part).groups()
            count = listed.count("?")
            given, numbers = sorted(set(numbers[:count])), numbers[count:]
            asked.append(f"{column} {sign} {', '.join(map(str, given))}")
            test = {
                ">": lambda value, of=given: value > of[0],
                "BETWEEN": lambda value, of=given: of[0] <= value <= of[-1],
            }.get(sign, lambda value, of=given: value in of)
            found = [one for one in found if test(getattr(one, column))]
        assert not numbers
        self.asked.append(" and ".join(asked))
        return found

    def spans(self, after: int) -> list[tuple[int, int, int]]:
        self.asked.append(f"spans > {after}")
        new = [one for one in self.rows.values() if one.id > after]
        ids = {process: [one.id for one in new if one.process == process] for process in {one.process for one in new}}
        return [(process, min(own), max(own)) for process, own in ids.items()]

    def newest(self) -> tuple[int, int]:
        self.asked.append("newest")
        return max(self.rows), max(one.process for one in self.rows.values())

    def of(self, *processes: int) -> list[VmaRow]:
        return sorted(
            (one for one in self.rows.values() if one.process in processes), key=lambda r: (r.process, r.start)
        )

    def asked_since(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def store():
    made = Store()
    made.put(row(1, 1, 9 << 12), row(2, 1, 3 << 12), row(3, 2, 5 << 12, last_sample=4))
    return made


def test_rows_are_by_process_and_address(store):
    cache = VmaRowCache(store.read, store.newest, store.spans)
    assert [one.id for one in cache.of({2, 1}, 0)] == [2, 1, 3]
    assert cache.of({7}, 0) == []


def test_only_what_may_have_changed_is_read_again(store):
    cache = VmaRowCache(store.read, store.newest, store.spans)
    assert cache.of({1, 2}, 0) == store.of(1, 2)
    assert store.asked_since() == ["newest", "process IN 1, 2"]
    store.put(row(1, 1, 9 << 12, last_sample=7), row(4, 1, 20 << 12))
    assert cache.of({1, 2}, 1) == store.of(1, 2)
    assert store.asked_since() == ["spans > 3", "id > 3 and process IN 1", "id IN 1, 2"]  # process 2 has nothing mapped
    assert cache.of({1, 2}, 1) == store.of(1, 2)
    assert store.asked_since() == ["spans > 4"], "rows change with windows, and there is no new one"
    assert cache.of({1, 2}, 2) == store.of(1, 2)
    assert store.asked_since() == ["spans > 4", "id IN 1, 2, 4"]


def test_a_row_that_was_merged_into_another_is_gone(store):
    store.put(row(4, 2, 6 << 12))
    cache = VmaRowCache(store.read, store.newest, store.spans)
    cache.of({1, 2}, 0)
    del store.rows[1]
    store.put(row(2, 1, 2 << 12))
    assert cache.of({1, 2}, 1) == store.of(1, 2) != []
    assert len(cache) == 3


def test_a_process_that_came_is_not_searched_for_when_it_is_requested(store):
    cache = VmaRowCache(store.read, store.newest, store.spans)
    cache.of({1}, 0)
    store.put(row(4, 3, 8 << 12))
    assert cache.of({1}, 0) == store.of(1)
    assert len(cache) == 2, "nobody requested it"
    store.put(row(6, 3, 7 << 12), row(5, 4, 8 << 12))
    store.asked_since()
    assert cache.of({1, 3}, 0) == store.of(1, 3)
    assert "id BETWEEN 4, 6 and process = 3" in store.asked_since()
    store.put(row(7, 3, 6 << 12))
    assert cache.of({1, 3}, 0) == store.of(1, 3)
    assert cache.of({9}, 0) == [], "one that has no rows"


def test_of_many_processes_that_nobody_requests_little_is_kept(store, monkeypatch):
    monkeypatch.setattr(vma_row_cache, "_MOST_SPANS", 5)
    cache = VmaRowCache(store.read, store.newest, store.spans)
    cache.of({1}, 0)
    for n in range(4, 40):
        store.put(row(10 * n, n, n << 12), row(10 * n + 5, n, (n << 12) + 8192))
        assert cache.of({1}, 0) == store.of(1)
    assert len(cache) == 2
    assert len(cache._spans) == 5
    store.asked_since()
    for n in (39, 5, 2):  # by its span, one that was forgotten, one from before
        assert cache.of({n}, 0) == store.of(n) != []
    assert "process IN 5" in store.asked_since()
    store.put(row(50_000, 5, 1 << 12), row(50_001, 39, 1 << 12))
    assert cache.of({5, 39}, 0) == store.of(5, 39)


def test_rows_of_a_process_that_ended_and_is_not_requested_are_dropped_and_can_be_had_again(store):
    cache = VmaRowCache(store.read, store.newest, store.spans)
    cache.of({1, 2}, 4)
    assert len(cache) == 3
    cache.of({1}, 3)
    assert len(cache) == 3, "a window that the caller does not know may still request it"
    cache.of({1}, 4)
    assert len(cache) == 2
    assert cache.of({1, 2}, 4) == store.of(1, 2)


def test_a_new_process_that_was_dropped_is_read_whole_when_it_is_requested(store):
    cache = VmaRowCache(store.read, store.newest, store.spans)
    cache.of({1}, 4)
    store.put(row(4, 3, 8 << 12, last_sample=4))
    cache.of({1}, 4)
    cache.of({1}, 4)
    assert len(cache) == 2
    assert cache.of({3}, 4) == store.of(3)


def test_many_rows_are_asked_for_in_parts(store, monkeypatch):
    monkeypatch.setattr("memtui.session.connection._MOST_VALUES", 2)
    store.put(*(row(n, 1, n << 12) for n in range(4, 7)))
    cache = VmaRowCache(store.read, store.newest, store.spans)
    cache.of({1}, 0)
    store.asked_since()
    store.put(row(6, 1, 90 << 12))
    assert cache.of({1}, 1) == store.of(1)
    assert store.asked_since()[1:] == ["id IN 1, 2", "id IN 4, 5", "id IN 6"]
