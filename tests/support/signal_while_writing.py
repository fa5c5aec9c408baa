"""A screen that gets a signal while its main thread holds the lock of the queue of output, and ends a moment later."""

from __future__ import annotations

import os
import signal
import sys
import time

from memtui.tui.base_app import TerminalApp


class _Signalled(TerminalApp[None]):
    def on_mount(self) -> None:
        super().on_mount()
        self.set_timer(0.5, self._signal)

    def _signal(self) -> None:
        assert self._driver is not None
        with self._driver._writer_thread._queue.mutex:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.Signals[sys.argv[1]])
            time.sleep(0)  # Python runs the handler here at the latest
        self.set_timer(1.0, self.exit)


if __name__ == "__main__":
    _Signalled().run()
