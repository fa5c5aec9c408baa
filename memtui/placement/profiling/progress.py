"""Progress of the measuring of a profile, and the origin of its times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from memtui.core.units import span
from memtui.placement.graph import Configuration
from memtui.placement.profiling.planner import ProfilingStep

Show = Callable[[str], object]


class ProfileProgress:
    """Progress as a sentence, which is shown whenever it changes, and counts of the times by their origin.

    Attributes:
        before: number of times that were in the profile before; one per op, configuration and way of timing.
        cached: number of times from the cache.
        measured: number of times that were measured now.
        moments: when the cached times were measured (ns, UTC).
        bandwidths_ns: when the bandwidths were measured (ns, UTC), where they are from the cache.
    """

    def __init__(self, show: Show = lambda _: None, on_start: Show | None = None) -> None:
        """``show`` gets each sentence, which replaces the last one; ``on_start`` gets the first of the measuring."""
        self._show, self._on_start = show, on_start
        self.before = self.cached = self.measured = 0
        self.moments: set[int] = set()
        self.bandwidths_ns: int | None = None
        self._of: dict[str, int] = {}  # number of configurations by way of timing, in the order of measuring
        self._done: set[tuple[str, Configuration, str]] = set()
        self._phase = ""
        self._step: ProfilingStep | None = None
        self._since_s = time.monotonic()

    def phase(self, text: str) -> None:
        """Show what happens before the measurements."""
        self._phase, self._since_s = text, time.monotonic()
        self._show(f"{text} ...")

    def count(self, done: Iterable[tuple[str, Configuration, str]], of: Mapping[str, int]) -> None:
        """Start counting: the times that exist already, and the number of configurations by way of timing."""
        self._phase, self._of = "", dict(of)
        self._done = {each for each in done if each[2] in self._of}
        self.before = len(self._done)
        suffix = f", {self.before} of them known" if self.before else ""
        text = f"measuring {sum(of.values())} configurations ({', '.join(of)}){suffix}"
        self._show(text)
        if self._on_start is not None:
            self._on_start(text)

    def step(self, step: ProfilingStep) -> None:
        self._done.update((each.op, each.configuration, each.mode) for each in step.samples)
        self.cached += step.cached
        self.moments.update(step.measured_ns)
        self.measured += len(step.samples) - step.cached
        self._step, self._since_s = step, time.monotonic()
        self.tick()

    def tick(self) -> None:
        """Show the sentence with the time that has passed, or is left."""
        passed_s = time.monotonic() - self._since_s
        if self._phase:
            self._show(f"{self._phase} ({span(passed_s)})")
        elif self._step is not None:
            mode = self._step.mode
            there = sum(each[2] == mode for each in self._done)
            way = f" ({1 + [*self._of].index(mode)} of {len(self._of)})" if len(self._of) > 1 else ""
            left_s = self._step.left_s
            left = "" if left_s is None else f", {span(round(max(0.0, left_s - passed_s)))} left"
            cached = f", {self.cached} known before" if self.cached else ""
            self._show(f"{mode}{way}: {there} of {self._of[mode]} configurations{left}{cached}")
