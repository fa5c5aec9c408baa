"""What is told of a file while it is read."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.large_files import MAKERS
from memtui.formats import reading
from memtui.formats.catalogue import import_file
from memtui.formats.reading import MOST_POINTS, ReadingProgress, Usage


@given(st.lists(st.lists(st.integers(-50, 50), max_size=30), max_size=30))
def test_the_curve_is_the_same_in_whatever_parts_events_come(parts):
    together, piecewise = Usage(), Usage()
    whole = [change for part in parts for change in part]
    together.add(np.array(whole, np.int64))
    for part in parts:
        piecewise.add(np.array(part, np.int64))
    assert piecewise.usage_bytes == together.usage_bytes
    held = np.cumsum([0, *whole])[1:]
    if len(held):
        assert max(together.usage_bytes) == max(0, int(held.max()) - min(0, int(held.min())))
    assert together.allocations + together.frees == sum(change != 0 for change in whole)


def test_a_long_curve_keeps_its_peak_and_has_few_points():
    usage = Usage()
    for n in range(100):
        usage.add(np.tile([7, -7], 500) if n != 41 else np.array([7000, -7000]))
        assert len(usage.usage_bytes) <= MOST_POINTS
    curve = usage.usage_bytes
    assert len(curve) > MOST_POINTS // 4
    assert max(curve) == 7000
    assert abs(curve.index(7000) / len(curve) - 0.41) < 0.02


@pytest.mark.parametrize("kind", ["snapshot", "trace"])
def test_a_file_tells_its_progress_while_it_is_read(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "EVERY_S", 0.0)
    path = tmp_path / kind
    with path.open("wb") as file:
        MAKERS[kind](file, 5 << 20)
    sent: list[ReadingProgress] = []
    with reading.watched(sent.append):
        reading.start("reading")
        imported = import_file(path)
    shares = [word.read_bytes / path.stat().st_size for word in sent]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    doing = [word.doing for word in sent]
    device = imported.parts[-1].device
    assert doing.index(f"matching frees to allocations on {device}") > doing.index("matching frees to allocations")
    assert all(word.share is None or 0 <= word.share <= 1 for word in sent)
    events = [word.summary.allocations + word.summary.frees for word in sent if word.summary is not None]
    assert events == sorted(events)
    assert len(set(events)) > 3, "it grows while the file is read"
    last = next(word.summary for word in reversed(sent) if word.doing == "reading" and word.summary is not None)
    rows = sum(len(part.trace) - part.trace.existing for part in imported.parts)
    assert 0 < last.allocations + last.frees <= rows
    final = sent[-1].summary
    assert final is not None
    assert final.peak_bytes == max(part.trace.peak_bytes for part in imported.parts)
    assert json.dumps(final.usage_bytes)


def test_nothing_is_counted_while_nobody_watches(tmp_path):
    class Never:
        def so_far(self):
            raise AssertionError

    reading.parsed_by(Never())
    reading.read(1, 2)
    reading.start("reading")
    reading.advance(0.5)
    assert list(reading.rows([1, 2], [3, 4])) == [(1, 3), (2, 4)]
    with reading.watched(lambda _: None):
        reading.read(1, 2)
