"""``--redact``: a session without host, user, paths, command lines and addresses, for those who may see its numbers.

Everything that is exported or reported comes from a ``Source``, so it is hidden in one place. Names become labels that
stay the same within one export (``file-1``, ``command-1``); a VMA starts at an anonymous base, and an address keeps its
distance to the start of its VMA and to nothing else. Free text loses every word that could be a secret: a word too many
is a smaller loss than a name in a file that is passed on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.reuse_burst import PartReuse
from memtui.analysis.reuse_distance import ReuseSample
from memtui.analysis.stack_capture import StackCapture
from memtui.analysis.tensor_pages import TensorMap
from memtui.analysis.vma_filter import SHARED_ANONYMOUS, SHARED_MEMORY
from memtui.core.call_stacks import CallStacks
from memtui.core.options import BUNDLED_NETWORKS, LEARNING_RULES
from memtui.core.page_set import PageSet
from memtui.core.readings import GpuMemory, GpuUse, MemoryLimit, MemoryUse, NumaUse, PowerReading
from memtui.core.samples import Capability, Event, Hello, Process
from memtui.core.tracer_messages import MAIN_MEMORY, PINNED_MEMORY
from memtui.formats.mxnet_tags import compat_keys
from memtui.reports.redact_allowed import Record, permitted, permitted_row
from memtui.reports.redact_names import ModelNames
from memtui.reports.redact_text import MASK, Labels, Scrubber
from memtui.reports.source import ByRow, PageRun, ReportSource, Source
from memtui.session.tables.allocations import RecordedStep
from memtui.session.tables.imported import DriverMemory, ImportedFrom
from memtui.session.tables.learning import About, LearningPoint
from memtui.session.tables.training import ProgressRow, RecordedProgress
from memtui.session.vma_row import VmaRow

HIDDEN_CGROUP = "cgroup"
GIB = 1 << 30
# Names that the kernel gives to memory, the same in every process.
_KERNELS = frozenset((
    *("", "[heap]", "[stack]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]", "[uprobes]"),
    SHARED_ANONYMOUS,
))  # fmt: skip
# Events whose text is memtui's; other texts are the user's.
_OWN_EVENTS = frozenset(("gap", "exec", "process", "stopped", "warning", "interval", "thinned", "step", "end"))
_DEVICE = re.compile(r"[a-z]{2,8}(:[0-9]{1,3})?")


class RedactedSource:
    """A session with labels in place of names and anonymous bases in place of addresses: a ``ReportSource``.

    It does not inherit from a reader: a new method of ``ReportSource`` must be written here, too, before it can be
    called. Of every record only the fields pass that ``permission`` declares harmless, or that are made anonymous here.
    """

    shows_distances = False
    title = short_title = "session"

    def __init__(self, path: Path) -> None:
        """Open a session. Raises SessionError."""
        self._source = Source(path)
        self._rows = {row.id: row for row in self._source.vma_rows()}
        self._bases = _bases(self._rows.values())
        self._owners: dict[tuple[int, ...], _VmaIndex] = {}
        self._names, self._model, self._devices = Labels("file"), ModelNames(), Labels("device")
        self._mark_labels: dict[str, Labels] = {}
        for row in self._rows.values():
            for name in (row.name, *(state.name for state in row.states)):
                self._name(name)
        hello, samples, end = self._source.hello, self._source.samples, self._source.end
        self._commands = Labels("command")
        for command in (hello.target.command, *(process.command for process in self._source.processes())):
            self._commands[command]
        self._scrubber = Scrubber(hello, self._commands, self._names)
        scrub = self._scrubber.scrub
        self.hello = self._without(hello)
        self.samples = permitted(
            samples,
            disturbed=tuple(map(scrub, samples.disturbed)),
            reason=tuple(map(scrub, samples.reason)),
        )
        self.end = None if end is None else permitted(end, kind=scrub(end.kind), text=scrub(end.text))

    @property
    def path(self) -> Path:
        return Path(self.title)

    @property
    def alive(self) -> bool:
        return self._source.alive

    @property
    def downsampled_to_bytes(self) -> int | None:
        return self._source.downsampled_to_bytes

    def close(self) -> None:
        self._source.close()

    def processes(self) -> list[Process]:
        scrub = self._scrubber.scrub
        return [permitted(p, command=self._commands[p.command], role=scrub(p.role)) for p in self._source.processes()]

    def vma_rows(self, process: int | None = None) -> list[VmaRow]:
        rows = []
        for row in self._source.vma_rows(process):
            base = self._bases[row.id]
            rows.append(self._shown(row, base, base + row.end - row.start))
        return rows

    def drawn_rows(self, process: int) -> list[VmaRow]:
        return [self._shown(row, row.start, row.end) for row in self._source.vma_rows(process)]

    def page_set(self, sample: int, process: int) -> PageSet | None:
        return self._source.page_set(sample, process)

    def runs(self, sample: int, process: int, mapped: Sequence[VmaRow]) -> Iterator[PageRun]:
        key = tuple(row.id for row in mapped)
        if key not in self._owners:
            self._owners.clear()  # the next window has the same mappings, or never again
            self._owners[key] = _VmaIndex([self._rows[i] for i in key])
        owners = self._owners[key]
        for start, end, page_bytes in self._source.runs(sample, process, [self._rows[i] for i in key]):
            row = owners.of(start, end)
            if row is not None:  # a run outside every VMA has no base
                shift = self._bases[row.id] - row.start
                yield start + shift, end + shift, page_bytes

    def vma_wss(self, first_sample: int, last_sample: int) -> ByRow:
        return self._source.vma_wss(first_sample, last_sample)

    def vma_rss(self, sample: int) -> dict[int, int]:
        return self._source.vma_rss(sample)

    def vma_private(self, first_sample: int, last_sample: int) -> list[tuple[int, int, dict[int, int]]]:
        return self._source.vma_private(first_sample, last_sample)

    def process_samples(self, first_sample: int, last_sample: int) -> list[dict[str, Any]]:
        scrub = self._scrubber.scrub
        texts = ("reason", "status", "flush", "rearm", "pss_reason")
        rows = self._source.process_samples(first_sample, last_sample)
        return [permitted_row(row, **{name: scrub(row[name]) for name in texts}) for row in rows]

    def reuse_bursts(self, first_sample: int, last_sample: int) -> Iterator[tuple[int, int, tuple[PartReuse, ...]]]:
        return self._source.reuse_bursts(first_sample, last_sample)

    def iterate_reuse(self, first_sample: int, last_sample: int) -> Iterator[tuple[int, int, ReuseSample]]:
        return self._source.iterate_reuse(first_sample, last_sample)

    def power(self, first_ns: int, last_ns: int) -> list[PowerReading]:
        texts = ("device", "scope", "source", "name", "status", "reason", "counters_reason")
        return [self._scrubbed(reading, texts) for reading in self._source.power(first_ns, last_ns)]

    def gpu_memory(self, first_ns: int, last_ns: int) -> list[GpuMemory]:
        return [self._scrubbed(reading, ("status", "reason")) for reading in self._source.gpu_memory(first_ns, last_ns)]

    def gpu_use(self, first_ns: int, last_ns: int) -> list[GpuUse]:
        return [self._scrubbed(use, ("status", "reason")) for use in self._source.gpu_use(first_ns, last_ns)]

    def memory_use(self, first_ns: int, last_ns: int) -> list[MemoryUse]:
        return [permitted(use) for use in self._source.memory_use(first_ns, last_ns)]

    def numa_use(self, first_ns: int, last_ns: int) -> list[NumaUse]:
        return [permitted(use) for use in self._source.numa_use(first_ns, last_ns)]

    def memory_limits(self, first_ns: int, last_ns: int) -> list[MemoryLimit]:
        limits = self._source.memory_limits(first_ns, last_ns)
        return [
            permitted(
                limit,
                cgroup=HIDDEN_CGROUP if limit.cgroup else "",
                stall_cgroup=HIDDEN_CGROUP if limit.stall_cgroup else "",
                high_cgroup=HIDDEN_CGROUP if limit.high_cgroup else "",
            )
            for limit in limits
        ]

    def _scrubbed(self, record: Record, texts: Iterable[str]) -> Record:
        """Return the harmless fields of a record, and these texts without secrets."""
        return permitted(record, **{name: self._scrubber.scrub(getattr(record, name)) for name in texts})

    def allocation_steps(self) -> list[RecordedStep]:
        model = self._model
        return [
            permitted(
                step,
                peak_op=model.op(step.peak_op),
                peak_layer=model.layer(step.peak_layer),
                device=self._device(step.device),
            )
            for step in self._source.allocation_steps()
        ]

    def step_trace(self, step: RecordedStep) -> StepTrace:
        return self._model.in_step(self._source.step_trace(step))

    def call_stacks(self) -> CallStacks:
        """Return the stacks with labels of functions and files, and without lines."""
        stacks = self._source.call_stacks()
        frames = [permitted(frame, **self._model.in_frame(frame)) for frame in stacks.frames]
        return CallStacks(frames, stacks.parent, stacks.frame)

    def captures(self) -> list[StackCapture]:
        stacks = self.call_stacks()
        return [replace(capture, stacks=stacks) for capture in self._source.captures()]

    def resident_set(self, sample: int, process: int) -> PageSet | None:
        return self._source.resident_set(sample, process)

    def resident_samples(self, process: int) -> list[int]:
        return self._source.resident_samples(process)

    def tensor_maps(self) -> list[tuple[int, int, TensorMap]]:
        return [(pid, t_ns, self._model.in_map(tensor_map)) for pid, t_ns, tensor_map in self._source.tensor_maps()]

    def latest_tensors(self, pid: int, t_ns: int) -> TensorMap | None:
        tensors = self._source.latest_tensors(pid, t_ns)
        return None if tensors is None else self._model.in_map(tensors)

    def imported(self) -> ImportedFrom | None:
        about = self._source.imported()
        if about is None:
            return None
        op, sums = self._model.op, about.sums
        if sums is not None:
            sums = {
                key if key in compat_keys() else op(key): (total, tuple(map(self._model.raw_tag, tags)))
                for key, (total, tags) in sums.items()
            }
        return permitted(
            about,
            file=self._commands[about.file],
            absent=tuple(map(self._scrubber.scrub, about.absent)),
            warnings=tuple(map(self._scrubber.scrub, about.warnings)),
            coarse=tuple(map(op, about.coarse)),
            sums=sums,
        )

    def training(self, first_ns: int = 0, last_ns: int = 1 << 62, device: str = MAIN_MEMORY) -> list[ProgressRow]:
        scrub = self._scrubber.scrub
        source_device = next((name for name in self._source.training_devices() if self._device(name) == device), device)
        rows = self._source.training(first_ns, last_ns, source_device)
        return [permitted(row, view=scrub(row.view), reason=scrub(row.reason), device=device) for row in rows]

    def traced_fraction(self) -> float | None:
        return self._source.traced_fraction()

    def training_devices(self) -> list[str]:
        return list(map(self._device, self._source.training_devices()))

    def training_progress(self, row: ProgressRow) -> RecordedProgress:
        progress = self._source.training_progress(row)
        usage = replace(progress.usage, names=tuple(map(self._model.op, progress.usage.names)))
        return permitted(progress, row=row, usage=usage)

    def driver_memory(self) -> list[DriverMemory]:
        return list(map(permitted, self._source.driver_memory()))

    def learning(self, first_ns: int = 0, last_ns: int = 1 << 62) -> list[LearningPoint]:
        return list(map(permitted, self._source.learning(first_ns, last_ns)))

    def trainings(self) -> list[About]:
        """Return the trainings without the names that the user gave, and without paths."""
        layer = self._model.layer
        return [
            permitted(
                about,
                network=about.network if about.network in BUNDLED_NETWORKS else "network",
                rule=about.rule if about.rule in LEARNING_RULES else "rule",
                settings={key: value for key, value in about.settings.items() if not isinstance(value, str | list)},
                segments=tuple(tuple(map(layer, segment)) for segment in about.segments),
            )
            for about in self._source.trainings()
        ]

    def events(self, first_ns: int, last_ns: int) -> list[Event]:
        redacted = []
        for event in self._source.events(first_ns, last_ns):
            if event.kind in _OWN_EVENTS:
                redacted.append(permitted(event, kind=event.kind, text=self._scrubber.scrub(event.text)))
            else:
                kind = event.kind if event.kind in ("mark", "step", "epoch") else "mark"
                labels = self._mark_labels.setdefault(kind, Labels(kind))
                redacted.append(permitted(event, kind=kind, text=labels[event.text]))
        return redacted

    def _shown(self, row: VmaRow, start: int, end: int) -> VmaRow:
        states = tuple(
            permitted(state, perms=_perms(state.perms), left_out=_terms(state.left_out), name=self._name(state.name))
            for state in row.states
        )
        return permitted(
            row,
            start=start,
            end=end,
            name=self._name(row.name),
            perms=_perms(row.perms),
            filtered=_terms(row.filtered),
            states=states,
        )

    def _name(self, name: str) -> str:
        """Return a label for the name of a mapping; two mappings of one file share it. Shared memory is called so."""
        if name in _KERNELS:
            return name
        of_memory = next((prefix for prefix in SHARED_MEMORY if name.startswith(prefix)), "")
        return "[stack]" if name.startswith("[stack:") else of_memory + self._names[name.removesuffix(" (deleted)")]

    def _device(self, name: str) -> str:
        """Return PyTorch's name of a device, or ours of a part of the main memory; a label for any other name."""
        return name if name in (MAIN_MEMORY, PINNED_MEMORY) or _DEVICE.fullmatch(name) else self._devices[name]

    def _without(self, hello: Hello) -> Hello:
        scrub = self._scrubber.scrub

        def capability(original: Capability) -> Capability:
            return self._scrubbed(original, ("name", "reason", "remedy"))

        release = re.match(r"[0-9]+(\.[0-9]+){0,2}", hello.host.kernel)
        architecture = hello.host.architecture if re.fullmatch(r"[\w-]{1,16}", hello.host.architecture) else ""
        return permitted(
            hello,
            **{name: scrub(getattr(hello, name)) for name in ("tracker", "flush", "rearm", "memtui_version")},
            clock=permitted(hello.clock),
            host=permitted(
                hello.host, hostname="host", kernel=release[0] if release else "", architecture=architecture
            ),
            target=permitted(hello.target, command=self._commands[hello.target.command], user="user"),
            options=permitted(hello.options, filter=_terms(hello.options.filter)),
            rejected=tuple(map(capability, hello.rejected)),
            wss=capability(hello.wss),
            pages=capability(hello.pages),
        )


class _VmaIndex:
    """The VMA of an address: the shortest that contains it."""

    def __init__(self, rows: Sequence[VmaRow]) -> None:
        self._rows = rows
        edges = sorted({address for row in rows for address in (row.start, row.end)})
        self._edges = np.array(edges, np.int64)
        self._owner = np.full(len(edges) + 1, -1)
        for number in sorted(range(len(rows)), key=lambda n: rows[n].start - rows[n].end):
            low, high = np.searchsorted(self._edges, (rows[number].start, rows[number].end))
            self._owner[low + 1 : high + 1] = number

    def of(self, start: int, end: int) -> VmaRow | None:
        """Return the VMA of a run's start, or of its end where a large page starts before its VMA."""
        for address in (start, end - 1):
            number = int(self._owner[np.searchsorted(self._edges, address, side="right")])
            if number >= 0:
                return self._rows[number]
        return None


def _bases(rows: Iterable[VmaRow]) -> dict[int, int]:
    """Return a base for every VMA, in the order of addresses, at least a GiB after the one before; by process."""
    free: dict[int, int] = defaultdict(lambda: GIB)
    bases = {}
    for row in rows:
        bases[row.id] = free[row.process]
        free[row.process] += -(-(row.end - row.start) // GIB) * GIB + GIB
    return bases


def _perms(text: str) -> str:
    return text if re.fullmatch(r"[rwxsp-]{4}", text) else "????"


def _terms(expression: str) -> str:
    """Return a filter without the patterns of names in it."""
    harmless = r"!?(default|none|exec|noaccess|anon|file|heap|stack|pages\s*<\s*[0-9]{1,18})"
    terms = (term.strip() for term in expression.split(","))
    return ",".join(t if not t or re.fullmatch(harmless, t) else f"{'!' * t.startswith('!')}name={MASK}" for t in terms)


def open_source(path: Path, *, redact: bool = False) -> ReportSource:
    """Return the session to export. Raises SessionError."""
    return RedactedSource(path) if redact else Source(path)
