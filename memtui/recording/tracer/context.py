"""``memtui.trace()``: records a program from inside, by a recording that runs or one that the program starts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from memtui.core.errors import UserError
from memtui.recording.client import observer_of
from memtui.recording.registry import Running

EVERY = 20
START_S = 20.0  # a recording of its own has begun long before
_PACKAGES = str(Path(__file__).parents[3])


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
            running = own = _record(None if output is None else Path(output))
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


def _record(output: Path | None) -> Running:
    """Start a recording of this process and return it. Raises UserError and OSError."""
    command = [sys.executable, "-m", "memtui", "record", str(os.getpid()), "--no-sudo"]
    command += ["-o", str(output.absolute())] if output is not None else []
    path = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH", ""))))
    with tempfile.TemporaryFile() as says:
        # A process cannot be observed by one of its descendants, which would be stopped with it: the shell in between
        # ends at once, and leaves an orphan.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=says,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
            check=True,
        )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            running = observer_of(os.getpid())
            if running is not None and running.pid == os.getpid():
                return running
            says.seek(0)
            lines = says.read().decode(errors="replace").strip().splitlines()
            if lines and "memtui record: root" not in lines[-1]:
                raise UserError(lines[-1].removeprefix("memtui record: "))
            time.sleep(0.02)
    raise UserError(f"the recording did not begin within {START_S:g} s")


def _end(own: Running) -> None:
    from memtui.recording.client import stop

    with suppress(UserError):  # the recording ended before; the session has what was recorded
        stop(own)
    print(f"memtui: {own.path} has the training (memtui replay)", file=sys.stderr)
