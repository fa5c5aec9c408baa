"""The screen of training steps on a session with known tensors."""

from __future__ import annotations

from contextlib import asynccontextmanager

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.core.tracer_messages import TrainingProgress
from memtui.session.session import Session
from memtui.tui.screens.training import TrainingScreen
from memtui.tui.session_app import MemtuiApp
from tests.support import sessions
from tests.support.allocation_screen import until

MIB = 1 << 20


MS = 1_000_000


def told(first: int, pid: int = 4242, **changes) -> TrainingProgress:
    """Ten steps of 50 ms, a stretch each: 8 MiB of weights, and activations of 1 MiB more from step to step."""
    start_ns = first * 50 * MS
    usage = np.zeros((4 + len(CATEGORIES), 10), np.int64)
    usage[0] = start_ns + np.arange(10) * 50 * MS
    usage[1] = usage[0] + 50 * MS
    usage[2] = first + np.arange(10)
    usage[4 + CATEGORIES.index("weights")] = 8 * MIB
    usage[4 + CATEGORIES.index("activations")] = (first + np.arange(10)) * MIB
    fields = {"ends_ns": usage[1:2].copy(), "usage": usage, "names": ("aten::gelu",), "view": "1 step in 2"}
    return TrainingProgress(**({"pid": pid, "first": first, "start_ns": start_ns, "cost_ns": first} | fields | changes))


@asynccontextmanager
async def opened(tmp_path, *what, size=(120, 36), **how):
    """The memory screen of a replay of 4 s, and ``a`` pressed."""
    stream = list(sessions.messages(20))
    stream[9:9] = what
    reader = Session(sessions.write_session(tmp_path / "s.memtui", stream))
    reader.release()
    app = MemtuiApp(lambda: reader, live=False, **how)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.screen.view is not None)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, TrainingScreen) and app.screen._view is not None)
        await pilot.pause(0.05)
        yield app, pilot
