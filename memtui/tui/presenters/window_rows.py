"""The scalars of each process in the window at the cursor, and in the one before it."""

from __future__ import annotations

from memtui.session.process_reader import ProcessSample
from memtui.session.session import Session


class WindowRows:
    """Reads a window once while the cursor stays on it. Windows are given by their index among the samples."""

    def __init__(self, reader: Session) -> None:
        self._reader = reader
        self._cached: tuple[int, list[ProcessSample]] = -1, []

    def of_window(self, index: int) -> list[ProcessSample]:
        """Return the rows of one window."""
        sample = int(self._reader.samples.sample[index])
        return [row for row in self.with_previous(index) if row["sample"] == sample]

    def with_previous(self, index: int) -> list[ProcessSample]:
        """Return the rows of a window and of the one before it."""
        sample = int(self._reader.samples.sample[index])
        if self._cached[0] != sample:
            self._cached = sample, self._reader.processes.samples(sample - 1, sample)
        return self._cached[1]
