"""Stand-ins for what the parts of the sampler speak to: a queue that keeps messages, a reader that holds nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from memtui.core.samples import Event
from memtui.probes.window_reader import Lost, Outcome, Subject
from memtui.recording.wire import Message


class Outbox:
    """Keeps what would be sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def put(self, message: Message) -> None:
        self.messages.append(message)

    def put_event(self, kind: str, text: str) -> None:
        self.put(Event(time.monotonic_ns(), kind, text))

    def pump(self) -> None:
        """Nothing waits."""

    def take(self) -> list[Message]:
        messages, self.messages = self.messages, []
        return messages

    def events(self) -> list[tuple[str, str]]:
        return [(message.kind, message.text) for message in self.take() if isinstance(message, Event)]


class Reader:
    """In place of ``PageReader``: notes whom it was asked for; ``outcome`` is what it reads of each."""

    filtered = long = 0
    unwatched = ""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.forgotten: list[int] = []
        self.held_ns = 0
        self.error: Exception | None = None
        self.outcome: Callable[[Subject], Outcome] = lambda _: Lost(OSError("not read"))

    def start(self, subject: Subject) -> int:
        self.begun.append(subject.pid)
        if self.error is not None:
            raise self.error
        return self.held_ns

    def read(self, subjects: Sequence[Subject], *, want_resident: bool, part: bool = False) -> list[Outcome]:
        return [self.outcome(subject) for subject in subjects]

    def forget(self, pid: int) -> None:
        self.forgotten.append(pid)
