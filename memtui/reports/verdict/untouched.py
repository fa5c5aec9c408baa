"""Rule ``untouched``: memory without a file is resident, and was not touched for long."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.lower_bound import bound_bytes
from memtui.analysis.working_set import bytes_by_range
from memtui.core.page_set import PageSet, union
from memtui.core.samples import is_lower_bound
from memtui.core.units import percent, size, span
from memtui.reports.verdict.recent import NO_FILE, Check, Finding, Recent, is_swap_backed
from memtui.session.vma_row import VmaRow

RULE = "untouched"
LEAST_BYTES, LEAST_SHARE = 256 << 20, 0.5  # that were not touched, and their share of what is resident without a file
MOST_WINDOWS = 240  # that are looked at
LEAST_WINDOWS, LEAST_S = 3, 45.0
START_SHARE = 1 / 3  # of the time since the recording began that may be a start-up
STILL_SPREADS = 0.02  # of what was not touched: more of it in the last third of the time means that its turn will come
MOST_RANGES = 3
_FREE = "Free it, or make the pool smaller"
_SWAP = "where that cannot be, this much may be swapped out without a cost."


def untouched(recent: Recent) -> Check:
    """Return how much memory of the largest process was not touched in the windows before now."""
    several = len(recent.processes) > 1
    subject = f"memory that is not touched{_whose(recent)}"
    if not recent.source.hello.pages.ok:
        return Check(RULE, f"{subject}: this tracker knows no pages", measured=False)
    largest = recent.largest
    rss_bytes = None if largest is None else recent.processes[largest]["rss_bytes"]
    if largest is None or rss_bytes is None:
        return Check(RULE, f"{subject}: what is resident is not known", measured=False)
    stored_bytes = recent.processes[largest]["stored_bytes"] or 0
    if rss_bytes - stored_bytes < LEAST_BYTES:
        return _of_little(subject, recent.processes[largest]["wss_bytes"], rss_bytes)
    resident = recent.source.vma_rss(recent.sample)
    rows = [
        row
        for row in recent.source.drawn_rows(largest)
        if is_swap_backed(row) and resident.get(row.id) and not row.filtered_at(recent.sample)
    ]
    held_bytes = sum(resident[row.id] for row in rows)
    least_bytes = max(LEAST_BYTES, LEAST_SHARE * held_bytes)
    if held_bytes - stored_bytes < least_bytes:
        return Check(
            RULE,
            f"{subject}: {size(recent.processes[largest]['wss_bytes'])} were touched in the last window, "
            f"and {size(held_bytes)} are in no mapped file",
        )
    touched = _Touched(recent, largest)
    private_bytes = recent.processes[largest]["private_bytes"] if len(recent.processes) > 1 else None
    if why := _why_unknown(recent, touched, private_bytes):
        return Check(RULE, f"{subject}: {why}", measured=False)
    idle_bytes, total_bytes = _not_touched(rows, resident, touched.pages, private_bytes)
    if total_bytes < least_bytes and (later := _Touched(recent, largest, _after_start(recent))).span_s >= LEAST_S:
        touched = later
        idle_bytes, total_bytes = _not_touched(rows, resident, touched.pages, private_bytes)
    least = "at least " if several else ""
    what = f"{least}{size(total_bytes)} of {size(held_bytes)} in no mapped file not touched in {span(touched.span_s)}"
    if total_bytes < least_bytes:
        return Check(RULE, f"{subject}: {what}")
    if total_bytes - (missing_bytes := _missing_bytes(recent, touched.windows)) < least_bytes:
        more = "more" if np.isinf(missing_bytes) else f"about {size(missing_bytes)} more"
        return Check(RULE, f"{subject}: {what}, but {more} may have been touched in a window", measured=False)
    if touched.late_bytes > STILL_SPREADS * total_bytes:
        return Check(RULE, f"{subject}: {what}, but the program is still reaching new memory")
    whose = f" of pid {rows[0].pid}" if several else ""
    has_swap = recent.limit is None or recent.limit.swap_bytes > 0
    action = f"{_FREE}; {_SWAP}" if has_swap else f"{_FREE}."
    finding = _finding(whose, action, rows, idle_bytes, total_bytes, held_bytes, touched)
    return Check(RULE, f"{subject}: {what}", finding=finding)


def _whose(recent: Recent) -> str:
    if len(recent.processes) > 1:
        return " (of the largest process)"
    return " (without short-lived processes)" if recent.source.samples.gaps[recent.windows].any() else ""


def _of_little(subject: str, wss_bytes: int | None, rss_bytes: int) -> Check:
    if wss_bytes is None:
        return Check(RULE, f"{subject}: what was touched last is not known", measured=False)
    return Check(RULE, f"{subject}: {size(wss_bytes)} of all {size(rss_bytes)} were touched in the last window")


def _why_unknown(recent: Recent, touched: _Touched, private_bytes: int | None) -> str:
    """Return why it cannot be told what was not touched; empty where it can."""
    if touched.windows < LEAST_WINDOWS or touched.span_s < LEAST_S:
        return f"seen for {span(touched.span_s)}: from {span(LEAST_S)} on"
    if len(recent.processes) > 1 and private_bytes is None:
        return "what its processes share is not read yet"
    if _unseen_bytes(recent, touched.windows) >= LEAST_BYTES:
        return "processes that began or ended may have touched it unseen"
    return ""


def _unseen_bytes(recent: Recent, windows: int) -> float:
    """Return how much more was resident in the last windows while there were more processes than in the last one.

    A process that began or ended inside a window has no pages of that time, and a forked one touches its parent's.
    """
    samples, processes = recent.source.samples, len(recent.processes)
    of = slice(recent.windows.stop - windows, recent.windows.stop)
    if samples.gaps[of].any() and not recent.uses:
        return np.inf
    since_ns = int(samples.start_ns[of.start])
    readings = [use.rss_bytes for use in recent.uses if use.t_ns >= since_ns and use.processes > processes]
    ends = samples.rss_bytes[of][samples.processes[of] > processes]
    at_end_bytes = sum(row["rss_bytes"] or 0 for row in recent.processes.values())
    return max((*readings, *ends[np.isfinite(ends)].tolist()), default=at_end_bytes) - at_end_bytes


def _missing_bytes(recent: Recent, windows: int) -> float:
    """Return how much one of the last windows may lack that was touched in it."""
    of = slice(recent.windows.stop - windows, recent.windows.stop)
    reasons = recent.source.samples.reason[of]
    return max(map(bound_bytes, filter(is_lower_bound, reasons)), default=0)


class _Touched:
    """The pages of a process that were touched in the last windows, since the last one whose accesses are not known."""

    def __init__(self, recent: Recent, process: int, first: int = 0) -> None:
        samples = recent.source.samples
        first = max(recent.windows.start, recent.windows.stop - MOST_WINDOWS, first)
        parts: list[tuple[int, PageSet]] = []  # of windows from an index on
        for group, pages in recent.touched_groups(process, first, recent.windows.stop):
            parts = [*parts, (group, pages)] if pages is not None else []
        self.windows = recent.windows.stop - parts[0][0] if parts else 0
        self.span_s = (recent.end_ns - int(samples.start_ns[parts[0][0]])) / 1e9 if parts else 0.0
        late = recent.windows.stop - self.windows // 3
        before = union(pages for group, pages in parts if group < late)
        self.pages = before.union(union(pages for group, pages in parts if group >= late))
        self.late_bytes = self.pages.size_bytes - before.size_bytes
        """Bytes that were touched in the last third of the windows, and not before."""


def _not_touched(
    rows: list[VmaRow], resident: Mapping[int, int], pages: PageSet, private_bytes: int | None
) -> tuple[NDArray[np.int64], int]:
    """Return the resident bytes of each row that are not among some pages, and how much of that no other may touch.

    ``private_bytes``: of the process; other processes may touch the rest, and all that is not among the pages may be of
    that rest, so the second is a lower bound. None: there are no others.
    """
    edges = np.array([(row.start, row.end) for row in rows], np.uint64)
    resident_bytes = np.array([resident[row.id] for row in rows], np.int64)
    idle_bytes = np.maximum(resident_bytes - _inside_bytes(pages, edges), 0)
    shared_bytes = 0 if private_bytes is None else max(int(resident_bytes.sum()) - private_bytes, 0)
    return idle_bytes, max(int(idle_bytes.sum()) - shared_bytes, 0)


def _after_start(recent: Recent) -> int:
    """Return the first window after the start of a program, which touches what it may never touch again.

    That is up to a third of the time since the recording began, where enough is left.
    """
    if recent.windows.start:
        return 0  # there are older ones than those
    starts_s = (recent.source.samples.start_ns[recent.windows] - recent.end_ns) / 1e9
    started = int(np.searchsorted(starts_s, starts_s[0] * (1 - START_SHARE)))
    last = int(np.searchsorted(starts_s, -LEAST_S, side="right")) - 1  # from the next one on the time is too short
    return max(min(started, last), 0)


def _inside_bytes(pages: PageSet, edges: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return how many bytes of some pages lie in each range: i8[n], of u8[n, 2] starts and ends that rise.

    Where ranges of a damaged session overlap, the later one counts.
    """
    starts, ends = edges[:, 0], edges[:, 1]
    return bytes_by_range(pages, starts, np.minimum(ends, np.append(starts[1:], ends[-1:])))


def _finding(
    whose: str,
    action: str,
    rows: list[VmaRow],
    idle_bytes: NDArray[np.int64],
    total_bytes: int,
    held_bytes: int,
    touched: _Touched,
) -> Finding:
    sizes = f"{size(total_bytes)} of {size(held_bytes)}{whose} ({percent(total_bytes / held_bytes)})"
    start = f"{'At least ' * bool(whose)}{sizes} were not touched in the last {span(touched.span_s)}"
    in_use = "" if whose else f": {size(held_bytes - total_bytes)} are in use"  # by others, too
    most = [n for n in np.argsort(-idle_bytes, kind="stable")[:MOST_RANGES].tolist() if idle_bytes[n]]
    return Finding(
        f"{start}{in_use}.",
        f"{start}.",
        action,
        (
            *(
                f"{rows[n].name or NO_FILE} of {size(rows[n].end - rows[n].start)}: "
                f"{size(int(idle_bytes[n]))} not touched"
                for n in most
            ),
            f"looked at: {touched.windows} windows of pid {rows[0].pid}; mapped files are not counted",
        ),
    )
