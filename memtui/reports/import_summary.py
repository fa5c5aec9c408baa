"""What a report says of a session that was made from a file of another tool."""

from __future__ import annotations

from typing import Any

from memtui.core.units import size
from memtui.reports.source import ReportSource
from memtui.session.records.imported import LINES, ImportedFrom

SECOND_NS = 1e9


def origin(reader: ReportSource) -> dict[str, Any] | None:
    """Where it is from, what the file does not know, what the driver said; None where memtui recorded it."""
    about = reader.imported()
    if about is None:
        return None
    return {
        "file": about.file,
        "format": about.format,
        "clock": about.clock,
        "sizes": "allocated from the driver" if about.driver else "held",
        "not_known": list(about.absent),
        "warnings": list(about.warnings),
        "mb_precision": list(about.coarse),
        "driver_memory": [
            {**place(about, one.t_ns, reader), "free_bytes": one.free_bytes, "total_bytes": one.total_bytes}
            for one in reader.driver_memory()
        ],
        "marks": [
            {**place(about, event.t_ns, reader), "text": event.text}
            for event in reader.events(0, 1 << 62)
            if event.kind == "mark"
        ],
    }


def place(about: ImportedFrom, t_ns: int, reader: ReportSource) -> dict[str, Any]:
    """When: a number of seconds after the begin, or a line where the file knows no time."""
    if about.counts:
        return {"line" if about.clock == LINES else "row": t_ns}
    return {"t_s": (t_ns - reader.hello.clock.monotonic_ns) / SECOND_NS}


def origin_words(found: dict[str, Any]) -> list[str]:
    """Lines of the report."""
    lines = [f"imported     {found['file']} ({found['format']}), sizes are what was {found['sizes']}"]
    lines += [f"not known    {text}" for text in found["not_known"]]
    driver = found["driver_memory"]
    if driver:
        free = [one["free_bytes"] for one in driver]
        lines.append(
            f"driver       of {size(driver[0]['total_bytes'])}: free {size(free[0])} first, {size(free[-1])} last, "
            f"{size(min(free))} at least (in {len(free)} lines; of all programs together)"
        )
    if found["mb_precision"]:
        lines.append(f"precision    known in whole MB only: {', '.join(sorted(set(found['mb_precision'])))}")
    for mark in found["marks"]:
        when = f"{mark['t_s']:.6f} s" if "t_s" in mark else f"line {mark['line']}" if "line" in mark else "a row"
        lines.append(f"mark         at {when}: {mark['text']}")
    return lines + [f"warning      {text}" for text in found["warnings"]]
