"""The figures of a session from its start to the cursor, for the sentences about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from memtui.analysis.alike import groups
from memtui.analysis.fast_numpy import median
from memtui.analysis.memory_sentences import Figures, sentences_of
from memtui.analysis.resident import resident, touched_fraction
from memtui.analysis.target_loss import lost_fraction
from memtui.core.samples import Process
from memtui.session.sample_table import SampleTable
from memtui.session.session import Session
from memtui.widgets.views.memory import SentencesView


class SentencesLog:
    """Computes the figures of all windows up to the cursor when the cursor moves, and caches them."""

    def __init__(self) -> None:
        self._cursor_key: tuple[int, int] | None = None
        self._figures = Figures()

    def view(
        self, reader: Session, index: int, reuse_bytes: tuple[float, float] | None, processes: Iterable[Process]
    ) -> SentencesView:
        """Return the sentences; ``reuse_bytes``: bounds of the reuse distance of 95 % of the reuses until then."""
        if index < 0:
            return SentencesView()
        samples = reader.samples
        if self._cursor_key != (index, int(samples.sample[index])):
            self._cursor_key, self._figures = (
                (index, int(samples.sample[index])),
                figures_until(samples, index, processes),
            )
        return SentencesView(tuple(sentences_of(replace(self._figures, reuse_bytes=reuse_bytes))))


def figures_until(samples: SampleTable, index: int, processes: Iterable[Process]) -> Figures:
    """Return the figures of the windows up to one, without reuse: those of the report, for a part of the session."""
    upto = slice(0, index + 1)
    start_ns, end_ns = samples.start_ns[upto], samples.end_ns[upto]
    alike = groups(samples.intervals_ns(upto), end_ns - start_ns, exact=not samples.has_budget, most=1)[0].windows
    touched = np.where(alike, samples.wss_bytes[upto], np.nan)
    wss, paused = _finite(touched), _finite(samples.paused_ns[upto])
    resident_memory = resident(samples, processes)
    fraction, resident_bytes = touched_fraction(touched, resident_memory, upto) or (None, None)
    span_ns, apart_ns = float(end_ns[-1] - start_ns[0]), float(end_ns[-1] - end_ns[0])
    cpu_ns = sum(float(taken[index]) - float(taken[0]) for taken in (samples.sampler_cpu_ns, samples.recorder_cpu_ns))
    return Figures(
        window_s=median((end_ns - start_ns)[alike] / 1e9),
        wss_median_bytes=median(wss) if len(wss) else None,
        wss_max_bytes=float(wss.max()) if len(wss) else None,
        resident_bytes=resident_bytes,
        paused_fraction=float(paused.sum() / span_ns) if len(paused) and apart_ns > 0 else None,
        lost_fraction=lost_fraction(samples.lost_ns[upto], span_ns) if apart_ns > 0 else None,
        own_cpu=cpu_ns / apart_ns if apart_ns > 0 else None,
        touched_fraction=fraction,
        resident=resident_memory.name,
    )


def _finite(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]
