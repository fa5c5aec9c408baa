"""A recording in a process of its own, so that the screen it was started from may go and come back.

Screen and supervisor fork before anything is started. The supervisor stays in the terminal's foreground for as long as
sudo may ask there; then it moves to a session of its own, where no hang-up and no key reaches it. The two exchange the
messages of the control socket (``memtui.recording.control``), on a pair of sockets that no other process has.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from memtui.core.capabilities import forbid_new_privileges
from memtui.core.errors import FAILURE, UserError
from memtui.core.privilege import become, environment_of_sudo, invoker
from memtui.recording.control import Answers, Ended, request
from memtui.recording.supervisor import start_message
from memtui.recording.supervisor.duplicate import AlreadyRunning
from memtui.recording.supervisor.launch import Observation
from memtui.recording.supervisor.start_message import Began, Failed, Interrupted, RecordedAlready, StartMessage
from memtui.recording.supervisor.supervisor import Supervisor

SUPERVISOR_KILLED = "the supervisor of the recording was killed"
STOP_SECONDS = 30.0  # all parts of a recording have ended long before, one way or the other


class Recording:
    """A recording whose supervisor runs in the background.

    Args:
        observe: starts the observation; called in the supervisor.

    Raises:
        AlreadyRunning: this user records the process already.
        UserError: everything else that can be wrong.
    """

    def __init__(self, observe: Callable[[], Observation]) -> None:
        environment_of_sudo()  # while sudo is still this process's parent
        user, was_root = invoker(), os.geteuid() == 0
        self._connection, other = socket.socketpair()
        self._answers = Answers(self._connection)
        sys.stdout.flush()
        sys.stderr.flush()
        self._supervisor = os.fork()
        if not self._supervisor:
            self._connection.close()
            _supervise(observe, other)
        other.close()
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C at sudo's prompt is an answer to sudo
        try:
            become(user)
            if was_root and user.uid:
                forbid_new_privileges()
            answer = self._answers.next()
        finally:
            signal.signal(signal.SIGINT, before)
        match start_message.from_dict(answer) if answer else Failed(SUPERVISOR_KILLED, FAILURE):
            case RecordedAlready(running, pid):
                raise AlreadyRunning(running, pid)
            case Interrupted():
                raise KeyboardInterrupt
            case Failed(error, code):
                raise UserError(error, code)
            case Began() as began:
                self.path, self.log = Path(began.path), Path(began.log) if began.log else None
                self.pid, self.id = began.pid, began.id
                self.notice, self.owner_notice = began.notice, began.owner_notice
        self._ended: Ended | None = None
        self._pidfd = -1  # of the target, as long as its pid cannot be another's
        with suppress(OSError):
            self._pidfd = os.pidfd_open(self.pid)

    def ended(self) -> Ended | None:
        """Return how the recording ended, once it has, without waiting."""
        if self._ended is None and self._connection.fileno() >= 0:
            with suppress(BlockingIOError):
                self._ended = self._read_end(0.0)
        return self._ended

    def signal(self, number: int) -> None:
        """Pass a signal on to the program that was started for this, also when the program outlived its recording.

        Returns at once, and does nothing where the program has ended.
        """
        try:
            self._connection.send(request("signal", name=signal.Signals(number).name))
        except OSError:  # its supervisor has ended
            with suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, 0)  # it is still that process
                os.killpg(self.pid, number)

    def stop(self) -> None:
        """End the recording in order and wait for that. Raises UserError with what went wrong, if anything did."""
        if self.ended() is None:
            deadline_s = time.monotonic() + STOP_SECONDS
            self._connection.settimeout(STOP_SECONDS)
            try:
                with suppress(BrokenPipeError):
                    self._connection.sendall(request("stop"))
                self._ended = self._read_end(deadline_s)
            except TimeoutError:
                raise UserError(
                    f"the recording did not end in time; memtui stop {self.id} tries again", FAILURE
                ) from None
        self._connection.close()
        os.waitpid(self._supervisor, 0)
        if self._ended and self._ended.error:
            raise UserError(self._ended.error, self._ended.code)

    def _read_end(self, deadline_s: float) -> Ended:
        """Return the last line of the supervisor. Raises BlockingIOError and TimeoutError."""
        with suppress(ConnectionResetError):
            while (answer := self._answers.next(deadline_s)) is not None:
                if ended := Ended.from_dict(answer):
                    return ended
        return Ended(error="the supervisor was killed; what was committed before is readable", code=FAILURE)


def _supervise(observe: Callable[[], Observation], viewer: socket.socket) -> NoReturn:
    """Run as the supervisor; never returns into the code of the process that forked."""
    code = FAILURE
    try:
        observation = _start_observation(observe, viewer)
        if observation is not None:
            supervisor = Supervisor(observation, viewer)
            try:
                supervisor.wait()
            except SystemExit:
                pass  # a signal requests the end of this process: in order, like everything else
            finally:
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)
                supervisor.stop()
            code = 0
    finally:
        os._exit(code)


def _start_observation(observe: Callable[[], Observation], viewer: socket.socket) -> Observation | None:
    """Start, leave the terminal, and notify the screen; None when the start failed, which is sent to the screen."""
    try:
        observation = observe()
    except AlreadyRunning as error:
        message: StartMessage = RecordedAlready(error.running, error.pid)
    except UserError as error:
        message = Failed(str(error), error.code)
    except KeyboardInterrupt:
        message = Interrupted()
    except Exception as error:
        message = Failed(f"{type(error).__name__}: {error}", FAILURE)
    else:
        _leave_terminal()
        began = Began(
            str(observation.path),
            str(observation.log or ""),
            observation.pid,
            observation.id,
            observation.notice,
            observation.owner_notice,
        )
        if _send(viewer, began):
            return observation
        observation.stop()  # the screen has not seen the start: its terminal was lost while sudo asked
        return None
    _send(viewer, message)
    return None


def _send(viewer: socket.socket, message: StartMessage) -> bool:
    """Send a message to the screen; False when the screen is gone."""
    try:
        viewer.sendall(start_message.to_line(message))
    except OSError:
        return False
    return True


def _leave_terminal() -> None:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)
    os.close(nothing)


def _end(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)
