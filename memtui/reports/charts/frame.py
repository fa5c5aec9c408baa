"""The frame of a figure as wide as a page: title and subtitle above the panels, notes below them, all of it whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memtui.reports.figures.axes import AXIS_PT
from memtui.reports.figures.svg import COLUMN_PT, SMALL_PT, TEXT_PT, Drawing, whole_lines

WIDTH_PT = 2 * COLUMN_PT + 12  # of a page of two columns
EDGE_PT = 6.0
TITLE_PT, NAME_PT, NOTE_PT = TEXT_PT + 1.5, 6.5, SMALL_PT + 0.5
LINE_PT = 7.8  # of names


@dataclass(frozen=True, slots=True)
class Frame:
    """Texts around the panels, in lines.

    Attributes:
        title: lines of the title.
        subtitle: lines below it.
        notes: lines below the panels.
    """

    title: Sequence[str]
    subtitle: Sequence[str]
    notes: Sequence[str]

    @classmethod
    def of(cls, title: str, subtitle: Sequence[str], notes: Sequence[str]) -> Frame:
        """Divide sentences into lines."""
        width = WIDTH_PT - 2 * EDGE_PT

        def lines(texts: Sequence[str], size: float) -> list[str]:
            return [line for text in texts for line in whole_lines(text, width, size)]

        return cls(lines([title], TITLE_PT), lines(subtitle, NAME_PT), lines(notes, NOTE_PT))

    @property
    def top(self) -> float:
        """Where the panels may begin, with a line for their headings above."""
        return EDGE_PT + len(self.title) * (TITLE_PT + 2) + len(self.subtitle) * LINE_PT + 15

    def drawing(self, bottom: float) -> Drawing:
        """Return a drawing with these texts, around panels that end at ``bottom`` and have an axis below."""
        below = bottom + AXIS_PT + 4
        height = below + len(self.notes) * (NOTE_PT + 1.8) + 4
        drawing = Drawing(WIDTH_PT, height, " ".join(self.title), " ".join(self.subtitle))
        y = EDGE_PT
        for line in self.title:
            y += TITLE_PT + 2
            drawing.text(EDGE_PT, y - 2, line, size=TITLE_PT)
        for line in self.subtitle:
            y += LINE_PT
            drawing.text(EDGE_PT, y, line, size=NAME_PT, fill="dim")
        for number, line in enumerate(self.notes, 1):
            drawing.text(EDGE_PT, below + number * (NOTE_PT + 1.8), line, size=NOTE_PT, fill="dim")
        return drawing
