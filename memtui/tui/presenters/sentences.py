"""The figures of a session from its start to the cursor, for the sentences about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.alike import groups
from memtui.analysis.growing_median import GrowingMedian
from memtui.analysis.memory_sentences import Figures, sentences_of
from memtui.analysis.resident import SUM_OF_RSS, ResidentKind, resident_bytes
from memtui.core.samples import Process
from memtui.session.sample_table import SampleTable
from memtui.session.session import Session
from memtui.widgets.views.memory import SentencesView

MORE = 64  # one in so many windows is added to the figures of those before it until all are looked at again


class SentencesLog:
    """Computes the figures of all windows up to the cursor when the cursor moves, and caches them."""

    def __init__(self) -> None:
        self._cursor_key: tuple[int, int] | None = None
        self._resident = ResidentKind()
        self._windows: WindowFigures | None = None
        self._figures = Figures()

    def view(
        self, reader: Session, index: int, reuse_bytes: tuple[float, float] | None, processes: Sequence[Process]
    ) -> SentencesView:
        """Return the sentences; ``reuse_bytes``: bounds of the reuse distance of 95 % of the reuses until then."""
        if index < 0:
            return SentencesView()
        samples = reader.samples
        key = index, int(samples.sample[index])
        if self._cursor_key != key:
            kind = self._resident.of(samples, processes)
            if self._windows is None or not self._windows.can_add(samples, index, kind):
                self._windows = WindowFigures(samples, index, kind)
            else:
                self._windows.add(samples, index)
            self._cursor_key, self._figures = key, self._windows.figures(samples)
        return SentencesView(tuple(sentences_of(replace(self._figures, reuse_bytes=reuse_bytes))))


class WindowFigures:
    """The figures of the windows up to one, without reuse: those of the report, for a part of the session.

    A live cursor moves on by a few windows a second: these are added to what is known of the thousands before. Sizes
    are of windows of one length, and which length that is follows from all windows: they are looked at again after
    every 64th part of them.
    """

    def __init__(self, samples: SampleTable, index: int, kind: str) -> None:
        """Look at all windows up to ``index``; ``kind`` of resident memory."""
        upto = slice(0, index + 1)
        lengths_ns = samples.end_ns[upto] - samples.start_ns[upto]
        largest = groups(samples.intervals_ns(upto), lengths_ns, exact=not samples.has_budget, most=1)[0]
        self._kind, self._budget = kind, samples.has_budget
        self._intervals_ns = largest.interval_ns
        self._left = (index + 1) // MORE
        self._count, self._sample = 0, -1
        self._max_bytes = self._paused_ns = self._lost_ns = np.nan
        self._medians = tuple(GrowingMedian(values, self._left) for values in self._of_windows(samples, upto))
        self._move(samples, index)

    def can_add(self, samples: SampleTable, index: int, kind: str) -> bool:
        """Return whether the windows up to ``index`` are those that are known and few more."""
        return (
            self._count <= index < self._count + self._left
            and self._sample == samples.sample[self._count - 1]
            and (kind, samples.has_budget) == (self._kind, self._budget)
        )

    def add(self, samples: SampleTable, index: int) -> None:
        """Add the windows up to ``index``."""
        self._left -= index + 1 - self._count
        of_each = self._of_windows(samples, slice(self._count, index + 1))
        for median, values in zip(self._medians, of_each, strict=True):
            median.add(values)
        self._move(samples, index)

    def figures(self, samples: SampleTable) -> Figures:
        """Return the figures of the windows that were looked at; ``samples``: all of the session."""
        last = self._count - 1
        span_ns = float(samples.end_ns[last] - samples.start_ns[0])
        apart_ns = float(samples.end_ns[last] - samples.end_ns[0])
        cpu_ns = sum(
            float(taken[last]) - float(taken[0]) for taken in (samples.sampler_cpu_ns, samples.recorder_cpu_ns)
        )
        window_s, wss, wss_both, resident = (median.value for median in self._medians)
        comparable = bool(resident) and self._kind != SUM_OF_RSS
        return Figures(
            window_s=window_s,
            wss_median_bytes=wss,
            wss_max_bytes=_known(self._max_bytes),
            resident_bytes=resident if comparable else None,
            paused_fraction=_known(self._paused_ns / span_ns) if apart_ns > 0 else None,
            lost_fraction=_known(self._lost_ns / span_ns) if apart_ns > 0 else None,
            own_cpu=cpu_ns / apart_ns if apart_ns > 0 else None,
            touched_fraction=wss_both / resident if comparable and wss_both is not None and resident else None,
            resident=self._kind,
        )

    def _of_windows(self, samples: SampleTable, of: slice) -> tuple[NDArray[np.float64], ...]:
        """Add up windows; return lengths and working sets of those alike, and these where RSS or PSS is known, too."""
        intervals_ns = samples.intervals_ns(of)
        alike = (self._intervals_ns[0] <= intervals_ns) & (intervals_ns <= self._intervals_ns[1])
        wss, memory = samples.wss_bytes[of], resident_bytes(samples, self._kind, of)
        known = alike & ~np.isnan(wss)
        both = known & np.isfinite(memory)
        self._max_bytes = np.fmax(self._max_bytes, np.fmax.reduce(wss[known], initial=np.nan))
        self._paused_ns = _sum(self._paused_ns, samples.paused_ns[of])
        self._lost_ns = _sum(self._lost_ns, samples.lost_ns[of])
        lengths_s = (samples.end_ns[of] - samples.start_ns[of])[alike] / 1e9
        return lengths_s, wss[known], wss[both], memory[both]

    def _move(self, samples: SampleTable, index: int) -> None:
        self._count, self._sample = index + 1, int(samples.sample[index])


def _sum(before: float, values: NDArray[np.float64]) -> float:
    """Return the sum of the known values and what is known before; nan where nothing is known."""
    known = values[~np.isnan(values)]
    return float(np.nansum((before, known.sum()))) if len(known) else before


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
