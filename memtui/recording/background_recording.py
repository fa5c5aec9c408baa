"""Starts a recording that a program wants of itself, or of another process, and waits until it has begun."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.privilege import invoker, state_directory
from memtui.core.procfs import read_stat
from memtui.recording.registry import Running, find

START_S = 20.0  # a recording has begun long before
_ENDED = "ended with "
_SCRIPT = f'{{ "$@"; echo "{_ENDED}$?" >&2; }} &'
_PACKAGES = str(Path(__file__).parents[2])


def start_recording(pid: int, output: Path | None = None, options: Sequence[str] = ()) -> Running:
    """Start ``memtui record PID`` in the background, and return it once it has begun.

    Args:
        pid: the process, which may be the caller.
        output: the session file; by default a name in the state directory.
        options: further words of the command.

    Raises:
        UserError: it does not begin; the text is the line that it prints.
        OSError: no process can be started.
    """
    command = [sys.executable, "-m", "memtui", "record", str(pid), *options]
    command += ["-o", str(output.absolute())] if output is not None else []
    state, before = state_directory(invoker()), _recording_of(pid)
    with tempfile.TemporaryFile() as says:
        # A process cannot be observed by one of its descendants, which would be stopped with it: the shell in between
        # ends at once, and leaves an orphan, which says when the recording ended.
        subprocess.run(
            ["/bin/sh", "-c", _SCRIPT, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=says,
            env=environment(),
            start_new_session=True,
            check=True,
        )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            running = _recording_of(pid)
            if running is not None and running != before:
                return running
            says.seek(0)
            lines = says.read().decode(errors="replace").strip().splitlines()
            if lines and lines[-1].startswith(_ENDED):
                line = lines[-2] if len(lines) > 1 else f"the recording {lines[-1]}"
                raise UserError(line.removeprefix("memtui record: "))
            time.sleep(0.02)
    raise UserError(f"the recording did not begin within {START_S:g} s; {state} has those that run")


def environment() -> dict[str, str]:
    """Return an environment in which a Python finds the memtui that this program has imported."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH", ""))))}


def _recording_of(pid: int) -> Running | None:
    try:
        return find(state_directory(invoker()), pid, read_stat(pid).start_ticks)
    except ProcessLookupError:
        return None
