"""``memtui.trace()``: records a program from inside, by a recording that runs or one that the program starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from memtui.core.errors import UserError
from memtui.recording.background_recording import start_recording
from memtui.recording.client import observer_of
from memtui.recording.registry import Running

EVERY = 20


@contextmanager
def tracing(model: Any, optimizer: Any, every: int, output: str | os.PathLike[str] | None) -> Iterator[None]:
    """See ``memtui.trace``. Raises ValueError and TypeError for invalid arguments."""
    if type(every) is not int or every < 1:
        raise ValueError(f"every must be a whole number from 1 on, not {every!r}")
    from memtui.recording.tracer import tracer

    modules, optimizers = tracer.checked(model, optimizer)
    if tracer.running():
        yield  # this program was started to be traced
        return
    own: Running | None = None
    trace = None
    try:
        running = observer_of(os.getpid()) if output is None else None
        if running is None:
            own_output = None if output is None else Path(output)
            running = own = start_recording(os.getpid(), own_output, ["--no-sudo"])
        if not running.told:
            raise UserError(f"recording {running.id} takes nothing from inside: its user's folders took no socket")
        trace = tracer.start(Path(running.told), every, modules, optimizers)
    except (OSError, UserError, RuntimeError) as error:  # the training matters more than its trace
        print(f"memtui: nothing is recorded from inside: {error}", file=sys.stderr)
    try:
        yield
    finally:
        if trace is not None:
            trace.close()
        if own is not None:
            _end(own)


def _end(own: Running) -> None:
    from memtui.recording.client import stop

    with suppress(UserError):  # the recording ended before; the session has what was recorded
        stop(own)
    print(f"memtui: {own.path} has the training (memtui replay)", file=sys.stderr)
