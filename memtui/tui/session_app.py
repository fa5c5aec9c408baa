"""The viewer of one session."""

from __future__ import annotations

from collections.abc import Callable

from textual import events

from memtui.session.session import Session
from memtui.tui import terminal
from memtui.tui.base_app import TerminalApp
from memtui.tui.screens.memory import MemoryScreen
from memtui.tui.screens.memory.recording_requests import Send


class MemtuiApp(TerminalApp[int]):
    """The app of one session, which may still be growing.

    Args:
        open_session: returns the session; called once, in the thread that reads the session.
        live: follow the newest sample; otherwise open on the whole picture.
        refresh_s: how often a growing session is read.
        color: "256", "16" or "none", see ``terminal.prepare``.
        ascii_only: draw with ASCII characters.
        theme_name: "dark", "light" or "high-contrast".
        order: sends a request to the recording: a command of ``memtui.recording.control`` and its fields; may raise
            UserError.
        owns_recording: leaving ends the recording.
        first: "training": tensors over time lie on top in the beginning.
        process: PID of the one that all panels are about in the beginning.
        message: a line that is shown for a moment.
        stopped: whether somebody else ended the recording; called about once a second.
        imported: the session was imported from a file of another tool: it has allocations and nothing else.
    """

    def __init__(
        self,
        open_session: Callable[[], Session],
        *,
        live: bool,
        refresh_s: float = 1.0,
        color: str = "256",
        ascii_only: bool = False,
        theme_name: str = "dark",
        stopped: Callable[[], bool] | None = None,
        order: Send | None = None,
        owns_recording: bool = True,
        imported: bool = False,
        first: str = "",
        process: int | None = None,
        message: str = "",
    ) -> None:
        super().__init__(color=color, ascii_only=ascii_only, theme_name=theme_name)
        self._open_session, self._live, self._refresh_s = open_session, live, refresh_s
        self._stopped, self._order, self._owns_recording = stopped, order, owns_recording
        self._imported = imported
        self._first, self._process, self._opening_message = first, process, message
        self.how_left = terminal.QUIT

    def get_default_screen(self) -> MemoryScreen:
        """Return the first screen. A screen pushed on an empty one would cost a second style sheet and layout."""
        return MemoryScreen(
            self._open_session,
            live=self._live,
            refresh_s=self._refresh_s,
            order=self._order,
            owns_recording=self._owns_recording,
            first=self._first,
            process=self._process,
            message=self._opening_message,
        )

    def on_mount(self) -> None:
        super().on_mount()
        if self._imported:
            # Only here: the import would take a twelfth of the time until the first picture of any other session.
            from memtui.tui.screens.allocations import FULLEST, AllocationScreen

            memory = self.screen
            assert isinstance(memory, MemoryScreen)
            self.push_screen(AllocationScreen(memory.feed.do, FULLEST), lambda _: self.exit())

    def check_terminal(self) -> None:
        super().check_terminal()
        if self._stopped is not None and self._stopped():
            self.how_left = terminal.STOPPED
            self.exit()

    def action_detach(self) -> None:
        """Leave the screen; the recording goes on."""
        self.how_left = terminal.DETACHED
        self.exit()

    async def on_event(self, event: events.Event) -> None:
        """Send all keys one way while the screen takes typed text.

        Textual hands a key to the widget with the focus at that moment, through the queues of all its parents. Keys
        typed before an input had the focus would be overtaken by keys typed afterwards.
        """
        if isinstance(event, events.Key) and not event.is_forwarded and hasattr(self.screen, "take_key"):
            if not await self._check_bindings(event.key, priority=True):
                self.screen._forward_event(event)
        else:
            await super().on_event(event)

    def on_key(self, event: events.Key) -> None:
        """Give a key to the prompt while text is typed: the key must not trigger a binding."""
        take = getattr(self.screen, "take_key", None)
        if take is not None and take(event):
            event.prevent_default()
