"""The screen of recorded steps on a session with known allocations."""

from __future__ import annotations

from contextlib import asynccontextmanager

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES, PHASES
from memtui.core.tracer_messages import AllocationStep
from memtui.session.session import Session
from memtui.tui.session_app import MemtuiApp
from tests.support import sessions
from tests.support.screen_text import screen_lines, screen_text

MIB = 1 << 20


def step(number: int, extra: int = 0) -> AllocationStep:
    """Weights of 8 MiB; 16 layers keep 1 MiB each and need 2 MiB for a moment; then all are freed, the last first."""
    rows = [(8 * MIB, 0, "weights", "between", -1, -1)]
    for layer in range(16):
        rows.append((MIB, 1 + layer, "activations", "forward", 0, 2 + layer))
        rows.append(((2 + extra * (layer == 9)) * MIB, 17 + layer, "temporaries", "forward", 1, 2 + layer))
        rows.append((-(2 + extra * (layer == 9)) * MIB, 17 + layer, "temporaries", "forward", -1, -1))
    rows += [(-MIB, 1 + layer, "activations", "backward", -1, -1) for layer in reversed(range(16))]
    columns = np.array(
        [
            (1000 + 1_000_000 * at * (at > 0), delta, block, CATEGORIES.index(kind), PHASES.index(phase), op, layer)
            for at, (delta, block, kind, phase, op, layer) in enumerate(rows)
        ],
        np.int64,
    ).T
    names = ("aten::linear/aten::addmm", "aten::gelu", *(f"blocks.{layer}" for layer in range(16)))
    end_ns = int(columns[0, -1])
    return AllocationStep(4242, number, 1000, end_ns, 1, names, columns, cost_ns=5_000_000)


@asynccontextmanager
async def opened(tmp_path, *steps: AllocationStep, size=(120, 36), **how):
    """The memory screen of a replay, and ``a`` pressed."""
    stream = list(sessions.messages(6))
    stream[9:9] = steps
    path = sessions.write_session(tmp_path / "s.memtui", stream)
    reader = Session(path)
    reader.release()
    app = MemtuiApp(lambda: reader, live=False, **how)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.screen.view is not None)
        await pilot.press("a")
        await until(pilot, lambda: "memtui trace" in screen_text(app) or "recorded   step" in screen_text(app))
        yield app, pilot


async def until(pilot, test, tries: int = 400):
    for _ in range(tries):
        await pilot.pause(0.01)
        if test():
            return
    raise AssertionError("it never came to that")


def title(app) -> str:
    """First line of the list."""
    return next(line for line in screen_lines(app) if "▸" in line and "┌" in line)
