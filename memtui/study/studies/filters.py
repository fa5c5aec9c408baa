"""``filters``: the losses of a trace, and the savings of its recording, when kinds of address ranges are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memtui.analysis.reuse_cdf import Cdf, apart, cdf, shift
from memtui.analysis.statistics import MedianInterval, median, ratio_of_pairs
from memtui.analysis.window_merging import reuse_of
from memtui.core.json_fields import to_json
from memtui.core.page_set import PageSet
from memtui.core.units import duration, percent
from memtui.reports.charts.model import Findings, Table
from memtui.study.charts import reuse_lines
from memtui.study.plan import Run
from memtui.study.studies.base import (
    FinishedRun,
    Setting,
    by_group,
    interval_text,
    mean,
    of_threads,
    require_pages,
    thread_counts,
    training,
)

NONE = "none"
TERMS = ("exec", "noaccess", "pages<4")
ALL = ",".join(TERMS)
FILTERS = (NONE, *TERMS, ALL)
INTERVAL_S = 0.2
REPEATS = 6
MOST_WSS = 0.02  # share of the working set that may be left out
MOST_SHIFT = 0.05  # relative change that a quantile of the reuse distances may have


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of a filter; None where a number is unknown.

    Attributes:
        pages_a_window: number of pages a window that are left out.
        page_share: share of the accessed pages that is left out.
        wss_share: share of the working set that is left out.
        curves_apart: largest distance of the reuse curves with and without the filter.
        points_moved: largest relative change of a quantile of the reuse distances.
        runs: number of runs, of which these are medians.
    """

    pages_a_window: float | None = None
    page_share: float | None = None
    wss_share: float | None = None
    curves_apart: float | None = None
    points_moved: float | None = None
    runs: int = 1

    @property
    def holds(self) -> bool | None:
        """Whether the filter may be used; None where that is unknown."""
        if self.wss_share is None or self.points_moved is None:
            return None
        return self.wss_share <= MOST_WSS and self.points_moved <= MOST_SHIFT

    def to_dict(self) -> dict[str, Any]:
        return {
            "pages_a_window": self.pages_a_window,
            "page_share": self.page_share,
            "wss_share": self.wss_share,
            "curves_apart": self.curves_apart,
            "points_moved": self.points_moved,
            "holds": self.holds,
            "runs": self.runs,
        }


@dataclass(frozen=True, slots=True)
class Savings:
    """The savings of recording with a filter, in pairs of repeats.

    Attributes:
        pause_ratio: pause of a window with the filter over that without.
        cpu_ratio: CPU time of sampler and recorder with the filter over that without.
        pause_without_s: pause of a window without the filter.
    """

    pause_ratio: MedianInterval | None
    cpu_ratio: MedianInterval | None = None
    pause_without_s: float | None = None

    @property
    def pause_text(self) -> str:
        return interval_text(self.pause_ratio)

    @property
    def cpu_text(self) -> str:
        return interval_text(self.cpu_ratio)

    def to_dict(self) -> dict[str, Any]:
        return {
            "pause_ratio": to_json(self.pause_ratio),
            "cpu_ratio": to_json(self.cpu_ratio),
            "pause_words": self.pause_text,
            "cpu_words": self.cpu_text,
            "pause_without_s": self.pause_without_s,
        }


@dataclass(frozen=True, slots=True)
class FilterNumbers:
    """Losses and savings of each filter, with one number of threads."""

    lost: Mapping[str, Losses]
    saved: Mapping[str, Savings]


class Filters:
    name = "filters"
    title = "May executable, inaccessible and tiny ranges be left out of a trace?"
    original = (
        "MemSnoop's published notebook left out ranges that are executable, neither readable nor writable, or "
        'smaller than 4 pages, on a single thread, and concluded: "It\'s probably okay to do this." It gave no '
        "figure, and left several threads open.",
    )
    method = (
        "What a filter leaves out is computed from one recording without any filter, so that with and without are "
        "the same run: the share of the WSS, the largest distance of the reuse curves (Kolmogorov, Smirnov; of "
        "returning touches), and by how much the quarter, half, three-quarter and 95 % points of the distances "
        f"move. A filter holds when it takes at most {MOST_WSS:.0%} of the WSS and moves no such point by more than "
        f"{MOST_SHIFT:.0%}, on one thread and on all.",
        "What it saves is measured: recordings with each filter take turns with recordings without; compared are the "
        "pause of a window and the CPU time of sampler and recorder.",
    )

    def runs(self, setting: Setting) -> list[list[Run]]:
        by_repeat = []
        for repeat in range(2 if setting.quick else REPEATS):
            runs = []
            for threads in thread_counts(setting):
                fields = training(setting, setting.seed + repeat, threads=threads, quick_s=8.0)
                # A quick study compares all terms with none, and computes each by itself.
                for chosen in (NONE, ALL) if setting.quick else FILTERS:
                    runs.append(
                        Run(group(chosen, threads), **fields, repeat=repeat, interval_s=INTERVAL_S, filter=chosen)
                    )
            by_repeat.append(runs)
        return by_repeat

    def find(self, setting: Setting, observed: Sequence[FinishedRun]) -> Findings:
        groups = by_group(observed)
        by_threads: dict[int, FilterNumbers] = {}
        charts, lost_rows, cost_rows, doubts = [], [], [], []
        for threads in thread_counts(setting):
            lost, curves, of_runs = _lost(groups[group(NONE, threads)])
            saved = {
                chosen: _saved(groups[group(NONE, threads)], groups[group(chosen, threads)])
                for chosen in FILTERS[1:]
                if group(chosen, threads) in groups
            }
            by_threads[threads] = FilterNumbers(lost, saved)
            lost_rows += [_lost_row(threads, chosen, numbers) for chosen, numbers in lost.items()]
            cost_rows += [_cost_row(threads, chosen, savings) for chosen, savings in saved.items()]
            doubts += [f"{of_threads(threads)}: {text}" for text in of_runs]
            if len(curves) == 2:
                title = (
                    f"Reuse distances with and without all filters, {of_threads(threads)}, windows of {INTERVAL_S:g} s"
                )
                charts.append(reuse_lines(f"reuse-{threads}-thread", title, curves))
        tables = [
            Table(
                f"What each filter leaves out, windows of {INTERVAL_S:g} s (median of the runs)",
                (
                    "",
                    "filter",
                    "pages a window",
                    "of the pages",
                    "of the WSS",
                    "curves apart",
                    "points move by",
                    "holds",
                ),
                lost_rows,
            ),
            Table(
                "What it saves: recording with it over recording without",
                ("", "filter", "pause", "own CPU time", "pause without"),
                cost_rows,
            ),
        ]
        numbers = {
            "interval_s": INTERVAL_S,
            "threads": {str(threads): to_json(each) for threads, each in by_threads.items()},
        }
        return Findings(numbers, conclude(by_threads), charts, tables, doubts)


def group(chosen: str, threads: int) -> str:
    return f"{chosen}, {of_threads(threads)}"


def conclude(by_threads: Mapping[int, FilterNumbers]) -> list[str]:
    """Return the verdict: whether "probably okay" holds, on one thread and on all threads."""
    verdicts: dict[int, bool | None] = {}
    sentences = []
    for threads, numbers in by_threads.items():
        lost = numbers.lost[ALL]
        verdicts[threads] = lost.holds
        who = f"With {of_threads(threads)}"
        if lost.holds is None:
            sentences.append(f"{who}, no page came back, or none was seen: nothing can be said.")
            continue
        sentences.append(
            f"{who}, all filters together leave out {percent(lost.wss_share)} of the WSS and move the reuse "
            f"distances by at most {percent(lost.points_moved)} of themselves: "
            + ("that holds." if lost.holds else f"more than {MOST_WSS:.0%} and {MOST_SHIFT:.0%} allow.")
        )
        worst = max(TERMS, key=lambda term: numbers.lost[term].wss_share or 0.0)
        sentences.append(
            f"{who}, most of it is left out by {worst}: {percent(numbers.lost[worst].wss_share)} of the WSS."
        )
        if (savings := numbers.saved.get(ALL)) is not None:
            sentences.append(f"{who}, {_of_savings(savings)}")
    return [*sentences, _verdict(verdicts)]


def _verdict(verdicts: Mapping[int, bool | None]) -> str:
    """Return the sentence about all numbers of threads."""
    decided = [verdict for verdict in verdicts.values() if verdict is not None]
    if len(decided) < len(verdicts) or not decided:
        return 'Whether "probably okay" holds is not known here.'
    if all(decided):
        more = "on one thread and on all" if len(decided) > 1 else "on one thread; this machine was asked for no more"
        return f'"Probably okay" holds, {more}.'
    if any(decided):
        threads = ", ".join(of_threads(threads) for threads, verdict in verdicts.items() if verdict)
        return f'"Probably okay" holds with {threads} and with no other number of threads that was tried.'
    return '"Probably okay" does not hold here.'


def _of_savings(savings: Savings) -> str:
    pause = savings.pause_ratio
    if pause is None:
        return "what they save is not known: no pause was measured."
    sentence = f"a window's pause with them is {percent(pause.median)} of that without"
    if pause.low is None or pause.high is None:
        return f"{sentence}; too few pairs ({pause.count}) to say whether that is more than chance."
    if pause.low <= 1 <= pause.high:
        return f"{sentence}: nothing that can be told from chance is saved."
    return f"{sentence}: {'time is saved' if pause.median < 1 else 'they cost time'}."


def _lost(runs: Sequence[FinishedRun]) -> tuple[dict[str, Losses], dict[str, Cdf], list[str]]:
    """Return medians over runs by filter; curves of the first run without and with all filters; doubts."""
    by_filter: dict[str, list[Losses]] = {chosen: [] for chosen in FILTERS[1:]}
    curves: dict[str, Cdf] = {}
    doubts: list[str] = []
    for item in runs:
        trace = item.trace()
        require_pages(trace)
        doubts += trace.doubts()
        whole = [pages for pages in trace.training_pages() if pages is not None]
        reuse = reuse_of(whole)
        for chosen in FILTERS[1:]:
            rest = [pages for pages in trace.filtered(chosen) if pages is not None]
            of_rest = reuse_of(rest)
            by_filter[chosen].append(_losses(whole, rest, apart(reuse, of_rest), shift(reuse, of_rest)))
            if chosen == ALL and not curves:
                pair = {"none left out": cdf(reuse), "all filters": cdf(of_rest)}
                curves = {name: curve for name, curve in pair.items() if curve is not None}
        trace.close()
    return {chosen: _medians(each) for chosen, each in by_filter.items()}, curves, doubts


def _losses(
    whole: Sequence[PageSet], rest: Sequence[PageSet], curves_apart: float | None, points_moved: float | None
) -> Losses:
    """Return the losses of a filter that leaves ``rest`` of the windows of a run."""
    touched = sum(pages.size_bytes for pages in whole)
    counted, of_rest = (sum(pages.touch_count for pages in windows) for windows in (whole, rest))
    return Losses(
        pages_a_window=(counted - of_rest) / len(whole) if whole else None,
        page_share=1 - of_rest / counted if counted else None,
        wss_share=1 - sum(pages.size_bytes for pages in rest) / touched if touched else None,
        curves_apart=curves_apart,
        points_moved=points_moved,
    )


def _medians(runs: Sequence[Losses]) -> Losses:
    return Losses(
        pages_a_window=median([each.pages_a_window for each in runs]),
        page_share=median([each.page_share for each in runs]),
        wss_share=median([each.wss_share for each in runs]),
        curves_apart=median([each.curves_apart for each in runs]),
        points_moved=median([each.points_moved for each in runs]),
        runs=len(runs),
    )


def _saved(without: Sequence[FinishedRun], with_it: Sequence[FinishedRun]) -> Savings:
    """Compare pause of a window and own CPU time: with a filter over without, in pairs of repeats."""
    before, after = ([_costs(item) for item in runs] for runs in (without, with_it))
    pauses, shares = (
        ratio_of_pairs([cost[which] for cost in after], [cost[which] for cost in before]) for which in (0, 1)
    )
    return Savings(pauses, shares, median([cost[0] for cost in before]))


def _costs(item: FinishedRun) -> tuple[float | None, float | None]:
    """Return (mean pause of a window in s, share of a CPU that sampler and recorder took)."""
    trace = item.trace()
    try:
        return mean(trace.paused_s()), trace.own_cpu_share()
    finally:
        trace.close()


def _lost_row(threads: int, chosen: str, lost: Losses) -> tuple[str, ...]:
    return (
        of_threads(threads),
        chosen,
        "n/a" if lost.pages_a_window is None else f"{lost.pages_a_window:.0f}",
        percent(lost.page_share),
        percent(lost.wss_share),
        "n/a" if lost.curves_apart is None else f"{lost.curves_apart:.3f}",
        percent(lost.points_moved),
        {True: "yes", False: "no", None: "not known"}[lost.holds],
    )


def _cost_row(threads: int, chosen: str, savings: Savings) -> tuple[str, ...]:
    return of_threads(threads), chosen, savings.pause_text, savings.cpu_text, duration(savings.pause_without_s)
