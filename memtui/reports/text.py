"""The numbers of a report as lines of text."""

from __future__ import annotations

from typing import Any

from memtui.analysis.overhead_budget import seconds
from memtui.analysis.released_memory import NOTABLE_GIVEN_BACK
from memtui.analysis.resident import RSS, SEVERAL_TIMES, SUM_OF_RSS
from memtui.analysis.tensor_pages import tensor_name
from memtui.core.options import tracker_label
from memtui.core.samples import End, Status
from memtui.core.text import visible
from memtui.core.units import between, duration, energy, percent, size
from memtui.core.units import power as watts
from memtui.reports.allocation_summary import allocation_words, most_words
from memtui.reports.import_summary import origin_words
from memtui.reports.training_summary import learning_words, training_words

SECOND_NS = 1e9
MOST_PROCESSES = 20  # in a report for people
MOST_GROUPS = 4  # likewise, of windows by their length
MOST_TENSORS = 4  # likewise, and of layers
LONG_GAP = 0.05  # of what was seen: an end that is in no window, and is told


def format_report(report: dict[str, Any]) -> str:
    """Return the report as a page of text."""
    lines = _recorded_words(report) if report["imported"] is None else _imported_words(report)
    lines += training_words(report["training"])
    lines += learning_words(report["learning"])
    what = "training step" if report["imported"] is None else "stretch"
    lines += allocation_words(report["allocations"], what)
    for device, found in report["device_allocations"].items():
        lines += [f"{device:<12} {line[13:]}" for line in allocation_words(found, what)]
    lines += category_words(report["by_category"])
    for power in report["power"]:
        shown = f"mean {watts(power['mean_w'])}" if power["mean_w"] is not None else f"n/a: {power['reason']}"
        joules = f", {energy(power['energy_j'])}" if power["energy_j"] is not None else ""
        count = power["processes"]
        shared = f", {count} process{'es' * (count != 1)}" if count is not None else ""
        since = f" ({power['reason']})" if power["reason"] and power["mean_w"] is not None else ""
        lines.append(f"power        {power['device']} {power['scope']}{shared}: {shown}{joules}{since}")
    listed = _largest(report["processes"])
    for process in listed:
        shared_words = _of_it_shared(process) if len(report["processes"]) > 1 else ""
        lines.append(
            f"process      {process['pid']} {process['role']}: working set {size(process['wss_bytes'])}{shared_words}, "
            f"{_resident_words_of(process)}, {_gpu_words(process)}  {_one_line(process['command'])}"
        )
    if more := len(report["processes"]) - len(listed):
        lines.append(f"process      and {more} more, all smaller (--json has them)")
    if report["imported"] is None:  # else they were told with it
        lines += [f"{mark['kind']:<12} at {mark['t_s']:.1f} s: {mark['text']}" for mark in report["marks"]]
    lines += [f"gap          at {gap['t_s']:.1f} s: {gap['text']}" for gap in report["gaps"]["events"]]
    if report["gaps"]["end_s"] > LONG_GAP * max(report["duration_s"], 1):
        lines.append(f"gap          the last {duration(report['gaps']['end_s'])} are in no window, as it had not ended")
    if report["gaps"]["processes"]:
        lines.append(f"gap          {report['gaps']['processes']} processes began or ended inside a window")
    lines += [f"warning      {text}" for text in report["warnings"]]
    lines += [f"disturbed    {count} windows: {cause}" for cause, count in report["disturbed"]["causes"].items()]
    if report["thinned"]:
        room = size(report["thinned"]["to_bytes"])
        lines.append(
            f"thinned      page sets had to make room to keep the file below {room} (--max-size), the oldest first"
        )
    if report["lost"]:
        lines.append(f"lost         {report['lost']} windows without a working set")
    return "\n".join(map(visible, lines))


def _imported_words(report: dict[str, Any]) -> list[str]:
    """Of a file of another tool nothing is known but allocations."""
    return [f"session      {report['session']}", *origin_words(report["imported"])]


def _recorded_words(report: dict[str, Any]) -> list[str]:
    """Return what was recorded of a process."""
    target, wss = report["target"], report["wss_bytes"]
    overhead, reuse = report["overhead"], report["reuse"]
    lines = [
        f"target       {_one_line(target['command'])} (pid {target['pid']}) on {report['host']['hostname']}",
        f"session      {report['session']}, {report['samples']} samples in {duration(report['duration_s'])}, "
        f"{how_it_ended(report)}",
        f"tracker      {tracker_label(report['tracker'])}, flush {report['flush']}, filter {report['filter']}, "
        f"asked {between(*map(duration, report['intervals_s']))}, {budgeted(report)}"
        f"true {duration(report['true_interval_s'])}",
        f"working set  {_sizes(wss)}{_largest_words(report)}",
        *(f"windows      {words}" for words in windows_words(report)),
        *_shared_words(report),
        *_resident_words(report),
        *_given_back_words(report),
    ]
    if reuse["median_bytes"] is not None:
        median, p95 = reuse["median_bytes"], reuse["p95_bytes"]
        lines += [
            f"reuse        half of all returning touches within {size(median['lower'])} - {size(median['upper'])}, "
            f"95 % within {size(p95['lower'])} - {size(p95['upper'])}; {reuse['first_touches']} first touches",
        ]
    else:
        lines.append(f"reuse        n/a: {reuse['reason']}")
    lines.append(
        f"overhead     {slowed(overhead)}paused {percent(overhead['paused_fraction'])}, "
        f"own CPU {percent(overhead['self_cpu_fraction'])}"
        + (f"; {budget_words(overhead['budget'])}" if overhead["budget"] else "")
    )
    return lines


def category_words(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    if found["reason"]:
        return [f"by tensor    n/a: {found['reason']}"]
    parts = [
        f"{p['category']} {size(p['touched_bytes'])} of {size(p['exists_bytes'])}{most_words(p.get('most'))}"
        for p in found["parts"]
    ]
    return [
        f"by tensor    touched in a window, of what there is: {', '.join(parts)}, the rest (activations, temporaries, "
        f"libraries, interpreter) {size(found['rest_bytes'])}; mean of {found['windows']} windows",
        *_tensor_words(found),
    ]


def _tensor_words(found: dict[str, Any]) -> list[str]:
    """Which layers and which tensors it is, and what the rest lies in."""

    def listed(head: str, parts: list[dict[str, Any]], whole: str) -> list[str]:
        words = [f"{_tensor(p)} {size(p['touched_bytes'])} of {size(p[whole])}" for p in parts[:MOST_TENSORS]]
        return [f"{head:<12} {', '.join(words)}"] if words else []

    rest = ", ".join(f"{part['part']} {size(part['touched_bytes'])}" for part in found["rest"] if part["touched_bytes"])
    return [
        *listed("by layer", [part for part in found["layers"] if part["layer"]], "exists_bytes"),
        *listed("hot tensors", found["hottest"], "size_bytes"),
        *listed("cold tensors", found["coldest"], "size_bytes"),
        *([f"the rest     {rest}"] if rest else []),
    ]


def _tensor(part: dict[str, Any]) -> str:
    """Return a tensor by its layer and kind, a layer by its name."""
    return f"{tensor_name(part['layer'], part.get('part', ''))} {part.get('category', '')}".strip()


def budget_words(budget: dict[str, Any]) -> str:
    """One clause about a budget and what became of it."""
    allowed = f"the budget of {budget['max_fraction'] * 100:g} %"
    if budget["fraction"] is None:
        return f"{allowed}: n/a with fewer than two samples"
    found = f"costs {budget['fraction'] * 100:.2f} %"
    if budget["met"]:
        return f"{found}, within {allowed}"
    return f"{found}, over {allowed}: an interval of {seconds(budget['needed_interval_s'] * SECOND_NS)} would meet it"


def slowed(overhead: dict[str, Any]) -> str:
    """How much of its time the target lost, with a comma behind it; nothing where that is not known."""
    lost = overhead["lost_fraction"]
    return "" if lost is None else f"slowed it by about {percent(lost)}, "


def budgeted(report: dict[str, Any]) -> str:
    """Return what a budget made of the interval, with a comma behind it; nothing without one."""
    return f"budgeted {between(*map(duration, report['budgeted_s']))}, " if report["budgeted_s"] else ""


def windows_words(report: dict[str, Any]) -> list[str]:
    """Over which windows the figures of the working set are, where not all are alike."""
    if len(report["windows"]) < 2:
        return []
    told = [
        f"{group['windows']} of {duration(group['true_interval_s'])} ({percent(group['time_fraction'])} of "
        f"the time, median {size(group['wss_median_bytes'])})"
        for group in report["windows"]
    ]
    more = f" and {len(told) - MOST_GROUPS} more lengths" if len(told) > MOST_GROUPS else ""
    others = ", ".join(told[1:MOST_GROUPS])
    return [f"figures of the working set are over the {told[0]}; windows of other lengths: {others}{more}"]


def _shared_words(report: dict[str, Any]) -> list[str]:
    """Return what the processes of a tree have in common."""
    shared = report["shared_bytes"]
    if len(report["processes"]) < 2 or report["wss_bytes"]["mean"] is None:
        return []
    if shared["mean"] is None:
        return [f"shared       n/a: {shared['reason']}"]
    return [f"shared       {_sizes(shared)} of the working set, counted once"]


def _given_back_words(report: dict[str, Any]) -> list[str]:
    """Where it may be a notable part of what is touched."""
    found, wss = report["given_back_bytes"], report["wss_bytes"]["mean"]
    if found["mean"] is None or wss is None or found["mean"] < NOTABLE_GIVEN_BACK * wss:
        return []
    return [
        f"given back   up to {size(found['mean'])} in a window (mean; {size(found['max'])} in one), "
        f"{size(found['per_s'])}/s: pages that were touched and given back in one window are not in its working set"
    ]


def _largest_words(report: dict[str, Any]) -> str:
    """Where a window of another length touched more than all those that the figures are of."""
    most, largest = report["wss_bytes"]["max"], report["wss_largest"]
    if most is None or largest["bytes"] <= most:
        return ""
    return f"; {size(largest['bytes'])} in one of {duration(largest['window_s'])}"


def _resident_words(report: dict[str, Any]) -> list[str]:
    rss, pss = report["rss_bytes"], report["pss_bytes"]
    if report["touched_fraction"]["of"] == RSS:
        return [f"resident     {_sizes(rss)}"]
    words = f"{_sizes(rss)}; {SEVERAL_TIMES}"
    if pss["mean"] is None:
        return [f"resident     {SUM_OF_RSS}: {words} (PSS n/a: {pss['reason']})"]
    return [f"resident     PSS: {_sizes(pss)}", f"{SUM_OF_RSS:<12} {words}"]


def _resident_words_of(process: dict[str, Any]) -> str:
    pss = process["pss_bytes"]
    return f"resident {size(process['rss_bytes'])}" + ("" if pss is None else f" (PSS {size(pss)})")


def _of_it_shared(process: dict[str, Any]) -> str:
    shared = process["shared_bytes"]
    return "" if shared is None else f" ({size(shared)} shared)"


def how_it_ended(report: dict[str, Any]) -> str:
    """In words, from ``end`` and ``end_reason``."""
    kind, reason = report["end"], report["end_reason"]
    if kind == "recording":
        return "still recording"
    if kind == "target exited":
        return f"ended: {End(0, kind, reason).words}"
    return f"ended: {kind}" + (f" ({reason})" if reason else "")


def _largest(processes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many as a page of text has room for, in their order: the target, and those with the largest memory."""
    by_size = sorted(processes, key=lambda p: (p["role"].startswith("target"), p["rss_bytes"] or 0), reverse=True)
    kept = {id(process) for process in by_size[:MOST_PROCESSES]}
    return [process for process in processes if id(process) in kept]


def _gpu_words(process: dict[str, Any]) -> str:
    mean, most, why = (process[name] for name in ("gpu_bytes", "gpu_max_bytes", "gpu_reason"))
    if mean is None:
        return f"GPU n/a: {why}"
    return f"GPU {size(mean)}, max {size(most)}" + (f" (not always known: {why})" if why else "")


def _one_line(command: str) -> str:
    """Return a foreign command line, cut short."""
    return visible(command if len(command) <= 80 else command[:79] + "…")


def _sizes(summary: dict[str, Any]) -> str:
    if summary["mean"] is None:
        return f"n/a: {summary['reason']}"
    about = f" (approximate: {summary['reason']})" if summary["status"] == Status.APPROXIMATE else ""
    return f"mean {size(summary['mean'])}, median {size(summary['median'])}, max {size(summary['max'])}{about}"
