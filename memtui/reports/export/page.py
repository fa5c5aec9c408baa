"""``--to html``: one page with the report's numbers, the figures and the address ranges. Nothing is fetched for it.

Its parts, and why nothing in it can act, are in ``html``.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from memtui.analysis.resident import RSS, SEVERAL_TIMES, SUM_OF_RSS
from memtui.analysis.reuse_estimate import ASSUMPTION
from memtui.core.readings import GPU_COUNTERS
from memtui.core.samples import Clock
from memtui.core.units import between, duration, energy, percent, power, size, span
from memtui.reports.counter_summary import per_second
from memtui.reports.energy_summary import energy_notes, part_figure
from memtui.reports.export.tables import TABLES
from memtui.reports.figures import figures, provenance
from memtui.reports.figures.svg import escape
from memtui.reports.html import Cell, dim, document, section, table
from memtui.reports.import_summary import import_lines
from memtui.reports.memory_summary import births_and_ends, window_sentences
from memtui.reports.overhead_summary import Overhead
from memtui.reports.process_summary import NO_READING
from memtui.reports.report import Report, report_of
from memtui.reports.reuse_summary import ReuseSummary, burst_text, is_estimated, whole_window_text, within
from memtui.reports.sentences import METHOD, METHOD_OF_FILES, METHOD_OF_TENSORS, sentences
from memtui.reports.size_summary import SizeSummary
from memtui.reports.source import ReportSource, not_stored_bytes
from memtui.reports.text import budgeted, how_it_ended, training_and_tensor_lines


def page(reader: ReportSource, gco2_per_kwh: float | None = None) -> str:
    """Return the whole document. ``gco2_per_kwh``: see ``report.build_report``."""
    report = report_of(reader, reader.title, gco2_per_kwh)
    imported = report.imported is not None
    parts = [
        _head(reader, report),
        "" if imported else _numbers(report),
        _sentences(report),
        _doubts(reader, report),
        _figures(reader),
        _training(report),
        *(
            ()
            if imported
            else (_processes(report), _ranges(reader), _power(report), _energy(report), _counters(report))
        ),
        _method(report),
    ]
    return document(f"{report.target.command}: memtui", "\n".join(filter(None, parts)))


def _head(reader: ReportSource, report: Report) -> str:
    target, host, hello = report.target, report.host, reader.hello
    if report.imported is not None:
        facts = [f"session {report.session}", *map(_as_sentence, import_lines(report.imported))]
    else:
        start = wall_time(hello.clock, int(reader.samples.start_ns[0])) if len(reader.samples) else ""
        facts = [
            f"pid {target.pid} on {host.hostname}, Linux {host.kernel}, {host.cpu_count} CPUs, {start}",
            f"session {report.session}: {report.samples} windows in {span(report.duration_s)}, {how_it_ended(report)}",
            f"memtui {report.memtui_version}, tracker {report.tracker}, flush {report.flush}, "
            f"filter {report.filter}; window {between(*map(duration, report.intervals_s))} asked, "
            f"{budgeted(report)}{duration(report.true_interval_s)} true (median)",
        ]
    return "\n".join([f"<h1>{escape(target.command)}</h1>", *map(dim, facts)])


def wall_time(clock: Clock, monotonic_ns: int) -> str:
    """Return a moment of the session by the clock of its machine."""
    wall_s = (monotonic_ns + clock.wall_offset_ns) / 1e9
    try:
        zone = timezone(timedelta(seconds=clock.utc_offset_s))
        return datetime.fromtimestamp(wall_s, zone).strftime("%Y-%m-%d %H:%M:%S %z")
    except (OverflowError, OSError, ValueError):
        return "at no possible time"  # a foreign session may have such a time


def _numbers(report: Report) -> str:
    tiles = [
        _size_tile("working set (median)", report.wss_bytes),
        *_resident_tiles(report),
        _reuse_tile(report.reuse),
        _overhead_tile(report.overhead),
    ]
    return f"<dl>\n{''.join(tiles)}</dl>"


def _resident_tiles(report: Report) -> list[str]:
    if report.touched_fraction.of == RSS:
        return [_size_tile("resident set (median)", report.rss_bytes)]
    return [
        _size_tile("proportional set, PSS (median)", report.pss_bytes),
        _size_tile(f"{SUM_OF_RSS} (median), {SEVERAL_TIMES}", report.rss_bytes),
    ]


def _reuse_tile(reuse: ReuseSummary) -> str:
    median, p95 = reuse.median_bytes, reuse.p95_bytes
    if median is None or p95 is None:
        return _tile("reuse distance", "n/a", reuse.reason)
    bursts = reuse.bursts
    if bursts is not None and bursts.median_bytes is not None:
        name = f"half of touches in windows of {duration(bursts.probe_s)} within"
        more = f"{burst_text(bursts)}; in whole windows {whole_window_text(reuse)}"
        return _tile(name, within(bursts.median_bytes), more)
    more = f"95 % within {within(p95)}; {reuse.first_touches} first touches; "
    more += f"of the pages that were seen: {reuse.reason}; " if reuse.reason else ""
    more += ASSUMPTION if is_estimated(reuse) else "between two bounds, because order inside a window is not known"
    more += f"; {burst_text(bursts)}" if bursts is not None else ""
    return _tile("half of returning touches within", within(median), more)


def _overhead_tile(cost: Overhead) -> str:
    more = cost.reason
    if cost.paused_max_s is not None:
        more = f"longest {duration(cost.paused_max_s)}; own CPU {percent(cost.self_cpu_fraction)}"
    return _tile("target paused", percent(cost.paused_fraction), more)


def _size_tile(name: str, summary: SizeSummary) -> str:
    if summary.mean is None:
        return _tile(name, "n/a", summary.reason)
    about = f"; {summary.status}: {summary.reason}" if summary.reason else ""
    return _tile(name, size(summary.median), f"mean {size(summary.mean)}, max {size(summary.max)}{about}")


def _tile(name: str, value: str, more: str) -> str:
    small = f'<br><span class="dim">{escape(more)}</span>' if more else ""
    return f"<div><dt>{escape(name)}</dt><dd><strong>{escape(value)}</strong>{small}</dd></div>\n"


def _doubts(reader: ReportSource, report: Report) -> str:
    """Return all reasons why the numbers are less than exact."""
    doubts = [text for text in provenance.doubts(reader) if "see its report" not in text]
    doubts += [*report.warnings, *window_sentences(report.windows)]
    doubts += [f"gap at {gap.t_s:.1f} s: {gap.text}" for gap in report.gaps.events]
    if report.gaps.processes:
        doubts.append(births_and_ends(report.gaps.processes))
    return section("To be known of these numbers", doubts, "wrong")


def _as_sentence(line: str) -> str:
    """Return a line of the report as a sentence: its subject and its figures."""
    return f"{line[:12].strip()}: {line[13:]}"


def _sentences(report: Report) -> str:
    """Return the figures as sentences."""
    return section("In words", sentences(report))


def _training(report: Report) -> str:
    """Return the report's lines of trainings, recorded steps and tensors."""
    lines = training_and_tensor_lines(report)
    if not lines:
        return ""
    title = "Training and tensors" if report.imported is None else "Allocations"
    return table(title, "", ("of", "what"), [[line[:12].strip(), line[13:]] for line in lines])


def _method(report: Report) -> str:
    traced = report.training or report.allocations is not None
    method = METHOD_OF_FILES if report.imported is not None else METHOD
    if traced and report.imported is None:
        method = (*method, METHOD_OF_TENSORS)
    return section("Method", method)


def _figures(reader: ReportSource) -> str:
    drawings = "\n".join(f"<figure>{drawing.markup()}</figure>" for _, drawing in figures(reader))
    return f'<h2>Figures</h2>\n<div class="figures">\n{drawings}\n</div>' if drawings else ""


def _processes(report: Report) -> str:
    rows: list[list[Cell]] = [
        [
            (str(process.pid), process.pid),
            process.role,
            (size(process.wss_bytes), process.wss_bytes),
            (size(process.rss_bytes), process.rss_bytes),
            (size(process.pss_bytes), process.pss_bytes),
            (size(process.private_bytes), process.private_bytes),
            (size(process.swap_bytes), process.swap_bytes),
            (size(process.gpu_bytes), process.gpu_bytes),
            (percent(process.gpus_used), process.gpus_used),
            process.command,
        ]
        for process in report.processes
    ]
    why = next((process.gpu_reason for process in report.processes if process.gpu_bytes is None), "")
    note = "WSS: mean over the windows of the length that all figures are of. Others: means over all windows of each."
    note += f" GPU memory n/a: {why}." * bool(why)
    reasons = (p.gpus_used_reason for p in report.processes if p.gpu_bytes is not None and p.gpus_used is None)
    why = next((reason for reason in reasons if reason != NO_READING), "")
    note += f" Use of GPUs n/a: {why}." * bool(why)
    columns = ("pid#", "role", "WSS#", "RSS#", "PSS#", "USS#", "swap#", "GPU memory#", "GPU#", "command")
    return table("Processes", note, columns, rows)


def _ranges(reader: ReportSource) -> str:
    columns, make = TABLES["vmas"]
    ranges = [dict(zip(columns, row, strict=True)) for row in make(reader)]
    ranges.sort(key=lambda v: (v["wss_bytes"] is None, -(v["wss_bytes"] or 0), -(v["rss_bytes"] or 0), v["start"]))
    rows: list[list[Cell]] = [
        [
            (size(v["wss_bytes"]), v["wss_bytes"]),
            (size(v["rss_bytes"]), v["rss_bytes"]),
            (size(v["end"] - v["start"]), v["end"] - v["start"]),
            v["perms"],
            (str(v["pid"]), v["pid"]),
            (f"{v['start']:012x}", v["start"]),
            v["filtered"] and f"filter: {v['filtered']}",
            v["name"] or "anonymous",
        ]
        for v in ranges
    ]
    note = (
        "WSS: mean of the touched bytes over all windows, of any length, in which a range was mapped. RSS: at its end. "
        "Pages of ranges with a filter are not stored, so they are in no heat map and no reuse distance."
    )
    not_stored = not_stored_bytes(reader)
    if len(not_stored) and not_stored.any():
        each = " (a page that several processes touched counts for each)" * (len(reader.processes()) > 1)
        note += f" In the mean of all windows that is {size(not_stored.mean())} of what is touched{each}."
    heads = ("WSS#", "RSS#", "size#", "perms", "pid#", "start#", "not stored", "name")
    return table(f"Address ranges ({len(rows)})", note, heads, rows)


def _counters(report: Report) -> str:
    rows: list[list[Cell]] = [
        [
            f"{gpu.device} {gpu.scope}",
            *((percent(share), share) for share in (getattr(gpu, name) for name in GPU_COUNTERS[:4])),
            *((per_second(rate), rate) for rate in (getattr(gpu, name) for name in GPU_COUNTERS[4:])),
            gpu.reason,
        ]
        for gpu in report.gpu_counters
    ]
    heads = ("SM#", "occupancy#", "tensor cores#", "memory#", "PCIe out#", "PCIe in#", "NVLink out#", "NVLink in#")
    note = "Means over the readings of each, of all programs on it."
    return table("Counters of GPUs", note, ("device", *heads, "missing"), rows) if rows else ""


def _power(report: Report) -> str:
    rows: list[list[Cell]] = [
        [
            f"{source.device} {source.scope}",
            (power(source.mean_w), source.mean_w),
            (energy(source.energy_j), source.energy_j),
            source.source,
            f"{source.status}: {source.reason}" if source.reason else str(source.status),
        ]
        for source in report.power
    ]
    return table("Power", "", ("device", "mean power#", "energy#", "source", "status"), rows) if rows else ""


def _energy(report: Report) -> str:
    if report.energy is None:
        return ""
    rows: list[list[Cell]] = [
        [part.part, (energy(part.energy_j), part.energy_j), part_figure(part)] for part in report.energy.parts
    ]
    return table("Energy", " ".join(energy_notes(report.energy)), ("part", "energy#", "measured"), rows)
