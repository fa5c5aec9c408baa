"""How much of Python's memory a reader takes for each event of a file."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

from memtui.formats.catalogue import import_file


def bytes_an_event(write: Callable[[int], Path], few: int, many: int) -> float:
    """Return by how many bytes the peak of an import grows with each event. ``write``: makes a file of so many."""
    peaks = []
    for events in (few, many):
        path = write(events)
        tracemalloc.start()
        import_file(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return (peaks[1] - peaks[0]) / (many - few)
