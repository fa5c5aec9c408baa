"""The sampler as it is, which also notes how and why it cleared marks: ``python -m benchmarks.counting_sampler FILE``.

FILE gets one JSON object per window and process.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from benchmarks.timed_sampler import run
from memtui.core.samples import ProcessWindow, Window
from memtui.probes.pages.pagetable.rearm import FULL, Rearmer
from memtui.recording.sampler import message_queue

RESTING, DEARER, STAYED = "rests after an earlier one", "costs less than by working set", "marks stayed"


class Notes:
    """What happened in the windows so far."""

    def __init__(self) -> None:
        self.windows: list[dict[str, Any]] = []
        self._why = ""

    def attach(self) -> None:
        """Look over the shoulder of ``Rearmer``."""
        rearm, is_cheaper, put = Rearmer.rearm, Rearmer._is_cheaper, message_queue.MessageQueue.put

        @functools.wraps(is_cheaper)
        def asking(rearmer: Rearmer, pid: int, *of: int) -> bool:
            rests = rearmer._full_windows.get(pid, 0) > 0
            worth = is_cheaper(rearmer, pid, *of)
            self._why = "" if worth else RESTING if rests else DEARER
            return worth

        @functools.wraps(rearm)
        def rearming(*of: Any, **how: Any) -> Any:
            done = rearm(*of, **how)
            self._why = (self._why or STAYED) if done.rearm == FULL else ""
            return done

        @functools.wraps(put)
        def putting(to: message_queue.MessageQueue, message: Any) -> None:
            if isinstance(message, Window):
                self.windows += [self._of(window) for window in message.processes]
            put(to, message)

        Rearmer.rearm, Rearmer._is_cheaper = rearming, asking  # type: ignore[method-assign]
        message_queue.MessageQueue.put = putting  # type: ignore[method-assign]

    def _of(self, window: ProcessWindow) -> dict[str, Any]:
        why, self._why = self._why, ""
        return {
            "rearm": window.rearm,
            "why": why,
            "status": window.status,
            "wss_bytes": window.wss_bytes,
            "unknown_bytes": window.unknown_bytes,
            "paused_ns": window.paused_ns,
        }


def main() -> int:
    """Exit as the sampler does."""
    notes = Notes()
    notes.attach()
    return run(notes.windows)


if __name__ == "__main__":
    sys.exit(main())
