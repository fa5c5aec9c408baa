"""The result of an importer, the same for every format."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.stack_capture import StackCapture
from memtui.core.call_stacks import CallStacks
from memtui.core.errors import UserError
from memtui.core.samples import Event
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.session.tables.imported import DriverMemory, ImportedFrom

MOST_WARNINGS = 20  # of one file; further warnings are only counted


class NotImportable(UserError):
    """The file has an unknown format or is damaged; the text says why, without the name of the file."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Content of a file about the memory of one device.

    Attributes:
        trace: every row.
        device: name as in PyTorch; main memory where the file does not say.
        begins: (time, number) of the training steps in the file.
    """

    trace: StepTrace
    device: str = MAIN_MEMORY
    begins: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A whole file.

    Attributes:
        parts: one for each device.
        about: origin of the file, and the information that it lacks.
        events: other events in the file, by time.
        driver: memory that a driver reported, by time.
        stacks: call stacks, by the numbers that the traces have.
        capture: every block with its address and the call stack that allocated it.
    """

    parts: tuple[Part, ...]
    about: ImportedFrom
    events: tuple[Event, ...] = ()
    driver: tuple[DriverMemory, ...] = ()
    stacks: CallStacks | None = None
    capture: StackCapture | None = None


class Warnings:
    """Warnings about a file that can be read all the same: the first ones, and the number of the others."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._more = 0

    def add(self, text: str) -> None:
        """Count one more warning."""
        if len(self._first) < MOST_WARNINGS:
            self._first.append(text)
        else:
            self._more += 1

    def lines(self) -> tuple[str, ...]:
        """Return all warnings, as lines."""
        return (*self._first, *([f"and {self._more} more like these"] if self._more else []))
