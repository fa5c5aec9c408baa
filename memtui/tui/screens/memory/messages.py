"""What the thread of the presenter sends to the memory screen."""

from __future__ import annotations

from textual.message import Message

from memtui.widgets.views.memory import MemoryView


class ViewReady(Message):
    """A new picture. Only the newest of several waiting ones is worth drawing."""

    def __init__(self, view: MemoryView) -> None:
        super().__init__()
        self.view = view

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, ViewReady)


class FeedFailed(Message):
    """The session could not be read this time."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


class KeyRefused(Message):
    """A key did nothing; ``why`` is shown for a moment."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why
