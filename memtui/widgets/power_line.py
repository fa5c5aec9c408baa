"""Why no power is known, in one line: without any reading the panel of power is hidden."""

from __future__ import annotations

import re

from memtui.widgets import text
from memtui.widgets.panel import CachedWidget
from memtui.widgets.raster import Line
from memtui.widgets.views.memory import PowerView

_IN_BRACKETS = re.compile(r" \([^()]*\)")


class PowerLine(CachedWidget):
    """Every source with the reason why it has no reading, with as much of it as has room."""

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
        head = "▸power  " if self.chosen else " power  "
        room = max(0, width - len(head) - 1)
        messages = [text.clean(message) for message in _messages(self.view)]
        message = next((whole for whole in messages if text.width(whole) <= room), messages[-1])
        return [
            [
                (head, draw_style["bright" if self.chosen else "title"]),
                (text.sentence(message, room), draw_style["dim"]),
            ]
        ]


def _messages(view: PowerView) -> list[str]:
    """Return the message in full, without what is in brackets, and without what explains the reasons."""
    if not view.devices:
        return [view.note or "no reading yet"]
    names, reasons = [device.name for device in view.devices], [device.reason for device in view.devices]
    without = [_IN_BRACKETS.sub("", reason) for reason in reasons]
    short = [reason.partition(": ")[0] for reason in without]
    return [
        f"n/a  {'; '.join(f'{name}: {reason}' for name, reason in zip(names, each, strict=True))}"
        for each in (reasons, without, short)
    ]


def tells_nothing(view: PowerView) -> bool:
    """Return whether no device has a figure, or ever had one."""
    return all(device.reason for device in view.devices)
