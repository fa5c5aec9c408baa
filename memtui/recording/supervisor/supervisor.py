"""Runs until the end of a recording and answers requests: of the screen it was started from and on its socket."""

from __future__ import annotations

import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace

from memtui.core.errors import UserError
from memtui.recording.control import Answer, Control, Ended, RecordingState, Request
from memtui.recording.supervisor.launch import Observation

POLL_SECONDS = 1.0
MARKS_PER_SECOND, MARKS_AT_ONCE = 50, 500
MARK_LATE_NS = 5_000_000_000


class Supervisor:
    """The supervisor of one recording. ``viewer``: the connection to the screen that it was started from."""

    def __init__(self, observation: Observation, viewer: socket.socket | None = None) -> None:
        self._observation = observation
        self._control = Control(self._do, observation.listener)
        self._stop_requested = False
        self._marks_left, self._marked_ns = float(MARKS_AT_ONCE), time.monotonic_ns()
        if viewer is not None:
            self._control.adopt(viewer)

    def wait(self, poll: Callable[[], object] = lambda: None, seconds: float = POLL_SECONDS) -> None:
        """Wait until the recording ends by itself, or a client requests its end.

        ``poll`` is called about every ``seconds``; if it returns True the wait ends, too.
        """
        due_s = time.monotonic() + seconds
        while self._observation.running and not self._stop_requested and not self._observation.ending:
            fds = [self._observation.progress_fd, *self._control.fds]
            ready, _, _ = select.select(fds, [], [], max(due_s - time.monotonic(), 0))
            if self._observation.progress_fd in ready:
                self._observation.read_progress()
            self._control.serve(ready)
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + seconds
                self._observation.check_sampler()
                if poll() is True:
                    return

    def stop(self) -> None:
        """End the recording in order, and notify all who follow it how it ended."""
        self._observation.stop()
        ended = Ended(self._stop_requested, self._observation.exit_status, self._observation.outlived)
        if self._observation.ending and not self._stop_requested:
            ended = replace(ended, why=self._observation.ending[1])
        try:
            self._observation.finish()
        except UserError as error:
            ended = replace(ended, error=str(error), code=error.code)
        self._control.notify_followers(ended)
        self._control.close()

    def _do(self, request: Request) -> Answer:
        """Answer a request that was checked. Raises ValueError."""
        observation = self._observation
        match request.do:
            case "stop":
                self._stop_requested = True
            case "status":
                return RecordingState(
                    observation.progress,
                    str(observation.log or ""),
                    observation.interval_ns,
                    observation.max_overhead_ppm,
                    observation.paused,
                ).to_dict()
            case "interval":
                observation.set_interval(request.interval_ns)
            case "budget":
                observation.set_budget(request.ppm or None)
            case "pause" | "resume":
                observation.pause(request.do == "pause")
            case "signal":
                observation.signal(signal.Signals[request.name])
            case "mark":
                self._mark(request.text, request.t_ns)
        return {}

    def _mark(self, text: str, t_ns: int) -> None:
        """Store a mark, up to a rate: a program that marks without end must not fill the disk. Raises ValueError."""
        now_ns = time.monotonic_ns()
        self._marks_left = min(MARKS_AT_ONCE, self._marks_left + (now_ns - self._marked_ns) * MARKS_PER_SECOND / 1e9)
        self._marked_ns = now_ns
        if self._marks_left < 1:
            raise ValueError(f"more than {MARKS_PER_SECOND} marks a second: this one is left out")
        self._marks_left -= 1
        # The sender's time counts if it is recent; anything else is not a time of this recording.
        moment_ns = t_ns if now_ns - MARK_LATE_NS <= t_ns <= now_ns else now_ns
        if not self._observation.mark(moment_ns, text):
            raise ValueError("the recorder is too slow: this mark is left out")
