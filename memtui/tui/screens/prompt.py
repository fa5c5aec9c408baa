"""One line to type into, in the place of the footer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message

from memtui.widgets.label import TextLine
from memtui.widgets.text import width as text_width

if TYPE_CHECKING:
    from textual.widgets import Input

INPUT_CELLS = 20  # of the input; a hint has the rest


class Prompt(Horizontal):
    """A label, an input and a hint or an error. The input is created when it is first needed.

    Args:
        done: called with the kind, the text, and whether Enter (not Escape) ended the input. It is called before the
            next key is handled: keys after Enter are for the screen.
    """

    class Changed(Message):
        """The text was changed, and not yet accepted."""

        def __init__(self, kind: str, text: str) -> None:
            super().__init__()
            self.kind, self.text = kind, text

    def __init__(self, done: Callable[[str, str, bool], None], **options: Any) -> None:
        super().__init__(**options)
        self.kind = ""
        self._done = done
        self._label, self._hint = TextLine("key", id="prompt-label"), TextLine("dim", id="prompt-hint")
        self._input: Input | None = None
        self._usual_hint = ""

    @property
    def active(self) -> bool:
        return bool(self.kind)

    def compose(self) -> ComposeResult:
        yield self._label
        yield self._hint

    def open(self, kind: str, label: str, text: str, hint: str) -> None:
        """Open the prompt."""
        from textual.widgets import Input

        self.kind = kind
        if self._input is None:
            self._input = Input(compact=True, select_on_focus=False, id="prompt-input")
            self._input.cursor_blink = False
            self.mount(self._input, after=self._label)
        self._label.show(f" {label} ")
        self._label.styles.width = len(label) + 2
        self._hint.styles.max_width = max(0, self.app.size.width - len(label) - 2 - INPUT_CELLS)
        self._usual_hint = hint
        self._hint.show(hint)
        self._input.value = text
        self._input.cursor_position = len(text)
        self.call_after_refresh(self._take_focus)

    def _take_focus(self) -> None:
        """Take the focus, unless a fast typist has closed the prompt: it would take every key from then on."""
        if self.kind and self._input is not None:
            self._input.focus()

    def take(self, event: events.Key) -> bool:
        """Take a key, whether or not the input has the focus yet: a fast typist must not press other keys."""
        if not self.kind or self._input is None:
            return False
        if event.is_printable and event.character:
            self._input.insert_text_at_cursor(event.character)
        elif event.key in ("enter", "escape"):
            self._done(self.kind, self._input.value, event.key == "enter")
        elif self._input.has_focus:
            return False  # the input has bindings for it
        elif event.key == "backspace":
            self._input.action_delete_left()
        return True

    def close(self) -> None:
        """Close the prompt."""
        self.kind = ""
        self.screen.set_focus(None)

    def complain(self, why: str) -> None:
        """Show an error in place of the hint."""
        ending = " (Esc closes)"
        room = self.app.size.width - self._label.size.width - INPUT_CELLS
        self._hint.show(f" {why}{ending if text_width(why + ending) < room else ''}", role="warning")
        if self._input is not None:
            self._input.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.kind:
            self._hint.show(self._usual_hint)  # an error about the text before is obsolete
            self.post_message(self.Changed(self.kind, event.value))
