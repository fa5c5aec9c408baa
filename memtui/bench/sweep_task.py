"""The sweep in a process of its own, beside a screen: drawing must not delay a reading of the energy counter.

What the sweep reports comes as one JSON object a line: ``SweepUpdate`` while it goes on, then ``SweepEnded`` or
``SweepFailed``. The rows that were finished are in the database, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from memtui.bench import text
from memtui.bench.configuration import Titles
from memtui.bench.result import BenchRow
from memtui.bench.sweep import SweepProgress, Tell
from memtui.core.processes import BackgroundTask


@dataclass(frozen=True, slots=True)
class FinishedRow:
    """What a screen shows of a row.

    Attributes:
        line: as it is printed when the screen is left.
        label: title of the configuration.
        name: the same, without what all configurations have in common.
        words: flags, reasons and intervals, spelled out.
        ok: neither failed nor flagged.
    """

    line: text.BenchLine
    label: str
    name: str
    words: tuple[str, ...]
    ok: bool

    @classmethod
    def of(cls, row: BenchRow, titles: Titles) -> FinishedRow:
        """Describe a row. ``titles``: what configurations are called beside each other."""
        configuration, ok = row.configuration, row.status == "ok" and not row.flags
        words = tuple(text.remarks(row))
        return cls(text.BenchLine.of(row), configuration.title, titles.of(configuration), words, ok)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> FinishedRow:
        line = text.BenchLine.from_dict(plain["line"])
        return cls(**{**plain, "line": line, "words": tuple(plain["words"])})


@dataclass(frozen=True, slots=True)
class SweepUpdate:
    """What goes on. The attributes are those of ``SweepProgress``; ``configuration`` is its title."""

    phase: str
    number: int
    of: int
    skipped: int
    window: int
    windows: int
    visit: int
    visits: int
    left_s: float | None
    power_w: float | None
    source: str
    sensor_w: float | None
    sensor: str
    t_ns: int
    configuration: str
    notice: str
    row: FinishedRow | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> SweepUpdate:
        row = plain["row"]
        return cls(**{**plain, "row": None if row is None else FinishedRow.from_dict(row)})


def update_of(progress: SweepProgress, titles: Titles) -> SweepUpdate:
    """Return the message about it. ``titles``: what configurations are called beside each other."""
    configuration, row = progress.configuration, progress.row
    return SweepUpdate(
        phase=progress.phase,
        number=progress.number,
        of=progress.of,
        skipped=progress.skipped,
        window=progress.window,
        windows=progress.windows,
        visit=progress.visit,
        visits=progress.visits,
        left_s=progress.left_s,
        power_w=progress.power_w,
        source=progress.source,
        sensor_w=progress.sensor_w,
        sensor=progress.sensor,
        t_ns=progress.t_ns,
        configuration="" if configuration is None else configuration.title,
        notice=progress.notice,
        row=None if row is None else FinishedRow.of(row, titles),
    )


@dataclass(frozen=True, slots=True)
class SweepEnded:
    """Came to its own end; ``lines`` are what the rows amount to."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepFailed:
    """Ended early; ``text`` says why."""

    text: str


SweepMessage = SweepUpdate | SweepEnded | SweepFailed


def message_from_dict(plain: Mapping[str, Any]) -> SweepMessage:
    """Return the message that became this JSON object; the last one is ``BackgroundTask``'s own."""
    if "error" in plain:
        return SweepFailed(plain["error"])
    if "over" in plain:
        return SweepEnded(tuple(plain["over"]))
    return SweepUpdate.from_dict(plain)


class SweepProcess(BackgroundTask):
    """Starts at once.

    Attributes:
        lines: of the rows that are finished.
        skipped: measured before.
    """

    def __init__(self, work: Callable[[Tell], list[str]], titles: Titles | None = None) -> None:
        """Start ``work``, which measures and returns the last lines, in a child; no thread may run yet."""
        self.skipped = 0
        self.lines: list[text.BenchLine] = []
        self._received: list[SweepMessage] = []
        titles = titles or Titles([])
        super().__init__(lambda say: work(lambda progress: say(update_of(progress, titles).to_dict())))

    def note(self, word: dict[str, Any]) -> None:
        super().note(word)
        message = message_from_dict(word)
        self._received.append(message)
        if isinstance(message, SweepUpdate):
            self.skipped = message.skipped
            if message.row is not None:
                self.lines.append(message.row.line)

    def receive(self, seconds: float) -> list[SweepMessage]:
        """Return the messages that came meanwhile, with the first of them, or none after so long."""
        self.receive_messages(seconds)
        received, self._received = self._received, []
        return received

    @property
    def measured(self) -> list[text.BenchLine]:
        """Without references."""
        return [line for line in self.lines if not line.reference]
