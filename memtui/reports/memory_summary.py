"""The part of a report on touched and resident memory: working set, its shared part, RSS and PSS, released pages."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memtui.analysis.alike import Group
from memtui.analysis.lower_bound import MAPPED_SHARE, NOT_WATCHED, bound_bytes, mapped_bytes, may_lack_pages
from memtui.analysis.released_memory import NOTABLE_RELEASED, released_bytes
from memtui.analysis.resident import MEANING, PSS, RSS, SEVERAL_TIMES, SUM_OF_RSS, Resident, touched_fraction
from memtui.analysis.resident_readings import Readings, before_exit
from memtui.core.readings import MemoryUse
from memtui.core.samples import OWN_RECLAIM, SHARED_UNKNOWN, Status, is_lower_bound
from memtui.core.units import between, duration, percent, size
from memtui.reports.process_summary import ProcessRows
from memtui.reports.size_summary import SizeSummary, finite_median, size_clause, size_summary
from memtui.reports.source import ReportSource

SECOND_NS = 1e9
MAPPED_BY_FAULTS = "are pages of files or shared memory that page faults mapped, touched or not"
MUCH_RELEASED = 0.1  # of a working set: pages that are reclaimed in most windows are touched, too
TAKEN_BACK = "the kernel took pages back, and what was touched and taken back within a window is missing"
SEVERAL_PAGES = "counted by page faults, each of which may bring several pages of a file"
SHORT_CHILDREN = "without that of children that came and went inside a window"
NEARLY = 0.1  # of a length: reading takes a time of its own
MOST_GROUPS = 4  # of windows by their length, in a report for people


@dataclass(frozen=True, slots=True)
class WindowGroup:
    """Windows of nearly one interval, and their working set.

    Attributes:
        interval_s: shortest and longest requested interval.
        windows: number of windows.
        time_fraction: share of the time that they cover, 0 to 1.
        true_interval_s: median of their lengths.
        true_intervals_s: the shortest and the longest of them.
        wss_median_bytes: median of their working sets.
    """

    interval_s: tuple[float, ...]
    windows: int
    time_fraction: float
    true_interval_s: float | None
    true_intervals_s: tuple[float, ...]
    wss_median_bytes: float | None


@dataclass(frozen=True, slots=True)
class LargestWindow:
    """The window of any length with the largest working set, and its length."""

    bytes: int | None
    window_s: float | None


@dataclass(frozen=True, slots=True)
class ResidentSummary(SizeSummary):
    """Resident memory. ``meaning``: explanation of the figure."""

    meaning: str


@dataclass(frozen=True, slots=True)
class TouchedFraction:
    """The median working set as a part of the median resident memory, of the same windows and pages.

    Attributes:
        of: figure of resident memory, one of ``analysis.resident``.
        fraction: the part, 0 to 1.
        resident_bytes: median of the resident memory.
        reason: why the fraction is unknown.
    """

    of: str
    fraction: float | None
    resident_bytes: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class WorkingSetSummary(SizeSummary):
    """The working set.

    Attributes:
        lower_bound: of most windows it is known that more may have been touched.
        estimated: it is an estimate, from a part of the memory in each window.
    """

    lower_bound: bool
    estimated: bool


@dataclass(frozen=True, slots=True)
class ReleasedSummary(SizeSummary):
    """Upper bound of the memory that was released in a window.

    Attributes:
        per_s: bytes in a second.
        least: mean of a lower bound; of mapped files it is not known which faults brought their pages.
    """

    per_s: float | None
    least: float | None


def memory_uses(reader: ReportSource) -> Sequence[MemoryUse]:
    """Return the readings of resident memory between windows, without those of a program that was exiting."""
    return before_exit(reader.memory_use(0, 2**62), reader.end)


def why_no_working_set(reader: ReportSource) -> str:
    """Return why a session has no working set, as far as the session has a reason."""
    wss = reader.hello.wss
    if not wss.ok:
        return f"{wss.reason} ({wss.remedy})" if wss.remedy else wss.reason
    samples = reader.samples
    lost = (samples.reason[n] for n in np.flatnonzero(np.isnan(samples.wss_bytes)).tolist())
    return next((reason for reason in lost if reason), "no window was complete")


def working_set(reader: ReportSource, alike: np.ndarray, released: ReleasedSummary) -> WorkingSetSummary:
    """Return the working set over the windows that are ``alike``, with the reasons why it is less than exact."""
    samples = reader.samples
    result = size_summary(samples.wss_bytes[alike], why_no_working_set(reader))
    measured = alike & np.isfinite(samples.wss_bytes)
    counted = np.flatnonzero(measured).tolist()
    bounds = [samples.reason[n] for n in counted if is_lower_bound(samples.reason[n])]
    lack = sum(may_lack_pages(samples.reason[n], int(samples.gaps[n])) for n in counted)
    lower_bound = 2 * lack > len(counted)
    reason = next((samples.reason[n] for n in counted if samples.status[n] == Status.APPROXIMATE), None)
    if _much_is_reclaimed(released, result.mean):
        lower_bound, reason = True, TAKEN_BACK
    elif lower_bound:
        mostly_gaps = 2 * sum(samples.gaps[n] > 0 for n in counted) > len(counted)
        came_and_went = NOT_WATCHED if mostly_gaps or not bounds else ""
        reason = "; ".join(filter(None, (came_and_went, _largest_bound(bounds) if bounds else "")))
    elif reason is None and _shared_unknown(reader):
        reason = SHARED_UNKNOWN
    mapped = [mapped_bytes(samples.reason[n], float(samples.faulted_in_bytes[n])) for n in counted]
    if sum(mapped) and sum(mapped) >= MAPPED_SHARE * samples.wss_bytes[measured].sum():
        of_files = f"{size(float(np.median(mapped)))} {MAPPED_BY_FAULTS}"
        reason, lower_bound = "; ".join(filter(None, (of_files, reason))), False
    if reason is not None:
        result = replace(result, status=Status.APPROXIMATE, reason=reason)
    return WorkingSetSummary(
        result.mean, result.median, result.max, result.status, result.reason, lower_bound, samples.are_estimates
    )


def _much_is_reclaimed(released: ReleasedSummary, wss_bytes: float | None) -> bool:
    """Return whether the kernel takes so much back that a working set lacks it; False where there is none."""
    if released.mean is None or wss_bytes is None or released.reason != SEVERAL_PAGES:
        return False
    return released.mean >= MUCH_RELEASED * wss_bytes


def _largest_bound(bounds: Sequence[str]) -> str:
    """Return the reason that leaves most open, of the reasons of windows that may lack pages."""
    sizes = {reason: bound_bytes(reason) for reason in dict.fromkeys(bounds)}
    most, different = max(sizes, key=lambda reason: sizes[reason]), set(sizes.values())
    return f"{most}, in other windows less" if len(different) > 1 and math.inf not in different else most


def _shared_unknown(reader: ReportSource) -> bool:
    """Return whether some working set counts shared pages once for each process."""
    return bool((np.isnan(reader.samples.shared_bytes) & ~np.isnan(reader.samples.wss_bytes)).any())


def window_groups(groups: Sequence[Group], wss_bytes: np.ndarray, lengths_s: np.ndarray) -> tuple[WindowGroup, ...]:
    """Return the windows by their interval. Figures of the working set are those of the first group."""
    return tuple(
        WindowGroup(
            tuple(ns / SECOND_NS for ns in group.interval_ns),
            int(group.windows.sum()),
            group.time_fraction,
            finite_median(lengths_s[group.windows]),
            (float(lengths_s[group.windows].min()), float(lengths_s[group.windows].max())),
            finite_median(wss_bytes[group.windows]),
        )
        for group in groups
    )


def largest_window(wss_bytes: np.ndarray, lengths_s: np.ndarray) -> LargestWindow:
    """Return the window of any length with the largest working set."""
    if np.isnan(wss_bytes).all():
        return LargestWindow(None, None)
    index = int(np.nanargmax(wss_bytes))
    return LargestWindow(int(wss_bytes[index]), float(lengths_s[index]))


def shared_memory(reader: ReportSource, alike: np.ndarray) -> SizeSummary:
    """Return the part of the working set that several processes touched."""
    values = reader.samples.shared_bytes[alike]
    if not _shared_unknown(reader):
        return size_summary(values, why_no_working_set(reader))
    if not (values > 0).any():  # known of a process that was alone only
        return size_summary(values * np.nan, "page frames of all processes were seen in no window")
    lost = int(np.isnan(values).sum())
    return replace(size_summary(values, ""), status=Status.APPROXIMATE, reason=f"not known in {_windows(lost)}")


def _windows(count: int) -> str:
    return f"{count} window{'s' * (count != 1)}"


def resident_set(readings: Readings, name: str) -> ResidentSummary:
    """Return the RSS of one process, or the sum of those of several. ``name``: the figure for resident memory."""
    result = size_summary(readings.bytes, "no sample was taken", readings.lengths_ns)
    return _with_meaning(result, MEANING[RSS if name == RSS else SUM_OF_RSS])


def proportional_set(resident: Resident, rows: ProcessRows, readings: Readings, lost: int) -> ResidentSummary:
    """Return resident memory in which shared pages count once. ``lost``: the windows in which it is not known."""
    if resident.name == RSS:
        why = "it is read of several processes; of one alone RSS says it"
    else:
        why = next((row["pss_reason"] for row in rows if row["pss_reason"]), "not recorded")
    values = readings.bytes if resident.name == PSS else readings.bytes * np.nan
    result = size_summary(values, why, readings.lengths_ns)
    doubts = [f"not known in {_windows(lost)}: {why}"] if lost else []
    if (bound := readings.at_most_bytes) is not None:
        doubts += [f"between its readings it follows the RSS, and is at most {size(bound)}"]
    if result.mean is not None and doubts:
        result = replace(result, status=Status.APPROXIMATE, reason="; ".join(doubts))
    return _with_meaning(result, MEANING[PSS])


def _with_meaning(summary: SizeSummary, meaning: str) -> ResidentSummary:
    return ResidentSummary(summary.mean, summary.median, summary.max, summary.status, summary.reason, meaning)


def touched_of_resident(wss_bytes: np.ndarray, resident: Resident) -> TouchedFraction:
    """Return the working set as a part of the resident memory."""
    if (result := touched_fraction(wss_bytes, resident)) is not None:
        fraction, resident_bytes = result[:2]
        return TouchedFraction(resident.name, fraction, resident_bytes, "")
    reason = "working set and resident memory are known together in no window"
    if resident.name == SUM_OF_RSS:
        reason = "the working set counts shared pages once, a sum of RSS several times"
    return TouchedFraction(resident.name, None, None, reason)


def released_memory(reader: ReportSource, rows: ProcessRows, alike: np.ndarray) -> ReleasedSummary:
    """Return the upper bound of released memory in a window and in a second, over the windows that are ``alike``.

    It is not a bound where the kernel takes pages of the program's cgroup back in most windows, or children came and
    went.
    """
    samples = reader.samples
    numbers = set(samples.sample[alike].tolist())
    released = {sample: size_bytes for sample, size_bytes in released_bytes(rows).items() if sample in numbers}
    values = np.array(list(released.values()), np.float64)
    spans_ns: dict[int, int] = defaultdict(int)  # a process may have been there for a part of a window
    for row in rows:
        if (sample := row["sample"]) in released:
            spans_ns[sample] = max(spans_ns[sample], row["end_ns"] - row["start_ns"])
    per_s = float(values.sum()) / (sum(spans_ns.values()) / SECOND_NS) if spans_ns else None
    result = size_summary(values, "faults and RSS of two windows in a row are known of no process")
    disturbed = [samples.disturbed[n] for n in np.flatnonzero(alike).tolist()]
    reclaimed = [text for text in disturbed if any(cause in text for cause in OWN_RECLAIM)]
    if 2 * len(reclaimed) > len(disturbed) and result.mean is not None:
        result = replace(result, status=Status.APPROXIMATE, reason=SEVERAL_PAGES)
    elif samples.gaps[alike].any() and result.mean is not None:
        result = replace(result, status=Status.APPROXIMATE, reason=SHORT_CHILDREN)
    least = [size_bytes for sample, size_bytes in released_bytes(rows, least=True).items() if sample in numbers]
    mean = float(np.mean(least)) if least else None
    return ReleasedSummary(result.mean, result.median, result.max, result.status, result.reason, per_s, mean)


def births_and_ends(count: int) -> str:
    """Return a sentence about processes that were there for a part of a window."""
    return (
        f"a process began or ended inside a window at least {count} time{'s' * (count != 1)}; such a window lacks what "
        "the process touched while it was not watched"
    )


def window_sentences(groups: Sequence[WindowGroup]) -> list[str]:
    """Return a clause with the windows of the working-set figures, where not all windows are alike."""
    if len(groups) < 2:
        return []
    lengths = [
        f"of {_lengths(group)} ({percent(group.time_fraction)} of the time, median WSS {size(group.wss_median_bytes)})"
        for group in groups
    ]
    left_out = max(len(groups) - MOST_GROUPS, 0)
    more = f" and {left_out} more length{'s' * (left_out != 1)}" if left_out else ""
    clauses = [f"{group.windows} {length}" for group, length in zip(groups, lengths, strict=True)]
    others = ", ".join(clauses[1:MOST_GROUPS])
    first = f"the {groups[0].windows} windows {lengths[0]}" if groups[0].windows > 1 else f"one window {lengths[0]}"
    return [f"figures of the working set are over {first}; windows of other lengths: {others}{more}"]


def _lengths(group: WindowGroup) -> str:
    """Return the length of the windows of a group, or the shortest, the longest and the median where they differ."""
    shortest, longest = group.true_intervals_s
    median = duration(group.true_interval_s)
    if longest <= (1 + NEARLY) * shortest:
        return median
    return f"{between(duration(shortest), duration(longest))}, median {median}"


def working_set_line(wss: WorkingSetSummary, largest: LargestWindow, windows_s: float, after_s: float) -> str:
    """Return the line of the working set, and a window of another length with a larger one.

    ``windows_s``: the time of all windows; ``after_s``: how long it was recorded after the last one.
    """
    line = f"working set  {'at least: ' * wss.lower_bound}{'estimated: ' * wss.estimated}{size_clause(wss)}"
    if wss.max is not None and after_s > windows_s:
        line += f", in windows of {duration(windows_s)} of its {duration(windows_s + after_s)}"
    if wss.max is None or largest.bytes is None or largest.bytes <= wss.max:
        return line
    return f"{line}; {size(largest.bytes)} in one of {duration(largest.window_s)}"


def shared_lines(shared: SizeSummary, wss: SizeSummary, processes: int) -> list[str]:
    """Return the line of the memory that processes of a tree share; nothing for a single process."""
    if processes < 2 or wss.mean is None:
        return []
    if shared.mean is None:
        return [f"shared       n/a: {shared.reason}"]
    return [f"shared       {size_clause(shared)} of the working set, counted once"]


def resident_lines(rss: SizeSummary, pss: SizeSummary, name: str) -> list[str]:
    """Return the lines of resident memory. ``name``: the figure for it, one of ``analysis.resident``."""
    if name == RSS:
        return [f"resident     {size_clause(rss)}"]
    sum_of_rss = f"{size_clause(rss)}; {SEVERAL_TIMES}"
    if pss.mean is None:
        return [f"resident     {SUM_OF_RSS}: {sum_of_rss} (PSS n/a: {pss.reason})"]
    return [f"resident     PSS: {size_clause(pss)}", f"{SUM_OF_RSS:<12} {sum_of_rss}"]


def released_lines(released: ReleasedSummary, wss: SizeSummary, *, several: bool) -> list[str]:
    """Return the line of released memory, where it is a notable part of the working set, mapped files apart.

    ``several``: there are several processes. Copies of pages that they shared cannot be told from released memory.
    """
    if released.least is None or wss.mean is None or released.least < NOTABLE_RELEASED * wss.mean:
        return []
    bound = "up to " if released.status == Status.OK else "about "
    how = f" ({released.reason})" if released.reason else ""
    sizes = f"{bound}{size(released.mean)} in the mean, {size(released.max)} in one, {size(released.per_s)}/s{how}"
    return [
        f"given back   of a window {sizes}: pages that were touched and given back in one window are not in its "
        f"working set{' (copies of pages that processes shared count here, too)' * several}"
    ]
