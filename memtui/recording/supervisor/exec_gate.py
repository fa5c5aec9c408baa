"""Waits for ``GO`` and then becomes another program, which is so observed from its first instruction.

Run as ``python -m memtui.recording.supervisor.exec_gate FD PROGRAM [ARGUMENT...]``. A pipe that is closed without
``GO`` means: do not start.
"""

from __future__ import annotations

import os
import signal
import sys

GO = b"g"
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit codes of a shell


def main() -> int:
    """Execute the program; return an exit code only when it was not started."""
    return become(int(sys.argv[1]), sys.argv[2:])


def become(fd: int, command: list[str]) -> int:
    """Wait for ``GO`` on ``fd`` and execute the command; return an exit code when it was not started."""
    received = os.read(fd, 1)
    os.close(fd)
    if received != GO:
        return 0
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these signals, and a program inherits that
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
