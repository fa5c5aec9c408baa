"""The client side of running recordings: sends requests, follows a recording to its end, finds it and marks it.

``put`` is behind ``memtui.mark()``, so nothing heavy is imported here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memtui.core.errors import FAILURE, UserError
from memtui.core.options import MARK_CHARACTERS
from memtui.core.privilege import invoker, state_directory
from memtui.core.procfs import read_stat
from memtui.core.text import short_command, utf8_safe
from memtui.recording.control import Answer, Answers, Ended, RecordingState, connect, request
from memtui.recording.registry import CALIBRATION, Running, find, find_all

SECONDS = 5.0  # a recording answers at once; what takes longer is stuck
STOP_SECONDS = 30.0
_COMMAND_CHARACTERS = 40  # of each in a line that names all


def send_request(running: Running, do: str, seconds: float = SECONDS, **fields: Any) -> Answer:
    """Return the answer of a recording. Raises UserError when it does not answer, or refuses."""
    try:
        with connect(Path(running.control), seconds) as connection:
            connection.sendall(request(do, **fields))
            answer = _next(Answers(connection), time.monotonic() + seconds)
    except (OSError, ValueError) as error:
        raise _no_answer(running, error) from None
    if not answer.get("ok"):
        raise UserError(f"recording {running.id} refused: {answer.get('error', 'it did not say why')}")
    return answer


def state_of(running: Running) -> RecordingState:
    """Return what a recording does now. Raises UserError as ``send_request``."""
    try:
        return RecordingState.from_dict(send_request(running, "status"))
    except ValueError as error:
        raise _no_answer(running, error) from None


def order(session: Path, do: str, **fields: Any) -> Answer:
    """Return the answer of the recording that writes this file now.

    Raises UserError as ``send_request``, and when no recording writes it.
    """
    for running in find_all(state_directory(invoker())):
        if running.path == str(session.absolute()):
            return send_request(running, do, **fields)
    raise UserError("nobody records into this session now")


def stop(running: Running) -> Ended:
    """End a recording in order, wait for that, and return how it ended. Raises UserError."""
    deadline = time.monotonic() + STOP_SECONDS
    try:
        with connect(Path(running.control), SECONDS) as connection:
            connection.sendall(request("follow") + request("stop"))
            answers = Answers(connection)
            while (ended := Ended.from_dict(_next(answers, deadline))) is None:
                pass
            return ended
    except (OSError, ValueError) as error:
        raise _no_answer(running, error) from None


def choose(recordings: Sequence[Running], name: str) -> list[Running]:
    """Return the recording that an ID or the PID of a target names. Raises UserError."""
    chosen = [r for r in recordings if name in (r.id, str(r.pid))]
    if not chosen:
        raise UserError(f"no recording of yours has the ID or PID {name!r}; {choices(recordings)}")
    if len(chosen) > 1:
        raise UserError(f"{name!r} names {len(chosen)} recordings; {choices(chosen)}")
    return chosen


def choices(recordings: Sequence[Running]) -> str:
    """Return the recordings to choose from, in one line."""
    if not recordings:
        return "none of yours runs"
    named = (f"{r.id} (PID {r.pid}, {short_command(r.command, _COMMAND_CHARACTERS)})" for r in recordings)
    return f"running: {', '.join(named)}"


class Follower:
    """Notices the end of a recording without waiting for it."""

    def __init__(self, running: Running) -> None:
        self._ended: Ended | None = None
        self._answers: Answers | None = None
        try:
            connection = connect(Path(running.control), SECONDS)
            connection.sendall(request("follow"))
            self._answers = Answers(connection)
        except OSError:
            pass  # an older recording, or one without a socket: its session has the end, too

    def ended(self) -> bool:
        """Whether the recording has ended."""
        return self._poll() is not None

    def stopped(self) -> bool:
        """Whether a client requested the end; a screen stays open when its target ended."""
        ended = self._poll()
        return ended is not None and ended.asked

    def _poll(self) -> Ended | None:
        if self._ended is None and self._answers is not None:
            try:
                while self._ended is None:
                    self._ended = Ended.from_dict(_next(self._answers, 0.0))
            except BlockingIOError:
                pass
            except (OSError, ValueError):
                self._ended = Ended()
        return self._ended


def _next(answers: Answers, deadline_s: float) -> Answer:
    """Return the next answer. Raises OSError and ValueError."""
    answer = answers.next(deadline_s)
    if answer is None:
        raise ValueError("it hung up")
    return answer


def _no_answer(running: Running, error: Exception) -> UserError:
    why = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
    remedy = (
        f"kill -INT {running.memtui_pid} ends it" if Path(f"/proc/{running.memtui_pid}").exists() else "it has ended"
    )
    return UserError(f"recording {running.id} (PID {running.pid}) does not answer: {why}; {remedy}", FAILURE)


RETRY_S = 1.0  # how often a process that is not recorded checks whether it is now
_MOST_ANCESTORS = 64
_control = ""
_observed = False  # whether the recording behind ``_control`` observes this process: it then stays the one meant
_searched_s = float("-inf")


def put(text: object) -> bool:
    """Send a mark and wait for nothing; False when no recording is meant. Raises OSError and UserError."""
    global _control
    t_ns = time.monotonic_ns()
    if not (_control and _observed):
        _find_recording()
    if not _control:
        return False
    mark_text = utf8_safe(str(text))[:MARK_CHARACTERS]
    line = json.dumps({"do": "mark", "text": mark_text, "t_ns": t_ns}, ensure_ascii=False).encode() + b"\n"
    try:
        with connect(Path(_control)) as connection:
            connection.send(line)
    except BlockingIOError:
        return False  # the socket's queue is full of marks: this mark is not worth waiting for
    except OSError:
        _control = ""  # the recording ended; another one may begin
        return False
    return True


def _find_recording() -> None:
    """Find the recording that is meant; again now and then, as a second one may start beside the only one."""
    global _control, _observed, _searched_s
    if time.monotonic() - _searched_s < RETRY_S:
        return
    _searched_s = time.monotonic()
    observer = observer_of(os.getpid())
    running = observer or sole_recording(find_all(state_directory(invoker())))
    _observed = observer is not None
    _control = running.control if running is not None else ""


def observer_of(pid: int) -> Running | None:
    """Return the recording of this user that observes a process, or what started it."""
    state = state_directory(invoker())
    for _ in range(_MOST_ANCESTORS):
        try:
            stat = read_stat(pid)
        except ProcessLookupError:
            return None
        if running := find(state, pid, stat.start_ticks):
            return running
        if stat.parent_pid <= 1:
            return None
        pid = stat.parent_pid
    return None


def sole_recording(recordings: Sequence[Running]) -> Running | None:
    """Return the recording that is meant where none observes the caller: the only one that runs; None of several.

    A calibration is not meant: it is thrown away, and marks may be what it counts.
    """
    candidates = [running for running in recordings if not Path(running.path).name.startswith(CALIBRATION)]
    return candidates[0] if len(candidates) == 1 else None
