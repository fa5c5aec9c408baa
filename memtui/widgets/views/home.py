"""View models of the home screen: processes worth attaching to, and sessions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process that runs now."""

    pid: int
    user: str
    kinds: tuple[str, ...]  # what is known of it: "torch", "GPU", "python", "of 4242" for a child of that row
    rss_bytes: int
    age_s: float
    command: str
    recording: str = ""  # the ID of a recording of this user


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session file. An unknown value is None, and ``trouble`` is the reason."""

    path: str
    began_s: float  # seconds since the epoch
    duration_s: float | None
    samples: int | None
    size_bytes: int
    command: str
    state: str  # "recording", or how it ended
    trouble: str = ""  # what is wrong with the file
    pid: int | None = None  # of the target, while it is recorded


@dataclass(frozen=True, slots=True)
class HomeView:
    """Everything at one moment."""

    host: str = ""
    processes: tuple[ProcessRow, ...] = ()
    sessions: tuple[SessionRow, ...] = ()
    note: str = ""  # what is not shown, and why
    user: str = ""  # the user of the screen
