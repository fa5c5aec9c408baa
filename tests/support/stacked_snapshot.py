"""A snapshot of CUDA memory whose events, and a block from before them, have call stacks."""

from __future__ import annotations

import pickle

from memtui.core.call_stacks import Frame
from memtui.formats.catalogue import import_bytes
from memtui.formats.imported import Imported

CALLS = (
    Frame("at::empty(ada::Secret const&)", "", 0),
    Frame("_conv", "/venv/torch/nn/conv.py", 456),
    Frame("forward", "/home/ada/model.py", 42),
)
MAIN, FREE = Frame("main", "/home/ada/train.py", 9), Frame("drop", "/home/ada/train.py", 12)
T_US = 1_790_857_026_000_000


def in_file(frames) -> list[dict[str, object]]:
    return [{"name": frame.function, "filename": frame.file or "??", "line": frame.line} for frame in frames]


def imported() -> Imported:
    return import_bytes(snapshot())


def snapshot() -> bytes:
    """A snapshot of four allocations, one of them freed, and a block from before the trace."""
    events = []
    for n in range(4):
        frames = in_file((*CALLS, MAIN._replace(line=9 + n % 2)))
        events.append({"action": "alloc", "addr": 512 * n, "size": 512, "time_us": T_US + n, "frames": frames})
    free = {"action": "free_completed", "addr": 0, "size": 512, "time_us": T_US + 4, "frames": in_file([FREE])}
    block = {
        "size": 64,
        "requested_size": 60,
        "address": 1 << 20,
        "state": "active_allocated",
        "frames": in_file([MAIN]),
    }
    segments = [{"device": 0, "address": 1 << 20, "total_size": 64, "blocks": [block]}]
    return pickle.dumps({"segments": segments, "device_traces": [[*events, free]]})
