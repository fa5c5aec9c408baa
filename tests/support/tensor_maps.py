"""Maps of tensors, by hand and by chance, and a session with them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.tensor_pages import TensorMap
from tests.support import sessions


def made(*rows: tuple[int, int, int]) -> TensorMap:
    return TensorMap.of(np.array(rows, np.int64).reshape(-1, 3).T, tuple(f"layer {n}" for n in range(len(rows))))


@st.composite
def maps(draw) -> TensorMap:
    """Tensors of a few bytes to a few pages, with gaps of any length, also none."""
    at, rows = draw(st.integers(0, 5000)), []
    for _ in range(draw(st.integers(0, 12))):
        size = draw(st.sampled_from([4, 64, 1000, 4096, 5000, 20_000]))
        rows.append((at, size, draw(st.integers(0, len(CATEGORIES) - 1))))
        at += size + draw(st.sampled_from([0, 0, 60, 4096, 9000]))
    return made(*draw(st.permutations(rows)))


def session(tmp_path, *more, samples: int = 20):
    """More messages, each behind the window whose number stands beside it."""
    stream = []
    for message in sessions.messages(samples):
        stream.append(message)
        stream += [one for at, one in more if getattr(message, "sample", None) == at and hasattr(message, "processes")]
    return sessions.write_session(tmp_path / "s.memtui", stream)
