"""``--to html``: one page with the report's numbers, the figures and the address ranges. Nothing is fetched for it.

What it is made of, and why nothing in it can act, is in ``html``.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from memtui.analysis.resident import RSS, SEVERAL_TIMES, SUM_OF_RSS
from memtui.core.samples import Clock
from memtui.core.units import between, duration, energy, percent, power, size, span
from memtui.reports.allocation_summary import allocation_words
from memtui.reports.export.tables import TABLES
from memtui.reports.figures import figures, provenance
from memtui.reports.figures.svg import escape
from memtui.reports.html import Cell, document, table
from memtui.reports.import_summary import origin_words
from memtui.reports.report import report_of
from memtui.reports.sentences import METHOD, METHOD_OF_FILES, METHOD_OF_TENSORS, sentences
from memtui.reports.source import ReportSource, not_stored_bytes
from memtui.reports.text import budgeted, category_words, how_it_ended, windows_words
from memtui.reports.training_summary import learning_words, training_words


def page(reader: ReportSource) -> str:
    """Return the whole document."""
    report = report_of(reader, reader.title)
    imported = report["imported"] is not None
    parts = [
        _head(reader, report),
        "" if imported else _numbers(report),
        _sentences(report),
        _doubts(reader, report),
        _figures(reader),
        _training(report),
        *(() if imported else (_processes(report), _ranges(reader), _power(report))),
        _method(report),
    ]
    return document(f"{report['target']['command']}: memtui", "\n".join(filter(None, parts)))


def _head(reader: ReportSource, report: dict[str, Any]) -> str:
    target, host, hello = report["target"], report["host"], reader.hello
    if report["imported"] is not None:
        facts = [f"session {report['session']}", *(_told(line) for line in origin_words(report["imported"]))]
        lines = "\n".join(f'<p class="dim">{escape(fact)}</p>' for fact in facts)
        return f"<h1>{escape(target['command'])}</h1>\n{lines}"
    begin = wall_time(hello.clock, int(reader.samples.start_ns[0])) if len(reader.samples) else ""
    facts = [
        f"pid {target['pid']} on {host['hostname']}, Linux {host['kernel']}, {host['cpu_count']} CPUs, {begin}",
        f"session {report['session']}: {report['samples']} windows in {span(report['duration_s'])}, "
        f"{how_it_ended(report)}",
        f"memtui {report['memtui_version']}, tracker {report['tracker']}, flush {report['flush']}, "
        f"filter {report['filter']}; window {between(*map(duration, report['intervals_s']))} asked, "
        f"{budgeted(report)}{duration(report['true_interval_s'])} true (median)",
    ]
    lines = "\n".join(f'<p class="dim">{escape(fact)}</p>' for fact in facts)
    return f"<h1>{escape(target['command'])}</h1>\n{lines}"


def wall_time(clock: Clock, monotonic_ns: int) -> str:
    """Return a moment of the session by the clock of the machine it was taken on."""
    wall_s = (clock.wall_ns + monotonic_ns - clock.monotonic_ns) / 1e9
    try:
        zone = timezone(timedelta(seconds=clock.utc_offset_s))
        return datetime.fromtimestamp(wall_s, zone).strftime("%Y-%m-%d %H:%M:%S %z")
    except (OverflowError, OSError, ValueError):
        return "at no possible time"  # a stranger's session may say so


def _numbers(report: dict[str, Any]) -> str:
    wss, rss, pss, reuse, cost = (report[name] for name in ("wss_bytes", "rss_bytes", "pss_bytes", "reuse", "overhead"))
    tiles = [_sizes("working set (median)", wss)]
    if report["touched_fraction"]["of"] == RSS:
        tiles.append(_sizes("resident set (median)", rss))
    else:
        tiles.append(_sizes("proportional set, PSS (median)", pss))
        tiles.append(_sizes(f"{SUM_OF_RSS} (median), {SEVERAL_TIMES}", rss))
    if reuse["median_bytes"] is not None:
        median, p95 = reuse["median_bytes"], reuse["p95_bytes"]
        more = (
            f"95 % within {size(p95['lower'])} to {size(p95['upper'])}; {reuse['first_touches']} first touches; "
            "between two bounds, because order inside a window is not known"
        )
        tiles.append(
            _tile("half of returning touches within", f"{size(median['lower'])} to {size(median['upper'])}", more)
        )
    else:
        tiles.append(_tile("reuse distance", "n/a", reuse["reason"]))
    longest = cost.get("paused_max_s")
    tiles.append(
        _tile(
            "target paused",
            percent(cost["paused_fraction"]),
            f"longest {duration(longest)}; own CPU {percent(cost['self_cpu_fraction'])}"
            if longest is not None
            else cost["reason"],
        )
    )
    return f"<dl>\n{''.join(tiles)}</dl>"


def _sizes(name: str, summary: dict[str, Any]) -> str:
    if summary["mean"] is None:
        return _tile(name, "n/a", summary["reason"])
    about = f"; {summary['status']}: {summary['reason']}" if summary["reason"] else ""
    return _tile(name, size(summary["median"]), f"mean {size(summary['mean'])}, max {size(summary['max'])}{about}")


def _tile(name: str, value: str, more: str) -> str:
    small = f'<br><span class="dim">{escape(more)}</span>' if more else ""
    return f"<div><dt>{escape(name)}</dt><dd><strong>{escape(value)}</strong>{small}</dd></div>\n"


def _doubts(reader: ReportSource, report: dict[str, Any]) -> str:
    """Return what makes the numbers less than exact, in full."""
    said = [text for text in provenance.doubts(reader) if "see its report" not in text] + report["warnings"]
    said += windows_words(report)
    said += [f"gap at {gap['t_s']:.1f} s: {gap['text']}" for gap in report["gaps"]["events"]]
    if report["gaps"]["processes"]:
        said.append(f"{report['gaps']['processes']} processes began or ended inside a window")
    if not said:
        return ""
    return "<h2>To be known of these numbers</h2>\n" + "\n".join(
        f'<p class="wrong">{escape(text)}</p>' for text in said
    )


def _told(line: str) -> str:
    """Return a line of the report as a sentence: what it is about, and what is said of it."""
    return f"{line[:12].strip()}: {line[13:]}"


def _sentences(report: dict[str, Any]) -> str:
    """Return the figures in plain words."""
    found = sentences(report)
    return "<h2>In words</h2>\n" + "\n".join(f"<p>{escape(text)}</p>" for text in found) if found else ""


def _training(report: dict[str, Any]) -> str:
    """Return what is told of trainings, recorded steps and tensors, in the words of the report."""
    what = "training step" if report["imported"] is None else "stretch"
    lines = [
        *training_words(report["training"]),
        *learning_words(report["learning"]),
        *allocation_words(report["allocations"], what),
        *(
            f"{device:<12} {line[13:]}"
            for device, found in report["device_allocations"].items()
            for line in allocation_words(found, what)
        ),
        *category_words(report["by_category"]),
    ]
    if not lines:
        return ""
    title = "Training and tensors" if report["imported"] is None else "Allocations"
    return table(title, "", ("of", "what"), [[line[:12].strip(), line[13:]] for line in lines])


def _method(report: dict[str, Any]) -> str:
    traced = report["training"] or report["allocations"] is not None
    found = METHOD_OF_FILES if report["imported"] is not None else METHOD
    if traced and report["imported"] is None:
        found = (*found, METHOD_OF_TENSORS)
    return "<h2>Method</h2>\n" + "\n".join(f"<p>{escape(text)}</p>" for text in found)


def _figures(reader: ReportSource) -> str:
    found = "\n".join(f"<figure>{drawing.markup()}</figure>" for _, drawing in figures(reader))
    return f'<h2>Figures</h2>\n<div class="figures">\n{found}\n</div>' if found else ""


def _processes(report: dict[str, Any]) -> str:
    rows: list[list[Cell]] = [
        [
            (str(p["pid"]), p["pid"]),
            p["role"],
            (size(p["wss_bytes"]), p["wss_bytes"]),
            (size(p["rss_bytes"]), p["rss_bytes"]),
            (size(p["pss_bytes"]), p["pss_bytes"]),
            (size(p["gpu_bytes"]), p["gpu_bytes"]),
            p["command"],
        ]
        for p in report["processes"]
    ]
    why = next((p["gpu_reason"] for p in report["processes"] if p["gpu_bytes"] is None), "")
    note = "Means over the windows of each." + f" GPU memory n/a: {why}." * bool(why)
    return table("Processes", note, ("pid#", "role", "WSS#", "RSS#", "PSS#", "GPU memory#", "command"), rows)


def _ranges(reader: ReportSource) -> str:
    columns, make = TABLES["vmas"]
    plain = [dict(zip(columns, row, strict=True)) for row in make(reader)]
    plain.sort(key=lambda v: (v["wss_bytes"] is None, -(v["wss_bytes"] or 0), -(v["rss_bytes"] or 0), v["start"]))
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
        for v in plain
    ]
    note = (
        "WSS: mean of the touched bytes over the windows a range was mapped in. RSS: at its end. Pages of ranges "
        "with a filter are not stored, so they are in no heat map and no reuse distance."
    )
    not_stored = not_stored_bytes(reader)
    if len(not_stored) and not_stored.any():
        each = " (a page that several processes touched counts for each)" * (len(reader.processes()) > 1)
        note += f" In the mean of all windows that is {size(not_stored.mean())} of what is touched{each}."
    heads = ("WSS#", "RSS#", "size#", "perms", "pid#", "start#", "not stored", "name")
    return table(f"Address ranges ({len(rows)})", note, heads, rows)


def _power(report: dict[str, Any]) -> str:
    rows: list[list[Cell]] = [
        [
            f"{p['device']} {p['scope']}",
            (power(p["mean_w"]), p["mean_w"]),
            (energy(p["energy_j"]), p["energy_j"]),
            p["source"],
            f"{p['status']}: {p['reason']}" if p["reason"] else str(p["status"]),
        ]
        for p in report["power"]
    ]
    return table("Power", "", ("device", "mean power#", "energy#", "source", "status"), rows) if rows else ""
