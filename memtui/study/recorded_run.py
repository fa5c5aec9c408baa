"""One recorded run as arrays, from its session: windows, page sets, reuse, and pictures of address over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.address_ranges import mapped_bytes
from memtui.analysis.page_raster import Picture, picture_of
from memtui.analysis.range_uses import uses_of
from memtui.analysis.released_memory import released_bytes
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.vma_filter import parse_filter
from memtui.analysis.window_merging import merge_windows, reuse_of
from memtui.analysis.working_set import select
from memtui.core.page_set import PageSet
from memtui.core.samples import Process
from memtui.reports.charts.model import HeatRegion
from memtui.reports.source import Source
from memtui.session.page_windows import busiest
from memtui.session.vma_row import VmaRow
from memtui.study.regions import regions
from memtui.study.runs.messages import RunResult

Floats = NDArray[np.float64]
CUT = 0.1  # share at the start of a run without steps that is left out, as in the published notebooks


class Trace:
    """A session and the result that its worker reported.

    Attributes:
        hello: target, tracker and options of the recording.
        interval_s: requested length of a window.
        samples: scalars of all windows.
        training: bool[n], windows between the first and the last step that were seen; of a program without steps, all
            windows but the first tenth.
        by_steps: whether the program reported steps.
    """

    def __init__(self, path: Path, result: RunResult) -> None:
        self._reader = Source(path)
        self.result = result
        self.hello = self._reader.hello
        self.interval_s = self.hello.options.interval_ns / 1e9
        self.samples = self._reader.samples
        first_ns, last_ns = result.first_step_ns, result.last_step_ns
        self.by_steps = False
        if first_ns is not None and last_ns is not None and last_ns > first_ns:
            self.by_steps = True
            self.training = (self.samples.start_ns >= first_ns) & (self.samples.end_ns <= last_ns)
        else:
            self.training = np.arange(len(self.samples)) >= CUT * len(self.samples)

    def close(self) -> None:
        self._reader.close()

    @property
    def seconds(self) -> Floats:
        """Return f8[n], the end of each window since the start of the first, s."""
        if not len(self.samples):
            return np.empty(0)
        return (self.samples.end_ns - self.samples.start_ns[0]) / 1e9

    @cached_property
    def mapped_bytes(self) -> Floats:
        """f8[n]: address space of the tree in each window; a range counts with its extent over the session."""
        return mapped_bytes(self._reader.vma_rows(), self.samples.sample[:])

    @cached_property
    def given_back_bytes(self) -> Floats:
        """f8[n]: bytes that the tree released in each window, at most; NaN: unknown; see ``released_memory``."""
        if not len(self.samples):
            return np.empty(0)
        by_sample = released_bytes(self._reader.process_samples(0, self.samples.newest))
        return np.array([by_sample.get(sample, np.nan) for sample in self.samples.sample.tolist()])

    @cached_property
    def cpu_shares(self) -> Floats:
        """f8[n]: CPU time of the tree in each window by its length, 1 is one CPU; NaN: unknown, as in the first."""
        if not len(self.samples):
            return np.empty(0)
        before: dict[int, int] = {}
        used: dict[int, float] = {}
        for row in self._reader.process_samples(0, self.samples.newest):
            if row["cpu_ns"] is None:
                continue
            if row["process"] in before:
                spent = (row["cpu_ns"] - before[row["process"]]) / max(row["end_ns"] - row["start_ns"], 1)
                used[row["sample"]] = used.get(row["sample"], 0.0) + spent
            before[row["process"]] = row["cpu_ns"]
        return np.array([used.get(sample, np.nan) for sample in self.samples.sample.tolist()])

    @cached_property
    def main(self) -> Process | None:
        """The process with the most accessed pages, which is the training; None where no page sets are stored."""
        return busiest(self._reader)

    @cached_property
    def pages(self) -> list[PageSet | None]:
        """Page sets of the main process, one for each window; None where there is none."""
        if self.main is None:
            return [None] * len(self.samples)
        return [self._reader.page_set(sample, self.main.key) for sample in self.samples.sample.tolist()]

    def training_pages(self) -> list[PageSet | None]:
        """Page sets of the windows of ``training``, of the main process."""
        return [self.pages[window] for window in np.flatnonzero(self.training)]

    def wss(self, *, training: bool = True) -> Floats:
        """Return the working-set sizes of the tree in bytes, of windows in which they are known."""
        sizes_bytes = self.samples.wss_bytes[self.training] if training else self.samples.wss_bytes[:]
        return sizes_bytes[~np.isnan(sizes_bytes)]

    def merged(self, count: int) -> list[PageSet]:
        """Return the windows of training, ``count`` neighbours in one; see ``merge_windows``."""
        return list(merge_windows(self.training_pages(), count))

    def reuse(self, *, training: bool = False, count: int = 1) -> ExactReuse:
        """Return the reuse distances of the main process: of the whole run or of training, ``count`` windows in one."""
        if training or count > 1:
            return reuse_of(self.merged(count))
        return reuse_of(pages for pages in self.pages if pages is not None)

    def filtered(self, expression: str) -> list[PageSet | None]:
        """Return ``training_pages`` without the ranges that a filter leaves out; see ``analysis.vma_filter``."""
        chosen = parse_filter(expression)
        return self.chosen(lambda row: chosen.leaves_out(row) is None, np.flatnonzero(self.training).tolist())

    def chosen(self, wanted: Callable[[VmaRow], bool], windows: Sequence[int]) -> list[PageSet | None]:
        """Return the pages of the main process in these windows, of the wanted ranges only."""
        if self.main is None:
            return []
        rows = self._reader.vma_rows(self.main.key)
        remaining: list[PageSet | None] = []
        for window in windows:
            pages, sample = self.pages[window], int(self.samples.sample[window])
            mapped = _disjoint([row for row in rows if row.first_sample <= sample <= row.last_sample])
            if pages is None:
                remaining.append(None)
                continue
            starts, ends = (np.array([getattr(row, name) for row in mapped], np.uint64) for name in ("start", "end"))
            out = np.array([not wanted(row) for row in mapped])
            remaining.append(pages.difference(select(pages, starts, ends, out)) if len(mapped) else pages)
        return remaining

    def picture(self, wanted: Callable[[VmaRow], bool] = lambda row: True, span: slice = slice(None)) -> Picture | None:
        """Return a picture of accesses by address and window, of the wanted ranges; None without an access."""
        rows = self._rows(wanted)
        if not rows:
            return None
        starts, ends = (np.array([getattr(row, name) for row in rows], np.uint64) for name in ("start", "end"))
        keep = np.ones(len(rows), bool)
        windows = [None if pages is None else select(pages, starts, ends, keep) for pages in self.pages[span]]
        return picture_of(windows)

    def regions(self, picture: Picture) -> list[HeatRegion]:
        """Return the names of the rows of a picture; see ``study.regions``."""
        every = [] if self.main is None else self._reader.vma_rows(self.main.key)
        return regions(self._rows(), picture, uses_of(every))

    def _rows(self, wanted: Callable[[VmaRow], bool] = lambda row: True) -> list[VmaRow]:
        """Return the wanted ranges of the main process by address, without overlaps."""
        return [] if self.main is None else _disjoint([r for r in self._reader.vma_rows(self.main.key) if wanted(r)])

    def paused_s(self) -> Floats:
        """Return f8[m]: how long the tree was paused for each window of training whose pause is known, s."""
        paused_ns = self.samples.paused_ns[self.training]
        return paused_ns[~np.isnan(paused_ns)] / 1e9

    def steps_per_running_s(self) -> float | None:
        """Return the steps in a second in which the program was not paused; None where that is unknown."""
        index, rate = np.flatnonzero(self.training), self.result.steps_per_s
        if rate is None or len(index) < 2:
            return None
        span_s = float(self.samples.end_ns[index[-1]] - self.samples.end_ns[index[0]]) / 1e9
        return rate / max(1 - float(self.paused_s()[1:].sum()) / span_s, 1e-3)

    def own_cpu_share(self) -> float | None:
        """Return the CPU time of sampler and recorder, as a share of training; None with fewer than two windows."""
        index = np.flatnonzero(self.training)
        if len(index) < 2:
            return None
        used = self.samples.sampler_cpu_ns + self.samples.recorder_cpu_ns
        return float(used[index[-1]] - used[index[0]]) / float(
            self.samples.end_ns[index[-1]] - self.samples.end_ns[index[0]]
        )

    def doubts(self) -> list[str]:
        """Return the reasons why the numbers of this run are less than exact."""
        lost = int(np.isnan(self.samples.wss_bytes).sum())
        sentences = [f"{lost} of {len(self.samples)} windows without a working set"] if lost else []
        disturbed = sum(map(bool, self.samples.disturbed))
        return sentences + ([f"{disturbed} windows disturbed"] if disturbed else [])


def _disjoint(rows: list[VmaRow]) -> list[VmaRow]:
    """Return rows by address without those that overlap the row before, as merged rows of a session may."""
    disjoint: list[VmaRow] = []
    for row in sorted(rows, key=lambda row: (row.start, -row.end)):
        if not disjoint or row.start >= disjoint[-1].end:
            disjoint.append(row)
    return disjoint
