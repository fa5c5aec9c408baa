"""What an importer makes of a file: the same for every format."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.analysis.allocation_trace import StepTrace
from memtui.core.errors import UserError
from memtui.core.samples import MAIN_MEMORY, Event
from memtui.session.records.imported import DriverMemory, ImportedFrom

MOST_WARNINGS = 20  # of one file; how many more there are is said


class NotImportable(UserError):
    """The file is of no format that is known, or damaged; the text says why, without the name of the file."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """All that a file tells of the memory of one device.

    Attributes:
        trace: every row.
        device: as PyTorch calls it; main memory where the file does not say.
        begins: (time, number) of the training steps that the file tells of.
    """

    trace: StepTrace
    device: str = MAIN_MEMORY
    begins: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A whole file.

    Attributes:
        parts: one for each device.
        about: where it comes from, and what the file does not know.
        marks: what it says besides, by time.
        driver: what a driver said of its memory, by time.
    """

    parts: tuple[Part, ...]
    about: ImportedFrom
    marks: tuple[Event, ...] = ()
    driver: tuple[DriverMemory, ...] = ()


class Warnings:
    """What is wrong with a file that can be read all the same: the first ones, and how many there are."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._more = 0

    def say(self, text: str) -> None:
        """Count one more warning."""
        if len(self._said) < MOST_WARNINGS:
            self._said.append(text)
        else:
            self._more += 1

    def lines(self) -> tuple[str, ...]:
        """Return all warnings, as lines."""
        return (*self._said, *([f"and {self._more} more like these"] if self._more else []))
