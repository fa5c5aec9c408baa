"""The figures of a session from its start to the cursor, for the sentences about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.alike import longest_intervals, measured_times
from memtui.analysis.growing_median import GrowingMedian
from memtui.analysis.lower_bound import MAPPED_SHARE, mapped_bytes, may_lack_pages
from memtui.analysis.memory_sentences import Figures, Forms, sentences_of
from memtui.analysis.resident import SUM_OF_RSS, ResidentKind, has_all_processes, is_comparable, resident_bytes
from memtui.analysis.target_loss import LastPart, last_part
from memtui.core.samples import Process
from memtui.reports.post_mortem import ending_forms
from memtui.session.sample_arrays import SampleArrays
from memtui.session.session import Session
from memtui.tui.presenters.all_windows import MORE, parts_until
from memtui.widgets.views.memory import ReuseView, SentencesView

_MEDIANS = 4
NOTHING = LastPart()


class SentencesLog:
    """Computes the figures of all windows up to the cursor when the cursor moves, and caches them."""

    def __init__(self) -> None:
        self._cursor_key: tuple[int, int, str, bool] | None = None
        self._resident = ResidentKind()
        self._windows: WindowFigures | None = None
        self._figures = Figures()
        self._ending: Forms | None = None

    @property
    def traced_fraction(self) -> float | None:
        """What tracing took of the time of the target until the cursor; None: nothing is traced."""
        return self._figures.traced_fraction

    def view(
        self,
        reader: Session,
        index: int,
        reuse: ReuseView | None,
        processes: Sequence[Process],
        verdict: tuple[Forms, ...] = (),
    ) -> SentencesView:
        """Return the sentences; ``reuse``: distances until then; ``verdict``: what was found, which comes first."""
        if index < 0:
            return SentencesView()
        samples = reader.samples
        kind = self._resident.of(samples, processes)
        key = index, int(samples.sample[index]), kind, reader.end is None
        if self._cursor_key != key:
            if self._windows is None or not self._windows.can_add(samples, index, kind):
                self._windows = WindowFigures(samples, index, kind)
            else:
                self._windows.add(samples, index)
            is_last = index == len(samples.sample) - 1
            after = last_part(samples, reader.end, alive=reader.alive) if is_last else NOTHING
            figures = self._windows.figures(samples, after)
            until_next = reader.end is None and after.length_ns > 0
            traced = reader.training.traced_fraction(1 << 62 if is_last else int(samples.end_ns[index]))
            figures = replace(figures, until_next=until_next, traced_fraction=traced)
            self._cursor_key, self._figures = key, figures
        first = (self._ending_of(reader) if index == len(samples.sample) - 1 else ()) or verdict
        if reuse is None:
            return SentencesView((*first, *sentences_of(self._figures)))
        estimate = reuse.most_estimate_bytes
        figures = replace(self._figures, reuse_bytes=reuse.most_bytes, reuse_estimate_bytes=estimate)
        return SentencesView((*first, *sentences_of(figures)))

    def _ending_of(self, reader: Session) -> tuple[Forms, ...]:
        """Return the sentence about a program that was killed or failed; it is read once."""
        if reader.end is None or not reader.end.is_bad:
            return ()
        if self._ending is None:
            self._ending = tuple(f"{form[:1].upper()}{form[1:]}." for form in ending_forms(reader.path))
        return (self._ending,)


class WindowFigures:
    """The figures of the windows up to one, without reuse: those of the report, for a part of the session.

    A live cursor moves on by a few windows a second: these are added to what is known of the thousands before. Sizes
    are of windows of one length, and which length that is follows from all windows: they are looked at again after
    every 64th part of them.
    """

    def __init__(self, samples: SampleArrays, index: int, kind: str) -> None:
        """Look at all windows up to ``index``; ``kind`` of resident memory."""
        count = index + 1
        measured = any(np.isfinite(samples.wss_bytes[part]).any() for part in parts_until(count))
        times = (
            measured_times(
                samples.intervals_ns(part),
                samples.end_ns[part] - samples.start_ns[part],
                np.isfinite(samples.wss_bytes[part]),
                only_measured=measured,
            )
            for part in parts_until(count)
        )
        self._kind, self._budget = kind, samples.has_budget
        self._intervals_ns = longest_intervals(times, exact=not self._budget)
        self._left = count // MORE
        self._count, self._sample = 0, -1
        self._max_bytes = self._paused_ns = self._lost_ns = np.nan
        self._windows = 0  # of the length that counts
        self._measured = self._lower_bounds = 0  # windows with a working set, and those that may lack pages
        self._touched_bytes = self._mapped_bytes = 0.0  # of these, and of file pages that faults mapped
        for part in parts_until(count):
            self._add_up(samples, part)
        self._medians = tuple(
            GrowingMedian((self._values(samples, part)[n] for part in parts_until(count)), self._left, count)
            for n in range(_MEDIANS)
        )
        self._move(samples, index)

    def can_add(self, samples: SampleArrays, index: int, kind: str) -> bool:
        """Return whether the windows up to ``index`` are those that are known and few more."""
        return (
            self._count <= index < self._count + self._left
            and self._sample == samples.sample[self._count - 1]
            and (kind, samples.has_budget) == (self._kind, self._budget)
        )

    def add(self, samples: SampleArrays, index: int) -> None:
        """Add the windows up to ``index``."""
        self._left -= index + 1 - self._count
        added = slice(self._count, index + 1)
        self._add_up(samples, added)
        for median, values in zip(self._medians, self._values(samples, added), strict=True):
            median.add(values)
        self._move(samples, index)

    def figures(self, samples: SampleArrays, after: LastPart = NOTHING) -> Figures:
        """Return the figures of the windows that were looked at.

        ``samples``: all of the session. ``after``: the time after the last of them, if all were looked at.
        """
        last = self._count - 1
        span_ns = float(samples.end_ns[last] - samples.start_ns[0]) + after.length_ns
        apart_ns = float(samples.end_ns[last] - samples.end_ns[0])
        cpu_ns = sum(
            float(taken[last]) - float(taken[0]) for taken in (samples.sampler_cpu_ns, samples.recorder_cpu_ns)
        )
        window_s, wss, wss_both, resident = (median.value for median in self._medians)
        comparable = bool(resident) and self._kind != SUM_OF_RSS
        return Figures(
            window_s=window_s,
            wss_median_bytes=wss,
            wss_max_bytes=_or_none(self._max_bytes),
            resident_bytes=resident if comparable else None,
            paused_fraction=_or_none(self._paused_ns / span_ns) if apart_ns > 0 else None,
            lost_fraction=_or_none((self._lost_ns + after.lost_ns) / span_ns) if apart_ns > 0 else None,
            own_cpu=after.cpu_share(cpu_ns, apart_ns) if apart_ns > 0 else None,
            touched_fraction=wss_both / resident if comparable and wss_both is not None and resident else None,
            resident=self._kind,
            may_lack_pages=2 * self._lower_bounds > self._measured
            and self._mapped_bytes < MAPPED_SHARE * self._touched_bytes,
            windows=self._windows,
            is_estimated=samples.are_estimates,
        )

    def _add_up(self, samples: SampleArrays, of: slice) -> None:
        """Add windows to the sums and the largest working set."""
        wss, alike = samples.wss_bytes[of], self._alike(samples, of)
        measured = alike & ~np.isnan(wss)
        self._windows += int(alike.sum())
        if measured.any():
            self._max_bytes = np.fmax(self._max_bytes, wss[measured].max())
        self._measured += int(measured.sum())
        self._touched_bytes += float(wss[measured].sum())
        reasons, gaps, faulted_in = samples.reason[of], samples.gaps[of], samples.faulted_in_bytes[of]
        counted = np.flatnonzero(measured).tolist()
        self._mapped_bytes += sum(mapped_bytes(reasons[n], float(faulted_in[n])) for n in counted)
        self._lower_bounds += sum(may_lack_pages(reasons[n], int(gaps[n])) for n in counted)
        self._paused_ns = _sum(self._paused_ns, samples.paused_ns[of])
        self._lost_ns = _sum(self._lost_ns, samples.lost_ns[of])

    def _values(self, samples: SampleArrays, of: slice) -> tuple[NDArray[np.float64], ...]:
        """Return lengths and working sets of the windows that are alike, and these where RSS or PSS is known, too."""
        alike = self._alike(samples, of)
        wss, memory = samples.wss_bytes[of], resident_bytes(samples, self._kind, of)
        finite = alike & ~np.isnan(wss)
        both = alike & is_comparable(wss, memory, self._kind) & has_all_processes(samples.gaps[of])
        lengths_s = (samples.end_ns[of] - samples.start_ns[of])[alike] / 1e9
        return lengths_s, wss[finite], wss[both], memory[both]

    def _alike(self, samples: SampleArrays, of: slice) -> NDArray[np.bool_]:
        """Return which windows have the length of those whose sizes count."""
        intervals_ns = samples.intervals_ns(of)
        return (self._intervals_ns[0] <= intervals_ns) & (intervals_ns <= self._intervals_ns[1])

    def _move(self, samples: SampleArrays, index: int) -> None:
        self._count, self._sample = index + 1, int(samples.sample[index])


def _sum(before: float, values: NDArray[np.float64]) -> float:
    """Return the sum of the known values and what is known before; nan where nothing is known."""
    finite = values[~np.isnan(values)]
    return float(np.nansum((before, finite.sum()))) if len(finite) else before


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
