"""The sampler as it is, with a stopwatch on its parts: ``python -m benchmarks.timed_sampler FILE``, then as always.

FILE gets one JSON object per window: seconds in each part, of the whole window (``whole``), and what the sampler itself
says of its pause (``paused``). A part inside another counts to the outer one.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memtui.core.samples import Window
from memtui.probes.pages.pagetable import rearm, tracker_state, walk
from memtui.probes.pause import pauser
from memtui.probes.usage import UsageProbe
from memtui.recording.sampler import __main__, message_queue, tracked_process
from memtui.recording.sampler.tree_window import TreeWindows

PARTS = ("pause", "walk", "re-arm", "maps", "let go", "usage", "send")  # in the order of a window


class Stopwatch:
    """Adds up the time in named parts of a window. All its parts run in one thread."""

    def __init__(self) -> None:
        self.windows: list[dict[str, float]] = []
        self._parts: defaultdict[str, float] = defaultdict(float)
        self._inside = False

    def part(self, holder: Any, name: str, called: str | Callable[..., str]) -> None:
        """Time every call of ``holder.name``; ``called`` names the part, perhaps by the arguments."""
        original = getattr(holder, name)

        @functools.wraps(original)
        def timed(*args: Any, **more: Any) -> Any:
            if self._inside:
                return original(*args, **more)
            self._inside = True
            begin = time.perf_counter()
            try:
                return original(*args, **more)
            finally:
                part = called if isinstance(called, str) else called(*args, **more)
                self._parts[part] += time.perf_counter() - begin
                self._inside = False

        setattr(holder, name, timed)

    def whole(self, holder: Any, name: str) -> None:
        """Time every call of ``holder.name`` as one window."""
        original = getattr(holder, name)

        @functools.wraps(original)
        def timed(*args: Any, **more: Any) -> Any:
            self._parts.clear()
            begin = time.perf_counter()
            try:
                return original(*args, **more)
            finally:
                self.windows.append({"whole": time.perf_counter() - begin, **self._parts})

        setattr(holder, name, timed)

    def note(self, name: str, seconds: float) -> None:
        """Add something that was timed elsewhere."""
        self._parts[name] += seconds


def attach(watch: Stopwatch) -> None:
    """Put the stopwatch on the sampler."""
    watch.whole(TreeWindows, "take")
    watch.part(pauser.Pauser, "_outcome", "pause")
    watch.part(pauser.Pauser, "_let_go", "let go")
    watch.part(walk.Walker, "walk", "walk")
    watch.part(walk.Walker, "noted", "walk")  # what another observer of accessed bits left in the page frames
    watch.part(rearm.Rearmer, "rearm", "re-arm")  # flush, clear, read once more
    watch.part(tracker_state, "read_maps", "maps")
    watch.part(tracked_process.MapsParser, "parse", "maps")
    watch.part(UsageProbe, "read", "usage")
    put = message_queue.MessageQueue.put

    def noting(self: message_queue.MessageQueue, message: Any) -> None:
        if isinstance(message, Window):
            watch.note("paused", sum(p.paused_ns or 0 for p in message.processes) / 1e9)
        put(self, message)

    message_queue.MessageQueue.put = noting  # type: ignore[method-assign]
    watch.part(message_queue.MessageQueue, "put", "send")


def run(windows: list[Any]) -> int:
    """The sampler, to its end; what was noted of its windows then goes into FILE. Exits as the sampler does."""
    try:
        return __main__.main()
    finally:
        with Path(sys.argv[1]).open("w") as file:
            json.dump(windows, file)


def main() -> int:
    """Exit as the sampler does."""
    watch = Stopwatch()
    attach(watch)
    return run(watch.windows)


if __name__ == "__main__":
    sys.exit(main())
