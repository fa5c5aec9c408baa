"""The command palette: every action by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from memtui.tui.screens.memory.keys import KEYS
from memtui.widgets import text
from memtui.widgets.panel import CachedWidget
from memtui.widgets.raster import Line

_NAMES = {
    "question_mark": "?", "slash": "/", "full_stop": ".", "comma": ",", "left_square_bracket": "[",
    "right_square_bracket": "]", "plus": "+", "minus": "-", "equals_sign": "=", "colon": ":",
}  # fmt: skip
# Other names of an action: those of the command line, the documents and other programs.
_ALSO = {
    "app.next_theme": "theme colors",
    "to_end": "follow",
    "jump": "go to seek",
    "processes": "tree pids ranks",
    "tensors": "layers weights cold hot",
    "kinds": "colours category legend",
    "output": "log stdout",
    "filter": "search find",
    "put_mark": "epoch label",
    "rest": "sampling suspend",
    "miss_ratio": "curve cache",
    "type_memory_size": "bytes limit swap slow-down",
    "panel(1)": "heat map",
    "panel(2)": "histogram",
    "panel(3)": "table mappings vmas",
    "panel(4)": "energy watts gpu",
    "help": "keys",
    "app.detach": "background leave",
    "app.quit": "exit leave",
}


@dataclass(frozen=True, slots=True)
class Command:
    """An action with its label and its key. ``also``: other words that match the action."""

    label: str
    key: str
    action: str
    also: str = ""


def commands() -> tuple[Command, ...]:
    """Return all commands, in the order of the keys."""
    return tuple(
        Command(key.description, key_name(key.key), key.action, _ALSO.get(key.action, ""))
        for key in KEYS
        if key.action not in ("palette", "lift")  # the first opens the palette, the other closes it
    )


def key_name(keys: str) -> str:
    """Return the text of a key: of the first of several."""
    first = keys.split(",")[0]
    return _NAMES.get(first, first)


def matching(query: str) -> tuple[Command, ...]:
    """Return the commands in which every typed word occurs, those that begin with the query first."""
    parts = query.lower().split()
    matches = [c for c in commands() if all(part in f"{c.label} {c.key} {c.also}".lower() for part in parts)]
    return tuple(sorted(matches, key=lambda c: not c.label.lower().startswith(query.lower().strip())))


class CommandList(CachedWidget):
    """The actions that match, one of them chosen."""

    view: tuple[tuple[Command, ...], int]

    def paint(self, width: int, height: int) -> list[Line]:
        matches, chosen = self.view
        draw_style = self.draw_style
        if not matches:
            return [[(text.fit(" no action has these words", width), draw_style["warning"])]]
        top = max(0, min(chosen - height // 2, len(matches) - height))
        lines: list[Line] = []
        for number, command in enumerate(matches[top : top + height], top):
            here = number == chosen
            base, key = (
                (draw_style["selected"], draw_style["selected"]) if here else (draw_style["text"], draw_style["key"])
            )
            name = text.fit(command.key, 12)
            cursor = "▸" if here else " "
            lines.append([(f"{cursor} ", base), (name, key), (text.fit(command.label, max(0, width - 14)), base)])
        return lines


class PaletteScreen(ModalScreen[str | None]):
    """Returns the action that was chosen, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+p", "leave", "close", priority=True),
        Binding("down,tab", "choose(1)", "next", priority=True),
        Binding("up,shift+tab", "choose(-1)", "previous", priority=True),
        Binding("pagedown", "choose(10)", "ten further", priority=True),
        Binding("pageup", "choose(-10)", "ten back", priority=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._matches, self._index = commands(), 0
        self._list = CommandList((self._matches, 0), id="palette-list")
        self._input = Input(compact=True, placeholder="what to do", select_on_focus=False, id="palette-input")
        self._input.cursor_blink = False

    def compose(self) -> ComposeResult:
        with Vertical(id="palette"):
            yield self._input
            yield self._list

    def on_mount(self) -> None:
        self._input.focus()

    def take_key(self, event: events.Key) -> bool:
        """Insert a character that was typed before the input had the focus."""
        if not event.is_printable or not event.character:
            return False
        self._input.insert_text_at_cursor(event.character)
        return True

    def _show(self, index: int) -> None:
        self._index = max(0, min(len(self._matches) - 1, index))
        self._list.show((self._matches, self._index))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._matches = matching(event.value)
        self._show(0)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._matches:
            self.dismiss(self._matches[self._index].action)

    def on_click(self, event: events.Click) -> None:
        if event.widget is None or not event.widget.is_attached or event.widget.id in (None, "palette"):
            self.dismiss(None)

    def action_choose(self, by: int) -> None:
        self._show(self._index + by)

    def action_leave(self) -> None:
        self.dismiss(None)
