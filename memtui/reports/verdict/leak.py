"""Rule ``leak``: memory grows steadily, and the working set does not."""

from __future__ import annotations

import numpy as np

from memtui.analysis.limit_forecast import rate, rates
from memtui.analysis.memory_growth import Growth, growth_of
from memtui.analysis.resident import PSS
from memtui.core.fast_numpy import median
from memtui.core.units import percent, size, span
from memtui.reports.post_mortem import ANONYMOUS, GrownMemory, GrownTensors, grown_memory, grown_tensors
from memtui.reports.verdict.recent import FRESH_S, NO_FILE, Check, Finding, Floats, Recent, is_swap_backed
from memtui.reports.verdict.swap import returned_bytes

RULE = "leak"
LEAST_BYTES, LEAST_SHARE = 8 << 20, 0.03  # of a growth, and its share of what is resident
USED_SHARE = 0.25  # of what was added: the working set grows by less where it is not used
START_SHARE = 1 / 3  # of what is resident, in a minute: a program that grows faster may be loading its data ...
LOADS_BYTES_PER_S = 4 << 20  # ... if it grows by this at least ...
STARTED_S = 300.0  # ... and is not older than this
MAPPED_SHARE = 0.5  # of the growth of a tree's PSS: the sum of RSS grows by less where processes copy what they share
RETURNED_SHARE = 0.5  # of the growth: what came back from swap was there before
ALIKE = 0.5  # of the median length of windows: what windows that are compared have at least
AGAIN_SHARE = 0.05  # of what was added: where more of it was touched again, it is not called unused
GROWN_SHARE = 11 / 12  # of the time of a growth: what a program maps when it starts is not part of it
MOST_WINDOWS = 240  # whose pages are looked at for that
OLD_SHARE = 0.25  # of the time: with an older reading nothing is known of its end
ANONYMOUS_SHARE = 0.5  # of the growth: more of it in mapped files is page cache, which the kernel takes back

_PYTHON = (
    "Look for what is added to and never emptied: a list, a cache, losses kept with their graph (loss.item() keeps the "
    "number alone)."
)
_NATIVE = "Look for what is allocated and never freed: heaptrack PROGRAM says where, as does valgrind --tool=massif."


def leak(recent: Recent) -> Check:
    """Return by how much resident memory grows while the working set does not, and where."""
    kind, t_s, resident = recent.resident_series()
    subject = f"growth of {kind}"
    if recent.too_short:
        return Check(RULE, f"{subject}: {recent.too_short}", measured=False)
    if not len(resident):
        return Check(RULE, f"{subject}: it is not known", measured=False)
    growth = growth_of(t_s, resident)
    if growth is None:
        return _not_steady(recent, kind, resident)
    between = f"{subject}: {size(float(resident[0]))} to {size(float(resident[-1]))} in {span(recent.span_s)}"
    grown_bytes = growth.bytes_per_s * growth.span_s
    if grown_bytes < max(LEAST_BYTES, LEAST_SHARE * resident[-1]):
        return Check(RULE, f"{between}, too little to tell")
    if recent.age_s < STARTED_S and (start := _start(growth, float(resident[-1]))):
        return Check(RULE, f"{between}{start} (look again when it is {span(STARTED_S)} old)", undecided=True)
    if where_from := _where_from(recent, growth, grown_bytes):
        return Check(RULE, f"{between}, as {where_from}")
    used_bytes = _working_set_growth(recent, growth)
    if used_bytes is None:
        return Check(RULE, f"{between}; whether that is used again is not known", measured=False)
    if used_bytes > USED_SHARE * grown_bytes:
        return Check(RULE, f"{between}, and the working set grows, too")
    memory, tensors, in_files = _grown(recent, growth)
    if in_files:
        return Check(RULE, f"{between}, most of it mapped files, which the kernel can take back")
    return Check(RULE, between, finding=_finding(recent, growth, float(resident[-1]), memory, tensors))


def _start(growth: Growth, now_bytes: float) -> str:
    """Return why the growth of a young program may be its start; empty where it is not like one."""
    if growth.bytes_per_s > max(START_SHARE * now_bytes / 60, LOADS_BYTES_PER_S):
        return ": as fast as a program that loads its data"
    return ", unevenly, as in a program that settles down" if not growth.is_even else ""


def _not_steady(recent: Recent, kind: str, resident: Floats) -> Check:
    """Return that memory does not grow steadily, or that its end is not known: a PSS is read seldom."""
    subject = f"growth of {kind}"
    if kind == PSS and recent.pss_age_s > max(FRESH_S, OLD_SHARE * recent.span_s):
        return Check(RULE, f"{subject}: it was read last {span(recent.pss_age_s)} ago", measured=False)
    low, high = size(float(resident.min())), size(float(resident.max()))
    return Check(RULE, f"{subject}: none that is steady; between {low} and {high} in {span(recent.span_s)}")


def _where_from(recent: Recent, growth: Growth, grown_bytes: float) -> str:
    """Return whence memory came that is not new; empty where it is new."""
    if _newly_mapped_bytes(recent, growth) < MAPPED_SHARE * grown_bytes:
        return "processes copy memory that they share"
    if returned_bytes(recent, growth.span_s) > RETURNED_SHARE * grown_bytes:
        return "memory comes back from swap"
    return ""


def _newly_mapped_bytes(recent: Recent, growth: Growth) -> float:
    """Return by how much the sum of RSS grew in the time of a growth, as it did in its last two thirds.

    A program that is watched from its start maps all that it has in the first moments, which is not part of a growth.
    """
    t_s, rss = recent.rss_series()
    third_s = growth.span_s / 3
    late = t_s >= t_s[-1] - third_s
    before = ~late & (t_s >= t_s[-1] - 2 * third_s)
    if not before.any():
        rss = rss[t_s >= t_s[-1] - growth.span_s]
        return float(rss[-1] - rss[0])
    return 3 * (median(rss[late]) - median(rss[before]))  # their middles are a third apart


def _working_set_growth(recent: Recent, growth: Growth) -> float | None:
    """Return by how much the median working set of the last third is above that of the first; None: not measured.

    Of windows at least half as long as the median one: a shorter one has a smaller working set.
    """
    samples, of = recent.source.samples, recent.windows
    lengths_ns = samples.end_ns[of] - samples.start_ns[of]
    recently = (recent.t_s >= -growth.span_s) & np.isfinite(recent.wss_bytes)
    if not recently.any():
        return None
    recently &= lengths_ns >= ALIKE * median(lengths_ns[recently])
    wss = recent.wss_bytes[recently]
    third = len(wss) // 3
    return median(wss[-third:]) - median(wss[:third]) if third else None


def _grown(recent: Recent, growth: Growth) -> tuple[tuple[GrownMemory, ...], tuple[GrownTensors, ...], bool]:
    """Return what grew most by mapping and by kind of tensor, and whether most of it lies in mapped files."""
    source, first_sample = recent.source, recent.sample_before(GROWN_SHARE * growth.span_s)
    before, after = source.vma_rss(first_sample), source.vma_rss(recent.sample)
    grown = np.array([after.get(row.id, 0) - before.get(row.id, 0) for row in recent.rows], np.int64)
    swap_backed = np.array([is_swap_backed(row) for row in recent.rows], bool)
    up = np.maximum(grown, 0)
    in_files = bool(up[swap_backed].sum() < ANONYMOUS_SHARE * up.sum())
    tensors = grown_tensors(source, recent.end_ns - round(growth.span_s * 1e9), recent.end_ns)
    return grown_memory(recent.rows, before, after), tensors, in_files


def _finding(
    recent: Recent, growth: Growth, now_bytes: float, memory: tuple[GrownMemory, ...], tensors: tuple[GrownTensors, ...]
) -> Finding:
    wss = recent.wss_bytes[np.isfinite(recent.wss_bytes)]
    start, again = f"Memory grows by {rate(growth.bytes_per_s)}", _again_share(recent, growth)
    in_use = again is not None and again >= AGAIN_SHARE
    use = "" if again is None else "; little of what is added is used again"
    if in_use:
        use = f"; {percent(again)} of what was added was touched again soon after"
    sentence = f"{start} (now {size(now_bytes)}) while the working set stays at {size(median(wss))}{use}."
    action = _NATIVE if _runs_no_python(recent) else _PYTHON
    if tensors:
        action = (
            f"Most of it is tensors ({tensors[0].category}): keep numbers (loss.item()) and detached tensors "
            "(.detach()) from step to step."
        )
    elif in_use:
        action = "Give it a bound where it is meant to grow (a buffer, a cache), or look for what is never emptied."
    several, looked_at_s = len({part.pid for part in memory}) > 1, GROWN_SHARE * growth.span_s
    evidence = [
        f"resident memory grew by {size(growth.bytes_per_s * looked_at_s)} in the last {span(looked_at_s)}, by "
        f"{rates(growth.low_bytes_per_s, growth.high_bytes_per_s)} (95 %)",
        *(
            f"{part.name if part.name != ANONYMOUS else NO_FILE}"
            f"{f' of pid {part.pid}' * several}: {size(part.grown_bytes)} more"
            for part in memory
        ),
        *(f"tensors, {part.category}: {size(part.grown_bytes)} more" for part in tensors),
        f"working set of a window: {size(float(wss.min()))} to {size(float(wss.max()))}",
    ]
    return Finding(sentence, f"{start} while the working set stays.", action, tuple(evidence))


def _runs_no_python(recent: Recent) -> bool:
    """Return whether the libraries of a program are known, and Python is none of them."""
    names = [row.file_name for row in recent.rows]
    python = "python" in recent.source.hello.target.command or any("python" in name for name in names)
    return not python and any(name.startswith(("libc.so", "libc-", "libc.musl")) for name in names)


def _again_share(recent: Recent, growth: Growth) -> float | None:
    """Return how much of what the largest process added was touched again later; None where that is not known.

    Added is what it touched first in the second third of the windows, and later is the last third.
    """
    since = recent.windows.start + int(np.searchsorted(recent.t_s, -growth.span_s))
    stop, first = recent.windows.stop, max(since, recent.windows.stop - MOST_WINDOWS)
    second, third = first + (stop - first) // 3, stop - (stop - first) // 3
    largest = recent.largest
    if largest is None or not first < second < third < stop:
        return None
    each = [recent.touched_between(largest, *part) for part in ((first, second), (second, third), (third, stop))]
    before, middle, later = each
    if before is None or middle is None or later is None:
        return None
    added = middle.difference(before)
    if added.size_bytes < LEAST_BYTES:
        return None
    return 1 - added.difference(later).size_bytes / added.size_bytes
