"""The state of the recordings that run now, as dataclasses and as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from memtui.core.errors import UserError
from memtui.core.shorten import text_table, width
from memtui.core.text import printable, program_first
from memtui.core.units import clock, size
from memtui.recording.client import state_of
from memtui.recording.control import RecordingState
from memtui.recording.registry import Running

NO_LIMIT = 1 << 16  # cells of a line that goes to no terminal
LEFT_OF_SESSIONS = 68  # cells of figures and a command that can be recognized


@dataclass(frozen=True, slots=True)
class RecordingStatus:
    """One recording, as ``list --json`` has it. Values it did not answer are None, and ``reason`` says why."""

    id: str
    pid: int
    command: str
    since: str  # ISO 8601, local time
    duration_s: float
    samples: int | None
    wss_bytes: int | None
    rss_bytes: int | None
    file_bytes: int | None
    interval_s: float | None
    paused: bool | None
    session: str
    memtui_pid: int
    reason: str


def describe(recordings: Sequence[Running]) -> list[RecordingStatus]:
    """Request the state of each recording, and return them."""
    return [_describe(running) for running in recordings]


def _describe(running: Running) -> RecordingStatus:
    state: RecordingState | None = None
    reason = ""
    try:
        state = state_of(running)
    except UserError as error:
        reason = str(error)
    progress = state.progress if state is not None else None
    return RecordingStatus(
        id=running.id,
        pid=running.pid,
        command=running.command,
        since=datetime.fromtimestamp(running.began_s).astimezone().isoformat(timespec="seconds"),
        duration_s=round(max(time.time() - running.began_s, 0.0), 1),
        samples=progress.samples if progress else None,
        wss_bytes=progress.wss_bytes if progress else None,
        rss_bytes=progress.rss_bytes if progress else None,
        file_bytes=progress.file_bytes if progress else None,
        interval_s=state.interval_ns / 1e9 if state else None,
        paused=state.paused if state else None,
        session=running.path,
        memtui_pid=running.memtui_pid,
        reason=reason,
    )


def format_table(recordings: Sequence[RecordingStatus], room: int = NO_LIMIT) -> str:
    """Return a line for each recording, or one line that says that none runs.

    Commands share what other columns leave of the ``room`` cells of a line. Where that is little, each session and note
    has a line of its own below.
    """
    if not recordings:
        return "no recording of yours runs; memtui attach PID begins one"
    rows = [("ID", "PID", "for", "samples", "WSS", "command", "session", "")]
    for recording in recordings:
        note = f"({recording.reason})" if recording.reason else "(sampling is paused)" if recording.paused else ""
        rows.append(
            (
                recording.id,
                str(recording.pid),
                clock(recording.duration_s),
                "n/a" if recording.samples is None else str(recording.samples),
                size(recording.wss_bytes),
                printable(program_first(recording.command)),
                printable(recording.session),
                printable(note),
            )
        )
    right = 1, 2, 3, 4
    table = text_table(rows, room, right=right, whole=(0, 6, 7))
    if room - max(width("  ".join(row[6:])) for row in rows) >= LEFT_OF_SESSIONS:
        return "\n".join(table)
    head, *lines = text_table([row[:6] for row in rows], room, right=right, whole=(0,))
    below = [f"  {'  '.join(row[6:])}".rstrip() for row in rows[1:]]
    return "\n".join([head, *(line for pair in zip(lines, below, strict=True) for line in pair)])
