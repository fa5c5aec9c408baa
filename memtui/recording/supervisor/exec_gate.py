"""Waits for a word and then becomes another program, so that it is observed from its first instruction.

Run as ``python -m memtui.recording.supervisor.exec_gate FD PROGRAM [ARGUMENT...]``. A closed pipe without the word
means: do not start.
"""

from __future__ import annotations

import os
import signal
import sys

GO = b"g"
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell says it


def main() -> int:
    """Return only when the program could not be started."""
    return become(int(sys.argv[1]), sys.argv[2:])


def become(fd: int, command: list[str]) -> int:
    """Wait for the word on ``fd`` and execute the command; an exit code when that was not to be."""
    word = os.read(fd, 1)
    os.close(fd)
    if word != GO:
        return 0
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program inherits that
        signal.signal(number, signal.SIG_DFL)
    if os.environ.get("MEMTUI_TRACE_SOCKET"):
        from memtui.recording.tracer.inject import injected

        os.environ.update(injected(os.environ))
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        print(f"{command[0]}: no such program", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"{command[0]}: cannot be started: {error.strerror}", file=sys.stderr)
        return NOT_EXECUTABLE


if __name__ == "__main__":
    sys.exit(main())
