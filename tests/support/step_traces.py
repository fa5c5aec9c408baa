"""Traces of steps: by chance, and one by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from memtui.analysis.allocation_trace import PHASES, StepTrace

NAMES = ("aten::addmm", "aten::relu", "0")


BETWEEN = PHASES.index("between")


Row = tuple[int, int, int, int, int, int, int]  # the seven columns


def trace_of(rows: list[Row], existing: int, end_ns: int = 10**6) -> StepTrace:
    columns = np.array(rows, np.int64).reshape(-1, 7).T
    return StepTrace.from_columns(columns, step=3, start_ns=100, end_ns=end_ns, existing=existing, names=NAMES)


@st.composite
def sound_rows(draw) -> tuple[list[Row], int]:
    """Rows of a valid step and how many of them are the blocks from before."""
    sizes = st.integers(1, 1 << 40)
    existing = draw(st.integers(0, 4))
    rows: list[Row] = [
        (100, draw(sizes), n, draw(st.integers(0, 7)), BETWEEN, -1, draw(st.integers(-1, 2))) for n in range(existing)
    ]
    live = {row[2]: row for row in rows}
    t_ns, blocks = 100, existing
    for _ in range(draw(st.integers(0, 20))):
        t_ns += draw(st.integers(0, 5))
        where = draw(st.integers(0, 3)), draw(st.integers(-1, 2)), draw(st.integers(-1, 2))
        if live and draw(st.booleans()):
            gone = live.pop(draw(st.sampled_from(sorted(live))))
            rows.append((t_ns, -gone[1], gone[2], gone[3], *where))
        else:
            rows.append((t_ns, draw(sizes), blocks, draw(st.integers(0, 7)), *where))
            live[blocks] = rows[-1]
            blocks += 1
    return rows, existing


SOUND: list[Row] = [
    (100, 64, 0, 0, BETWEEN, -1, 2),
    (110, 32, 1, 2, 0, 0, 2),
    (120, 16, 2, 6, 1, 1, -1),
    (130, -32, 1, 2, 1, 1, -1),
    (140, -16, 2, 6, 1, 1, -1),
]
