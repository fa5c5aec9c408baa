"""Record with a screen, from the start to the end or until the user detaches, and print a summary on leaving."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from memtui.core.console import Console
from memtui.core.errors import UserError, silence
from memtui.core.text import printable
from memtui.recording.arguments import given, observe
from memtui.recording.client import Follower, order, send_request
from memtui.recording.control import SIGNALS, Ended
from memtui.recording.registry import Running
from memtui.recording.supervisor.background import Recording
from memtui.recording.supervisor.duplicate import AlreadyRunning
from memtui.recording.supervisor.program import Launch
from memtui.reports.post_mortem import last_line
from memtui.tui import terminal
from memtui.tui.app import run_viewer
from memtui.tui.arguments import prepare_screen

STOPPED = "the recording was stopped from elsewhere (memtui stop)"
STOPPED_OR_QUIT = "the recording was stopped from elsewhere (memtui stop, or q on the screen that began it)"


@dataclass(frozen=True, slots=True)
class RejoinRequest:
    """The options of a command line for a recording that runs already.

    ``others``: options that only a new recording can take.
    """

    interval_ns: int | None = None
    others: tuple[str, ...] = ()


def watch(args: argparse.Namespace, console: Console, what: int | Launch, first: str = "") -> int:
    """Record and view; the session stays. Returns the exit code.

    The exit code of a program that was started here and has ended is that of the program. Signals are passed on to
    such a program; after a signal the screen closes when the program ends, as nobody may be there to close it.

    Args:
        args: how to record and how to draw.
        console: takes lines for the user.
        what: the PID of a process, or the program that is started for this.
        first: the screen that lies on top at first, see ``app.run_viewer``.

    Raises:
        UserError: nothing was recorded, or something went wrong on the way.
    """
    terminal.require_terminal()
    try:
        recording = Recording(lambda: observe(args, what))  # in its supervisor
    except AlreadyRunning as error:
        prepare_screen(args)
        return _rejoin(error.running, error.pid, _rejoin_request(args), console)
    console.notify(recording.notice)
    prepare_screen(args)  # after sudo, if any, was undone: it looks at the user's variables
    if isinstance(what, int):
        return _view(recording, [], first, console)
    with _passing_on(recording) as passed:
        return _view(recording, passed, first, console)


def _rejoin_request(args: argparse.Namespace) -> RejoinRequest:
    """Return the options of the command line for a recording that runs already."""
    flags = given(args)
    others = tuple(sorted(flag for argument, flag in flags.items() if argument != "interval"))
    return RejoinRequest(round(args.interval * 1e9) if "interval" in flags else None, others)


@contextmanager
def _passing_on(recording: Recording) -> Iterator[list[int]]:
    """Pass signals on to the program; yield the list of those passed so far."""
    passed: list[int] = []

    def take(number: int, _: object) -> None:
        passed.append(number)
        recording.signal(number)

    before = {number: signal.signal(number, take) for number in (signal.Signals[name] for name in SIGNALS)}
    try:
        yield passed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _view(recording: Recording, passed: list[int], first: str, console: Console) -> int:
    """Show a recording until it ends or the user detaches. Returns the exit code."""
    left: list[str] = []

    def stopped() -> bool:
        ended = recording.ended()
        return ended is not None and bool(ended.asked or passed)

    try:
        code = run_viewer(
            recording.path,
            live=True,
            on_quit=left.append,
            stopped=stopped,
            order=partial(order, recording.path),
            first=first,
            verb=console.verb,
        )
    except BaseException:
        _print_way_back(recording.pid, recording.id, recording.path)
        raise
    if left[-1] in (terminal.DETACHED, terminal.LOST) and recording.ended() is None:
        _print_way_back(recording.pid, recording.id, recording.path)
        return code
    failure: UserError | None = None
    try:
        with console.progress("ending the recording"):
            recording.stop()
    except UserError as error:
        failure = error
    ended = recording.ended() or Ended()
    lines = [STOPPED] if left[-1] == terminal.STOPPED and ended.asked else []
    _print_lines(*lines, *_what_is_left(recording, ended))
    if failure is not None:
        raise failure
    if passed and ended.outlived:
        return 128 + passed[-1]  # it is not a child any more: the signal is all that is known of its end
    return code or ended.exit_status


def _what_is_left(recording: Recording, ended: Ended) -> list[str]:
    """Return lines on why a recording ended, its files, and the program that was started for it."""
    lines = [f"the recording ended: {ended.why}"] if ended.why and ended.why not in ended.error else []
    if ended.outlived:
        lines.append(f"the program that was started runs on as PID {recording.pid}")
    if recording.path.exists():  # it may have been moved away
        lines.append(f"session: {recording.path}")
    if recording.log is not None:
        lines.append(f"output of the program: {recording.log}")
    if recording.owner_notice:
        lines.append(recording.owner_notice)
    if not ended.outlived and (last := last_line(recording.path)):
        lines.append(last)
    return lines


def _rejoin(running: Running, pid: int, request: RejoinRequest, console: Console) -> int:
    """Show a recording that runs already; leaving the screen by any key leaves the recording alone.

    ``pid``: the requested process, which may be any of the tree. Returns the exit code. Raises UserError.
    """
    lines = _request(running, request)
    if pid != running.pid:
        lines.insert(0, f"process {pid} is recorded in the tree of process {running.pid}: recording {running.id}")
    for line in lines:
        console.notify(line)
    follower = Follower(running)
    code = run_viewer(
        Path(running.path),
        live=True,
        stopped=follower.stopped,
        order=partial(send_request, running),
        owns_recording=False,
        process=pid if pid != running.pid else None,
        message="; ".join(lines),
        verb=console.verb,
    )
    if follower.stopped():
        _print_lines(STOPPED_OR_QUIT, f"session: {running.path}")
    elif follower.ended():
        _print_lines(f"session: {running.path}")
    else:
        _print_way_back(pid, running.id, Path(running.path))
    return code


def _request(running: Running, request: RejoinRequest) -> list[str]:
    """Request new options of a running recording. Returns a line about each. Raises UserError."""
    lines = []
    if request.interval_ns is not None:
        before_ns = send_request(running, "status")["interval_ns"]
        send_request(running, "interval", interval_ns=request.interval_ns)
        before = "" if before_ns == request.interval_ns else f", {before_ns / 1e9:g} s before"
        lines.append(f"recording {running.id} is asked for an interval of {request.interval_ns / 1e9:g} s{before}")
    if request.others:
        lines.append(
            f"recording {running.id} runs already and keeps its options, so {', '.join(request.others)} changed "
            f"nothing; memtui stop {running.id} ends it, and attach then begins one with them"
        )
    return lines


def _print_way_back(pid: int, name: str, path: Path) -> None:
    _print_lines(f"goes on recording: memtui attach {pid} comes back, memtui stop {name} ends it, session: {path}")


def _print_lines(*lines: str) -> None:
    """Print lines; a lost terminal is not an error."""
    try:
        print("\n".join(map(printable, lines)), flush=True)
    except OSError:
        silence(sys.stdout)
