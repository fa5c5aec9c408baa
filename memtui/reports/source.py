"""The session an export is made from, as it is; ``redact.RedactedSource`` is the one without what it gives away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from memtui.session.reader import SessionReader
from memtui.session.vma_row import VmaRow

Run = tuple[int, int, int]
"""Start and end of touched memory and the size of its pages, bytes."""


class Source(SessionReader):
    """A reader, and the few questions whose answers differ once a session is redacted."""

    shows_distances = True  # between ranges, which tell of their addresses

    @property
    def title(self) -> str:
        """What the session is called."""
        return str(self.path)

    @property
    def short_title(self) -> str:
        """The same without folders, where a file goes to others."""
        return self.title.rpartition("/")[2]

    def drawn_rows(self, process: int) -> list[VmaRow]:
        """VMA rows for a picture: at their real addresses, with names that can be shown."""
        return self.vma_rows(process)

    def runs(self, sample: int, process: int, mapped: Sequence[VmaRow]) -> Iterator[Run]:
        """Runs of touched pages of a window, split where another of the mapped VMAs begins or ends.

        ``mapped`` are those of ``vma_rows`` that were mapped in the window. Raises SessionError.
        """
        pages = self.page_set(sample, process)
        if pages is not None:
            yield from pages.runs([address for row in mapped for address in (row.start, row.end)])


def not_stored_bytes(reader: SessionReader, process: int | None = None) -> NDArray[np.int64]:
    """i8[n], bytes: what was touched in each window and is not stored, of one process or of all of them together.

    A page that several processes touched counts for each. Windows of which it is not known are left out. Raises
    SessionError.
    """
    found: dict[int, int] = defaultdict(int)
    unknown = set()
    for row in reader.process_samples(0, reader.samples.newest) if len(reader.samples) else ():
        if process in (None, row["process"]):
            if row["wss_bytes"] is None or row["stored_bytes"] is None:
                unknown.add(row["sample"])
            else:
                found[row["sample"]] += max(row["wss_bytes"] - row["stored_bytes"], 0)
    return np.array([value for sample, value in found.items() if sample not in unknown], np.int64)
