"""Why no power is known, in one line: without any reading the panel of power is hidden."""

from __future__ import annotations

from memtui.widgets import text
from memtui.widgets.panel import CachedWidget
from memtui.widgets.raster import Line
from memtui.widgets.views.memory import PowerView


class PowerLine(CachedWidget):
    """Every source with the reason why it has no reading."""

    view: PowerView
    chosen = False  # by the keys that choose a panel

    def choose(self, chosen: bool) -> None:
        """Mark the line as the chosen panel, or not."""
        if chosen != self.chosen:
            self.chosen = chosen
            if self.view is not None:
                self.repaint()

    def paint(self, width: int, height: int) -> list[Line]:
        draw_style = self.draw_style
        reasons = [f"{device.name}: {device.reason}" for device in self.view.devices]
        message = f"n/a  {'; '.join(reasons)}" if reasons else self.view.note or "no reading yet"
        head = "▸power  " if self.chosen else " power  "
        return [
            [
                (head, draw_style["bright" if self.chosen else "title"]),
                (text.sentence(text.clean(message), max(0, width - len(head) - 1)), draw_style["dim"]),
            ]
        ]


def tells_nothing(view: PowerView) -> bool:
    """Return whether no device has a figure, or ever had one."""
    return all(device.reason for device in view.devices)
