"""Rows of the table of address ranges, and the ranges the heat map draws: filtered, matched, sorted."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from math import ceil

import numpy as np

from memtui.analysis.range_uses import uses_of
from memtui.analysis.row_states import state_at
from memtui.analysis.vma_filter import Filter, parse_filter
from memtui.core.fast_numpy import distinct, ranked
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import Process
from memtui.session.session import Session
from memtui.session.vma_row import VmaRow
from memtui.tui.presenters.filtered_rows import Entry, FilteredRows, MappedRanges, Span
from memtui.tui.presenters.heat_rows import ProcessRange, shares_of
from memtui.tui.presenters.processes import rank_of
from memtui.tui.presenters.range_names import name_of, short_label
from memtui.widgets.views.memory import TREND, RangeRow, Sort, TableView

READ_EVERY_S = 5.0  # the ranges of a growing session
_FOR_EVER = 1 << 62
TREND_SAMPLES = 48  # windows before the cursor that the trend shows
SURVEY, GLANCE = 48, 6  # windows in which the most accessed bytes of each range are searched; for the first picture
HEAVIEST = 64  # processes that are loaded for the heat map, which has fewer rows
_EACH = TREND_SAMPLES // TREND  # windows in a cell of the trend
KEEP_FILTERED = 4096  # kinds of ranges of which it is known whether the filter leaves them out


class RangeTable:
    """Settings of the table and its state between views."""

    def __init__(self) -> None:
        self.filter: Filter = parse_filter("default")
        self.filters_on = True
        self.filter_text = ""
        self.pid: int | None = None  # only ranges of this process
        self.sort = Sort.WSS
        self.descending = True
        self.touched: dict[int, int] = {}  # bytes by row at the sample shown
        self._rows: list[VmaRow] = []
        self._survey_key: tuple[int, int] = (-1, -1)
        self._most: dict[int, int] = {}  # row id -> the most of it ever seen touched
        self._ids: set[int] = set()
        self.all: frozenset[int] | None = None  # the processes, where they are few and all loaded
        self.focus: int | None = None  # the chosen row
        self._seen: set[int] = set()  # processes of the windows that were surveyed since rows were read last
        self._uses: dict[int, str] = {}  # row id -> use of anonymous memory, by its layout
        self._who: dict[int, str] = {}  # process -> its rank, where known
        self._read_s = -READ_EVERY_S
        self._surveyed = 0
        self._glanced = False
        self.surveyed = False  # the last view is of ``SURVEY`` windows, not of ``GLANCE``
        self._filtered: FilteredRows | None = None
        # Row id -> the row, its use, and the spans it was cut into for the last ``_filtered_rows``.
        self._row_parts: dict[int, tuple[VmaRow, str | None, tuple[tuple[int, Entry, Span], ...]]] = {}
        self._left_out: dict[tuple[object, ...], str] = {}
        self._unfiltered = self.filter  # the part of it that decided nothing when pages were stored
        self._reread_sample = -1  # the sample for which ranges were read again
        self._last: tuple[list[VmaRow], tuple[object, ...], TableView] | None = None  # the view before, and of what
        self._cached_rows: dict[
            int, tuple[Entry, tuple[object, ...], RangeRow]
        ] = {}  # rows of the last view and of what, by number

    def view(self, reader: Session, sample: int, processes: Sequence[Process]) -> TableView:
        """Return the table at a sample."""
        if sample < 0:
            return TableView(filters_on=self.filters_on, filter_text=self.filter_text, sort=self.sort)
        self._unfiltered = _without(self.filter, reader.hello.options.filter)
        self._survey(reader, sample)
        of = (
            *(sample, reader.samples.newest, self.filter, self.filters_on, self.filter_text, self.pid),
            *(self.sort, self.descending, tuple(processes)),
        )
        if not reader.partial and self._last is not None and self._last[0] is self._rows and self._last[1] == of:
            return self._last[2]  # a live screen has several views of one window
        view = self._view(reader, sample, processes)
        self._last = self._rows, of, view
        return view

    def _view(self, reader: Session, sample: int, processes: Sequence[Process]) -> TableView:
        wss, trend = self._trends(reader, sample)
        self.touched = wss
        rss = reader.vmas.rss(sample)
        has_wss = reader.hello.wss.ok and bool(wss or reader.samples.status[-1] in ("ok", "approximate"))
        index = int(np.searchsorted(reader.samples.sample, sample))
        shared_bytes = reader.samples.shared_bytes[index]  # of a process that is alone it is 0: nothing to ask
        shared = None if np.isnan(shared_bytes) else reader.vmas.shared(sample) if shared_bytes else {}
        # Shares are of the working set in the header; rows count a page for each process that accessed it.
        header = float(reader.samples.wss_bytes[index])
        total = header if np.isfinite(header) else float(sum(max(size, 0) for size in wss.values()))
        several = len({p.pid for p in processes}) > 1
        self._who = {p.key: f"rank {rank}" for p in processes if (rank := rank_of(p)) is not None}
        cached: dict[int, tuple[Entry, tuple[object, ...], RangeRow]] = {}
        filtered = self._filtered_rows()
        if self._reread_sample != sample and not filtered.holds(wss if self.pid is None else (), sample):
            self._reread_sample = sample
            self._read_rows(reader, sample)
            filtered = self._filtered_rows()  # a range that was gone is mapped again
        cold = (0,) * TREND if has_wss else ()
        for entry in filtered.shown.in_sample(sample):
            row, name, why = entry
            touched = wss.get(row.id, 0 if has_wss else None)
            if touched is not None and touched < 0:
                touched = None  # the tracker cannot know it (hugetlb)
            of_all = touched / total if touched is not None and total else None
            of_others = None if shared is None or touched is None else shared.get(row.id, 0)
            resident = rss.get(row.id)  # of a second ago at worst
            is_lower_bound = touched is not None and resident is not None and touched > resident
            resident = touched if is_lower_bound else resident
            values = (touched, resident, of_all, trend.get(row.id, cold), several, of_others, is_lower_bound)
            # Most ranges are unchanged since a second ago: the same object is created, compared and painted once.
            before = self._cached_rows.get(row.id)
            if before is None or before[0] is not entry or before[1] != values:
                created = RangeRow(
                    row.id,
                    row.start,
                    row.end,
                    row.perms,
                    name,
                    wss_bytes=touched,
                    rss_bytes=values[1],
                    share=of_all,
                    trend=values[3],
                    pid=row.pid if several else None,
                    who=self._who.get(row.process, ""),
                    left_out=why,
                    rss_at_least=is_lower_bound,
                    shared_bytes=of_others,
                )
                before = entry, values, created
            cached[row.id] = before
        rows = [row for _, _, row in cached.values()]
        self._cached_rows = cached
        rows.sort(key=self._key, reverse=self.descending)
        left_out, unmatched = (
            _touched(part.in_sample(sample), wss) for part in (filtered.left_out, filtered.unmatched)
        )
        of_ranges = sum(row.wss_bytes or 0 for row in rows) + left_out + unmatched
        if np.isfinite(header) and abs(of_ranges - header) < PAGE_BYTES:  # estimates of ranges are rounded individually
            of_ranges = int(header)
        return TableView(
            tuple(rows),
            filtered.left_out.count(sample),
            filtered.unmatched.count(sample),
            self.filters_on,
            self.filter_text,
            self.sort,
            self.descending,
            only=self.pid,
            left_out_bytes=left_out if has_wss else None,
            not_matching_bytes=unmatched if has_wss else None,
            # One process alone has no pages that count for several.
            wss_bytes=int(header) if has_wss and self.pid is None and np.isfinite(header) else None,
            ranges_bytes=of_ranges if has_wss else None,
        )

    def _filtered_rows(self) -> FilteredRows:
        """Return the rows parted by the filter and the typed text; cached until one of these changes."""
        by = (self._unfiltered, self.filters_on, self.filter_text, self.pid)
        if self._filtered is not None and self._filtered.rows is self._rows and self._filtered.by == by:
            return self._filtered
        # Most rows are unchanged: a session with many short processes has thousands of rows.
        before = self._row_parts if self._filtered is not None and self._filtered.by == by else {}
        self._row_parts = {}
        parts: list[tuple[list[Entry], list[Span]]] = [([], []), ([], []), ([], [])]
        for row in self._rows:
            if self.pid not in (None, row.pid):
                continue
            use, same = self._uses.get(row.id), before.get(row.id)
            if same is None or same[0] != row or same[1] != use:
                same = row, use, self._part(row)
            self._row_parts[row.id] = same
            for number, entry, span in same[2]:
                parts[number][0].append(entry)
                parts[number][1].append(span)
        self._filtered = FilteredRows(self._rows, by, *(MappedRanges(*part) for part in parts))
        return self._filtered

    def _part(self, row: VmaRow) -> tuple[tuple[int, Entry, Span], ...]:
        """Return the spans of a range, each with its part: 0 shown, 1 left out by the filter, 2 not matching."""
        out = []
        for span in self._spans(row):
            _, _, why, then = span
            hidden = bool(why) and self.filters_on
            number = 1 if hidden else 0 if self._matches(then) else 2
            out.append((number, (then, "" if hidden else self.name(then), why), span))
        return tuple(out)

    def _spans(self, row: VmaRow) -> list[Span]:
        """Return the states of a range for the filter, each with its first and last sample."""
        last = _FOR_EVER if row.open else row.last_sample
        if not row.states:
            return [(row.first_sample, last, self._why_left_out(row), row)]
        spans: list[Span] = []
        for number, state in enumerate(row.states):
            first = state.sample if number else row.first_sample
            then = row._replace(perms=state.perms, filtered=state.left_out, name=state.name)
            why = self._why_left_out(then)
            if spans and (spans[-1][2], spans[-1][3].name) == (why, then.name):
                first = spans.pop()[0]
            elif spans:
                spans[-1] = (spans[-1][0], first - 1, *spans[-1][2:])
            spans.append((first, last, why, then))
        first, last, why, _ = spans[-1]  # its permissions may have changed since, in a way that no filter matches
        spans[-1] = first, last, why, row
        return spans

    def name(self, row: VmaRow) -> str:
        """Return the name of a range in the table."""
        return name_of(row, self._uses)

    def short_label(self, row: VmaRow) -> str:
        """Return the short name of a range in the heat map."""
        return short_label(row, self._uses)

    def row(self, key: int) -> VmaRow | None:
        """Return a range by its id; None where it was merged into another one, or another process is chosen."""
        return next((r for r in self._rows if r.id == key and self.pid in (None, r.pid)), None)

    def mapped_rows(self, process: int, sample: int) -> list[VmaRow]:
        """Return all ranges of a process that were mapped in a sample, those outside the filter included."""
        return [
            row
            for row in self._rows
            if row.process == process and row.first_sample <= sample and (row.open or sample <= row.last_sample)
        ]

    def mapped(self, process: int, start: int, end: int) -> int:
        """Return the number of ranges of a process in a part of memory, at any time."""
        return sum(r.process == process and r.start < end and r.end > start for r in self._rows)

    def heat_ranges(
        self, processes: Sequence[Process], sample: int, first: int, last: int, zoomed: Collection[int] = ()
    ) -> list[ProcessRange]:
        """Return the ranges for the heat map: all that pass the filter and were accessed at any time of the session.

        Their names are those in the sample. Of processes that ran in none of the samples ``first`` to ``last``, which
        the picture shows, only those of the chosen process are there, and of those that are zoomed into.
        """
        several = len({p.pid for p in processes}) > 1
        shares = shares_of(self._rows, first, last)
        out = []
        for row in {row.id: row for row, _, _ in self._filtered_rows().shown.entries}.values():
            drawn = row.process in shares or row.pid == self.pid or row.process in zoomed
            if (weight := ceil(self._most.get(row.id, 0) * shares.get(row.process, 1))) and drawn:
                then = state_at(row.states, sample)
                label = short_label(row if then is None else row._replace(name=then.name), self._uses)
                who = str(self._who.get(row.process) or row.pid) if several else ""
                label = f"{who} {label}" if several else label
                out.append(ProcessRange(row.process, row.id, row.start, row.end, label, weight, who, row.perms))
        return out

    def toggle_filters(self) -> None:
        """Leave out ranges that are seldom of interest, or show every range."""
        self.filters_on = not self.filters_on

    def next_sort(self) -> None:
        """Sort by the next column."""
        order = list(Sort)
        self.sort_by(order[(order.index(self.sort) + 1) % len(order)])

    def sort_by(self, sort: Sort) -> None:
        """Sort by a column; the same column again reverses the order."""
        if sort is self.sort:
            self.descending = not self.descending
        else:
            self.sort, self.descending = sort, sort in (Sort.WSS, Sort.RSS)

    def _key(self, row: RangeRow) -> tuple[int | str, ...]:
        match self.sort:
            case Sort.WSS:
                # Equal rows by size and then address, so that the rows without accesses keep their order.
                return (row.wss_bytes if row.wss_bytes is not None else -1, row.rss_bytes or 0, -row.start)
            case Sort.RSS:
                return (row.rss_bytes if row.rss_bytes is not None else -1, row.wss_bytes or 0, -row.start)
            case Sort.PERMS:
                return (row.perms, row.name, row.start)
            case Sort.NAME:
                return (row.name, row.start)
            case _:
                return (row.pid or 0, row.start)

    def _matches(self, row: VmaRow) -> bool:
        """Return whether the typed text is part of the row of a range."""
        text = self.filter_text.lower()
        return not text or text in f"{self.name(row)} {row.name} {row.perms} {row.start:x} {row.pid}".lower()

    def _why_left_out(self, row: VmaRow) -> str:
        if row.filtered:
            return f"not stored: {row.filtered}"
        # All that a term looks at. Short-lived processes have the same ranges, so these are few.
        key = row.end - row.start, row.perms, row.name, self._unfiltered
        if key not in self._left_out:
            if len(self._left_out) > KEEP_FILTERED:
                self._left_out.clear()
            term = self._unfiltered.leaves_out(row)
            self._left_out[key] = f"filtered: {term}" if term else ""
        return self._left_out[key]

    def _survey(self, reader: Session, sample: int) -> None:
        """Read rows and the most that each was touched: of a spread of samples at first, then of the new ones."""
        samples = reader.samples.sample
        newest = int(samples[-1])
        if self._survey_key == (newest, len(samples)):
            return
        now = time.monotonic()
        new = self._surveyed + 1 if newest - self._surveyed <= TREND_SAMPLES else newest
        _, ids, _ = reader.vmas.wss(min(new, newest), newest)
        # Ranges are many and change seldom: read them when a new one was accessed, and now and then.
        if now - self._read_s >= READ_EVERY_S or not self._ids.issuperset(ids.tolist()):
            self._read_rows(reader, sample)
        if newest - self._surveyed <= TREND_SAMPLES - _EACH and sample == newest:
            # The trend reads these samples next.
            self._surveyed, self._survey_key = newest, (newest, len(samples))
            self._glanced = self.surveyed = True
            return
        self.surveyed, self._glanced = self._glanced, True
        if newest - self._surveyed > 256 or not self.surveyed:
            count = SURVEY if self.surveyed else GLANCE
            spread = distinct(np.linspace(max(0, self._surveyed), newest, count).astype(int))
            spans = [(int(s), int(s)) for s in spread]
        else:
            spans = [(self._surveyed, newest)]
        unknown = False
        for first, last in spans:
            _, ids, touched = reader.vmas.wss(first, last)
            if self.all is None and not self._ids.issuperset(ids.tolist()):
                self._seen |= reader.processes.present(first, last)
                unknown = True
            rows, index = ranked(ids)
            most = np.zeros(len(rows), np.int64)
            np.maximum.at(most, index, touched)
            self._note(rows, most)
        if unknown:
            self._read_rows(reader, sample)
        if self.surveyed:
            self._surveyed, self._survey_key = newest, (newest, len(samples))

    @property
    def loaded_processes(self) -> set[int]:
        """Return the processes whose ranges are loaded."""
        return {row.process for row in self._rows}

    def _read_rows(self, reader: Session, sample: int) -> None:
        """Read the ranges of the processes in sight, and of those for the heat map."""
        self._read_s = time.monotonic()
        wanted = set(self.all or ())
        if self.all is None:
            for last in {sample, int(reader.samples.sample[-1])}:
                wanted |= reader.processes.present(last - TREND_SAMPLES + 1, last)
            wanted |= self._heaviest() | self._seen
            self._seen = set()
        self._rows = reader.vmas.rows_of(wanted)
        self._ids, self._uses = {row.id for row in self._rows}, uses_of(self._rows)
        if self.all is None:
            self._most = {row: most for row, most in self._most.items() if row in self._ids}

    def _heaviest(self) -> set[int]:
        """Return the processes with the most accessed bytes, the newest of equal ones, and the chosen ones."""
        weight: dict[int, int] = {}
        focused = set()
        for row in self._rows:
            weight[row.process] = max(weight.get(row.process, 0), self._most.get(row.id, 0))
            if row.id == self.focus or row.pid == self.pid:
                focused.add(row.process)
        return focused | set(sorted(weight, key=lambda process: (weight[process].bit_length(), process))[-HEAVIEST:])

    def _note(self, rows: np.ndarray, most: np.ndarray) -> None:
        """Update the most accessed bytes of distinct rows."""
        for row, value in zip(rows.tolist(), most.tolist(), strict=True):
            if value > self._most.get(row, 0):
                self._most[row] = value

    def _trends(self, reader: Session, sample: int) -> tuple[dict[int, int], dict[int, tuple[int, ...]]]:
        """Return touched bytes per row at a sample, and its last windows as levels 0..8 of the row's own largest."""
        first = sample - TREND_SAMPLES + 1
        samples, ids, touched = reader.vmas.wss(max(0, first), sample)
        if not len(ids):
            return {}, {}
        rows, index = ranked(ids)
        # Time in buckets on a fixed grid: the trend moves by whole cells and does not flicker.
        bucket = samples // _EACH - (sample // _EACH - TREND + 1)
        inside = int(np.searchsorted(bucket, 0))
        picture = np.zeros((len(rows), TREND), np.int64)
        np.maximum.at(picture, (index[inside:], bucket[inside:]), touched[inside:])
        high = picture.max(axis=1)
        self._note(rows, high)
        # Eighths, rounded up; a row without accesses has 0.
        levels = -(picture * -8 // np.maximum(high, 1)[:, None])
        here = int(np.searchsorted(samples, sample))
        now: dict[int, int] = {}
        for row, value in zip(ids[here:].tolist(), touched[here:].tolist(), strict=True):
            now[row] = now.get(row, 0) + value
        return now, dict(zip(rows.tolist(), map(tuple, levels.tolist()), strict=True))


@lru_cache(8)
def _without(chosen: Filter, stored: str) -> Filter:
    """Return the terms of a filter that were not in force when pages were stored.

    The other terms were applied to every VMA of a row: a range that passed them is not hidden.
    """
    try:
        stored_terms = parse_filter(stored).terms
    except ValueError:  # a filter in a file of another program
        return chosen
    return Filter(tuple(term for term in chosen.terms if term not in stored_terms))


def _touched(entries: list[Entry], wss: Mapping[int, int]) -> int:
    """Return accessed bytes of ranges; ranges without known bytes are not in the working set and do not count."""
    return sum(max(wss.get(row.id, 0), 0) for row, _, _ in entries)
