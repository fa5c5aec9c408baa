"""The box that all panels share: a border with texts in it, painted line by line, and only the lines that changed."""

from __future__ import annotations

from typing import Any

from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from memtui.widgets import text
from memtui.widgets.fast_strip import FastStrip
from memtui.widgets.raster import Line, Run
from memtui.widgets.style import DrawStyle, draw_style
from memtui.widgets.views.memory import TimeAxis, same


class FullWidthLine(list[Run]):
    """A line of one-cell glyphs that fills its width: measuring the line would be most of its cost."""


def line_width(line: Line) -> int:
    """Return cells a line takes."""
    return sum(text.width(run) for run, _ in line)


def cut(line: Line, cells: int) -> Line:
    """Return the line cut to at most ``cells``."""
    out: Line = []
    for run, style in line:
        have = text.width(run)
        if have > cells:
            if cells > 0:
                out.append((text.fit(run, cells) if cells < have else run, style))
            break
        out.append((run, style))
        cells -= have
    return out


def fitted(line: Line, cells: int, ground: Style) -> Line:
    """Return the line cut or padded to exactly ``cells``."""
    have = line_width(line)
    if have > cells:
        line = cut(line, cells)
        have = line_width(line)
    return [*line, (" " * (cells - have), ground)] if have < cells else line


def _neighbours(rows: list[int]) -> list[tuple[int, int]]:
    """Return rising numbers as (first, count) of each run without a hole."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and row == sum(runs[-1]):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((row, 1))
    return runs


class CachedWidget(Widget):
    """A widget whose lines are prepared once per view; ``render_line`` only hands them out.

    Subclasses implement ``paint``. A new view that paints the same lines costs no output at all, one that changes a
    line costs that line.
    """

    can_focus = False

    def __init__(self, view: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.view = view
        self._lines: list[Line] = []
        self._strips: list[Strip] = []
        self._painted: tuple[int, int] | None = None

    @property
    def draw_style(self) -> DrawStyle:
        """Return the draw style of the app, or the default one in an app without a draw style."""
        return getattr(self.app, "draw_style", None) or draw_style()

    def recolour(self) -> None:
        """Paint again in other styles."""
        self._painted = None
        self.refresh()

    def show(self, view: Any) -> None:
        """Take a new view and redraw what it changes."""
        if same(view, self.view):
            return
        self.view = view
        self.repaint()

    def repaint(self) -> None:
        """Paint again and refresh the lines that differ. A hidden widget waits until it is seen."""
        size = (self.size.width, self.size.height)
        if not self.is_attached or not self.display or size != self._painted:
            self._painted = None
            if self.is_attached:
                self.refresh()
            return
        changed = self._prepare(*size)
        if changed:
            self.refresh(*(Region(0, first, size[0], count) for first, count in _neighbours(changed)))

    def _prepare(self, width: int, height: int) -> list[int]:
        lines = self.paint(width, height) if self.view is not None and width > 0 else []
        lines = (lines + [[]] * height)[:height]
        if self.draw_style.ascii_only:  # here and nowhere else: a painted text may come from any program
            lines = [type(line)((self.draw_style.displayable(run), style) for run, style in line) for line in lines]
        old, changed = self._lines, []
        strips = list(self._strips) if len(self._strips) == height and self._painted == (width, height) else []
        fresh = not strips
        base = self.draw_style["text"]
        for y, line in enumerate(lines):
            if not fresh and y < len(old) and old[y] == line:
                continue
            changed.append(y)
            strip = FastStrip(line if isinstance(line, FullWidthLine) else fitted(line, width, base), width)
            if fresh:
                strips.append(strip)
            else:
                strips[y] = strip
        self._lines, self._strips, self._painted = lines, strips, (width, height)
        return changed

    def paint(self, width: int, height: int) -> list[Line]:
        """Return the lines for a size, top first. It is only called with a view."""
        raise NotImplementedError

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the strips as they are.

        Textual would go through all segments for a border, padding and links: none here.
        """
        if self.get_line_filters():
            return super().render_lines(crop)
        width, height = self.size.width, self.size.height
        if self._painted != (width, height):
            self._prepare(width, height)
        strips = self._strips[crop.y : crop.bottom]
        strips += [Strip.blank(width, self.draw_style["text"])] * (crop.height - len(strips))
        whole = crop.x == 0 and crop.width == width
        return strips if whole else [strip.crop(crop.x, crop.right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        size = (self.size.width, self.size.height)
        if self._painted != size:
            self._prepare(*size)
        return self._strips[y] if y < len(self._strips) else Strip.blank(size[0], self.draw_style["text"])


class Panel(CachedWidget):
    """A box with a border. ``paint_inside`` fills the box, the other hooks write on the border."""

    title = ""
    chosen = False  # the keys up and down are about this panel

    class Chosen(Message):
        """A panel was clicked."""

        def __init__(self, panel: Panel) -> None:
            super().__init__()
            self.panel = panel

    class TimeClicked(Message):
        """A moment was clicked."""

        def __init__(self, t_ns: float) -> None:
            super().__init__()
            self.t_ns = t_ns

    def choose(self, chosen: bool) -> None:
        """Show in the title whether up and down are about this panel."""
        if chosen != self.chosen:
            self.chosen = chosen
            if self.view is not None:
                self.repaint()

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Chosen(self))

    def post_clicked_time(self, event: events.Click, axis: TimeAxis, before: int) -> None:
        """Post the moment that was clicked, if any; ``before``: cells of the inside to the left of the axis."""
        columns, column = self.size.width - 2 - before, event.x - 1 - before
        if 0 <= column < columns and 0 < event.y < self.size.height - 1:
            self.post_message(self.TimeClicked(axis.moment(column, columns)))

    def paint(self, width: int, height: int) -> list[Line]:
        if width < 6 or height < 3:
            return []
        inside = self.paint_inside(width - 2, height - 2)
        inside = (inside + [[]] * height)[: height - 2]
        border, base = self.draw_style["border"], self.draw_style["text"]
        lines = [self._edge("┌", "┐", self.heading(), self.heading_right(width), width)]
        for line in inside:
            if isinstance(line, FullWidthLine):
                lines.append(FullWidthLine([("│", border), *line, ("│", border)]))
            else:
                lines.append(FullWidthLine([("│", border), *fitted(line, width - 2, base), ("│", border)]))
        lines.append(self._edge("└", "┘", self.footing(), self.footing_right(width), width, self.footing_middle(width)))
        return lines

    def _edge(self, left: str, right: str, head: Line, tail: Line, width: int, middle: Line | None = None) -> Line:
        """Return a border line with texts; the right text gives way to the left one, the middle one to both."""
        border = self.draw_style["border"]
        head = cut(head, width - 6)
        if line_width(head) + line_width(tail) + 8 > width:
            tail = []
        out: Line = [(left, border)]
        if line_width(head):
            before: Run = (" ", border)
            if self.chosen and left == "┌":
                before = ("▸", self.draw_style["key"])
                head = [(head[0][0], self.draw_style["bright"]), *head[1:]]
            out += [before, *head, (" ", border)]
        end: Line = [(" ", border), *tail, (" ", border)] if line_width(tail) else []
        end += [(right, border)]
        free = width - line_width(out) - line_width(end)
        if middle and 0 < line_width(middle) <= free - 6:
            start = width // 2 - line_width(middle) // 2 - line_width(out) - 1
            start = min(max(1, start), free - line_width(middle) - 3)
            rest = free - start - line_width(middle) - 2
            out += [("─" * start + " ", border), *middle, (" " + "─" * rest, border)]
        else:
            out.append(("─" * free, border))
        return out + end

    def heading(self) -> Line:
        """Return the text at the left of the upper edge."""
        return [(self.title, self.draw_style["title"])]

    def heading_right(self, width: int) -> Line:
        """Return the text at the right of the upper edge."""
        return []

    def footing(self) -> Line:
        return []

    def footing_middle(self, width: int) -> Line:
        return []

    def footing_right(self, width: int) -> Line:
        return []

    def paint_inside(self, width: int, height: int) -> list[Line]:
        """Return lines inside the border."""
        raise NotImplementedError

    def message(self, sentence: str, width: int, height: int) -> list[Line]:
        """Return a sentence in the place of the picture."""
        return centred(sentence, width, height, self.draw_style["dim"], margin=1)


def centred(sentence: str, width: int, height: int, style: Style, *, margin: int = 0) -> list[Line]:
    """Return a sentence in the middle, wrapped."""
    room = width - 2 * margin
    lines: list[str] = []
    for word in text.clean(sentence).split():
        if lines and text.width(lines[-1]) + 1 + text.width(word) <= room:
            lines[-1] += " " + word
        else:
            lines.append(text.fit(word, room).rstrip() if text.width(word) > room else word)
    top = max(0, (height - len(lines)) // 2)
    below = [[(" " * max(0, (width - text.width(line)) // 2) + line, style)] for line in lines]
    return [[] for _ in range(top)] + below


def axis_labels(axis: TimeAxis) -> tuple[str, str, str]:
    """Return the labels of a time axis (left, middle, right): ages while following, times of the session otherwise."""
    if axis.follow:
        seconds = axis.span_ns / 1e9
        return f"-{text.span(seconds)}", f"-{text.span(seconds / 2)}", "now"
    start, end = (axis.start_ns - axis.origin_ns) / 1e9, (axis.end_ns - axis.origin_ns) / 1e9
    digits = next((n for n, least in enumerate((20, 2, 0.2)) if end - start >= least), 3)
    # Time starts with the session: a short session leaves the part of the axis before its start without labels.
    left, middle, right = (
        text.clock(max(0.0, time_s), digits=digits) if time_s > -0.05 else ""
        for time_s in (start, (start + end) / 2, end)
    )
    return left, middle, right
