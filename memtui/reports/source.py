"""The interface of a session to reports (``ReportSource``), and its plain implementation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.reuse_burst import PartReuse
from memtui.analysis.reuse_distance import ReuseSample
from memtui.analysis.stack_capture import StackCapture
from memtui.analysis.tensor_pages import TensorMap
from memtui.core.call_stacks import CallStacks
from memtui.core.page_set import PageSet
from memtui.core.readings import GpuMemory, GpuUse, MemoryLimit, MemoryUse, NumaUse, PowerReading
from memtui.core.samples import End, Event, Hello, Process
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.session.sample_arrays import SampleArrays
from memtui.session.session import Session
from memtui.session.tables.allocations import RecordedStep
from memtui.session.tables.imported import DriverMemory, ImportedFrom
from memtui.session.tables.learning import About, LearningPoint
from memtui.session.tables.training import ProgressRow, RecordedProgress
from memtui.session.vma_row import VmaRow

PageRun = tuple[int, int, int]
"""Start and end of touched memory and the size of its pages, bytes."""
ByRow = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Samples, ids of VMA rows, and bytes, each i8[n]."""


class ReportSource(Protocol):
    """The interface of a session to reports, exports, figures and comparisons.

    ``Source`` returns the data as stored, ``redact.RedactedSource`` without names and addresses. The methods raise
    SessionError; methods of the readers of a ``Session`` are described there.
    """

    @property
    def path(self) -> Path: ...
    @property
    def hello(self) -> Hello: ...
    @property
    def samples(self) -> SampleArrays: ...
    @property
    def end(self) -> End | None: ...
    @property
    def alive(self) -> bool: ...
    @property
    def downsampled_to_bytes(self) -> int | None: ...
    @property
    def shows_distances(self) -> bool:
        """Whether distances between ranges may be shown: they reveal addresses."""

    @property
    def title(self) -> str:
        """Name of the session."""

    @property
    def short_title(self) -> str:
        """Name without folders, for files that are passed on."""

    def close(self) -> None: ...
    def processes(self) -> list[Process]: ...
    def vma_rows(self, process: int | None = None) -> list[VmaRow]: ...
    def drawn_rows(self, process: int) -> list[VmaRow]:
        """VMA rows at their real addresses, with names that can be shown: for pictures and sums, never as text."""

    def page_set(self, sample: int, process: int) -> PageSet | None:
        """Touched pages at their real addresses: for pictures and sums, never as text."""

    def runs(self, sample: int, process: int, mapped: Sequence[VmaRow]) -> Iterator[PageRun]:
        """Yield the runs of touched pages of a window, split where another of the mapped VMAs starts or ends.

        ``mapped``: the rows of ``vma_rows`` that were mapped in the window.
        """

    def vma_wss(self, first_sample: int, last_sample: int) -> ByRow: ...
    def vma_rss(self, sample: int) -> dict[int, int]: ...
    def vma_private(self, first_sample: int, last_sample: int) -> list[tuple[int, int, dict[int, int]]]: ...
    def process_samples(self, first_sample: int, last_sample: int) -> list[dict[str, Any]]: ...
    def iterate_reuse(self, first_sample: int, last_sample: int) -> Iterator[tuple[int, int, ReuseSample]]: ...
    def reuse_bursts(self, first_sample: int, last_sample: int) -> Iterator[tuple[int, int, tuple[PartReuse, ...]]]: ...
    def power(self, first_ns: int, last_ns: int) -> list[PowerReading]: ...
    def gpu_memory(self, first_ns: int, last_ns: int) -> list[GpuMemory]: ...
    def gpu_use(self, first_ns: int, last_ns: int) -> list[GpuUse]: ...
    def memory_limits(self, first_ns: int, last_ns: int) -> list[MemoryLimit]: ...
    def memory_use(self, first_ns: int, last_ns: int) -> list[MemoryUse]: ...
    def numa_use(self, first_ns: int, last_ns: int) -> list[NumaUse]: ...
    def events(self, first_ns: int, last_ns: int) -> list[Event]: ...
    def allocation_steps(self) -> list[RecordedStep]: ...
    def step_trace(self, step: RecordedStep) -> StepTrace: ...
    def call_stacks(self) -> CallStacks: ...
    def captures(self) -> list[StackCapture]:
        """Return captures with the real addresses of blocks: for sums, never as text."""

    def resident_set(self, sample: int, process: int) -> PageSet | None:
        """Resident pages at their real addresses: for sums, never as text."""

    def resident_samples(self, process: int) -> list[int]: ...
    def tensor_maps(self) -> list[tuple[int, int, TensorMap]]: ...
    def latest_tensors(self, pid: int, t_ns: int) -> TensorMap | None: ...
    def training(self, first_ns: int = 0, last_ns: int = 1 << 62, device: str = MAIN_MEMORY) -> list[ProgressRow]: ...
    def training_devices(self) -> list[str]: ...
    def traced_fraction(self) -> float | None: ...
    def training_progress(self, row: ProgressRow) -> RecordedProgress: ...
    def imported(self) -> ImportedFrom | None: ...
    def driver_memory(self) -> list[DriverMemory]: ...
    def learning(self, first_ns: int = 0, last_ns: int = 1 << 62) -> list[LearningPoint]: ...
    def trainings(self) -> list[About]: ...


class Source:
    """A session as it is: a ``ReportSource``."""

    shows_distances = True

    def __init__(self, path: Path) -> None:
        """Open a session. Raises SessionError."""
        self._session = session = Session(path)
        self.processes = session.processes.all
        self.process_samples = session.processes.samples
        self.vma_rows = session.vmas.rows
        self.vma_wss = session.vmas.wss
        self.vma_rss = session.vmas.rss
        self.vma_private = session.vmas.private
        self.page_set = session.pages.page_set
        self.iterate_reuse = session.reuse.iterate
        self.reuse_bursts = session.reuse.bursts
        self.power = session.devices.power
        self.gpu_memory = session.devices.gpu_memory
        self.gpu_use = session.devices.gpu_use
        self.memory_limits = session.devices.memory_limits
        self.memory_use = session.devices.memory_use
        self.numa_use = session.devices.numa_use
        self.events = session.events
        self.allocation_steps = session.allocations.steps
        self.step_trace = session.allocations.trace
        self.call_stacks = session.allocations.call_stacks
        self.captures = session.captures.all
        self.resident_set = session.pages.resident_set
        self.resident_samples = session.pages.resident_samples
        self.driver_memory = session.allocations.driver_memory
        self.tensor_maps, self.latest_tensors = session.tensors.maps, session.tensors.latest
        self.training = session.training.progress
        self.training_progress = session.training.details
        self.training_devices = session.training.devices
        self.traced_fraction = session.training.traced_fraction
        self.learning = session.training.learning
        self.trainings = session.training.networks
        self.imported = session.imported
        self.close = session.close

    @property
    def path(self) -> Path:
        return self._session.path

    @property
    def hello(self) -> Hello:
        return self._session.hello

    @property
    def samples(self) -> SampleArrays:
        return self._session.samples

    @property
    def end(self) -> End | None:
        return self._session.end

    @property
    def alive(self) -> bool:
        return self._session.alive

    @property
    def downsampled_to_bytes(self) -> int | None:
        return self._session.downsampled_to_bytes

    def refresh(self) -> bool:
        """Read what was recorded since. Returns whether there was anything. Raises SessionError."""
        return self._session.refresh()

    @property
    def title(self) -> str:
        return str(self.path)

    @property
    def short_title(self) -> str:
        return self.title.rpartition("/")[2]

    def drawn_rows(self, process: int) -> list[VmaRow]:
        return self.vma_rows(process)

    def runs(self, sample: int, process: int, mapped: Sequence[VmaRow]) -> Iterator[PageRun]:
        pages = self.page_set(sample, process)
        if pages is not None:
            yield from pages.runs([address for row in mapped for address in (row.start, row.end)])


def not_stored_bytes(reader: ReportSource, process: int | None = None) -> NDArray[np.int64]:
    """Return i8[n], the touched bytes of each window that are not stored, of one process or of all processes.

    A page that several processes touched counts for each. Windows where the size is unknown are left out. Raises
    SessionError.
    """
    by_sample: dict[int, int] = defaultdict(int)
    unknown = set()
    for row in reader.process_samples(0, reader.samples.newest) if len(reader.samples) else ():
        if process in (None, row["process"]):
            if row["wss_bytes"] is None or row["stored_bytes"] is None:
                unknown.add(row["sample"])
            else:
                by_sample[row["sample"]] += max(row["wss_bytes"] - row["stored_bytes"], 0)
    return np.array([value for sample, value in by_sample.items() if sample not in unknown], np.int64)
