"""The session an export is made from, as it is; ``redact.RedactedSource`` is the one without what it gives away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from memtui.session.reader import SessionReader, VmaRow

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


def open_source(path: Path, *, redact: bool = False) -> Source:
    """The session to export. Raises SessionError."""
    if not redact:
        return Source(path)
    from memtui.export.redact import RedactedSource

    return RedactedSource(path)
