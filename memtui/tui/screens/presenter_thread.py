"""The thread between a session and the screen: the thread reads and prepares, the screen only draws."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from memtui.session.session import Session
from memtui.tui.presenters import Presenter
from memtui.widgets.views.memory import MemoryView, State

PLAY_S = 0.25  # between pictures while playing
FIRST_S = 0.01  # of the heat map in the first picture: a fast picture is better than a complete one
DRAW_S = 0.02  # between the parts of one picture: preparing the next and drawing this one would delay each other
Action = Callable[[Presenter], object]


class PresenterThread(threading.Thread):
    """Owns the presenter. Actions are done in order, then one view is created for all of them.

    Args:
        open_session: called in this thread, because a database connection belongs to one thread.
        deliver: takes every new view; called in this thread.
        fail: takes one line when the session could not be read this time.
        live: follow the newest sample instead of opening on the whole picture.
        refresh_s: how often a growing session is read.
    """

    def __init__(
        self,
        open_session: Callable[[], Session],
        deliver: Callable[[MemoryView], object],
        fail: Callable[[str], object],
        *,
        live: bool,
        refresh_s: float = 1.0,
    ) -> None:
        super().__init__(name="memtui-feed", daemon=True)
        self._open, self._deliver, self._fail = open_session, deliver, fail
        self._live, self._refresh_s = live, refresh_s
        self._actions: deque[Action] = deque()
        self._wake = threading.Condition()
        self._leaving = threading.Event()

    def do(self, action: Action) -> None:
        """Let the presenter do something, then show the result. Returns at once."""
        with self._wake:
            self._actions.append(action)
            self._wake.notify()

    def stop(self) -> None:
        """End soon; the current view is finished first."""
        with self._wake:
            self._leaving.set()
            self._wake.notify()

    def run(self) -> None:
        """Deliver views until stopped. A failure is reported, and reading tried again at the next key or tick."""
        try:
            presenter = Presenter(self._open(), follow=self._live)
        except Exception as error:
            self._complain(error)
            return
        last = refreshed = time.monotonic()
        failed = False
        while not self._leaving.is_set():
            actions = self._take(self._refresh_s if failed else self._patience(presenter, refreshed))
            if self._leaving.is_set():
                break
            now = time.monotonic()
            elapsed, last = now - last, now
            try:
                for action in actions:
                    action(presenter)
                presenter.playhead.tick(elapsed)
                if presenter.playhead.recording and now - refreshed >= self._refresh_s * 0.99:
                    refreshed = now
                    presenter.refresh()
                self._deliver(presenter.view() if presenter.shown else presenter.view(FIRST_S))
                presenter.reader.release_if_ended()
                failed = False
            except Exception as error:
                # The screen stays and shows any error of a file; a silent standstill would be worse.
                self._complain(error)
                failed = True
        presenter.reader.release()

    def _complain(self, error: Exception) -> None:
        if not self._leaving.is_set():
            self._fail(str(error) or type(error).__name__)

    def _patience(self, presenter: Presenter, refreshed: float) -> float | None:
        """Return how long nothing needs to be drawn unless a key is pressed; None: for ever."""
        if not presenter.shown:
            return 0.0
        if not presenter.complete:
            return DRAW_S
        if presenter.playhead.state is State.PLAYING:
            return PLAY_S
        if presenter.playhead.recording:
            return max(0.0, refreshed + self._refresh_s - time.monotonic())
        if presenter.output.shown:
            return self._refresh_s  # a program may print on after its recording ended
        return None

    def _take(self, patience: float | None) -> list[Action]:
        with self._wake:
            if not self._actions and not self._leaving.is_set():
                self._wake.wait(patience)
            actions = list(self._actions)
            self._actions.clear()
        return actions
