"""The sweep in a process of its own, apart from the screen: drawing must not delay a reading of the energy counter.

The sweep reports a ``SweepUpdate`` for each progress, then its summary (``WorkEnded``) or why it ended early. The
finished rows are in the database, however the sweep ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memtui.bench import text
from memtui.bench.configuration import Titles
from memtui.bench.result import BenchRow
from memtui.bench.sweep import OnProgress, SweepProgress
from memtui.core.processes import BackgroundTask, WorkEnded, WorkFailed


@dataclass(frozen=True, slots=True)
class FinishedRow:
    """A row as a screen shows it.

    Attributes:
        line: as it is printed when the screen is left.
        label: title of the configuration.
        name: title without the values that all configurations have in common.
        words: flags, reasons and intervals, spelled out.
        ok: neither failed nor flagged.
    """

    line: text.BenchLine
    label: str
    name: str
    notes: tuple[str, ...]
    ok: bool

    @classmethod
    def of(cls, row: BenchRow, titles: Titles) -> FinishedRow:
        """Describe a row. ``titles``: short titles of all configurations."""
        configuration, ok = row.configuration, row.status == "ok" and not row.flags
        remarks = tuple(text.remarks(row))
        return cls(text.BenchLine.of(row), configuration.title, titles.of(configuration), remarks, ok)


@dataclass(frozen=True, slots=True)
class SweepUpdate:
    """Progress of the sweep. The attributes are those of ``SweepProgress``; ``configuration`` is its title."""

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


def update_of(progress: SweepProgress, titles: Titles) -> SweepUpdate:
    """Return the message about a progress. ``titles``: short titles of all configurations."""
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


SweepMessage = SweepUpdate | WorkEnded | WorkFailed


class SweepProcess(BackgroundTask[SweepUpdate]):
    """The process of the sweep.

    Attributes:
        lines: lines of the finished rows.
        skipped: number of configurations that were measured before.
    """

    def __init__(self, work: Callable[[OnProgress], list[str]], titles: Titles | None = None) -> None:
        """Start ``work``, which measures and returns the summary, in a child; no thread may run yet."""
        self.skipped = 0
        self.lines: list[text.BenchLine] = []
        self._received: list[SweepMessage] = []
        titles = titles or Titles([])
        super().__init__(lambda send: work(lambda progress: send(update_of(progress, titles))), SweepUpdate)

    def is_start(self, message: SweepUpdate | WorkEnded) -> bool:
        return isinstance(message, WorkEnded) or message.phase != "start"

    def note(self, message: SweepMessage) -> None:
        super().note(message)
        self._received.append(message)
        if isinstance(message, SweepUpdate):
            self.skipped = message.skipped
            if message.row is not None:
                self.lines.append(message.row.line)

    def receive(self, seconds: float) -> list[SweepMessage]:
        """Wait for a message, at most ``seconds``; return it with those that came with it, or nothing."""
        self.receive_messages(seconds)
        received, self._received = self._received, []
        return received

    @property
    def measured(self) -> list[text.BenchLine]:
        """Lines of the finished rows, without references."""
        return [line for line in self.lines if not line.reference]
