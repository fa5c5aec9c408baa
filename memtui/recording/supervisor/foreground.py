"""A recording without a screen: from the start to the end, with a line of progress."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from memtui.core.console import Console
from memtui.core.errors import FAILURE
from memtui.core.units import size
from memtui.recording.progress import Progress
from memtui.recording.supervisor.launch import Observation
from memtui.recording.supervisor.supervisor import Supervisor

NO_SAMPLE = "the session has no sample: the recording ended before its first window was over"
REACHED = 3  # exit code of a recording that its --stop-when ended


def record(
    observe: Callable[[], Observation],
    console: Console,
    print_result: Callable[[Path, bool], object],
    *,
    program: bool,
) -> int:
    """Record until the recording ends or is stopped; return the exit code, the program's where there is one.

    Args:
        observe: starts the recording.
        console: takes lines for the user, and the progress.
        print_result: prints the result: of which session, and whether its path stood on the terminal already.
        program: a program is started for this; SIGTERM, SIGUSR1 and SIGUSR2 are passed on to it.

    Raises:
        UserError: nothing was recorded, or something went wrong on the way.
    """
    began: list[Observation] = []
    start_s = time.monotonic()  # starting takes some seconds, in which sudo may ask and nothing else is written
    _handle_signals(began, program=program)
    observation = observe()
    began.append(observation)
    console.notify(observation.notice)
    supervisor = Supervisor(observation)
    with console.progress("recording", silent_since_s=start_s) as line:
        try:
            supervisor.wait(lambda: line.update(_progress(observation)))
        except KeyboardInterrupt:
            pass  # ^C is how a recording without a limit is ended
        finally:
            supervisor.stop()
            if line.on_terminal:  # the last line stays
                console.notify(_progress(observation))
    observation.finish()
    console.notify(observation.owner_notice)
    print_result(observation.path, line.on_terminal)
    if (ending := observation.ending) is not None:
        from memtui.recording.recorder.limits import CONDITION

        kind, why = ending
        console.notify(f"stopped: {why}")
        return REACHED if kind == CONDITION else FAILURE
    if not (observation.progress or Progress()).samples:
        console.notify(NO_SAMPLE)
        return observation.exit_status if program else FAILURE
    return observation.exit_status


def _handle_signals(began: list[Observation], *, program: bool) -> None:
    """End in order at SIGTERM and SIGHUP; where a program was started, pass signals on to it once it ``began``."""

    def pass_on(number: int, frame: object) -> None:
        if not began:
            _leave(number, frame)
        with suppress(ValueError):
            began[0].signal(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    if program:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, pass_on)


def _leave(number: int, _: object) -> NoReturn:
    """End a recording in order at SIGTERM and SIGHUP, which the exit code reports as a shell does.

    SIGTERM does so where no program was started that it could be passed on to.
    """
    sys.exit(128 + number)


def _progress(observation: Observation) -> str:
    progress = observation.progress or Progress()
    working_set = "n/a" if progress.wss_bytes is None else size(progress.wss_bytes)
    return f"{progress.samples} samples, working set {working_set}, {size(progress.file_bytes)} in {observation.path}"
