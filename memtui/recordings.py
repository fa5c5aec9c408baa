"""The recordings that run now, as plain data and as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from memtui.errors import UserError
from memtui.foreign import short_command, visible
from memtui.remote import ask
from memtui.running import Running
from memtui.units import clock, size

_COMMAND_CELLS = 40


def describe(found: Sequence[Running]) -> list[dict[str, Any]]:
    """The document of ``list --json``. What a recording does not answer is None, with a reason."""
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


def format_table(found: Sequence[dict[str, Any]]) -> str:
    """A line for each, or one line that says that there is none."""
    if not found:
        return "no recording of yours runs; memtui attach PID begins one"
    lines = [f"{'ID':<5} {'PID':>7} {'for':>9} {'samples':>8} {'WSS':>8}  {'command':<{_COMMAND_CELLS}}  session"]
    for one in found:
        samples = "n/a" if one["samples"] is None else str(one["samples"])
        command = short_command(one["command"], _COMMAND_CELLS)
        note = f"  ({one['reason']})" if one["reason"] else "  (sampling is paused)" if one["paused"] else ""
        lines.append(
            f"{one['id']:<5} {one['pid']:>7} {clock(one['duration_s']):>9} {samples:>8} {size(one['wss_bytes']):>8}  "
            f"{command:<{_COMMAND_CELLS}}  {one['session']}{note}"
        )
    return "\n".join(map(visible, lines))
