"""The processes of an observation: how they are started, and how each is ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from memtui.core.metrics_listener import MetricsListener
from memtui.recording.network_power.credentials import PASSWORD, USER
from memtui.recording.supervisor.program import Adopted

REDFISH = "memtui.recording.network_power"
METRICS = "memtui.reports.metrics_server"  # started, and not imported: it reads sessions
STOP_SECONDS = 5.0


def start_module(module: str, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Start a module of memtui in a process and session of its own: signals of the terminal do not reach it.

    ``-P`` keeps the current directory, which may be anybody's, off the module path.
    """
    return subprocess.Popen([sys.executable, "-P", "-m", module, *arguments], start_new_session=True, **streams)


def start_redfish(url: str | None) -> tuple[subprocess.Popen[bytes] | None, tuple[int, ...]]:
    """Start the process that asks a Redfish service, as the user; return it, and where its readings come from.

    Name and password in the environment are for that process: those that are started later do not inherit them.
    """
    if url is None:
        return None, ()
    reading, writing = os.pipe()
    child = start_module(REDFISH, url, stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.DEVNULL)
    os.close(writing)
    for name in (USER, PASSWORD):
        os.environ.pop(name, None)
    return child, (reading,)


def open_metrics(metrics: MetricsListener | None) -> tuple[socket.socket, str] | None:
    """Return a socket where metrics are to be served, and the token of those who may read. Raises UserError."""
    return None if metrics is None else metrics.listen()


def start_metrics(session: Path, listener: socket.socket, token: str) -> subprocess.Popen[bytes]:
    """Start the process that serves the newest figures of a session; it ends when its standard input does."""
    fd = listener.fileno()
    child = start_module(
        METRICS,
        str(session),
        str(fd),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(fd,),
    )
    listener.close()
    assert child.stdin is not None
    child.stdin.write(f"{token}\n".encode())
    child.stdin.flush()
    return child


def close_input(child: subprocess.Popen[bytes] | Adopted) -> None:
    """Close the input of a child, which may have ended."""
    if child.stdin is not None:
        try:
            child.stdin.close()
        except BrokenPipeError:
            pass


def terminate(child: subprocess.Popen[bytes] | Adopted) -> None:
    """Send SIGTERM, then SIGKILL. sudo, which is root, cannot be signalled: it ends because its input has ended."""
    for end in (child.terminate, child.kill):
        if child.poll() is not None:
            return
        try:
            end()
            child.wait(STOP_SECONDS)
        except (PermissionError, subprocess.TimeoutExpired):
            continue


def end(child: subprocess.Popen[bytes]) -> None:
    """Close the input of a child and wait until it has ended, by force where it does not."""
    close_input(child)
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        terminate(child)


def last_line(says: IO[bytes]) -> str:
    """Return the last line a child wrote to standard error."""
    says.seek(0)
    lines = says.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
