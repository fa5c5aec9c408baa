"""``memtui.mark()``: a mark on the time axis of the recording that is meant. Nothing heavy is imported here."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from memtui.choices import MARK_CHARACTERS
from memtui.control import connect
from memtui.foreign import storable
from memtui.privilege import invoker, state_directory
from memtui.probes.stat import read_stat
from memtui.running import CALIBRATION, Running, find, find_all

RETRY_S = 1.0  # how often a process that nobody records looks whether somebody began to
_MOST_ANCESTORS = 64
_control = ""
_observed = False  # whether that is of a recording that observes this process: it stays the one that is meant
_looked_s = float("-inf")


def put(text: object) -> bool:
    """Send a mark and wait for nothing; False when no recording is meant. Raises OSError and UserError."""
    global _control
    t_ns = time.monotonic_ns()
    if not (_control and _observed):
        _look()
    if not _control:
        return False
    words = storable(str(text))[:MARK_CHARACTERS]
    line = json.dumps({"do": "mark", "text": words, "t_ns": t_ns}, ensure_ascii=False).encode() + b"\n"
    try:
        with connect(Path(_control)) as connection:
            connection.send(line)
    except BlockingIOError:
        return False  # so many marks wait that this one is not worth waiting for
    except OSError:
        _control = ""  # it ended; another one may begin
        return False
    return True


def _look() -> None:
    """Find the recording that is meant. The only one that runs may be joined by another, so it is asked for again."""
    global _control, _observed, _looked_s
    if time.monotonic() - _looked_s < RETRY_S:
        return
    _looked_s = time.monotonic()
    observer = observer_of(os.getpid())
    found = observer or only_one(find_all(state_directory(invoker())))
    _observed = observer is not None
    _control = found.control if found is not None else ""


def observer_of(pid: int) -> Running | None:
    """The recording of this user that observes a process, or what started it."""
    state = state_directory(invoker())
    for _ in range(_MOST_ANCESTORS):
        try:
            stat = read_stat(pid)
        except ProcessLookupError:
            return None
        if found := find(state, pid, stat.start_ticks):
            return found
        if stat.parent_pid <= 1:
            return None
        pid = stat.parent_pid
    return None


def only_one(found: Sequence[Running]) -> Running | None:
    """The recording that is meant where none observes the caller: the only one that runs; of several, none.

    A calibration is not meant: it is thrown away, and marks may be what it counts.
    """
    kept = [running for running in found if not Path(running.path).name.startswith(CALIBRATION)]
    return kept[0] if len(kept) == 1 else None
