"""The working set by tensor in the window at the cursor, and how hot each tensor was in the last windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.non_tensor_pages import REST, REST_CONTENTS, Mapped, rest_bytes
from memtui.analysis.tensor_pages import UNKNOWN, TensorMap, tensor_name
from memtui.analysis.tensor_sums import Grouping, Identity, TensorNumbers, Window, grouped, groups
from memtui.core.lru_cache import LruCache
from memtui.core.page_set import PageSet
from memtui.core.units import clock
from memtui.session.session import Session
from memtui.session.vma_row import VmaRow
from memtui.tui.presenters.tensor_locations import KEEP_MAPS, TensorLocations, TracedProcess
from memtui.tui.presenters.time_budget import TimeBudget
from memtui.widgets.views.memory import TREND, TensorRow, TensorSort, TensorsView

RECENT = 48  # windows up to the cursor for the heat of a tensor
KEEP_WINDOWS = 4 * RECENT  # behind the cursor and before it
HOT_STEPS = 20  # tensors whose shares differ by less than one in this number of parts are equally hot
_EACH = RECENT // TREND  # windows in a cell of the trend


class TensorTable:
    """Settings of the table and its state between views."""

    def __init__(
        self,
        locations: TensorLocations,
        pages: Callable[[Session, int, int], PageSet | None],
        ranges: Callable[[int, int], Sequence[VmaRow]],
    ) -> None:
        """Create an empty table.

        Args:
            locations: where the tensors of all processes lie.
            pages: ``(reader, sample, process)`` to the touched pages.
            ranges: ``(process, sample)`` to what was mapped.
        """
        self._locations, self._pages, self._ranges = locations, pages, ranges
        self.by = Grouping.KIND
        self.filter_text = ""
        self.sort = TensorSort.HOT
        self.descending = True
        self._numbers = TensorNumbers()
        self._number: LruCache[int, NDArray[np.intp]] = LruCache(KEEP_MAPS)  # of the tensors of a map
        self._windows: LruCache[tuple[int, int], Window | None] = LruCache(KEEP_WINDOWS)  # by sample and process
        self._mapped: tuple[tuple[int, ...], Mapped] | None = None
        self._group: tuple[tuple[Grouping, int], NDArray[np.intp], NDArray[np.intp]] | None = None
        self._shown: tuple[int, TensorMap, NDArray[np.intp]] | None = None  # process, map, group of each tensor

    # Settings

    def next_grouping(self) -> None:
        """Add up by something else."""
        order = list(Grouping)
        self.by = order[(order.index(self.by) + 1) % len(order)]

    def next_sort(self) -> None:
        """Sort by the next column."""
        order = list(TensorSort)
        self.sort = order[(order.index(self.sort) + 1) % len(order)]
        self.descending = self.sort is not TensorSort.NAME

    def reverse(self) -> None:
        """Reverse the order."""
        self.descending = not self.descending

    def address_of(self, key: object) -> tuple[int, int] | None:
        """Return (process, address) of a row's largest tensor; None of the rest."""
        if self._shown is None or not isinstance(key, int):
            return None
        process, tensors, group = self._shown
        own = np.flatnonzero(group == key)
        return (process, int(tensors.start[own[tensors.size_bytes[own].argmax()]])) if len(own) else None

    # The view

    def view(
        self, reader: Session, index: int, process: TracedProcess, budget: TimeBudget, *, several: bool
    ) -> tuple[TensorsView, bool]:
        """Return the table of a process at a sample, and whether all of the last windows are in it.

        ``several``: other processes report tensors, too, so the table names the process.
        """
        empty = TensorsView(
            by=self.by, filter_text=self.filter_text, sort=self.sort, descending=self.descending,
            pid=process.pid if several else None,
        )  # fmt: skip
        samples = reader.samples
        placed = self._locations.locate(reader, process.pid, index)
        if placed is None:
            since_s = (self._locations.since_ns(process.pid) - int(samples.start_ns[0])) / 1e9
            return replace(empty, note=f"where its tensors lie is known from {clock(max(since_s, 0.0))} on"), True
        windows, complete = self._recent(reader, index, process, budget)
        now = windows.get(index)
        if now is None:
            return replace(empty, note="no pages of this window are stored"), True
        group, first = self._groups()
        own = group[now.number]
        self._shown = process.key, placed.tensors, own
        # Windows in which tensors moved do not show how hot they are; the one at the cursor has a note about that.
        still = (n for n in sorted(windows) if windows[n] is not None and not self._moved(reader, n, process))
        usable = list(still) or [index]
        rows = self._rows(reader, index, now, placed.tensors, [(n, windows[n]) for n in usable], group, first)
        shown = [row for row in rows if self._matches(row)]
        shown.sort(key=self._key, reverse=self.descending)
        return (
            replace(
                empty,
                rows=(*shown, *_rest_rows(now, process, reader.hello.options.filter)),
                tensors=len(now.number),
                not_matching=len(rows) - len(shown),
                wss_bytes=process.wss_bytes,
                recent_windows=len(usable),
                moved=placed.moved,
            ),
            complete,
        )

    def _moved(self, reader: Session, index: int, process: TracedProcess) -> bool:
        placed = self._locations.locate(reader, process.pid, index)
        return placed is None or placed.moved

    def _recent(
        self, reader: Session, index: int, process: TracedProcess, budget: TimeBudget
    ) -> tuple[dict[int, Window | None], bool]:
        """Return windows by their index, the one at the cursor in any case; whether time allowed all of them."""
        windows: dict[int, Window | None] = {}
        for number in range(index, max(-1, index - RECENT), -1):
            key = int(reader.samples.sample[number]), process.key
            if key not in self._windows:
                if budget.spent and number != index:
                    return windows, False
                self._windows.put(key, self._window(reader, number, process))
            windows[number] = self._windows[key]
        return windows, True

    def _window(self, reader: Session, index: int, process: TracedProcess) -> Window | None:
        placed, sample = self._locations.locate(reader, process.pid, index), int(reader.samples.sample[index])
        pages = self._pages(reader, sample, process.key) if placed is not None else None
        if placed is None or pages is None:
            return None
        if placed.number not in self._number:
            self._number.put(placed.number, self._numbers.of(placed.tensors))
        rest = rest_bytes(pages, placed.tensors, self._mapped_of(self._ranges(process.key, sample)))
        return Window(sample, self._number[placed.number], placed.tensors.touched_each(pages), rest)

    def _mapped_of(self, rows: Sequence[VmaRow]) -> Mapped:
        key = tuple(edge for row in rows for edge in (row.start, row.end))
        if self._mapped is None or self._mapped[0] != key:
            self._mapped = key, Mapped.of(rows)
        return self._mapped[1]

    def _groups(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Give all tensors seen so far the numbers of their groups, so that a group keeps its number."""
        key = self.by, len(self._numbers)
        if self._group is None or self._group[0] != key:
            identities = self._numbers.identities
            categories, layers = [i.category for i in identities], [i.layer for i in identities]
            grouped = groups(categories, layers, self.by)
            self._group = key, *grouped
        return self._group[1:]

    def _rows(
        self,
        reader: Session,
        index: int,
        now: Window,
        placed: TensorMap,
        windows: list[tuple[int, Window | None]],
        group: NDArray[np.intp],
        first: NDArray[np.intp],
    ) -> list[TensorRow]:
        """Return a row for each group of the window at the cursor."""
        identities, count = self._numbers.identities, len(first)
        size_bytes = np.array([identity.size_bytes for identity in identities], np.int64)
        indices = np.array([number for number, _ in windows])
        some = [window for _, window in windows if window is not None]
        # [windows, groups]
        exists = np.array([grouped(size_bytes[window.number], group[window.number], count) for window in some])
        touched = np.array([grouped(window.touched_bytes, group[window.number], count) for window in some])
        recent = touched.sum(axis=0) / np.maximum(exists.sum(axis=0), 1)
        newest = indices[len(some) - 1 - (touched[::-1] > 0).argmax(axis=0)]
        bucket = indices // _EACH - (index // _EACH - TREND + 1)
        picture = np.zeros((TREND, count), np.int64)
        levels = -(touched * -8 // np.maximum(exists, 1))
        inside = bucket >= 0
        np.maximum.at(picture, bucket[inside], levels[inside])
        ever = touched.any(axis=0)
        ages_s = np.where(ever, (int(reader.samples.end_ns[index]) - reader.samples.end_ns[newest]) / 1e9, np.nan)
        here = grouped(now.touched_bytes, group[now.number], count)
        sizes = grouped(size_bytes[now.number], group[now.number], count)
        there = np.flatnonzero(np.bincount(group[now.number], minlength=count))
        columns = (there, first[there], sizes[there], here[there], recent[there], picture.T[there], ages_s[there])
        rows = []
        for number, of, size, touched_bytes, share, trend, age_s in zip(*(c.tolist() for c in columns), strict=True):
            kind = None if self.by is Grouping.LAYER else identities[of].category
            name = self._name(identities[of])
            if kind == UNKNOWN and self.by is Grouping.KIND and (most := placed.most_of(UNKNOWN)):
                name = f"{name} ({most[0]})"
            last_s = age_s if age_s == age_s else None
            rows.append(TensorRow(number, name, kind, size, touched_bytes, share, tuple(trend), last_s))
        return rows

    def _name(self, identity: Identity) -> str:
        if self.by is Grouping.KIND:
            return CATEGORIES[identity.category]
        name = tensor_name(identity.layer, identity.part) if self.by is Grouping.TENSOR else identity.layer
        return name or "(no layer)"

    def _matches(self, row: TensorRow) -> bool:
        if not self.filter_text:
            return True
        kind = CATEGORIES[row.kind] if row.kind is not None else ""
        return self.filter_text.lower() in f"{row.name} {kind}".lower()

    def _key(self, row: TensorRow) -> tuple[int | str, ...]:
        match self.sort:
            case TensorSort.HOT:
                # In steps: a scalar that shares its page with others would come before the weights of a layer.
                return (round((row.recent or 0.0) * HOT_STEPS), row.touched_bytes or 0, row.size_bytes or 0)
            case TensorSort.TOUCHED:
                return (row.touched_bytes or 0, row.size_bytes or 0)
            case TensorSort.SIZE:
                return (row.size_bytes or 0, row.touched_bytes or 0)
            case _:
                return (row.name, row.kind or 0)


def _rest_rows(now: Window, process: TracedProcess, left_out: str) -> list[TensorRow]:
    """Return rows of accessed memory outside tensors, and of accessed pages that are not stored.

    Together with the rows of tensors they add up to the working set.
    """
    parts = [
        TensorRow(
            part, f"{part} ({REST_CONTENTS[part]})" if part in REST_CONTENTS else part, touched_bytes=size, rest=True
        )
        for part, size in zip(REST, now.rest_bytes.tolist(), strict=True)
        if size
    ]
    if (missing := process.not_stored_bytes) and missing > 0:
        name = f"pages that are not stored (filter {left_out})"
        parts.append(TensorRow("not stored", name, touched_bytes=missing, rest=True))
    return parts
