"""The home screen: processes worth attaching to, and this user's sessions, running and saved.

It is shown as the invoking user, whichever user this process has, and returns what was chosen.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from memtui.core.privilege import Invoker, invoker, run_as, sessions_directory, state_directory
from memtui.recording.candidates import Candidate, Candidates, user_name
from memtui.recording.membership import RecordedTrees
from memtui.recording.registry import Running, find_all
from memtui.session.file_format import SESSION_SUFFIX, SessionError, size_on_disk
from memtui.session.summary import Summary, summarize
from memtui.tui.app import run_home
from memtui.tui.terminal import prepare, require_terminal
from memtui.widgets.views.home import HomeView, ProcessRow, SessionRow

MOST_SESSIONS = 200  # the newest ones
SESSIONS_S = 10.0  # how often sessions are scanned; processes are at every scan


class Home:
    """Scans repeatedly; the summary of a file that did not change is cached."""

    def __init__(self, state: Path, sessions: Path) -> None:
        """Take the user's state directory, and where the named sessions lie."""
        self._state, self._folder = state, sessions
        self._candidates, self._watched = Candidates(), RecordedTrees()
        self._shown: tuple[SessionRow, ...] = ()
        self._recorded: frozenset[str] = frozenset()  # sessions that grew at the last scan
        self._scanned_s = float("-inf")
        self._cached: dict[Path, tuple[tuple[int, int], Summary | str]] = {}

    def scan(self) -> HomeView:
        """Return everything at this moment. Never raises."""
        running = find_all(self._state)
        user = user_name(os.getuid())
        candidates = sorted(self._candidates.scan(), key=lambda c: c.user != user)
        pids = {c.pid for c in candidates}
        processes = tuple(
            ProcessRow(
                c.pid,
                c.user,
                (*c.kinds, f"of {c.parent_pid}") if c.parent_pid in pids else c.kinds,
                c.rss_bytes,
                c.age_s,
                c.command,
                self._recording(running, c),
            )
            for c in candidates
        )
        note = "" if os.geteuid() == 0 else "of other users' processes only the size is known (no root)"
        recorded, now_s = frozenset(r.path for r in running), time.monotonic()
        if recorded != self._recorded or now_s >= self._scanned_s + SESSIONS_S:
            self._shown = tuple(self._sessions(running))
            self._recorded, self._scanned_s = recorded, now_s
        return HomeView(os.uname().nodename, processes, self._shown, note, user)

    def _recording(self, running: list[Running], candidate: Candidate) -> str:
        """Return the short name of the recording that watches a process, if one does."""
        recording = self._watched.by(running, candidate.pid, candidate.start_ticks)
        return recording.id if recording else ""

    def _sessions(self, running: list[Running]) -> list[SessionRow]:
        recorded = {Path(r.path): r for r in running}
        paths = {path: path.stat().st_mtime for path in self._files() | set(recorded) if path.exists()}
        newest = sorted(paths, key=lambda path: (path not in recorded, -paths[path]))[:MOST_SESSIONS]
        self._cached = {path: cached for path, cached in self._cached.items() if path in newest}
        return [self._row(path, recorded.get(path)) for path in newest]

    def _files(self) -> set[Path]:
        try:
            return set(self._folder.glob(f"*{SESSION_SUFFIX}"))
        except OSError:
            return set()

    def _row(self, path: Path, running: Running | None) -> SessionRow:
        summary, size_bytes = self._summary(path), size_on_disk(path)
        pid = running.pid if running else None
        if isinstance(summary, str):
            return SessionRow(str(path), _modified(path), None, None, size_bytes, "", "unreadable", summary, pid)
        state = "recording" if running else summary.end or "interrupted"
        return SessionRow(
            str(path), summary.began_s, summary.duration_s, summary.samples, size_bytes, summary.command, state, pid=pid
        )

    def _summary(self, path: Path) -> Summary | str:
        """Return the summary of a session, or what is wrong with its file."""
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, size_on_disk(path))
            cached = self._cached.get(path)
            if cached is None or cached[0] != stamp:
                cached = self._cached[path] = (stamp, summarize(path))
            return cached[1]
        except SessionError as error:
            why = str(error).removeprefix(f"{path}: ")
            self._cached[path] = (stamp, why)
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
    return run_home(Home(state_directory(user), sessions_directory(user)).scan)
