"""Builds a session out of messages: keeps what no view can do without, and derives what every view would."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from memtui.analysis.access_counts import SUMMED_SAMPLES
from memtui.analysis.reuse_histogram import ReuseHistogram
from memtui.analysis.vma_filter import Filter, parse_filter
from memtui.core.fast_numpy import whole_sum
from memtui.core.lru_cache import LruCache
from memtui.core.readings import GpuMemory, GpuUse, MemoryLimit, MemoryUse, Power, PowerReading
from memtui.core.samples import (
    SHARED_UNKNOWN,
    End,
    Event,
    Hello,
    Process,
    ProcessWindow,
    Status,
    VmaTable,
    Window,
    tree_paused_ns,
)
from memtui.core.secrets import mask_secrets
from memtui.core.text import utf8_safe
from memtui.core.tracer_messages import (
    MAIN_MEMORY,
    AllocationStep,
    LearningProgress,
    TensorRanges,
    TracerMessage,
    TrainingProgress,
)
from memtui.recording.recorder.limits import Limits
from memtui.recording.recorder.process_recorder import ObservedProcess
from memtui.recording.wire import Message
from memtui.session.tables.allocations import AllocationDeviceRecord, layer_types, peak_record, step_record
from memtui.session.tables.learning import LearningAboutRecord, about_record, learning_records
from memtui.session.tables.reuse import ReuseCheckpointRecord
from memtui.session.tables.samples import SampleRecord
from memtui.session.tables.tensors import LayerTypesRecord, ranges_record
from memtui.session.tables.training import ProgressDeviceRecord, progress_record
from memtui.session.writer import SessionWriter

AT_END_NS = 1_100_000_000  # before the end of a long window: memory is read about once a second
REPORTERS = 256  # programs of which is held what they reported last: of an earlier one it is written anew


class UnsupportedRequest(Exception):
    """The stream cannot provide what was requested; the text says why."""


class SessionBuilder:
    """Takes messages and writes the records that a session keeps of them."""

    def __init__(self, writer: SessionWriter, limits: Limits | None = None) -> None:
        self._writer, self.limits = writer, limits
        self._observed: dict[int, ObservedProcess] = {}
        self._filter: Filter = parse_filter("none")
        self._keep_command = self._keep_resident = False
        self._running: set[int] = set()  # processes of the last window
        self._absent: set[int] = set()  # those that are observed and were not in it
        self._histogram = ReuseHistogram()
        self._row_numbers = itertools.count(1)  # of VMAs
        self._reported_ids = itertools.count()
        self._about: LruCache[int, LearningAboutRecord] = LruCache(REPORTERS)  # what is trained, by pid
        self._layer_types: LruCache[int, dict[str, str]] = LruCache(REPORTERS)  # by pid
        self._absent_power: dict[tuple[str, str, str], str] = {}
        self._gpu_memory: dict[int, GpuMemory | GpuUse] = {}  # as last written, by process
        self._gpu_use: dict[int, GpuMemory | GpuUse] = {}
        self._memory_use: MemoryUse | None = None  # the last reading
        self.samples = 0
        self.hello: Hello | None = None
        self.wss_bytes: int | None = None
        self.rss_bytes: int | None = None
        self.end: End | None = None
        self.began = False  # whether the first process is observed

    def add(self, message: Message) -> None:
        """Store one message."""
        match message:
            case Hello():
                self._add_hello(message)
            case Process():
                self.began = True
                if self.limits:
                    self.limits.add_process(message.key)
                command = self._fit_to_keep(message.command)
                self._writer.insert([replace(message, command=command)])
            case VmaTable():
                self._of(message.process).add_table(message)
            case Window():
                self._add_window(message)
            case Power():
                self._add_power(message)
            case AllocationStep() | TensorRanges() | TrainingProgress() | LearningProgress():
                self._add_reported(message)
            case Event():
                # A text of the sampler may quote a command line; the text of a mark is the user's own choice.
                text = message.text if message.kind == "mark" else self._fit_to_keep(message.text)
                self._writer.insert([replace(message, text=text)])
            case End():
                self._add_end(message)

    def _add_power(self, message: Power) -> None:
        """Store readings of power, and what is read with them: GPUs and limits of memory."""
        self._writer.insert(filter(self._is_new, message.readings))
        self._writer.insert(memory for memory in message.gpu_memory if _is_change(memory, self._gpu_memory))
        self._writer.insert(use for use in message.gpu_use if _is_change(use, self._gpu_use))
        self._writer.insert(_safe(limit) for limit in message.limits)
        self._writer.insert(message.memory_use)
        self._memory_use = message.memory_use[-1] if message.memory_use else self._memory_use
        self._writer.insert(message.numa_use)
        if self.limits:
            self.limits.add_memory_limits(message.limits)

    def _add_hello(self, hello: Hello) -> None:
        """Store what is watched and how; raise where a limit cannot be kept."""
        self._keep_command, self._keep_resident = hello.options.keep_command, hello.options.keep_resident
        target = replace(hello.target, command=self._fit_to_keep(hello.target.command))
        self.hello = replace(hello, target=target)
        self._filter = parse_filter(hello.options.filter)
        if self.limits and (why := self.limits.objection(hello.wss.reason if not hello.wss.ok else "")):
            raise UnsupportedRequest(why)
        self._writer.put_meta(hello=self.hello.to_dict(), recorder_pid=os.getpid())

    def _add_end(self, end: End) -> None:
        """Store why the recording ended, and what is left of every process."""
        if self.limits and self.limits.ending and end.kind == "stopped":
            kind, text = self.limits.ending  # why it was stopped
            end = replace(end, kind=kind, text=text)
        self.end = end = replace(end, recorder_cpu_ns=time.process_time_ns())
        self._checkpoint(self.samples - 1)
        self._write_ended(set())
        self._writer.insert([Event(end.t_ns, "end", end.description)])
        self._writer.put_meta(end=asdict(end))

    def _add_reported(self, message: TracerMessage) -> None:
        """Store what a program reports about itself, which may be anything."""
        try:
            if isinstance(message, AllocationStep):
                step = step_record(next(self._reported_ids), message)
                peak, types = peak_record(step.id, message), layer_types(message)
                self._writer.insert([step])
                self._add_layer_types(message.pid, types)
                if message.device != MAIN_MEMORY:
                    self._writer.insert([AllocationDeviceRecord(step.id, utf8_safe(message.device))])
                    self._writer.insert([peak])
                    return
                self.add(Event(message.end_ns, "step", f"step {message.step}, every allocation recorded"))
            elif isinstance(message, TensorRanges):
                self._writer.insert([ranges_record(next(self._reported_ids), message)])
            elif isinstance(message, LearningProgress):
                points, about = learning_records(self._reported_ids, message), about_record(message)
                self._writer.insert(points)
                if message.pid not in self._about or self._about[message.pid] != about:
                    self._writer.insert([about])
                    self._about.put(message.pid, about)
            else:
                progress = progress_record(next(self._reported_ids), message)
                self._writer.insert([progress])
                if message.device != MAIN_MEMORY:
                    self._writer.insert([ProgressDeviceRecord(progress.id, utf8_safe(message.device))])
        except ValueError as error:
            what = f"what process {message.pid} tells of its tensors is left out: {error}"
            self.add(Event(time.monotonic_ns(), "warning", what))

    def _add_layer_types(self, pid: int, types: dict[str, str]) -> None:
        """Store classes of layers where a step names some that no step before did."""
        by_module: dict[str, str] = {}
        if pid in self._layer_types:
            by_module = self._layer_types[pid]
        if not types.items() <= by_module.items():
            by_module = by_module | types
            self._layer_types.put(pid, by_module)
            self._writer.insert([LayerTypesRecord(pid, json.dumps(by_module, separators=(",", ":")))])

    def keep_limits(self) -> None:
        """Apply the limits before a commit."""
        for event in self.limits.keep(time.monotonic_ns()) if self.limits else ():
            self.add(event)

    def _fit_to_keep(self, command: str) -> str:
        """Return a command line as the session keeps it: in UTF-8 and, unless the user wants them, without secrets."""
        return utf8_safe(command if self._keep_command else mask_secrets(command))

    def _add_window(self, window: Window) -> None:
        processes = [self._of(process.process).without_strays(process) for process in window.processes]
        stored = [self._add_process(window.sample, process) for process in processes]
        troubled = next((p for p in processes if p.status != Status.OK), None)
        self.wss_bytes, shared_bytes = _together(processes, window.shared_excess_bytes)
        status, reason = (troubled.status, troubled.reason) if troubled else (Status.OK, processes[0].reason)
        if self.wss_bytes is not None and shared_bytes is None:
            reason = reason or SHARED_UNKNOWN
        use = self._use_at_end(window) or _summed(processes)
        self.rss_bytes = use.rss_bytes
        self._writer.insert_from(
            SampleRecord,
            window,
            paused_ns=tree_paused_ns(processes, together=self.hello is not None and self.hello.options.together),
            wss_bytes=self.wss_bytes,
            stored_bytes=whole_sum(stored),
            faulted_in_bytes=whole_sum(p.faulted_in_bytes for p in processes),
            unknown_bytes=whole_sum(p.unknown_bytes for p in processes),
            shared_bytes=shared_bytes,
            rss_bytes=self.rss_bytes,
            recorder_cpu_ns=time.process_time_ns(),
            processes=use.processes,
            pss_bytes=use.pss_bytes,
            pss_ns=use.pss_ns,
            wss_low_bytes=whole_sum(p.wss_low_bytes for p in processes),
            wss_high_bytes=whole_sum(p.wss_high_bytes for p in processes),
            status=status,
            reason=reason,
        )
        if self.limits:
            self.limits.add_window(window, self.wss_bytes, self.rss_bytes)
        self._write_ended({p.process for p in processes})
        self._release_ended(window.sample)
        self.samples = window.sample + 1
        if self.samples % SUMMED_SAMPLES[0] == 0:
            self._checkpoint(window.sample)

    def _use_at_end(self, window: Window) -> _ResidentSums | None:
        """Return the memory of the tree where more processes are there at the end of a window than are in it.

        Those that have just begun are in the next one. None: there are no others, as far as that was read.
        """
        use = self._memory_use
        near_ns = min((window.end_ns - window.start_ns) // 4, AT_END_NS)
        if use is None or use.processes <= len(window.processes) or use.t_ns < window.end_ns - near_ns:
            return None
        return _ResidentSums(use.processes, use.rss_bytes, use.pss_bytes, use.pss_bytes and use.t_ns)

    def _checkpoint(self, sample: int) -> None:
        """Store what makes seeking and long views cheap."""
        if sample < 0:
            return
        self._writer.insert([ReuseCheckpointRecord(sample, self._histogram.to_bytes())])
        for seen in self._observed.values():
            seen.checkpoint(sample)

    def _write_ended(self, running: set[int]) -> None:
        """Write until when the ranges of processes that have ended were mapped."""
        for process in self._running - running:
            self._observed[process].write_ended()
        self._running = running

    def _of(self, process: int) -> ObservedProcess:
        """Return the state of a process; it is created at the first table or window, also after ``_release_ended``."""
        if process not in self._observed:
            self._observed[process] = ObservedProcess(
                process, self._writer, self._filter, self._row_numbers, keep_resident=self._keep_resident
            )
        return self._observed[process]

    def _release_ended(self, sample: int) -> None:
        """Store what is left of processes that were in neither of the last two windows, and forget them.

        A process that was taken for ended and still runs is back in the next window.
        """
        absent = self._observed.keys() - self._running
        for process in absent & self._absent:
            seen = self._observed.pop(process)
            seen.write_ended()
            seen.store_rest(sample)
            self._gpu_memory.pop(process, None)
            self._gpu_use.pop(process, None)
        self._absent = absent & self._observed.keys()

    def _add_process(self, sample: int, process: ProcessWindow) -> int | None:
        """Store one process's part of a window; return how many bytes of it the filter includes."""
        stored, reuse = self._observed[process.process].add_window(sample, process)
        if reuse is not None:
            self._histogram.add(reuse)
        return stored

    def _is_new(self, reading: PowerReading) -> bool:
        """Return whether a reading is new: an absent source is stored once, not every tick."""
        key = (reading.device, reading.scope, reading.source)
        absent = "" if reading.power_w is not None or reading.energy_j is not None else reading.reason or "absent"
        new = not absent or self._absent_power.get(key) != absent
        self._absent_power[key] = absent
        return new


def _safe(limit: MemoryLimit) -> MemoryLimit:
    """Return a limit with names that can be stored."""
    cgroup, high_cgroup = utf8_safe(limit.cgroup), utf8_safe(limit.high_cgroup)
    return replace(limit, cgroup=cgroup, stall_cgroup=utf8_safe(limit.stall_cgroup), high_cgroup=high_cgroup)


def _is_change(reading: GpuMemory | GpuUse, written: dict[int, GpuMemory | GpuUse]) -> bool:
    """Whether a reading differs from what the session has of that process until now; if so, that is noted."""
    before = written.get(reading.process)
    if before is not None and replace(before, t_ns=reading.t_ns) == reading:
        return False
    written[reading.process] = reading
    return True


class _ResidentSums(NamedTuple):
    """Resident memory of a tree, and when its PSS was read; None: not known."""

    processes: int
    rss_bytes: int | None
    pss_bytes: int | None
    pss_ns: int | None


def _summed(processes: Sequence[ProcessWindow]) -> _ResidentSums:
    return _ResidentSums(
        len(processes),
        whole_sum(p.rss_bytes for p in processes),
        whole_sum(p.pss_bytes for p in processes),
        min((p.pss_ns for p in processes if p.pss_ns is not None), default=None),
    )


def _together(processes: Sequence[ProcessWindow], excess_bytes: int | None) -> tuple[int | None, int | None]:
    """Return (working set, shared part of it) of a tree: a page frame that several processes accessed counts once.

    Without ``excess_bytes`` the shared part is not known, and the working set is an upper bound: each process counts.
    """
    total, shared = whole_sum(p.wss_bytes for p in processes), whole_sum(p.shared_bytes for p in processes)
    if total is None or shared is None or excess_bytes is None:
        return total, 0 if total is not None and len(processes) == 1 else None
    excess_bytes = min(excess_bytes, shared)  # without pages that lie in no mapping
    return total - excess_bytes, shared - excess_bytes
