"""The state of the recordings that run now, as plain data and as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from memtui.core.errors import UserError
from memtui.core.shorten import text_table
from memtui.core.text import program_first, visible
from memtui.core.units import clock, size
from memtui.recording.client import ask
from memtui.recording.registry import Running

NO_LIMIT = 1 << 16  # cells of a line that goes to no terminal


def describe(found: Sequence[Running]) -> list[dict[str, Any]]:
    """Return the document of ``list --json``. What a recording does not answer is None, with a reason."""
    return [_describe(running) for running in found]


def _describe(running: Running) -> dict[str, Any]:
    progress: dict[str, Any] = {}
    reason = ""
    try:
        answer = ask(running, "status")
        progress = answer["progress"]
    except UserError as error:
        answer, reason = {}, str(error)
    return {
        "id": running.id,
        "pid": running.pid,
        "command": running.command,
        "since": datetime.fromtimestamp(running.began_s).astimezone().isoformat(timespec="seconds"),
        "duration_s": round(max(time.time() - running.began_s, 0.0), 1),
        "samples": progress.get("samples"),
        "wss_bytes": progress.get("wss_bytes"),
        "rss_bytes": progress.get("rss_bytes"),
        "file_bytes": progress.get("file_bytes"),
        "interval_s": answer["interval_ns"] / 1e9 if "interval_ns" in answer else None,
        "paused": answer.get("paused"),
        "session": running.path,
        "memtui_pid": running.memtui_pid,
        "reason": reason,
    }


def format_table(found: Sequence[dict[str, Any]], room: int = NO_LIMIT) -> str:
    """Return a line for each, or one line that says that there is none.

    Commands share what ``room`` cells a line leave.
    """
    if not found:
        return "no recording of yours runs; memtui attach PID begins one"
    rows = [("ID", "PID", "for", "samples", "WSS", "command", "session", "")]
    for one in found:
        rows.append(
            (
                str(one["id"]),
                str(one["pid"]),
                clock(one["duration_s"]),
                "n/a" if one["samples"] is None else str(one["samples"]),
                size(one["wss_bytes"]),
                visible(program_first(one["command"])),
                visible(one["session"]),
                visible(f"({one['reason']})" if one["reason"] else "(sampling is paused)" if one["paused"] else ""),
            )
        )
    return "\n".join(text_table(rows, room, right=(1, 2, 3, 4), whole=(0, 6, 7)))
