"""The screen of profiles for a profile that is being measured; the measuring runs in a process of its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from memtui.core.console import Console
from memtui.core.errors import INTERRUPTED, UserError
from memtui.core.processes import BackgroundTask, Send
from memtui.placement.file_header import is_profile
from memtui.placement.profiling.planner import Request, unfinished_message
from memtui.placement.profiling.progress import ProfileProgress
from memtui.placement.store import ProfileFile
from memtui.tui.arguments import prepare_screen

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Measuring:
    """Reports how far the measuring is, as a sentence."""

    text: str


class MeasuringProcess:
    """The process that measures, and its last message."""

    def __init__(self, work: Callable[[ProfileProgress], list[str]]) -> None:
        def report(send: Send) -> list[str]:
            return work(ProfileProgress(lambda text: send(Measuring(text))))

        self.process = BackgroundTask(report, Measuring)
        self.text = "starting PyTorch ..."

    @property
    def goes_on(self) -> bool:
        process = self.process
        return not process.over and not process.finished and process.error is None

    def poll(self, seconds: float) -> tuple[str, str]:
        """Wait for this long at most; return a sentence on how far the process is, and the role of its words."""
        for message in self.process.receive_messages(seconds):
            if isinstance(message, Measuring):
                self.text = message.text
        if self.process.error is not None:
            return str(self.process.error), "warning"
        if self.goes_on:
            return self.text, "live"
        return ("finished; q leaves", "live") if self.process.finished else ("it ended without a word", "warning")


def show_profile(file: ProfileFile, poll: Callable[[float], tuple[str, str]] | None = None) -> int:
    """Show a placement profile, which may still grow, until the user leaves. Returns the exit code.

    Args:
        file: the profile.
        poll: waits for this many seconds at most; returns how far the measuring is, and the role to show that with.

    Raises UserError: there is no terminal to draw on.
    """
    from memtui.tui.app import run_app

    def load() -> Callable[..., Any]:
        from memtui.placement.screen import PlacementApp

        return partial(PlacementApp, file, poll)

    return run_app(load)


def profile_on_screen(
    args: argparse.Namespace, request: Request, work: Callable[[ProfileProgress], list[str]], console: Console
) -> int:
    """Measure, and show the profile meanwhile; leaving the screen ends the measuring. Returns the exit code.

    Args:
        args: path of the profile, and options of the screen.
        request: the profile to measure.
        work: measures, and returns the lines to print at the end; runs in a forked child, so no thread may run yet.
        console: prints lines for the user.

    Raises UserError.
    """
    prepare_screen(args)
    output = args.output
    if args.force and is_profile(output):
        output.unlink()
    measured = MeasuringProcess(work)
    process = measured.process
    code = 0
    try:
        with console.progress(f"profiling {args.file}") as line:
            while measured.goes_on and not is_profile(output):
                line.update(measured.text)
                measured.poll(_POLL_S)
        if measured.goes_on:
            code = show_profile(ProfileFile(output), measured.poll)
            measured.poll(_POLL_S)
    except KeyboardInterrupt:
        console.notify(unfinished_message(output, request.modes))
        raise
    finally:
        unfinished = measured.goes_on
        process.end()
    if process.error is not None:
        raise process.error
    for text in process.conclusion:
        console.print_line(text)
    if unfinished:
        console.notify(unfinished_message(output, request.modes))
        return code or INTERRUPTED
    if not process.finished:
        raise UserError("measuring ended without a word", 1)
    return code
