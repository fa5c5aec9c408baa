"""The sampler alone, as its supervisor runs it, and what it said."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from memtui.core.options import MAX_PAUSE_NS
from memtui.core.procfs import read_stat
from memtui.core.samples import Options, Process, ProcessWindow, Window
from memtui.recording.sampler.commands import STOP, SamplerConfig
from memtui.recording.wire import Decoder, Message

INTERVAL_NS = 20_000_000


def order_for(
    pid: int, *, hold_filtered: bool = False, max_pause_ns: int = MAX_PAUSE_NS[1], **options: Any
) -> SamplerConfig:
    found = Options(**({"interval_ns": INTERVAL_NS} | options))
    return SamplerConfig(pid, read_stat(pid).start_ticks, found, hold_filtered=hold_filtered, max_pause_ns=max_pause_ns)


@dataclass
class Stream:
    """Every message of one run."""

    messages: list[Message] = field(default_factory=list)
    returncode: int | None = None
    errors: str = ""

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.messages if isinstance(message, kind)]

    @property
    def windows(self) -> list[Window]:
        return self.of(Window)

    def of_pid(self, pid: int) -> list[ProcessWindow]:
        """The windows of one process, through all its address spaces."""
        keys = {process.key for process in self.of(Process) if process.pid == pid}
        return [one for window in self.windows for one in window.processes if one.process in keys]


def sample(pid: int, seconds: float, **options: Any) -> Stream:
    """Run the sampler on a process for so long, or until it ends by itself."""
    options.setdefault("duration_ns", int(seconds * 1e9))
    return finish(ordered(order_for(pid, **options)))


def ordered(order: SamplerConfig, words: bytes = b"") -> subprocess.Popen[bytes]:
    """A sampler that was given its order, and words after it."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "memtui.recording.sampler"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    child.stdin.write(order.to_line() + words)
    child.stdin.flush()
    return child


def finish(child: subprocess.Popen[bytes], seconds: float = 120) -> Stream:
    """Read all that a sampler says."""
    assert child.stdout is not None
    assert child.stderr is not None
    found, decoder, end = Stream(), Decoder(), time.monotonic() + seconds
    while chunk := child.stdout.read1(1 << 16):  # type: ignore[attr-defined]
        found.messages += decoder.feed(chunk)
        if time.monotonic() > end and child.stdin is not None:
            child.stdin.write(STOP)
    found.errors = child.stderr.read().decode()
    found.returncode = child.wait()
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            stream.close()
    return found
