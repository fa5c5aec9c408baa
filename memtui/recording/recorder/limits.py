"""Limits of a recording besides its duration: place and size of its file, the room on the disk, a condition."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from memtui.core.readings import MemoryLimit
from memtui.core.samples import Event, Window
from memtui.core.units import size
from memtui.recording.recorder.stop_condition import StopCondition, Watch
from memtui.session.downsampling import Downsampler
from memtui.session.validation import MAX_PROCESS
from memtui.session.writer import SessionWriter

LEFT_BYTES = 200 << 20  # on the file system for everybody else
SMALL_SHARE = 20  # of a small file system a twentieth
LEFT_PROCESSES = 1 << 14  # that may start until the sampler has stopped
# Kinds of an end.
CONDITION, LOW_DISK, FULL, DISPLACED, PROCESSES = "condition", "low disk", "size limit", "displaced", "process limit"


class Limits:
    """Checks the limits of one session. ``ending`` is (kind, text) once there is a reason to end it."""

    def __init__(self, writer: SessionWriter, max_bytes: int | None, condition: StopCondition | None) -> None:
        self._writer = writer
        self._downsampler = Downsampler(writer, max_bytes) if max_bytes is not None else None
        self._watch = Watch(condition) if condition is not None else None
        self.ending: tuple[str, str] | None = None

    def objection(self, wss_reason: str) -> str:
        """Return why the condition can never be tested here; empty when it can. ``wss_reason``: why there is no WSS."""
        if self._watch is None or self._watch.condition.what != "wss" or not wss_reason:
            return ""
        return f"--stop-when wss: there will be no working set: {wss_reason}"

    def add_window(self, window: Window, wss_bytes: int | None, rss_bytes: int | None) -> None:
        """Count a window that was stored."""
        if self._downsampler is not None:
            self._downsampler.add_sample(window.sample)
        if self._watch is not None:
            reached = self._watch.update(window.start_ns, window.end_ns, wss_bytes, rss_bytes)
            if reached and self.ending is None:
                self.ending = CONDITION, reached

    def add_memory_limits(self, limits: Iterable[MemoryLimit]) -> None:
        """Count readings of the limit of memory."""
        reached = self._watch.add_limits(limits) if self._watch is not None else ""
        if reached and self.ending is None:
            self.ending = CONDITION, reached

    def add_process(self, key: int) -> None:
        """Count a process. Rows are numbered by sample and process, with a fixed number of bits for each."""
        if key >= MAX_PROCESS - LEFT_PROCESSES and self.ending is None:
            self.ending = PROCESSES, f"{key:,} processes were recorded, and a session has room for {MAX_PROCESS:,}"

    def check_displaced(self) -> bool:
        """Whether the file is no longer in its place: nobody would find what is recorded from here on."""
        if self.ending is not None or not (why := self._writer.displaced()):
            return False
        self.ending = DISPLACED, f"{self._writer.path}: {why}"
        return True

    def keep(self, now_ns: int) -> list[Event]:
        """Make room before a commit, and check whether the disk has some; return events to store."""
        if self.ending is None and (low := check_disk(self._writer.path)):
            self.ending = LOW_DISK, low
        downsampler = self._downsampler
        if downsampler is None:
            return []
        before = downsampler.downsampled
        if not downsampler.make_room() and self.ending is None:
            self.ending = FULL, f"nothing is left to thin below --max-size {size(downsampler.max_bytes)}"
        if downsampler.downsampled == before:
            return []
        self._writer.put_meta(thinned={"samples": downsampler.downsampled, "max_bytes": downsampler.max_bytes})
        text = (
            f"the file reached {size(downsampler.max_bytes)} (--max-size): page sets are downsampled, the oldest first"
        )
        return [] if before else [Event(now_ns, "thinned", text)]


def check_disk(path: Path) -> str:
    """Return why a recording must end before its disk is full; empty while there is room."""
    try:
        room = os.statvfs(path.parent)
    except OSError:
        return ""  # the next write reports better what is wrong there
    left, whole = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    if left >= min(LEFT_BYTES, whole // SMALL_SHARE):
        return ""
    return f"only {size(left)} left on the disk of {path}"
