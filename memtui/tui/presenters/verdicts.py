"""The verdict on a session at the cursor: computed when the cursor rests, and seldom while it moves by itself."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from memtui.analysis.memory_sentences import Forms
from memtui.core.lru_cache import LruCache
from memtui.core.samples import Process
from memtui.session.session import Session
from memtui.session.vma_row import VmaRow

if TYPE_CHECKING:  # the rules come with the first verdict, which is not part of the first picture
    from memtui.reports.verdict.recent import UnionCache
    from memtui.reports.verdict.verdict import Verdict

LIVE_S = 10.0  # between two verdicts while the cursor moves
NEWEST_S = 15.0  # the same at the newest window: memory is read on while the next one lasts
NEAR_S = 5.0  # the same for both where memory will be full: the time that is left is said
_Key = tuple[int, int, bool]  # index and sample of a window, and whether the session has ended


class VerdictLog:
    """Computes the verdict of a session, and caches the last one."""

    def __init__(self) -> None:
        self._key: _Key | None = None
        self._next: _Key | None = None  # that of the last call
        self.due = False  # the verdict is not that of the cursor: the next call, without another key, computes it
        self._at_s = 0.0
        self._pages: UnionCache | None = None
        self.verdict: Verdict | None = None
        self.end_ns: int | None = None  # of the window of that verdict, which may be an earlier one than the cursor's

    def update(self, reader: Session, index: int, *, moving: bool) -> Verdict | None:
        """Return the verdict at a window; None before the first one.

        Args:
            reader: the session.
            index: of the window in its samples; -1: before the first.
            moving: the cursor moves by itself: the last verdict stays for some seconds.

        Raises:
            SessionError: the session is damaged.
        """
        if index < 0:
            self._key = self._next = self.verdict = self.end_ns = None
            self.due = False
            return None
        samples = reader.samples
        key = index, int(samples.sample[index]), reader.end is not None
        now_s = time.monotonic()
        rests, self._next = key == self._next, key
        age_s, near = now_s - self._at_s, self._memory_will_be_full()
        late = self.verdict is None or age_s >= (NEAR_S if near else LIVE_S)
        self.due = key != self._key and not moving and not rests
        newest = moving and reader.end is None and index == len(samples) - 1
        goes_on = newest and age_s >= (NEAR_S if near else NEWEST_S)
        if goes_on or (key != self._key and (late if moving else rests)):
            self._key, self._at_s = key, now_s
            self.verdict = self._verdict_at(reader, index, key[1])
            self.end_ns = int(samples.end_ns[index])
        return self.verdict

    def _memory_will_be_full(self) -> bool:
        """Return whether the last verdict has a forecast."""
        return self.verdict is not None and any(check.rule == "oom" and check.finding for check in self.verdict.checks)

    def _verdict_at(self, reader: Session, index: int, sample: int) -> Verdict:
        from memtui.reports.verdict.recent import MOST_UNIONS
        from memtui.reports.verdict.verdict import verdict_at

        if self._pages is None:
            self._pages = LruCache(MOST_UNIONS)
        return verdict_at(_SessionSource(reader, sample), index, self._pages)

    @property
    def forms(self) -> tuple[Forms, ...]:
        """The finding that matters most, as a sentence in several forms; empty where there is none."""
        if self.verdict is None:
            return ()
        from memtui.reports.verdict.verdict import finding_forms

        return tuple(finding_forms(finding) for finding in self.verdict.findings[:1])


class _SessionSource:
    """An open session as the rules read it. VMA rows are of all processes of the window, as on the screen."""

    def __init__(self, reader: Session, sample: int) -> None:
        self.hello, self.samples, self.end = reader.hello, reader.samples, reader.end
        self.memory_limits, self.memory_use = reader.devices.memory_limits, reader.devices.memory_use
        self.numa_use = reader.devices.numa_use
        self.process_samples, self.events = reader.processes.samples, reader.events
        self.vma_rss, self.vma_private = reader.vmas.rss, reader.vmas.private
        self.page_set, self.latest_tensors = reader.pages.page_set, reader.tensors.latest
        self.training, self.training_progress = reader.training.progress, reader.training.details
        self._reader, self._sample = reader, sample

    def processes(self) -> list[Process]:
        return self._reader.processes.with_keys(self._reader.processes.present(self._sample, self._sample))

    def drawn_rows(self, process: int) -> list[VmaRow]:
        return [row for row in self._rows if row.process == process]

    @cached_property
    def _rows(self) -> list[VmaRow]:
        """The rows of all processes of the window: several rules read them."""
        return self._reader.vmas.rows_of(self._reader.processes.present(self._sample, self._sample))
