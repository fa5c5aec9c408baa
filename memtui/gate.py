"""Waits for a word and then becomes another program, so that it is observed from its first instruction.

Run as ``python -m memtui.gate [--with-parent] FD PROGRAM [ARGUMENT...]``. A closed pipe without the word means: do not
start. ``--with-parent``: the program ends when memtui does, however that comes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

GO = b"g"
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell says it
PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


def main() -> int:
    """Returns only when the program could not be started."""
    words = sys.argv[1:]
    if words[0] == "--with-parent":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        words = words[1:]
    fd, command = int(words[0]), words[1:]
    word = os.read(fd, 1)
    os.close(fd)
    if word != GO:
        return 0
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
