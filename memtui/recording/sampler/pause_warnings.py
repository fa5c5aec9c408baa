"""Warnings about processes that are not paused, or cannot be paused safely; each once."""

from __future__ import annotations

from memtui.core.units import duration
from memtui.probes.window_reader import PageReader
from memtui.recording.sampler.commands import SamplerConfig
from memtui.recording.sampler.message_queue import MessageQueue

SYSCALL_FILTER = (
    "process {pid} runs under a seccomp filter (containers do): after a pause the kernel goes on with a sleep or wait "
    "by restart_syscall, and a filter that forbids this call fails it or kills; "
)
NOT_PAUSED = (
    "so it is not paused, and its numbers are approximate (--pause holds it all the same, --no-pause holds nobody)"
)
PAUSED_FILTERED = "it is paused all the same (--pause; --no-pause holds nobody)"
LONG_PAUSE = (
    "process {pid} is not held where that would take longer than {most} (--max-pause): its marks are read or cleared "
    "while it runs then, and those windows are approximate"
)
UNWATCHED = (
    "this sampler is not killed if it is stopped (SIGSTOP) while it holds the target, which then stays held: the "
    "kernel gave it no timer ({why}); --no-pause holds nobody"
)


class PauseWarnings:
    """Sends the warnings about pauses of one recording."""

    def __init__(self, order: SamplerConfig, outbox: MessageQueue, reader: PageReader) -> None:
        """Send nothing before ``start``."""
        self._order, self._outbox, self._reader = order, outbox, reader
        self._filter_sent = self._long_sent = False

    def start(self) -> None:
        """Warn where no timer would kill this process if it were stopped in a pause. Raises RecorderGone."""
        if self._reader.unwatched:
            self._outbox.put_event("warning", UNWATCHED.format(why=self._reader.unwatched))

    def update(self) -> None:
        """Warn of what the reader has met since the last call. Raises RecorderGone."""
        if self._reader.filtered and not self._filter_sent:
            self._filter_sent = True
            consequence = PAUSED_FILTERED if self._order.hold_filtered else NOT_PAUSED
            self._outbox.put_event("warning", SYSCALL_FILTER.format(pid=self._reader.filtered) + consequence)
        if self._reader.long and not self._long_sent:
            self._long_sent = True
            most = duration(self._order.max_pause_ns / 1e9)
            self._outbox.put_event("warning", LONG_PAUSE.format(pid=self._reader.long, most=most))
