"""The numbers of a session, as plain data and as text."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from memtui.analysis.alike import Group, groups
from memtui.analysis.fast_numpy import intervals_s
from memtui.analysis.overhead_budget import allowed
from memtui.analysis.released_memory import given_back_bytes
from memtui.analysis.resident import MEANING, PSS, RSS, SUM_OF_RSS, Resident, resident, touched_fraction
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.statistics import summary
from memtui.analysis.target_loss import budget_cost, lost_fraction
from memtui.core.options import DEFAULT_OVERHEAD_PPM
from memtui.core.samples import MAIN_MEMORY, SAMPLED, SHARED_UNKNOWN, GpuMemory, PowerReading, Status
from memtui.reports.allocation_summary import allocations
from memtui.reports.import_summary import origin
from memtui.reports.redact import open_source
from memtui.reports.source import ReportSource, Source
from memtui.reports.tensor_summary import by_category
from memtui.reports.text import SECOND_NS, budget_words
from memtui.reports.training_summary import learning, training

MARKS = ("mark", "interval", "exec", "stopped")  # what happened, and is nothing wrong


def build_report(path: Path, *, redact: bool = False) -> dict[str, Any]:
    """Return the document of ``report --json``, on request without host, user, paths and addresses.

    Raises SessionError.
    """
    reader = open_source(path, redact=redact)
    try:
        return report_of(reader, reader.title)
    finally:
        reader.close()


def report_of(reader: ReportSource, title: str) -> dict[str, Any]:
    """Return the same of a session that is open, under a title of its own. Raises SessionError."""
    hello, samples = reader.hello, reader.samples
    lengths = (samples.end_ns - samples.start_ns) / SECOND_NS
    events = reader.events(0, 2**62)
    steps = reader.allocation_steps()
    own_steps = [step for step in steps if step.device == MAIN_MEMORY]  # those of GPUs are the same ones once more
    begin_ns, end_ns = _span(reader)
    rows = reader.process_samples(0, int(samples.sample[-1])) if len(samples) else []
    held = resident(samples, reader.processes())
    found = groups(samples.intervals_ns(), samples.end_ns - samples.start_ns, exact=not samples.has_budget)
    alike = found[0].windows if found else np.ones(0, bool)
    of_alike = set(samples.sample[alike].tolist())
    return {
        "memtui_version": hello.memtui_version,
        "session": title,
        "host": {"hostname": hello.host.hostname, "kernel": hello.host.kernel, "cpu_count": hello.host.cpu_count},
        "target": {"pid": hello.target.pid, "command": hello.target.command, "start": hello.target.start_ticks},
        "processes": _processes(reader, rows, of_alike),
        "tracker": hello.tracker,
        "flush": hello.flush,
        "rearm": hello.rearm,
        "filter": hello.options.filter,
        "rejected": [{"name": c.name, "reason": c.reason, "remedy": c.remedy} for c in hello.rejected],
        "interval_s": hello.options.interval_ns / SECOND_NS,
        "intervals_s": intervals_s(samples.asked_ns, hello.options.interval_ns),
        "true_interval_s": _median(lengths[alike]),
        "windows": _windows(found, samples.wss_bytes, lengths),
        "duration_s": (end_ns - begin_ns) / SECOND_NS,
        "samples": len(samples),
        "wss_bytes": _summary(samples.wss_bytes[alike], _wss_reason(reader)) | _approximate(reader),
        "wss_largest": _largest_window(samples.wss_bytes, lengths),
        "shared_bytes": _shared(reader, alike),
        "rss_bytes": _summary(samples.rss_bytes, "no sample was taken", lengths)
        | {"meaning": MEANING[RSS if held.name == RSS else SUM_OF_RSS]},
        "pss_bytes": _pss(held, rows, lengths),
        "touched_fraction": _touched_fraction(np.where(alike, samples.wss_bytes, np.nan), held),
        "given_back_bytes": _given_back(rows, of_alike),
        "reuse": _reuse(reader),
        "budgeted_s": intervals_s(samples.intervals_ns(), 0)
        if allowed(hello.options.max_overhead_ppm) and len(samples)
        else None,
        "overhead": _overhead(reader, rows, end_ns - begin_ns),
        "power": mean_power(reader.power(0, 2**62)),
        "training": training(reader, own_steps),
        "imported": origin(reader),
        "learning": learning(reader, own_steps),
        "allocations": allocations(reader, own_steps),
        "device_allocations": {
            device: allocations(reader, [step for step in steps if step.device == device])
            for device in sorted({step.device for step in steps} - {MAIN_MEMORY})
        },
        "by_category": by_category(reader),
        "gaps": {
            "processes": int(samples.gaps.sum()),
            "end_s": max(reader.end.t_ns - end_ns, 0) / SECOND_NS if reader.end and len(samples) else 0.0,
            # A window that the recorder was too slow to take leaves its number missing.
            "samples": int(samples.sample[-1]) + 1 - len(samples) if len(samples) else 0,
            "events": [{"t_s": (e.t_ns - begin_ns) / SECOND_NS, "text": e.text} for e in events if e.kind == "gap"],
        },
        "marks": [
            {"t_s": (e.t_ns - begin_ns) / SECOND_NS, "kind": e.kind, "text": e.text} for e in events if e.kind in MARKS
        ],
        "warnings": [e.text for e in events if e.kind == "warning"],
        "disturbed": {"samples": sum(map(bool, samples.disturbed)), "causes": Counter(filter(None, samples.disturbed))},
        "thinned": {"to_bytes": reader.thinned_to_bytes} if reader.thinned_to_bytes is not None else None,
        "lost": int(np.isnan(samples.wss_bytes).sum()) if hello.wss.ok else 0,
        "end_reason": reader.end.text if reader.end else "",
        "end": reader.end.kind if reader.end else ("recording" if reader.alive else "interrupted"),
    }


def budget_line(path: Path) -> str:
    """Say what became of the budget of a session, in a line; nothing where it has none, or the usual one.

    Raises:
        SessionError: the file cannot be read.
    """
    reader = Source(path)
    try:
        begin_ns, end_ns = _span(reader)
        budget = _overhead(reader, [], end_ns - begin_ns)["budget"]
        usual = reader.hello.options.max_overhead_ppm == DEFAULT_OVERHEAD_PPM
        return "" if budget is None or usual else budget_words(budget)
    finally:
        reader.close()


def untraced(path: Path) -> str:
    """Why a program that was to be traced told of no training step; empty where it did. Raises SessionError."""
    reader = Source(path)
    try:
        if reader.allocation_steps() or reader.training():
            return ""
    finally:
        reader.close()
    return (
        "no training step was recorded: no optimiser of torch.optim stepped (no PyTorch, or its loop updates weights "
        "itself), the program ended before its third step, or its Python takes no start-up hook (-I, -E, -S)"
    )


def _span(reader: ReportSource) -> tuple[int, int]:
    if not len(reader.samples):
        return reader.hello.clock.monotonic_ns, reader.hello.clock.monotonic_ns
    return int(reader.samples.start_ns[0]), int(reader.samples.end_ns[-1])


def _wss_reason(reader: ReportSource) -> str:
    wss = reader.hello.wss
    if not wss.ok:
        return f"{wss.reason} ({wss.remedy})" if wss.remedy else wss.reason
    return next((r for r in reader.samples.reason if r), "no window was complete")


def _approximate(reader: ReportSource) -> dict[str, Any]:
    """Return what to say of a working set some of which is not exact."""
    found = zip(reader.samples.status, reader.samples.reason, strict=True)
    reason = next((reason for status, reason in found if status == Status.APPROXIMATE), None)
    if reason is None and _shared_unknown(reader):
        reason = SHARED_UNKNOWN
    return {} if reason is None else {"status": Status.APPROXIMATE, "reason": reason}


def _shared_unknown(reader: ReportSource) -> bool:
    """Whether some working set counts for each process what several share."""
    return bool((np.isnan(reader.samples.shared_bytes) & ~np.isnan(reader.samples.wss_bytes)).any())


def _windows(found: list[Group], wss_bytes: np.ndarray, lengths_s: np.ndarray) -> list[dict[str, Any]]:
    """Return the windows by their interval, and what they touch.

    Figures of the working set are those of the first group.
    """
    return [
        {
            "interval_s": [ns / SECOND_NS for ns in group.interval_ns],
            "windows": int(group.windows.sum()),
            "time_fraction": group.time_fraction,
            "true_interval_s": _median(lengths_s[group.windows]),
            "wss_median_bytes": _median(wss_bytes[group.windows]),
        }
        for group in found
    ]


def _shared(reader: ReportSource, alike: np.ndarray) -> dict[str, Any]:
    """Return the part of the working set that several processes touched."""
    values = reader.samples.shared_bytes[alike]
    if not _shared_unknown(reader):
        return _summary(values, _wss_reason(reader))
    if not (values > 0).any():  # known of a process that was alone only
        return _summary(values * np.nan, "page frames of all processes were seen in no window")
    lost = int(np.isnan(values).sum())
    return _summary(values, "") | {"status": Status.APPROXIMATE, "reason": f"not known in {lost} windows"}


def _pss(held: Resident, rows: list[dict[str, Any]], lengths_s: np.ndarray) -> dict[str, Any]:
    """Resident memory in which what processes share counts once."""
    if held.name == RSS:
        why = "it is read of several processes; of one alone RSS says it"
    else:
        why = next((row["pss_reason"] for row in rows if row["pss_reason"]), "not recorded")
    found = _summary(held.bytes if held.name == PSS else held.bytes * np.nan, why, lengths_s)
    lost = int(np.isnan(held.bytes).sum())
    if found["mean"] is not None and lost:
        found |= {"status": Status.APPROXIMATE, "reason": f"not known in {lost} windows: {why}"}
    return found | {"meaning": MEANING[PSS]}


def _touched_fraction(wss_bytes: np.ndarray, held: Resident) -> dict[str, Any]:
    """Return the median working set as a part of the median resident memory, of the same windows and pages."""
    if (found := touched_fraction(wss_bytes, held)) is not None:
        return {"of": held.name, "fraction": found[0], "resident_bytes": found[1], "reason": ""}
    reason = "working set and resident memory are known together in no window"
    if held.name == SUM_OF_RSS:
        reason = "the working set counts shared pages once, a sum of RSS several times"
    return {"of": held.name, "fraction": None, "resident_bytes": None, "reason": reason}


def _given_back(rows: list[dict[str, Any]], of: set[int]) -> dict[str, Any]:
    """Return what went in a window, at most, and in a second, of samples ``of``."""
    found = {sample: size_bytes for sample, size_bytes in given_back_bytes(rows).items() if sample in of}
    values = np.array(list(found.values()), np.float64)
    spans = {row["sample"]: row["end_ns"] - row["start_ns"] for row in rows if row["sample"] in found}
    per_s = float(values.sum()) / (sum(spans.values()) / SECOND_NS) if spans else None
    return _summary(values, "faults and RSS of two windows in a row are known of no process") | {"per_s": per_s}


def _median(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def _largest_window(wss_bytes: np.ndarray, lengths_s: np.ndarray) -> dict[str, Any]:
    """Return the window of whatever length that touched the most."""
    if np.isnan(wss_bytes).all():
        return {"bytes": None, "window_s": None}
    at = int(np.nanargmax(wss_bytes))
    return {"bytes": int(wss_bytes[at]), "window_s": float(lengths_s[at])}


def _summary(values: np.ndarray, reason: str, weights: np.ndarray | None = None) -> dict[str, Any]:
    """Mean, median and maximum of what is known; ``weights``: how long each value stood for."""
    found = summary(values, weights)
    if found.mean is None or found.max is None:
        return {"mean": None, "median": None, "max": None, "status": Status.UNSUPPORTED, "reason": reason}
    return {
        "mean": found.mean,
        "median": found.median,
        "max": int(found.max),
        "status": Status.OK,
        "reason": "",
    }


def _processes(reader: ReportSource, rows: list[dict[str, Any]], of: set[int]) -> list[dict[str, Any]]:
    """Mean sizes of every process that was there for a window; of one without a working set, None.

    All of them are means over the samples ``of``, whose windows are alike, if the process was there in one of these.

    GPU memory is what it held at the end of each window, all GPUs together; None with a reason.
    """
    held = _gpu_memory(reader, rows)
    sums: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    there = {row["process"] for row in rows if row["sample"] in of}
    for row in rows:
        if row["sample"] in of:
            names: tuple[str, ...] = ("wss_bytes", "shared_bytes", "rss_bytes", "pss_bytes")
        else:
            names = () if row["process"] in there else ("rss_bytes", "pss_bytes")
        of_process = sums[row["process"]]
        for name in names:
            if row[name] is not None:
                of_process[name].append(row[name])

    def mean(key: int, name: str) -> float | None:
        values = sums[key][name]
        return float(np.mean(values)) if values else None

    return [
        {
            "pid": p.pid,
            "role": p.role,
            "generation": p.generation,
            "command": p.command,
            "wss_bytes": mean(p.key, "wss_bytes"),
            "shared_bytes": mean(p.key, "shared_bytes"),
            "rss_bytes": mean(p.key, "rss_bytes"),
            "pss_bytes": mean(p.key, "pss_bytes"),
            **held[p.key],
        }
        for p in reader.processes()
        if p.key in sums
    ]


def _gpu_memory(reader: ReportSource, rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Mean and maximum by process over the windows in which it is known, and why it is not in the others."""
    changes: dict[int, list[GpuMemory]] = defaultdict(list)
    for held in reader.gpu_memory(0, 2**62):
        changes[held.process].append(held)
    times = {process: [held.t_ns for held in of_process] for process, of_process in changes.items()}
    known: dict[int, list[int]] = defaultdict(list)
    reasons: dict[int, str] = {}
    for row in rows:
        process = row["process"]
        values, place = known[process], bisect_right(times.get(process, []), row["end_ns"])
        if not place:
            continue  # a window from before the first answer
        held = changes[process][place - 1]
        if held.gpu_bytes is None:
            reasons[process] = held.reason or held.status
        else:
            values.append(held.gpu_bytes)
    return {
        process: {
            "gpu_bytes": float(np.mean(values)) if values else None,
            "gpu_max_bytes": max(values, default=None),
            "gpu_reason": reasons.get(process, "" if values else "no reading in this session"),
        }
        for process, values in known.items()
    }


def _reuse(reader: ReportSource) -> dict[str, Any]:
    exact = ExactReuse()
    last = int(reader.samples.sample[-1]) if len(reader.samples) else 0
    for _, _, reuse in reader.iterate_reuse(0, last):
        exact.add(reuse)
    absent = {"first_touches": None, "median_bytes": None, "p95_bytes": None, "status": Status.UNSUPPORTED}
    if not reader.hello.wss.ok:
        return absent | {"reason": _wss_reason(reader)}
    pages = reader.hello.pages
    if not pages.ok:
        return absent | {"reason": f"{pages.reason} ({pages.remedy})" if pages.remedy else pages.reason}
    if reader.hello.options.samples_pages:
        return absent | {"reason": SAMPLED}
    median, p95 = exact.quantile(0.5), exact.quantile(0.95)
    if median is None or p95 is None:
        return absent | {"first_touches": exact.first_touches, "reason": "no page was touched in two windows"}
    return {
        "first_touches": exact.first_touches,
        "median_bytes": dict(zip(("lower", "upper"), median, strict=True)),
        "p95_bytes": dict(zip(("lower", "upper"), p95, strict=True)),
        "status": Status.OK,
        "reason": "",
    }


def _overhead(reader: ReportSource, rows: list[dict[str, Any]], span_ns: int) -> dict[str, Any]:
    samples = reader.samples
    if len(samples) < 2 or span_ns <= 0:
        names = ("paused_fraction", "paused_median_s", "paused_max_s", "lost_fraction", "self_cpu_fraction")
        absent: dict[str, Any] = dict.fromkeys(names)
        absent["reason"] = "fewer than two samples"
        return absent | {"budget": _budget(reader, absent)}
    paused = samples.paused_ns[~np.isnan(samples.paused_ns)]
    cpu_ns = samples.sampler_cpu_ns + samples.recorder_cpu_ns
    found = {
        "paused_fraction": float(paused.sum() / span_ns) if len(paused) else None,
        "paused_median_s": float(np.median(paused) / SECOND_NS) if len(paused) else None,
        "paused_max_s": _longest_pause_s(rows),
        "lost_fraction": lost_fraction(samples.lost_ns, span_ns),
        "self_cpu_fraction": float(cpu_ns[-1] - cpu_ns[0]) / float(samples.end_ns[-1] - samples.end_ns[0]),
        "reason": "",
    }
    return found | {"budget": _budget(reader, found)}


def _budget(reader: ReportSource, overhead: dict[str, Any]) -> dict[str, Any] | None:
    """Return what was allowed and what it came to; which interval would have kept it, where it was not kept."""
    most, cpu = allowed(reader.hello.options.max_overhead_ppm), overhead["self_cpu_fraction"]
    if most is None:
        return None
    found = {"max_fraction": most, "fraction": None, "met": None, "needed_interval_s": None}
    if cpu is None:
        return found
    fraction = budget_cost(overhead["lost_fraction"], cpu, overhead["paused_fraction"])
    apart_s = float(np.diff(reader.samples.end_ns).mean()) / SECOND_NS
    needed_s = None if fraction <= most else apart_s * fraction / most
    return found | {"fraction": fraction, "met": fraction <= most, "needed_interval_s": needed_s}


def _longest_pause_s(rows: list[dict[str, Any]]) -> float | None:
    """Return the longest that any process was held at once, also where a pause was given up."""
    known = [row["paused_ns"] for row in rows if row["paused_ns"] is not None]
    return max(known) / SECOND_NS if known else None


def mean_power(readings: list[PowerReading]) -> list[dict[str, Any]]:
    """Mean power and energy per source.

    Energy is what the device's counter rose by; a counter that fell was reset and has a new origin.
    """
    by_source: dict[tuple[str, str], list[PowerReading]] = defaultdict(list)
    for reading in readings:
        by_source[reading.device, reading.scope].append(reading)
    found = []
    for (device, scope), rows in by_source.items():
        watts = [r.power_w for r in rows if r.power_w is not None]
        joules = [r.energy_j for r in rows if r.energy_j is not None]
        measured = bool(watts or joules)
        found.append(
            {
                "device": device,
                "scope": scope,
                "source": rows[-1].source,
                "status": Status.OK if measured else rows[-1].status,
                "reason": rows[-1].reason if rows[-1].power_w is None and rows[-1].energy_j is None else "",
                "mean_w": float(np.mean(watts)) if watts else None,
                "energy_j": sum(max(b - a, 0.0) for a, b in pairwise(joules)) if len(joules) > 1 else None,
                "processes": max((r.processes for r in rows if r.processes is not None), default=None),
            }
        )
    return found
