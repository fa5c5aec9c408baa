"""The prompts of the memory screen: a filter, a time, a memory size, and for the recording a mark or an interval."""

from __future__ import annotations

from collections.abc import Callable

from memtui.core.units import parse_size
from memtui.tui.presenters import Presenter
from memtui.tui.screens.memory.recording_requests import RecordingRequest, interval_request, mark_request
from memtui.tui.screens.presenter_thread import Action
from memtui.tui.screens.prompt import Prompt


def set_filter(listed: str, text: str) -> Action:
    """Return the action that filters the rows of the "tensors" or of the ranges by a text."""
    text = text.strip()

    def change(presenter: Presenter) -> None:
        rows = presenter.tensors if listed == "tensors" else presenter.ranges
        rows.filter_text = text

    return change


class MemoryPrompts:
    """Opens the prompt of the screen, and acts on the typed text.

    Args:
        do: runs an action in the thread of the presenter.
        send: takes a request to the recording.
        resized: called when the prompt opened or closed, in the place of the footer.
        choose_size: shows the miss ratio of a memory size in bytes, and returns why it cannot; "" where it can.
    """

    def __init__(
        self,
        do: Callable[[Action], object],
        send: Callable[[RecordingRequest], object],
        resized: Callable[[], object],
        choose_size: Callable[[int], str],
    ) -> None:
        self.widget = Prompt(self._typed, id="prompt")
        self._do, self._send, self._resized, self._choose_size = do, send, resized, choose_size
        self._filtered = "table"  # the list that a typed filter is about

    def filter(self, listed: str, text: str) -> None:
        """Ask for a filter of a list, which has a filter already."""
        self._filtered = listed
        hint = "part of a layer or kind" if listed == "tensors" else "part of a name, address or perms"
        self._open("filter", "/", hint, text)

    def jump(self) -> None:
        """Ask for a time to jump to."""
        self._open("jump", "jump to", "7:12, 90, 5m, 50%, +30, -1:30")

    def memory_size(self) -> None:
        """Ask for a memory size, whose miss ratio is to be shown."""
        self._open("size", "memory size", "512MiB, 2GiB")

    def mark(self) -> None:
        """Ask for the text of a mark."""
        self._open("mark", "mark this moment", "its text")

    def interval(self) -> None:
        """Ask for another interval or budget of sampling."""
        self._open("interval", "interval or budget", "seconds: 0.5, 50ms; budget: 5%, none")

    def changed(self, kind: str, text: str) -> None:
        """Follow a filter while it is being typed."""
        if kind == "filter":
            self._do(set_filter(self._filtered, text))

    def _open(self, kind: str, label: str, hint: str, text: str = "") -> None:
        self.widget.open(kind, label, text, hint)
        self._resized()

    def _typed(self, kind: str, text: str, accepted: bool) -> None:
        """Act on Enter (``accepted``) or Escape; the next key is for the screen again."""
        if kind == "filter":
            self._do(set_filter(self._filtered, text if accepted else ""))
            self._close()
        elif not accepted:
            self._close()
        elif kind == "jump":
            self._jump(text)
        elif kind == "size":
            self._size(text)
        else:
            self._request(kind, text)

    def _jump(self, text: str) -> None:
        def jump(presenter: Presenter) -> None:
            why = presenter.playhead.jump(text)
            self.widget.app.call_later(self._close_unless, why)

        self._do(jump)

    def _size(self, text: str) -> None:
        try:
            why = self._choose_size(parse_size(text))
        except ValueError as error:
            why = str(error)
        self._close_unless(why)

    def _request(self, kind: str, text: str) -> None:
        try:
            request = mark_request(text) if kind == "mark" else interval_request(text)
        except ValueError as error:
            self._close_unless(str(error))
            return
        self._close()
        self._send(request)

    def _close_unless(self, why: str) -> None:
        """Close the prompt; with a reason ``why`` not, keep the prompt open and show the reason."""
        if why:
            self.widget.complain(why)
        else:
            self._close()

    def _close(self) -> None:
        self.widget.close()
        self._resized()
