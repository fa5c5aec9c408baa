"""The recorder: frames on standard input -> cheap numbers -> session file. Run as ``python -m memtui.recorder FILE``.

It runs as the invoking user. What it commits is at most a second behind; it says ``ready`` and then one JSON line of
progress per commit on standard output, and one line on standard error when something is wrong.
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
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

import numpy as np

from memtui import capabilities
from memtui.analysis.filters import Filter, parse_filter
from memtui.analysis.lean import whole_sum
from memtui.analysis.ranges import RangeMerger
from memtui.analysis.reuse_distance import ReuseTracker
from memtui.analysis.reuse_histogram import ReuseHistogram
from memtui.analysis.touch_sum import SUMMED_SAMPLES, TouchLevels
from memtui.analysis.working_set import bytes_by_range
from memtui.analysis.working_set import select as select_pages
from memtui.condition import Condition
from memtui.foreign import storable, visible
from memtui.frames import Decoder, FrameError, hello_to_plain
from memtui.limits import Limits
from memtui.masking import mask_secrets
from memtui.pageset import CODEC_ZLIB, PageSet
from memtui.samples import (
    SHARED_UNKNOWN,
    End,
    Event,
    GpuMemory,
    Hello,
    Message,
    Power,
    PowerReading,
    Process,
    ProcessWindow,
    Status,
    Vma,
    VmaSizes,
    VmaTable,
    Window,
    held_ns,
)
from memtui.session.codec import UNKNOWN_BYTES, encode_pairs, encode_reuse, encode_touch_sum
from memtui.session.store import SessionError, row_id, size_on_disk
from memtui.session.writer import SessionWriter

COMMIT_SECONDS = 0.5
READ_BYTES = 1 << 18
_STILL_MAPPED = 1 << 40  # above every sample


@dataclass(slots=True)
class _Observed:
    """What the recorder remembers of one process (one address space of it)."""

    vmas: tuple[Vma, ...] = ()
    starts: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    ends: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # vma row of each vma
    kept: np.ndarray = field(default_factory=lambda: np.empty(0, bool))
    merger: RangeMerger = field(default_factory=RangeMerger)
    reuse: ReuseTracker = field(default_factory=ReuseTracker)
    touches: TouchLevels = field(default_factory=TouchLevels)
    reasons: dict[Vma, str | None] = field(default_factory=dict)  # filter term of each VMA of the newest table
    row_ids: dict[int, int] = field(default_factory=dict)  # id of the merger -> id in the session
    filtered: dict[int, str] = field(default_factory=dict)  # id of the merger -> filter term, or nothing
    written: dict[int, tuple] = field(default_factory=dict)  # id in the session -> row as last written
    last_sample: int = 0


class Hopeless(Exception):
    """What was asked for cannot be had of this stream; the text says why."""


class Recorder:
    """Takes messages and writes what a session keeps of them."""

    def __init__(self, writer: SessionWriter, limits: Limits | None = None) -> None:
        self._writer, self.limits = writer, limits
        self._observed: dict[int, _Observed] = {}
        self._filter: Filter = parse_filter("none")
        self._keep_command = False
        self._running: set[int] = set()  # processes of the last window
        self._histogram = ReuseHistogram()
        self._next_vma_row = 1
        self._absent_power: dict[tuple[str, str, str], str] = {}
        self._gpu_memory: dict[int, GpuMemory] = {}  # as last written, by process
        self.samples = 0
        self.hello: Hello | None = None
        self.wss_bytes: int | None = None
        self.rss_bytes: int | None = None
        self.end: End | None = None

    @property
    def began(self) -> bool:
        """Whether the first process is observed."""
        return bool(self._observed)

    def take(self, message: Message) -> None:
        """Store one message."""
        match message:
            case Hello():
                self._keep_command = message.options.keep_command
                target = replace(message.target, command=self._fit_to_keep(message.target.command))
                self.hello = replace(message, target=target)
                self._filter = parse_filter(message.options.filter)
                if self.limits and (why := self.limits.objection(message.wss.reason if not message.wss.ok else "")):
                    raise Hopeless(why)
                self._writer.put_meta(hello=hello_to_plain(self.hello), recorder_pid=os.getpid())
            case Process():
                self._observed[message.key] = _Observed()
                command = self._fit_to_keep(message.command)
                self._writer.insert("process", [_process_row(replace(message, command=command))])
            case VmaTable():
                self._take_table(message)
            case Window():
                self._take_window(message)
            case Power():
                self._writer.insert("power", [_power_row(r) for r in message.readings if self._is_news(r)])
                self._writer.insert("gpu_memory", [astuple(m) for m in message.gpu_memory if self._is_change(m)])
            case Event():
                # What the sampler says may quote a command line; a mark is what the user chose to write down.
                text = message.text if message.kind == "mark" else self._fit_to_keep(message.text)
                self._writer.insert("event", [(message.t_ns, message.kind, text)])
            case End():
                if self.limits and self.limits.ending and message.kind == "stopped":
                    kind, text = self.limits.ending  # why it was stopped
                    message = replace(message, kind=kind, text=text)
                self.end = message
                self._checkpoint(self.samples - 1)
                self._note_ended(set())
                self._writer.insert("event", [(message.t_ns, "end", message.text or message.kind)])
                self._writer.put_meta(end={"t_ns": message.t_ns, "kind": message.kind, "text": message.text})

    def keep_limits(self) -> None:
        """Before a commit."""
        for event in self.limits.keep(time.monotonic_ns()) if self.limits else ():
            self.take(event)

    def _fit_to_keep(self, command: str) -> str:
        """A command line as the session keeps it: in UTF-8 and, unless the user wants them, without its secrets."""
        return storable(command if self._keep_command else mask_secrets(command))

    def _take_table(self, table: VmaTable) -> None:
        seen = self._observed[table.process]
        seen.vmas = table.vmas
        seen.starts = np.array([v.start for v in table.vmas], np.uint64)
        seen.ends = np.array([v.end for v in table.vmas], np.uint64)
        known = seen.reasons
        reasons = [known[v] if v in known else self._filter.leaves_out(v) for v in table.vmas]
        seen.reasons = dict(zip(table.vmas, reasons, strict=True))
        seen.kept = np.array([r is None for r in reasons], bool)
        merged = seen.merger.assign(table.vmas, table.sample).tolist()
        seen.filtered |= {row: reason or "" for row, reason in zip(merged, reasons, strict=True)}
        seen.rows = np.array([self._session_row(seen, row) for row in merged], np.int64)
        aliases = [
            (seen.row_ids.pop(old), self._session_row(seen, new))
            for old, new in seen.merger.aliases.items()
            if old in seen.row_ids
        ]
        self._writer.insert("vma_alias", aliases)
        self._writer.delete("vma", (old for old, _ in aliases))
        self._write_rows(table.process, seen)

    def _write_rows(self, process: int, seen: _Observed, *, ended: bool = False) -> None:
        """Bring the rows of one process up to date; a row that is mapped has no last sample until it, or all, ends."""
        for row in seen.merger.rows(seen.last_sample if ended else _STILL_MAPPED):
            plain = (
                self._session_row(seen, row.id),
                process,
                row.start,
                row.end,
                row.perms,
                row.name,
                row.first_sample,
                None if row.last_sample == _STILL_MAPPED else row.last_sample,
                seen.filtered[row.id],
            )
            if seen.written.get(plain[0]) != plain:
                seen.written[plain[0]] = plain
                self._writer.insert("vma", [plain])

    def _session_row(self, seen: _Observed, merger_row: int) -> int:
        known = seen.row_ids.get(merger_row)
        if known is None:
            known = seen.row_ids[merger_row] = self._next_vma_row
            self._next_vma_row += 1
        return known

    def _take_window(self, window: Window) -> None:
        processes = [self._without_strays(process) for process in window.processes]
        stored = [self._take_process(window.sample, process) for process in processes]
        troubled = next((p for p in processes if p.status != Status.OK), None)
        self.wss_bytes, shared_bytes = _together(processes, window.shared_excess_bytes)
        status, reason = (troubled.status, troubled.reason) if troubled else (Status.OK, processes[0].reason)
        if self.wss_bytes is not None and shared_bytes is None:
            reason = reason or SHARED_UNKNOWN
        self.rss_bytes = whole_sum(p.rss_bytes for p in processes)
        self._writer.insert(
            "sample",
            [
                (
                    window.sample,
                    window.start_ns,
                    window.end_ns,
                    window.asked_ns,
                    window.budgeted_ns,
                    window.next_ns,
                    held_ns(processes, together=self.hello is not None and self.hello.options.together),
                    self.wss_bytes,
                    whole_sum(stored),
                    whole_sum(p.faulted_in_bytes for p in processes),
                    whole_sum(p.unknown_bytes for p in processes),
                    shared_bytes,
                    self.rss_bytes,
                    window.sampler_cpu_ns,
                    time.process_time_ns(),
                    window.gaps,
                    window.disturbed,
                    status,
                    reason,
                )
            ],
        )
        if self.limits:
            self.limits.note(window, self.wss_bytes, self.rss_bytes)
        self._note_ended({p.process for p in processes})
        self.samples = window.sample + 1
        if self.samples % SUMMED_SAMPLES[0] == 0:
            self._checkpoint(window.sample)

    def _without_strays(self, process: ProcessWindow) -> ProcessWindow:
        """A target that ran on may have mapped memory between the two looks: no page outside the table is told."""
        if process.status != Status.APPROXIMATE or process.pages is None:
            return process
        seen = self._observed[process.process]
        inside = select_pages(process.pages, seen.starts, seen.ends, np.ones(len(seen.starts), bool))
        return replace(process, pages=inside)

    def _checkpoint(self, sample: int) -> None:
        """Store what makes seeking and long views cheap."""
        if sample < 0:
            return
        self._writer.insert("reuse_checkpoint", [(sample, self._histogram.to_bytes())])
        for process, seen in self._observed.items():
            sums = seen.touches.end(sample + 1)
            rows = ((level, row_id(sample, process), encode_touch_sum(one)) for level, one in sums)
            self._writer.insert("touch_sum", rows)

    def _note_ended(self, running: set[int]) -> None:
        """Write until when the ranges of processes were mapped that are there no more."""
        for process in self._running - running:
            self._write_rows(process, self._observed[process], ended=True)
        self._running = running

    def _take_process(self, sample: int, process: ProcessWindow) -> int | None:
        """Store one process's part of a window; the bytes of it that the filter kept."""
        seen = self._observed[process.process]
        seen.last_sample = sample
        key = row_id(sample, process.process)
        stored = None
        if process.pages is not None:
            stored = self._store_pages(key, seen, process.pages, process.vma_wss_bytes or ())
        elif process.vma_wss_bytes is not None:
            self._store_counted("vma_wss", key, seen, process.vma_wss_bytes)
        if process.vma_shared_bytes:
            self._store_counted("vma_shared", key, seen, process.vma_shared_bytes)
        if process.resident is not None:
            self._store_by_vma("vma_rss", key, seen, process.resident)
        elif process.vma_rss_bytes is not None:
            self._store_counted("vma_rss", key, seen, process.vma_rss_bytes)
        self._writer.insert(
            "process_sample",
            [
                (
                    key,
                    process.start_ns,
                    process.end_ns,
                    process.paused_ns,
                    process.walk_ns,
                    process.rearm_ns,
                    process.clear_gap_ns,
                    process.flush,
                    process.rearm,
                    process.wss_bytes,
                    stored,
                    process.faulted_in_bytes,
                    process.unknown_bytes,
                    process.shared_bytes,
                    process.rss_bytes,
                    process.cpu_ns,
                    process.threads,
                    process.minor_faults,
                    process.major_faults,
                    process.status,
                    process.reason,
                )
            ],
        )
        return stored

    def _store_pages(self, key: int, seen: _Observed, pages: PageSet, unseen: VmaSizes) -> int:
        """``unseen``: VMAs of whose pages nothing can be known."""
        self._store_by_vma("vma_wss", key, seen, pages, unseen)
        kept = pages if seen.kept.all() else select_pages(pages, seen.starts, seen.ends, seen.kept)
        self._writer.insert("page_set", [(key, CODEC_ZLIB, kept.encode())])
        seen.touches.tally.add(kept)
        reuse = seen.reuse.touch(kept)
        self._histogram.add(reuse)
        self._writer.insert("reuse", [(key, encode_reuse(reuse))])
        return kept.size_bytes

    def _store_by_vma(self, table: str, key: int, seen: _Observed, pages: PageSet, unseen: VmaSizes = ()) -> None:
        sizes = bytes_by_range(pages, seen.starts, seen.ends)
        used = np.flatnonzero(sizes)
        if unseen:
            counted = zip(seen.starts[used].tolist(), sizes[used].tolist(), strict=True)
            self._store_counted(table, key, seen, (*counted, *unseen))
            return
        rows, place = np.unique(seen.rows[used], return_inverse=True)
        summed = np.zeros(len(rows), np.int64)
        np.add.at(summed, place, sizes[used])
        self._writer.insert(table, [(key, encode_pairs(rows, summed))])

    def _store_counted(self, table: str, key: int, seen: _Observed, sizes: VmaSizes) -> None:
        """Sizes by the start of their VMA. A row of which nothing can be known has -1."""
        summed: dict[int, int] = {}
        row_of = dict(zip(seen.starts.tolist(), seen.rows.tolist(), strict=True))
        for start, size in sizes:
            row = row_of.get(start)  # none: mapped in the moment between the two tables
            if row is not None:
                known = summed.get(row, UNKNOWN_BYTES)
                summed[row] = known if size is None else max(known, 0) + size
        rows = sorted(summed)
        values = [summed[row] for row in rows]
        self._writer.insert(table, [(key, encode_pairs(np.array(rows, np.int64), np.array(values, np.int64)))])

    def _is_news(self, reading: PowerReading) -> bool:
        """An absent source is stored once, not every tick."""
        key = (reading.device, reading.scope, reading.source)
        absent = "" if reading.power_w is not None or reading.energy_j is not None else reading.reason or "absent"
        news = not absent or self._absent_power.get(key) != absent
        self._absent_power[key] = absent
        return news

    def _is_change(self, held: GpuMemory) -> bool:
        """Whether it differs from what the session says of that process until now."""
        before = self._gpu_memory.get(held.process)
        if before is not None and replace(before, t_ns=held.t_ns) == held:
            return False
        self._gpu_memory[held.process] = held
        return True


def _together(processes: Sequence[ProcessWindow], excess_bytes: int | None) -> tuple[int | None, int | None]:
    """(working set, shared part of it) of a tree: a page frame that several processes touched counts once.

    Without ``excess_bytes`` the shared part is not known, and the working set an upper bound: it counts for each.
    """
    total, shared = whole_sum(p.wss_bytes for p in processes), whole_sum(p.shared_bytes for p in processes)
    if total is None or shared is None or excess_bytes is None:
        return total, 0 if total is not None and len(processes) == 1 else None
    excess_bytes = min(excess_bytes, shared)  # without pages that lie in no mapping
    return total - excess_bytes, shared - excess_bytes


def _process_row(p: Process) -> tuple:
    return (p.key, p.pid, p.parent_pid, p.start_ticks, p.generation, p.command, p.role)


def _power_row(r: PowerReading) -> tuple:
    return (
        r.t_ns,
        r.device,
        r.scope,
        r.source,
        r.name,
        r.power_w,
        r.energy_j,
        r.limit_w,
        r.memory_used_bytes,
        r.utilization,
        r.status,
        r.reason,
        r.processes,
    )


class Marks:
    """Marks that the user makes, a JSON line each. They come from the supervisor: the sampler takes no texts."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fds = [fd]
        self._rest = b""

    def read(self) -> list[Event]:
        """Those that have come since."""
        found = []
        for fd in tuple(self.fds):
            try:
                while chunk := os.read(fd, READ_BYTES):
                    *lines, self._rest = (self._rest + chunk).split(b"\n")
                    found += [Event(t_ns, "mark", text) for t_ns, text in map(json.loads, lines)]
                self.fds.clear()
            except BlockingIOError:
                pass
        return found


def record(
    stream_fd: int, recorder: Recorder, writer: SessionWriter, stop_fd: int, report, marks: Marks | None = None
) -> None:
    """Take messages from the pipe until its end, committing every half second. Raises FrameError, sqlite3.Error."""
    decoder, began, news = Decoder(), False, False
    commit_due = time.monotonic() + COMMIT_SECONDS
    while True:
        left = max(commit_due - time.monotonic(), 0)
        ready, _, _ = select.select([stream_fd, stop_fd, *(marks.fds if marks else ())], [], [], left)
        for mark in marks.read() if marks and recorder.hello is not None else ():
            recorder.take(mark)
            news = True
        if stream_fd in ready:
            chunk = os.read(stream_fd, READ_BYTES)
            if not chunk:
                return
            for message in decoder.feed(chunk):
                recorder.take(message)
                news = True
                if isinstance(message, Process) and not began:
                    began, commit_due = True, 0.0  # a viewer and a program at the gate wait for this
        if stop_fd in ready:
            return
        if time.monotonic() >= commit_due:
            if news:  # where windows are far apart, a look at the disk twice a second is most of the cost
                recorder.keep_limits()
                writer.commit()
                report()
                news = False
            commit_due = time.monotonic() + COMMIT_SECONDS


def main(argv: list[str] | None = None) -> int:
    """Exit 0 after a whole recording, 1 when it was cut short, 2 when the file cannot be made."""
    arguments = sys.argv[1:] if argv is None else argv
    capabilities.forbid_new_privileges()
    options = _parser().parse_args(arguments)
    path, overwrite = options.path, options.force
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what ^C means; the pipe then ends
    stop_fd, wake_fd = os.pipe()
    os.set_blocking(wake_fd, False)
    signal.set_wakeup_fd(wake_fd)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    try:
        writer = SessionWriter(path, overwrite=overwrite)
    except FileExistsError:
        return _refuse(f"{path}: exists already; choose another name or add --force")
    except SessionError as error:
        return _refuse(str(error))
    except (OSError, sqlite3.Error) as error:
        return _refuse(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}")
    recorder = Recorder(writer, Limits(writer, options.max_bytes, options.stop_when))

    def report() -> None:
        progress = {"samples": recorder.samples, "wss_bytes": recorder.wss_bytes, "rss_bytes": recorder.rss_bytes}
        progress["cpu_ns"] = time.process_time_ns()
        ending = recorder.limits.ending if recorder.limits else None
        _say(json.dumps(progress | {"file_bytes": size_on_disk(path), "began": recorder.began, "ending": ending}))

    os.set_blocking(1, False)  # behind a screen nobody reads the progress: a full pipe must not hold the recording
    _say("ready")
    code = 0
    try:
        try:
            record(0, recorder, writer, stop_fd, report, Marks(options.marks) if options.marks is not None else None)
        except Hopeless as error:
            writer.discard()
            return _refuse(str(error))
        except FrameError as error:
            _complain(f"the stream of the sampler broke: {error}")
            code = 1
        if recorder.hello is None:
            writer.discard()
            return 1
        if recorder.end is None:
            recorder.take(End(time.monotonic_ns(), "interrupted", "the sampler ended without a word"))
            code = 1
        writer.commit()
        report()
    except sqlite3.Error as error:
        _complain(f"{path}: writing failed: {error}; what was committed before is readable")
        return 1
    finally:
        try:
            writer.close()
        except sqlite3.Error:
            code = 1  # a disk that is full, which was said above
        except OSError as error:
            _complain(f"{path}: {error.strerror}")
            code = 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="memtui.recorder")
    parser.add_argument("path", type=Path)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--marks", type=int, metavar="FD")
    parser.add_argument("--max-bytes", type=int)
    parser.add_argument("--stop-when", type=Condition.parse)
    return parser


def _refuse(line: str) -> int:
    _complain(line)
    return 2


def _complain(line: str) -> None:
    print(visible(line), file=sys.stderr)


def _say(line: str) -> None:
    try:
        os.write(1, line.encode() + b"\n")
    except OSError:
        pass  # nobody listens, or not now (lines this short are sent whole or not at all): the recording goes on


if __name__ == "__main__":
    sys.exit(main())
