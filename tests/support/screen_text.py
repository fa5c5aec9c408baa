"""The one place that knows how to get the text of a screen out of Textual."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.widget import Widget

from memtui.widgets.style import draw_style


def screen_lines(app: App) -> list[str]:
    """What stands on the screen, a string per line."""
    compositor = app.screen._compositor  # private: Textual has no public way to the composited text
    return ["".join(segment.text for segment in strip) for strip in compositor.render_strips()][: app.size.height]


def screen_text(app: App) -> str:
    """All lines, without blanks at their ends."""
    return "\n".join(line.rstrip() for line in screen_lines(app))


class Stage(App[None]):
    """Shows one widget on the whole screen."""

    CSS = "Screen { overflow: hidden; } Screen > Widget { width: 100%; height: 100%; }"

    def __init__(self, widget: Widget, *, color: str = "256", ascii_only: bool = False) -> None:
        super().__init__(ansi_color=True)
        self.widget, self.draw_style = widget, draw_style(color, ascii_only)

    def compose(self) -> ComposeResult:
        yield self.widget


async def drawn(widget: Widget, width: int, height: int, **how) -> str:
    """The text of one widget at a size."""
    app = Stage(widget, **how)
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.pause()
        return screen_text(app)
