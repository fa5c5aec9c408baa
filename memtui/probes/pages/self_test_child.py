"""A child process with a known working set, on which a flush proves itself."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_WINDOW_S, _LONGEST_WINDOW_S = 0.003, 0.2
# Between guards, so that the kernel does not join the mapping with a neighbour. PR_SET_PDEATHSIG, SIGKILL: should this
# process die in the middle, no stopped child stays behind.
_PROGRAM = """
import ctypes, mmap, sys, time
libc = ctypes.CDLL(None)
libc.prctl(1, 9)
fd, pages, step = map(int, sys.argv[1:])
rounds = memoryview(mmap.mmap(fd, 4096)).cast("Q")
memory = mmap.mmap(-1, pages + 2 << 12, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
for guard in (0, pages + 1): libc.mprotect(ctypes.c_void_p(address + (guard << 12)), 4096, 0)
for page in range(1, pages + 1): memory[page << 12] = 1
print(address + 4096, flush=True)
places = range(4096, pages + 1 << 12, step << 12)
end = time.monotonic() + 3
while time.monotonic() < end:
    for place in places: memory[place]
    rounds[0] += 1
"""


@dataclass(frozen=True, slots=True, eq=False)
class LoopingChild:
    """A child that accesses its pages in a loop, and counts the rounds."""

    pid: int
    pidfd: int
    address: int  # of the first page
    _rounds: mmap.mmap

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the child during the block, and continue it afterwards."""
        signal.pidfd_send_signal(self.pidfd, signal.SIGSTOP)
        try:
            os.waitpid(self.pid, os.WUNTRACED)
            yield
        finally:
            signal.pidfd_send_signal(self.pidfd, signal.SIGCONT)

    def let_run(self) -> None:
        """Let the child run for 3 ms, and until it accessed all its pages once: it may get no CPU on a busy machine.

        The wait takes 0.2 s at most. The child's CPU time would be no measure: in a virtual machine it rises while the
        host runs something else.
        """
        last, end = self._count() + 2, time.monotonic() + _LONGEST_WINDOW_S
        time.sleep(_WINDOW_S)
        while self._count() < last and time.monotonic() < end:
            time.sleep(0.001)

    def _count(self) -> int:
        return int.from_bytes(self._rounds[:8], "little")


@contextmanager
def looping_child(pages: int, step: int = 1) -> Iterator[LoopingChild]:
    """Yield a child that accesses every ``step``-th of its 4 KiB pages, for 3 s at most; it is killed at the end.

    It runs on another CPU than this process where it can: there, stale translations live longest.

    Raises:
        OSError: the child cannot be started.
        ValueError: it ended before it printed the address of its pages.
    """
    fd = os.memfd_create("memtui-proof")
    try:
        os.truncate(fd, mmap.PAGESIZE)
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(fd), str(pages), str(step)]
        with (
            mmap.mmap(fd, mmap.PAGESIZE) as rounds,
            subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, pass_fds=[fd]) as child,
        ):
            pidfd = os.pidfd_open(child.pid)
            try:
                assert child.stdout
                address = int(child.stdout.readline())
                _pin_away(child.pid)
                yield LoopingChild(child.pid, pidfd, address, rounds)
            finally:
                child.kill()
                os.close(pidfd)
    finally:
        os.close(fd)


def _pin_away(pid: int) -> None:
    others = os.sched_getaffinity(0) - {int(ctypes.CDLL(None).sched_getcpu())}
    if others:
        os.sched_setaffinity(pid, {max(others)})
