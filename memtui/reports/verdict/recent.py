"""The last ten minutes of a session before a moment, and what a rule says of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.memory_growth import SHORTEST_S
from memtui.analysis.resident import PSS, RSS, SUM_OF_RSS, resident_bytes
from memtui.analysis.resident_readings import pss_of_several
from memtui.analysis.tensor_pages import TensorMap
from memtui.analysis.vma_filter import SHARED_MEMORY
from memtui.core.lru_cache import LruCache
from memtui.core.page_set import PageSet, union
from memtui.core.procfs import TICKS_PER_S
from memtui.core.readings import MemoryLimit, MemoryUse, NumaUse
from memtui.core.samples import End, Event, Hello, Process
from memtui.core.units import span
from memtui.reports.memory_limit import SPAN_NS, LimitSummary, limit_summary
from memtui.reports.post_mortem import TrainingSource
from memtui.session.sample_arrays import SampleArrays
from memtui.session.vma_row import VmaRow

ENDS_NS = 10_000_000_000  # until its last reading: a program may end its workers first
FRESH_S = 15.0  # how old the last reading of a PSS may be: what it says holds now
GROUP = 16  # windows whose pages are added up together, where there are many
MOST_UNIONS = 40  # of groups of windows: a live cursor needs 15, and two that change
NO_FILE = "memory of an allocator (no file)"
Floats = NDArray[np.float64]
UnionCache = LruCache[tuple[int, int, int, int], PageSet | None]
"""Pages touched in some windows, by process, first and last sample, and their number."""


class RecentSource(TrainingSource, Protocol):
    """What the rules read of a session: a part of ``ReportSource``, whose methods are described there."""

    @property
    def hello(self) -> Hello: ...
    @property
    def samples(self) -> SampleArrays: ...
    @property
    def end(self) -> End | None: ...
    def events(self, first_ns: int, last_ns: int) -> list[Event]: ...
    def processes(self) -> list[Process]: ...
    def memory_use(self, first_ns: int, last_ns: int) -> list[MemoryUse]: ...
    def numa_use(self, first_ns: int, last_ns: int) -> list[NumaUse]: ...
    def memory_limits(self, first_ns: int, last_ns: int) -> list[MemoryLimit]: ...
    def process_samples(self, first_sample: int, last_sample: int) -> list[dict[str, Any]]: ...
    def vma_rss(self, sample: int) -> dict[int, int]: ...
    def vma_private(self, first_sample: int, last_sample: int) -> list[tuple[int, int, dict[int, int]]]: ...
    def drawn_rows(self, process: int) -> list[VmaRow]: ...
    def latest_tensors(self, pid: int, t_ns: int) -> TensorMap | None: ...
    def page_set(self, sample: int, process: int) -> PageSet | None: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found: a sentence, the next thing to do, and the figures that say so.

    ``short``: the sentence without figures, for narrow screens.
    """

    sentence: str
    short: str
    action: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """What a rule looked at: its name, what came out of it in words, and a finding where there is one.

    ``measured``: whether the session has what the rule needs; ``undecided``: whether it has too little of it so far;
    ``applies``: False where this program or this machine cannot have what the rule looks for.
    """

    rule: str
    looked_at: str
    measured: bool = True
    undecided: bool = False
    applies: bool = True
    finding: Finding | None = None


class Recent:
    """The windows of the last ten minutes before the end of one of them. Its methods raise SessionError."""

    def __init__(self, source: RecentSource, index: int, cache: UnionCache | None = None) -> None:
        """Look at a session up to the window at ``index`` of its samples; ``cache``: what was added up for others."""
        self._cache: UnionCache = LruCache(MOST_UNIONS) if cache is None else cache
        self._process_samples: dict[int, list[dict[str, Any]]] = {}  # by the first sample: several rules read them
        samples = source.samples
        self.source = source
        self.end_ns = int(samples.end_ns[index])
        first = min(int(samples.end_ns.searchsorted(self.end_ns - SPAN_NS)), index)
        self.windows = slice(first, index + 1)
        self.sample = int(samples.sample[index])
        ends_ns = samples.end_ns[self.windows]
        self.t_s: Floats = (ends_ns - ends_ns[-1]) / 1e9
        """f8[n], when each window ended, in seconds before the last one did: rising, up to 0."""

    @property
    def span_s(self) -> float:
        """Seconds from the start of the first of these windows to the end of the last."""
        return (self.end_ns - int(self.source.samples.start_ns[self.windows.start])) / 1e9

    @property
    def too_short(self) -> str:
        """Why the time is too short for statements about growth; empty where it is not."""
        seen_s = self.span_s + (self.read_until_ns - self.end_ns) / 1e9
        return "" if seen_s >= SHORTEST_S else f"recorded for {span(seen_s)}: from {span(SHORTEST_S)} on"

    @cached_property
    def uses(self) -> list[MemoryUse]:
        """The resident memory of the tree in this time, some times a second; empty before format 15.

        After the last window it is that of the window in progress. A program that ended did so process by process:
        what is left of it in its last seconds does not count.
        """
        uses = self.source.memory_use(self.end_ns - SPAN_NS, 2**62 if self._is_last else self.end_ns + 1)
        if self.end is None or not uses:
            return uses
        processes = max(use.processes for use in uses if use.t_ns >= uses[-1].t_ns - ENDS_NS)
        return uses[: 1 + max(n for n, use in enumerate(uses) if use.processes == processes)]

    @cached_property
    def read_until_ns(self) -> int:
        """When the resident memory was read last."""
        return max(self.end_ns, self.uses[-1].t_ns) if self.uses else self.end_ns

    @property
    def age_s(self) -> float:
        """For how long the program has run: ticks count from the start of the machine, as the clock does."""
        return self.read_until_ns / 1e9 - self.source.hello.target.start_ticks / TICKS_PER_S

    @property
    def pss_age_s(self) -> float:
        """How long ago the PSS was read last; infinite where it was not. Windows repeat it until then."""
        in_windows_ns = self.source.samples.pss_ns[self.windows]
        read_ns = in_windows_ns[np.isfinite(in_windows_ns)].tolist()
        read_ns += [use.t_ns for use in self.uses if use.pss_bytes is not None]
        return (self.read_until_ns - max(read_ns, default=-math.inf)) / 1e9

    def resident_series(self) -> tuple[str, Floats, Floats]:
        """Return (kind, f8[n] seconds before the last, f8[n] bytes) of resident memory, as densely as it is known."""
        if all(use.processes == 1 for use in self.uses):
            kind, sizes = RSS, [(use.t_ns, use.rss_bytes) for use in self.uses]
            at_end = self.source.samples.rss_bytes[self.windows.stop - 1]
            if sizes and sizes[-1][0] < self.end_ns and np.isfinite(at_end):
                sizes.append((self.end_ns, int(at_end)))
        else:
            alone = [(use.t_ns, use.rss_bytes) for use in self.uses if use.processes == 1]
            kind, sizes = PSS, sorted(alone + pss_of_several(self.uses))
        # Windows repeat a PSS until the next one.
        read = kind == PSS and (self.resident_kind == SUM_OF_RSS or any(use.pss_bytes is not None for use in self.uses))
        if read or len(sizes) >= len(self.t_s):
            return kind, *self._series(sizes)
        finite = np.isfinite(self.resident_bytes)
        return self.resident_kind, self.t_s[finite], self.resident_bytes[finite]

    def rss_series(self) -> tuple[Floats, Floats]:
        """Return (f8[n] seconds before the last one, f8[n] bytes): the sum of the RSS, as densely as it is known."""
        if len(self.uses) >= len(self.t_s):
            return self._series([(use.t_ns, use.rss_bytes) for use in self.uses])
        rss = self.source.samples.rss_bytes[self.windows]
        return self.t_s[np.isfinite(rss)], rss[np.isfinite(rss)]

    def _series(self, sizes: list[tuple[int, int]]) -> tuple[Floats, Floats]:
        t_s = np.array([(t_ns - self.read_until_ns) / 1e9 for t_ns, _ in sizes])
        return t_s, np.array([size_bytes for _, size_bytes in sizes], np.float64)

    @cached_property
    def resident_kind(self) -> str:
        """The kind of resident memory that all these windows have (``analysis.resident``)."""
        samples = self.source.samples
        if (samples.processes[self.windows] == 1).all():
            return RSS
        return PSS if np.isfinite(samples.pss_bytes[self.windows]).any() else SUM_OF_RSS

    @cached_property
    def resident_bytes(self) -> Floats:
        """Resident memory at the end of each window: f8[n], nan where it is not known."""
        return resident_bytes(self.source.samples, self.resident_kind, self.windows)

    @cached_property
    def wss_bytes(self) -> Floats:
        """Working set of each window: f8[n], nan where it is not known."""
        return self.source.samples.wss_bytes[self.windows]

    @property
    def _is_last(self) -> bool:
        return self.sample == self.source.samples.newest

    @property
    def end(self) -> End | None:
        """How the program ended, after the last window; None: it did not, or these are not the last windows."""
        end = self.source.end if self._is_last else None
        return end if end is not None and end.of_target else None

    @cached_property
    def limits(self) -> list[MemoryLimit]:
        """The limit of memory in this time, every two seconds; the last one may be read after the last window."""
        return self.source.memory_limits(self.end_ns - SPAN_NS, 2**62 if self._is_last else self.end_ns + 1)

    @cached_property
    def limit(self) -> LimitSummary | None:
        """The limit of memory in this time; None: not read."""
        return limit_summary(self.limits, ended=self.end is not None)

    def process_samples(self, seconds: float) -> list[dict[str, Any]]:
        """Return the scalars of each process in the windows that ended in the last ``seconds``."""
        first_sample = self.sample_before(seconds)
        if first_sample not in self._process_samples:
            self._process_samples[first_sample] = self.source.process_samples(first_sample, self.sample)
        return self._process_samples[first_sample]

    def sample_before(self, seconds: float) -> int:
        """Return the first sample that ended in the last ``seconds`` of this time."""
        index = self.windows.start + int(np.searchsorted(self.t_s, -seconds))
        return int(self.source.samples.sample[min(index, self.windows.stop - 1)])

    def touched_pages(self, process: int, samples: list[int]) -> PageSet | None:
        """Return the pages that a process touched in any of some windows; None where those of one are not known."""
        key = process, samples[0], samples[-1], len(samples)
        if key not in self._cache:
            sets = [self.source.page_set(sample, process) for sample in samples]
            stored = [pages for pages in sets if pages is not None]
            self._cache.put(key, union(stored) if len(stored) == len(sets) else None)
        return self._cache[key]

    def touched_groups(self, process: int, first: int, stop: int) -> Iterator[tuple[int, PageSet | None]]:
        """Yield the pages that a process touched in groups of windows, each with the index of the group's first one."""
        samples = self.source.samples.sample
        for start, end in _groups(first, stop):
            yield start, self.touched_pages(process, samples[start:end].tolist())

    def touched_between(self, process: int, first: int, stop: int) -> PageSet | None:
        """Return the pages that a process touched in ``[first, stop)``; None where those of a window are not known."""
        sets = [pages for _, pages in self.touched_groups(process, first, stop)]
        stored = [pages for pages in sets if pages is not None]
        return union(stored) if len(stored) == len(sets) else None

    @cached_property
    def processes(self) -> dict[int, dict[str, Any]]:
        """The scalars of the processes of the last window, by their keys."""
        return {row["process"]: row for row in self.source.process_samples(self.sample, self.sample)}

    @property
    def largest(self) -> int | None:
        """The key of the process with the largest RSS; None without one."""
        return max(self.processes, key=lambda key: self.processes[key]["rss_bytes"] or 0, default=None)

    @cached_property
    def rows(self) -> list[VmaRow]:
        """The VMA rows of these processes, at their real addresses: for sums, never as text."""
        return [row for process in self.processes for row in self.source.drawn_rows(process)]


def _groups(first: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the borders of groups of windows, the same from call to call but at the ends.

    There are fewer than ``MOST_UNIONS`` groups: a cache that is too small by one holds none of them at its next use.
    """
    windows = stop - first
    size = GROUP if windows >= 4 * GROUP else GROUP // 4 if windows >= 2 * GROUP else 1
    while first < stop:
        end = min(first - first % size + size, stop)
        yield first, end
        first = end


def is_anonymous(row: VmaRow) -> bool:
    """Return whether memory of a row has no file: heaps, stacks, and what an allocator maps.

    The kernel's own names have brackets; a file has a path, or a label where a report is redacted.
    """
    return not row.name or row.name.startswith("[")


def is_swap_backed(row: VmaRow) -> bool:
    """Return whether the kernel can take back memory of a row only where there is swap: without a file, or shared."""
    return is_anonymous(row) or row.name.startswith(SHARED_MEMORY)
