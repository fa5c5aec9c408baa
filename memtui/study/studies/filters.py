"""``filters``: what a trace loses, and what its recording saves, when kinds of address ranges are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memtui.analysis.reuse_cdf import Cdf, apart, cdf, shift
from memtui.analysis.statistics import median, ratio_of_pairs
from memtui.analysis.window_merging import reuse_of
from memtui.core.units import duration, percent
from memtui.reports.charts.model import Findings, Table
from memtui.study.charts import reuse_lines
from memtui.study.plan import Run
from memtui.study.studies.base import (
    Observed,
    Setting,
    by_group,
    interval_words,
    mean,
    needs_pages,
    of_threads,
    plain_interval,
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
MOST_SHIFT = 0.05  # part of itself by which a quantile of the reuse distances may move


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
        found = []
        for repeat in range(2 if setting.quick else REPEATS):
            runs = []
            for threads in thread_counts(setting):
                fields = training(setting, setting.seed + repeat, threads=threads, quick_s=8.0)
                # A quick study compares all terms with none, and computes each by itself.
                for chosen in (NONE, ALL) if setting.quick else FILTERS:
                    runs.append(
                        Run(group(chosen, threads), **fields, repeat=repeat, interval_s=INTERVAL_S, filter=chosen)
                    )
            found.append(runs)
        return found

    def find(self, setting: Setting, observed: Sequence[Observed]) -> Findings:
        groups = by_group(observed)
        numbers: dict[str, Any] = {"interval_s": INTERVAL_S, "threads": {}}
        charts, lost_rows, cost_rows, doubts = [], [], [], []
        for threads in thread_counts(setting):
            lost, curves, said = _lost(groups[group(NONE, threads)])
            saved = {
                chosen: _saved(groups[group(NONE, threads)], groups[group(chosen, threads)])
                for chosen in FILTERS[1:]
                if group(chosen, threads) in groups
            }
            numbers["threads"][str(threads)] = {"lost": lost, "saved": saved}
            lost_rows += [_lost_row(threads, chosen, found) for chosen, found in lost.items()]
            cost_rows += [_cost_row(threads, chosen, found) for chosen, found in saved.items()]
            doubts += [f"{of_threads(threads)}: {text}" for text in said]
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
        return Findings(numbers, conclude(numbers), charts, tables, doubts)


def group(chosen: str, threads: int) -> str:
    return f"{chosen}, {of_threads(threads)}"


def holds(wss_share: float | None, moved: float | None) -> bool | None:
    """Whether a filter may be used; None where that is not known."""
    if wss_share is None or moved is None:
        return None
    return wss_share <= MOST_WSS and moved <= MOST_SHIFT


def conclude(numbers: Mapping[str, Any]) -> list[str]:
    """Return the verdict: whether "probably okay" holds, on one thread and on all."""
    verdicts: dict[str, bool | None] = {}
    found = []
    for threads, both in numbers["threads"].items():
        lost = both["lost"][ALL]
        verdicts[threads] = lost["holds"]
        who = f"With {of_threads(int(threads))}"
        if lost["holds"] is None:
            found.append(f"{who}, no page came back, or none was seen: nothing can be said.")
            continue
        found.append(
            f"{who}, all filters together leave out {percent(lost['wss_share'])} of the WSS and move the reuse "
            f"distances by at most {percent(lost['points_moved'])} of themselves: "
            + ("that holds." if lost["holds"] else f"more than {MOST_WSS:.0%} and {MOST_SHIFT:.0%} allow.")
        )
        worst = max(TERMS, key=lambda term: both["lost"][term]["wss_share"] or 0.0)
        found.append(
            f"{who}, most of it is left out by {worst}: {percent(both['lost'][worst]['wss_share'])} of the WSS."
        )
        if (saved := both["saved"].get(ALL)) is not None:
            found.append(f"{who}, {_of_saved(saved)}")
    known = [verdict for verdict in verdicts.values() if verdict is not None]
    if len(known) < len(verdicts) or not known:
        found.append('Whether "probably okay" holds is not known here.')
    elif all(known):
        more = "on one thread and on all" if len(known) > 1 else "on one thread; this machine was asked for no more"
        found.append(f'"Probably okay" holds, {more}.')
    elif any(known):
        which = ", ".join(of_threads(int(threads)) for threads, verdict in verdicts.items() if verdict)
        found.append(f'"Probably okay" holds with {which} and with no other number of threads that was tried.')
    else:
        found.append('"Probably okay" does not hold here.')
    return found


def _of_saved(saved: Mapping[str, Any]) -> str:
    pause = saved["pause_ratio"]
    if pause is None:
        return "what they save is not known: no pause was measured."
    words = f"a window's pause with them is {percent(pause['median'])} of that without"
    if pause["low"] is None:
        return f"{words}; too few pairs ({pause['count']}) to say whether that is more than chance."
    if pause["low"] <= 1 <= pause["high"]:
        return f"{words}: nothing that can be told from chance is saved."
    return f"{words}: {'time is saved' if pause['median'] < 1 else 'they cost time'}."


def _lost(runs: Sequence[Observed]) -> tuple[dict[str, dict[str, Any]], dict[str, Cdf], list[str]]:
    """By filter, medians over runs; curves of the first run without and with all; doubts."""
    found: dict[str, list[dict[str, Any]]] = {chosen: [] for chosen in FILTERS[1:]}
    curves: dict[str, Cdf] = {}
    doubts: list[str] = []
    for one in runs:
        trace = one.trace()
        needs_pages(trace)
        doubts += trace.doubts()
        whole = [pages for pages in trace.training_pages() if pages is not None]
        reuse = reuse_of(whole)
        touched = sum(pages.size_bytes for pages in whole)
        counted = sum(pages.touch_count for pages in whole)
        for chosen in FILTERS[1:]:
            kept = [pages for pages in trace.filtered(chosen) if pages is not None]
            of_kept = reuse_of(kept)
            found[chosen].append(
                {
                    "pages_a_window": (counted - sum(pages.touch_count for pages in kept)) / len(whole)
                    if whole
                    else None,
                    "page_share": 1 - sum(pages.touch_count for pages in kept) / counted if counted else None,
                    "wss_share": 1 - sum(pages.size_bytes for pages in kept) / touched if touched else None,
                    "curves_apart": apart(reuse, of_kept),
                    "points_moved": shift(reuse, of_kept),
                }
            )
            if chosen == ALL and not curves:
                pair = {"none left out": cdf(reuse), "all filters": cdf(of_kept)}
                curves = {name: curve for name, curve in pair.items() if curve is not None}
        trace.close()
    medians = {}
    for chosen, each in found.items():
        values: dict[str, Any] = {name: median([one[name] for one in each]) for name in each[0]}
        medians[chosen] = values | {"holds": holds(values["wss_share"], values["points_moved"]), "runs": len(each)}
    return medians, curves, doubts


def _saved(without: Sequence[Observed], with_it: Sequence[Observed]) -> dict[str, Any]:
    """Pause of a window and own CPU time, recording with a filter over recording without, in pairs of repeats."""
    pauses, shares = ([_costs(one) for one in runs] for runs in (without, with_it))
    ratios = [ratio_of_pairs([after[at] for after in shares], [before[at] for before in pauses]) for at in (0, 1)]
    return {
        "pause_ratio": plain_interval(ratios[0]),
        "cpu_ratio": plain_interval(ratios[1]),
        "pause_words": interval_words(ratios[0]),
        "cpu_words": interval_words(ratios[1]),
        "pause_without_s": median([before[0] for before in pauses]),
    }


def _costs(one: Observed) -> tuple[float | None, float | None]:
    """(mean pause of a window in s, share of a CPU that sampler and recorder took)."""
    trace = one.trace()
    try:
        return mean(trace.paused_s()), trace.own_cpu_share()
    finally:
        trace.close()


def _lost_row(threads: int, chosen: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    apart_, pages = found["curves_apart"], found["pages_a_window"]
    return (
        of_threads(threads),
        chosen,
        "n/a" if pages is None else f"{pages:.0f}",
        percent(found["page_share"]),
        percent(found["wss_share"]),
        "n/a" if apart_ is None else f"{apart_:.3f}",
        percent(found["points_moved"]),
        {True: "yes", False: "no", None: "not known"}[found["holds"]],
    )


def _cost_row(threads: int, chosen: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    return of_threads(threads), chosen, found["pause_words"], found["cpu_words"], duration(found["pause_without_s"])
