"""``memtui.mark()``: a mark on the time axis of whoever records this process. Nothing heavy is imported here."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from memtui.choices import MARK_CHARACTERS
from memtui.control import connect
from memtui.foreign import storable
from memtui.privilege import invoker, state_directory
from memtui.probes.stat import read_stat
from memtui.running import Running, find

RETRY_S = 1.0  # how often a process that nobody records looks whether somebody began to
_MOST_ANCESTORS = 64
_control = ""
_looked_s = float("-inf")


def put(text: object) -> bool:
    """Send a mark and wait for nothing; False when nobody records this process. Raises OSError and UserError."""
    global _control, _looked_s
    t_ns = time.monotonic_ns()
    if not _control:
        if time.monotonic() - _looked_s < RETRY_S:
            return False
        _looked_s = time.monotonic()
        found = observer_of(os.getpid())
        if found is None or not found.control:
            return False
        _control = found.control
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
