"""The recorder: messages on standard input -> cheap numbers -> session file.

Run as ``python -m memtui.recording.recorder FILE``. The recorder runs as the invoking user. What it commits is at most
a second behind; it prints ``ready`` and then one JSON line of progress per commit on standard output, and one line on
standard error when something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from memtui.core import capabilities, single_threaded  # noqa: F401 (for its effect, before numpy comes)

# isort: split
from memtui.core.malloc import give_back_free_pages
from memtui.core.os_errors import WRITE, refused, why
from memtui.core.samples import End, Event, Process
from memtui.core.text import printable
from memtui.recording.progress import READY, Progress
from memtui.recording.recorder.limits import Limits
from memtui.recording.recorder.machine_power import MachinePowerReader
from memtui.recording.recorder.session_builder import SessionBuilder, UnsupportedRequest
from memtui.recording.recorder.stop_condition import StopCondition
from memtui.recording.recorder.tracer_server import TracerServer
from memtui.recording.wire import DecodeError, Decoder, Message
from memtui.session.file_format import SessionError, has_log_file, size_on_disk
from memtui.session.writer import SessionWriter

COMMIT_SECONDS = 0.5
GIVE_BACK_SECONDS = 60.0  # from one time when free memory goes back to the kernel to the next
READ_BYTES = 1 << 18
FAILURES = (sqlite3.Error, OSError, MemoryError)  # where SQLite gets no memory, Python raises the last
NO_MEMORY = b"the recorder has no memory left, and whatever was committed can be read; end something, or ask for less\n"
PREFACE_BYTES = 1 << 16  # that a start-up file of the user may write into the pipe before the sampler does


class MarkReader:
    """Reads the user's marks, a JSON line each. They come from the supervisor: the sampler takes no texts."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fds = [fd]
        self._rest = b""

    def read(self) -> list[Event]:
        """Return the marks that have come since the last call."""
        events = []
        for fd in tuple(self.fds):
            try:
                while chunk := os.read(fd, READ_BYTES):
                    *lines, self._rest = (self._rest + chunk).split(b"\n")
                    events += [Event(t_ns, "mark", text) for t_ns, text in map(json.loads, lines)]
                self.fds.clear()
            except BlockingIOError:
                pass
        return events


def record(
    stream_fd: int,
    builder: SessionBuilder,
    writer: SessionWriter,
    stop_fd: int,
    report: Callable[[], object],
    mark_reader: MarkReader | None = None,
    tracer_server: TracerServer | None = None,
    machine_power: MachinePowerReader | None = None,
) -> None:
    """Read messages from the pipe until its end, committing every half second. Raises DecodeError and ``FAILURES``."""
    decoder, began, changed = Decoder(PREFACE_BYTES), False, False
    commit_due, free_memory = time.monotonic() + COMMIT_SECONDS, _FreeMemory()
    while True:
        remaining_s = max(commit_due - time.monotonic(), 0)
        # What is not read before the hello of the sampler is not waited for either: it stays in its pipe.
        read_now = (tracer_server, *((mark_reader, machine_power) if builder.hello is not None else ()))
        others = [fd for source in read_now if source for fd in source.fds]
        ready, _, _ = select.select([stream_fd, stop_fd, *others], [], [], remaining_s)
        for message in _other_messages(builder, ready, mark_reader, tracer_server, machine_power):
            builder.add(message)
            changed = True
        if stream_fd in ready:
            chunk = os.read(stream_fd, READ_BYTES)
            if not chunk:
                for message in tracer_server.drain(time.monotonic_ns()) if tracer_server else ():
                    builder.add(message)
                return
            for message in decoder.feed(chunk):
                builder.add(message)
                changed = True
                if isinstance(message, Process) and not began:
                    began, commit_due = True, 0.0  # a viewer and a program at the exec gate wait for this
        if stop_fd in ready:
            return
        if time.monotonic() >= commit_due:
            _commit(builder, writer, report, changed=changed)
            commit_due, changed = time.monotonic() + COMMIT_SECONDS, False
            free_memory.give_back()


class _FreeMemory:
    """Gives free memory back to the kernel now and then: a recording may go on for days."""

    def __init__(self) -> None:
        self._due = time.monotonic() + GIVE_BACK_SECONDS

    def give_back(self) -> None:
        if time.monotonic() >= self._due:
            give_back_free_pages()
            self._due = time.monotonic() + GIVE_BACK_SECONDS


def _other_messages(
    builder: SessionBuilder,
    ready: list[int],
    mark_reader: MarkReader | None,
    tracer_server: TracerServer | None,
    machine_power: MachinePowerReader | None,
) -> Iterator[Message]:
    """Yield the messages of traced programs, the marks of the user and the power of the machine that have come."""
    if tracer_server:
        yield from tracer_server.read(ready, time.monotonic_ns())
    if mark_reader and builder.hello is not None:
        yield from mark_reader.read()
    if machine_power and builder.hello is not None:
        yield from machine_power.read(builder.hello.clock.monotonic_ns)


def _commit(builder: SessionBuilder, writer: SessionWriter, report: Callable[[], object], *, changed: bool) -> None:
    """Commit what is new, and check that the file is still in its place."""
    if builder.limits and builder.limits.check_displaced():
        report()
    if changed:  # where windows are far apart, checking the disk twice a second is most of the cost
        builder.keep_limits()
        writer.commit()
        report()


def main(argv: list[str] | None = None) -> int:
    """Exit 0 after a whole recording, 1 when it was cut short, 2 when the file cannot be made."""
    arguments = sys.argv[1:] if argv is None else argv
    capabilities.forbid_new_privileges()
    options = _parser().parse_args(arguments)
    stop_fd = _stop_on_signals()
    try:
        writer = SessionWriter(options.path, overwrite=options.force)
    except FileExistsError:
        return _refuse(f"{options.path}: exists already; choose another name or add --force")
    except SessionError as error:
        return _refuse(str(error))
    except FAILURES as error:
        return _refuse(str(refused(options.path, error, WRITE)))
    os.set_blocking(1, False)  # behind a screen nobody reads the progress: a full pipe must not hold the recording
    _print(READY + b"\n")
    try:
        return _record_session(options, writer, stop_fd)
    except FAILURES as error:
        reason = why(options.path, error)
    except BaseException:
        writer.abandon()
        raise
    # Only here is the memory free again that the recording took.
    if writer.abandon():
        _complain(f"{options.path}: the recording ended, and what was committed before can be read: {reason}")
    else:
        _complain(f"{options.path}: nothing was recorded: {reason}")
    return 1


def _close(writer: SessionWriter) -> bool:
    """Close a session that is committed; where it does not become one whole file, print why and return False."""
    path = writer.path
    try:
        writer.close()
    except OSError as error:
        _complain(f"{path}: {error.strerror}")
        return False
    except (sqlite3.Error, MemoryError) as error:
        if not has_log_file(path):
            return True  # it was folded before this
        both = f"all is recorded, but the end of it is in {path.name}-wal, and both files are needed to read it"
        _complain(f"{path}: {both}: {why(path, error)}")
        return False
    return True


def _stop_on_signals() -> int:
    """Return a descriptor that becomes readable when this process is to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what ^C means; the pipe then ends
    stop_fd, wake_fd = os.pipe()
    os.set_blocking(wake_fd, False)
    signal.set_wakeup_fd(wake_fd)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return stop_fd


def _record_session(options: argparse.Namespace, writer: SessionWriter, stop_fd: int) -> int:
    """Record to the end, close, and return the exit status. Raises ``FAILURES``; then the session is not closed."""
    builder = SessionBuilder(writer, Limits(writer, options.max_bytes, options.stop_when))
    code = 0

    def report() -> None:
        progress = Progress(
            builder.samples,
            builder.wss_bytes,
            builder.rss_bytes,
            time.process_time_ns(),
            size_on_disk(options.path),
            builder.began,
            builder.limits.ending if builder.limits else None,
        )
        _print(progress.to_line())

    try:
        mark_reader = MarkReader(options.marks) if options.marks is not None else None
        tracer_server = TracerServer(options.traced) if options.traced is not None else None
        machine_power = MachinePowerReader(options.machine_power) if options.machine_power is not None else None
        record(0, builder, writer, stop_fd, report, mark_reader, tracer_server, machine_power)
    except UnsupportedRequest as error:
        writer.discard()
        return _refuse(str(error))
    except DecodeError as error:
        _complain(f"the stream of the sampler broke: {error}")
        code = 1
    if not builder.began:  # the sampler says why
        writer.discard()
        return 1
    if builder.limits:
        builder.limits.check_displaced()
    if builder.end is None:
        builder.add(End(time.monotonic_ns(), "interrupted", "the sampler ended without a word"))
        code = 1
    writer.commit()
    report()
    return code if _close(writer) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="memtui.recording.recorder")
    parser.add_argument("path", type=Path)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--marks", type=int, metavar="FD")
    parser.add_argument("--traced", type=int, metavar="FD")
    parser.add_argument("--machine-power", type=int, metavar="FD")
    parser.add_argument("--max-bytes", type=int)
    parser.add_argument("--stop-when", type=StopCondition.parse)
    return parser


def _refuse(line: str) -> int:
    _complain(line)
    return 2


def _complain(line: str) -> None:
    print(printable(line), file=sys.stderr)


def _print(line: bytes) -> None:
    try:
        os.write(1, line)
    except OSError:
        pass  # nobody reads, or not now (lines this short are sent whole or not at all): the recording goes on


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MemoryError:  # not even a line could be made, and Python has no memory to end in order
        os.write(2, NO_MEMORY)
        os._exit(1)
