"""The home screen: processes worth attaching to, and this user's sessions, running and saved.

It is shown as the invoking user, whoever this process is, and what was chosen comes back.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from memtui.core.privilege import Invoker, invoker, run_as, sessions_directory, state_directory
from memtui.recording.membership import RecordedTrees
from memtui.recording.registry import Running, find_all
from memtui.recording.targets import Candidate, Candidates, user_name
from memtui.session.file_format import SessionError, size_on_disk
from memtui.session.summary import Summary, summarize
from memtui.tui.app import run_home
from memtui.tui.terminal import prepare, require_terminal
from memtui.widgets.views.home import HomeView, ProcessRow, SessionRow

MOST_SESSIONS = 200  # the newest ones
SESSIONS_S = 10.0  # how often they are looked at; processes are at every look


class Home:
    """Looks again and again; what is known of a file that did not change is kept."""

    def __init__(self, state: Path, sessions: Path) -> None:
        """Take the user's state directory, and where the named sessions lie."""
        self._state, self._folder = state, sessions
        self._candidates, self._watched = Candidates(), RecordedTrees()
        self._shown: tuple[SessionRow, ...] = ()
        self._recorded: frozenset[str] = frozenset()  # sessions that grew when they were looked at
        self._looked_s = float("-inf")
        self._kept: dict[Path, tuple[tuple[int, int], Summary | str]] = {}

    def look(self) -> HomeView:
        """Return everything at this moment. Never raises."""
        running = find_all(self._state)
        user = user_name(os.getuid())
        processes = tuple(
            ProcessRow(c.pid, c.user, c.kinds, c.rss_bytes, c.age_s, c.command, self._recording(running, c))
            for c in sorted(self._candidates.scan(), key=lambda c: c.user != user)
        )
        note = "" if os.geteuid() == 0 else "of other users' processes only the size is known (no root)"
        recorded, now_s = frozenset(r.path for r in running), time.monotonic()
        if recorded != self._recorded or now_s >= self._looked_s + SESSIONS_S:
            self._shown = tuple(self._sessions(running))
            self._recorded, self._looked_s = recorded, now_s
        return HomeView(os.uname().nodename, processes, self._shown, note, user)

    def _recording(self, running: list[Running], candidate: Candidate) -> str:
        """Return the short name of the recording that watches it, if one does."""
        found = self._watched.by(running, candidate.pid, candidate.start_ticks)
        return found.id if found else ""

    def _sessions(self, running: list[Running]) -> list[SessionRow]:
        recorded = {Path(r.path): r for r in running}
        paths = {path: path.stat().st_mtime for path in self._files() | set(recorded) if path.exists()}
        newest = sorted(paths, key=lambda path: (path not in recorded, -paths[path]))[:MOST_SESSIONS]
        self._kept = {path: kept for path, kept in self._kept.items() if path in newest}
        return [self._row(path, recorded.get(path)) for path in newest]

    def _files(self) -> set[Path]:
        try:
            return set(self._folder.glob("*.memtui"))
        except OSError:
            return set()

    def _row(self, path: Path, running: Running | None) -> SessionRow:
        found, size_bytes = self._summary(path), size_on_disk(path)
        pid = running.pid if running else None
        if isinstance(found, str):
            return SessionRow(str(path), _modified(path), None, None, size_bytes, "", "unreadable", found, pid)
        state = "recording" if running else found.end or "interrupted"
        return SessionRow(
            str(path), found.began_s, found.duration_s, found.samples, size_bytes, found.command, state, pid=pid
        )

    def _summary(self, path: Path) -> Summary | str:
        """Return what the file says, or what is wrong with it."""
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, size_on_disk(path))
            kept = self._kept.get(path)
            if kept is None or kept[0] != stamp:
                kept = self._kept[path] = (stamp, summarize(path))
            return kept[1]
        except SessionError as error:
            why = str(error).removeprefix(f"{path}: ")
            self._kept[path] = (stamp, why)
            return why
        except OSError as error:
            return error.strerror or "gone"


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


Choice = tuple[str, str]  # a command and its argument


def choose_from_home() -> tuple[int, Choice | None]:
    """Return the exit code of the screen, and what was chosen, if anything. Raises UserError without a terminal."""
    require_terminal()
    user = invoker()
    # Under sudo in a child: what is chosen may need the rights.
    code, chosen = _show(user) if os.geteuid() or not user.uid else run_as(user, lambda: _show(user))
    return code, (chosen[0], chosen[1]) if chosen else None


def _show(user: Invoker) -> tuple[int, Choice | None]:
    prepare()
    return run_home(Home(state_directory(user), sessions_directory(user)).look)
