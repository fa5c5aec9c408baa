"""The part of a report on a session that was imported from a file of another tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memtui.core.json_fields import fields_to_json
from memtui.core.units import size
from memtui.reports.source import ReportSource
from memtui.session.tables.imported import LINES, ImportedFrom

SECOND_NS = 1e9


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment in the clock of the file.

    Attributes:
        t_s: seconds after the start, where the file has times.
        line: number of the line, in a log.
        row: number of the row, where the file has neither times nor lines.
    """

    t_s: float | None = None
    line: int | None = None
    row: int | None = None

    def to_dict(self) -> dict[str, float]:
        """Return the only field that is not None."""
        return {name: value for name, value in fields_to_json(self).items() if value is not None}

    def __str__(self) -> str:
        if self.t_s is not None:
            return f"{self.t_s:.6f} s"
        return f"line {self.line}" if self.line is not None else "a row"


@dataclass(frozen=True, slots=True)
class DriverReading:
    """The driver's figures of its memory at a moment, of all programs together."""

    moment: Moment
    free_bytes: int
    total_bytes: int

    def to_dict(self) -> dict[str, float]:
        """Return the moment and the sizes side by side."""
        return {**self.moment.to_dict(), "free_bytes": self.free_bytes, "total_bytes": self.total_bytes}


@dataclass(frozen=True, slots=True)
class ImportedMark:
    """A mark in the file."""

    moment: Moment
    text: str

    def to_dict(self) -> dict[str, float | str]:
        """Return the moment and the text side by side."""
        return {**self.moment.to_dict(), "text": self.text}


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The origin of a session.

    Attributes:
        file, format: name of the file without folders, and its format.
        clock: kind of its times, one of ``session.tables.imported``.
        sizes: kind of its sizes.
        not_known: figures that the file lacks, and why.
        warnings: defects of the file.
        mb_precision: tags of allocations with a size in whole MB only, one for each allocation.
        driver_memory: the driver's figures of its memory.
        marks: the other events of the file.
    """

    file: str
    format: str
    clock: str
    sizes: str
    not_known: tuple[str, ...]
    warnings: tuple[str, ...]
    mb_precision: tuple[str, ...]
    driver_memory: tuple[DriverReading, ...]
    marks: tuple[ImportedMark, ...]


def import_summary(reader: ReportSource) -> ImportSummary | None:
    """Return the origin of a session; None where memtui recorded it. Raises SessionError."""
    about = reader.imported()
    if about is None:
        return None
    return ImportSummary(
        file=about.file,
        format=about.format,
        clock=about.clock,
        sizes="allocated from the driver" if about.driver else "held",
        not_known=tuple(about.absent),
        warnings=tuple(about.warnings),
        mb_precision=tuple(about.coarse),
        driver_memory=tuple(
            DriverReading(_moment(about, reading.t_ns, reader), reading.free_bytes, reading.total_bytes)
            for reading in reader.driver_memory()
        ),
        marks=tuple(
            ImportedMark(_moment(about, event.t_ns, reader), event.text)
            for event in reader.events(0, 1 << 62)
            if event.kind == "mark"
        ),
    )


def _moment(about: ImportedFrom, t_ns: int, reader: ReportSource) -> Moment:
    if about.counts:
        return Moment(line=t_ns) if about.clock == LINES else Moment(row=t_ns)
    return Moment(t_s=(t_ns - reader.hello.clock.monotonic_ns) / SECOND_NS)


def import_lines(summary: ImportSummary) -> list[str]:
    """Return the lines of the report."""
    lines = [f"imported     {summary.file} ({summary.format}), sizes are what was {summary.sizes}"]
    lines += [f"not known    {text}" for text in summary.not_known]
    if summary.driver_memory:
        lines.append(_driver_line(summary.driver_memory))
    if summary.mb_precision:
        lines.append(f"precision    known in whole MB only: {', '.join(sorted(set(summary.mb_precision)))}")
    lines += [f"mark         at {mark.moment}: {mark.text}" for mark in summary.marks]
    return lines + [f"warning      {text}" for text in summary.warnings]


def _driver_line(readings: Sequence[DriverReading]) -> str:
    free = [reading.free_bytes for reading in readings]
    return (
        f"driver       of {size(readings[0].total_bytes)}: free {size(free[0])} first, {size(free[-1])} last, "
        f"{size(min(free))} at least (in {len(free)} lines; of all programs together)"
    )
