"""The conclusions of ``fast-memory`` from its numbers, in sentences; each can come out either way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

from memtui.analysis.statistics import MedianInterval
from memtui.core.units import between, size
from memtui.study.runs.messages import MemoryResult
from memtui.study.studies.fast_memory.numbers import FastMemoryNumbers, LimitPoint, ProgramNumbers
from memtui.study.studies.fast_memory.runs import LEAST_STEPS

NEAR = 0.1  # of a bound: steps are seen every 20 ms and windows have edges, so no count is exact to the access
FEW = 0.005  # of the accessed pages; fewer misses are called none
READS_AHEAD = 1.3  # pages a fault from which on readahead is reported
GIVEN_ANEW = 0.02  # of the accessed pages: minor faults without a limit from which on they are reported


def factor(value: float | None, bounds: Sequence[float] | None) -> float | None:
    """Return a value over the nearer of two bounds; 1 between them; None where it is unknown or a bound is 0."""
    if value is None or bounds is None:
        return None
    low, high = bounds
    if value > high:
        return value / high if high > 0 else None
    return value / low if value < low else 1.0


def verdict(point: LimitPoint, touches: float | None) -> str:
    """Return ``none``: neither predicted nor counted; ``within``: the ranges meet; ``more`` or ``fewer`` misses.

    Return "" where that is unknown. Ranges meet when they come within ``NEAR``.
    """
    if point.predicted is None or point.counted is None:
        return ""
    (low, high), (least, most) = point.predicted, point.counted
    few = FEW * (touches or 0.0)
    if low <= few and most <= few:
        return "none"
    if least > high * (1 + NEAR):
        return "more"
    return "fewer" if most < low * (1 - NEAR) else "within"


def conclude(numbers: FastMemoryNumbers) -> list[str]:
    """Return sentences on each program at each limit, then on all of them, then on the reasons."""
    sentences: list[str] = []
    verdicts = {
        (name, index): verdict(point, program.touches_per_step)
        for name, program in numbers.programs.items()
        for index, point in enumerate(program.points)
        if point.share
    }
    for (name, index), word in verdicts.items():
        sentences.append(_of_point(name, numbers.programs[name].points[index], word, numbers))
    decided = {where: word for where, word in verdicts.items() if word}
    if not decided:
        return [*sentences, "Whether the curve says what a memory misses is not known here."]
    off = {where: word for where, word in decided.items() if word in ("more", "fewer")}
    within = len(decided) - len(off)
    text = f"At {within} of {len(decided)} limits the misses that were seen lie within the bounds of the curve"
    if off:
        worst = max(_apart(numbers.programs[name].points[index], word) for (name, index), word in off.items())
        text += f"; at the worst one they are a factor of {worst:.1f} outside"
    sentences.append(text + ".")
    sentences += _of_faults(numbers, list(decided)) + _of_time(numbers)
    return sentences + _of_truth(numbers) + _why(numbers, off)


def _apart(point: LimitPoint, word: str) -> float:
    """Return by what factor the counted range lies outside the predicted one; at least 1."""
    assert point.predicted is not None
    assert point.counted is not None
    (low, high), (least, most) = point.predicted, point.counted
    if word == "more":
        return least / high if high > 0 else float("inf")
    return low / most if most > 0 else float("inf")


def _of_point(name: str, point: LimitPoint, word: str, numbers: FastMemoryNumbers) -> str:
    who = f"{name}, limit at {point.share:.0%} of its working set"
    if not point.runs:
        return (
            f"{who}: fewer than {LEAST_STEPS} steps were made under it after it settled, so nothing can be said; "
            "longer runs (no --quick, or more --seconds) have more."
        )
    who += f" ({size(point.limit_bytes)}, room for {size(point.room_bytes)} of its pages)"
    swapped = point.swapped_in
    pages = f", and {swapped.median:.0f} pages came from swap" if swapped is not None else ""
    happened = f"there were {_number(point.major_faults)} major faults a step{pages}"
    if not word or point.predicted is None:
        return f"{who}: {happened}; what to expect is not known, because the recording has no window of training."
    (low, high), (low_merged, high_merged) = point.predicted, point.predicted_merged or point.predicted
    expected = (
        f"windows of {numbers.interval_s:g} s predict {low:.0f} to {high:.0f} misses a step (of "
        f"{numbers.merged_interval_s:g} s {low_merged:.0f} to {high_merged:.0f})"
    )
    verdict_text = {
        "none": "neither is notable",
        "within": "that is within the bounds",
        "more": f"that is more than the upper bound, by a factor of {_apart(point, 'more'):.1f}",
        "fewer": f"that is less than the lower bound, by a factor of {_apart(point, 'fewer'):.1f}",
    }[word]
    return f"{who}: {expected}; {happened}: {verdict_text}."


def _of_faults(numbers: FastMemoryNumbers, points: Sequence[tuple[str, int]]) -> list[str]:
    """Return a sentence on major faults alone, which are the faults that a step waits for."""
    factors = [
        (name, point.share, point.faults_factor)
        for name, index in points
        for point in [numbers.programs[name].points[index]]
        if point.faults_factor is not None
    ]
    if not factors:
        return []
    name, share, worst = max(factors, key=lambda each: abs(log(max(each[2].median, 1e-9))))
    if worst.median == 1.0:
        return ["Major faults alone lie within the bounds at each of these limits, too."]
    interval = (
        f"no interval: {worst.count} repeat{'s' * (worst.count != 1)}, and 95 % needs 6"
        if worst.low is None
        else f"95 % interval {worst.low:.2f} to {worst.high:.2f}"
    )
    return [
        f"Major faults alone are farthest from the bounds for {name} at {share:.0%}: {worst.median:.2f} of "
        f"the nearer one ({interval})."
    ]


def _of_time(numbers: FastMemoryNumbers) -> list[str]:
    """Return a sentence on the cost of the smallest memory for each program."""
    factors = []
    for name, program in numbers.programs.items():
        times = {p.share: p.step_s.median for p in program.points if p.step_s is not None}
        free, least = times.pop(0.0, None), min(times, default=None)
        if free and least is not None:
            factors.append(f"{name} at {least:.0%}: {times[least] / free:.1f}")
    if not factors:
        return []
    return [f"The time of a step, over that without a limit: {', '.join(factors)}."]


def _of_truth(numbers: FastMemoryNumbers) -> list[str]:
    """Return a sentence on whether the curve is right where the order of accesses is known."""
    factors = [
        point.exact_factor.median
        for program in numbers.programs.values()
        for point in program.points
        if program.known_order and point.share and point.exact_factor is not None
    ]
    if not factors:
        return []
    right = sum(1 - NEAR <= value <= 1 + NEAR for value in factors)
    text = f"Where the order of touches is known, an exact LRU memory misses within the bounds at {right} of "
    text += f"{len(factors)} limits"
    if right == len(factors):
        return [f"{text}: the curve is right, and what the kernel differs by is the kernel's."]
    outside = max(max(value, 1 / value) if value else float("inf") for value in factors)
    return [f"{text}, and at the worst one a factor of {outside:.2f} outside: the curve itself is off by that."]


def _why(numbers: FastMemoryNumbers, off: Mapping[tuple[str, int], str]) -> list[str]:
    """Return sentences on why the kernel differs from an LRU memory, as far as the numbers show it."""
    sentences = []
    ratios: list[float] = []
    for name, program in numbers.programs.items():
        off_verdicts = {word for (of, _), word in off.items() if of == name}
        for point in program.points:
            faults, pages = point.major_faults, point.swapped_in
            if point.share and faults and pages and faults.median > FEW * (program.touches_per_step or 0.0):
                ratios.append(pages.median / max(faults.median, 1e-9))
        windows = program.steps_per_window
        if windows is not None and windows > 1 and "more" in off_verdicts:
            sentences.append(
                f"{name}: a window of {numbers.interval_s:g} s holds {windows:.1f} steps, and a page that is "
                "touched in each of them counts once: the curve misses those misses."
            )
        if (new := _given_anew(program)) is not None:
            sentences.append(
                f"{name}: without a limit {new:.0f} minor faults a step show pages that are given back and asked for "
                "again. To the curve they return; the kernel gives empty ones, and reads nothing: it predicts too much."
            )
    if len(ratios) and max(ratios) >= READS_AHEAD:
        cluster = numbers.page_cluster
        up_to = "" if cluster is None else f" (page-cluster {cluster}: up to {1 << cluster})"
        sentences.append(
            f"A major fault brought in {min(ratios):.1f} to {max(ratios):.1f} pages, the wanted one and neighbours"
            f"{up_to}: readahead makes faults fewer than misses where these are wanted next, and takes room where not."
        )
    if off:
        sentences.append(
            "The kernel is no LRU memory: it looks at accessed bits now and then instead of at every touch, keeps "
            "lists of pages that were used lately and before, and frees them in batches ahead of need."
        )
    else:
        sentences.append(
            "The kernel is no LRU memory, which sees every touch, but that makes no difference that these bounds show."
        )
    return sentences


def _given_anew(program: ProgramNumbers) -> float | None:
    """Return the minor faults of a step without a limit, where they are a notable part of the accesses."""
    free = next((point for point in program.points if not point.share), None)
    touches = program.touches_per_step
    if free is None or free.minor_faults is None or not touches:
        return None
    faults = float(free.minor_faults.median)
    return faults if faults > GIVEN_ANEW * touches else None


def doubts_of(numbers: FastMemoryNumbers, limits: Sequence[MemoryResult]) -> list[str]:
    """Return conditions and weaknesses of the limits, from the reports of the workers."""
    limited = [limit for limit in limits if limit.limit_bytes is not None]
    sentences = []
    if limited:
        versions = " and ".join(map(str, numbers.cgroup_version))
        cluster = "not known" if numbers.page_cluster is None else numbers.page_cluster
        sizes = sorted({limit.swap_bytes for limit in limited})
        sentences.append(
            f"memory cgroup version {versions}; page-cluster {cluster}; swap is {'; '.join(numbers.swap)} "
            f"({between(size(sizes[0]), size(sizes[-1]))}): times are those of this swap, and say nothing of another "
            "fast and slow memory"
        )
    if any(not limit.swapped_in_is_its_own for limit in limited):
        sentences.append(
            "this kernel counts pages from swap for the whole machine only (/proc/vmstat): others' are among them"
        )
    if any("through the page cache" in limit.swap for limit in limited):
        sentences.append("the swap file is read through the page cache, which may hold pages that count as swapped out")
    unfinished = sum(limit.reached_ns is None for limit in limited)
    if unfinished:
        sentences.append(f"{unfinished} runs ended before their limit was reached")
    return sentences


def _number(interval: MedianInterval | None) -> str:
    return "n/a" if interval is None else f"{interval.median:.0f}"
