"""Processes that are paused, and who traces them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.folders import names_in

# Counts in shared memory for ever, in several threads, so that standing still can be seen.
_COUNTER = """
import mmap, sys, threading
shared = mmap.mmap(int(sys.argv[1]), 4096)
def count(place):
    n = 0
    while True:
        n += 1
        shared[place:place + 8] = n.to_bytes(8, "little")
for place in range(8, 8 * int(sys.argv[2]), 8):
    threading.Thread(target=count, args=(place,), daemon=True).start()
print("ready", flush=True)
count(0)
"""


# A parent inside vfork: its child waits for somebody to open a FIFO before it executes anything, and until then the
# parent cannot stop. A second thread computes, without the lock of the interpreter.
_VFORK = """
import hashlib, os, sys, threading, time
if sys.argv[2] == "and a busy thread":
    threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 1 << 30), daemon=True).start()
    time.sleep(0.05)
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
print("on", flush=True)
time.sleep(100)
"""


class VforkParent:
    """A process that hangs inside vfork until it is told to go on."""

    def __init__(self, folder: Path, with_thread: bool) -> None:
        self._fifo = folder / "fifo"
        os.mkfifo(self._fifo)
        kind = "and a busy thread" if with_thread else "alone"
        self.process = subprocess.Popen(
            [sys.executable, "-c", _VFORK, str(self._fifo), kind], stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        end = time.monotonic() + 60
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        # Waiting for the disk while it starts looks the same, but has no child.
        while state(self.pid) != "D" or not children.read_text():
            assert time.monotonic() < end
            time.sleep(0.005)

    def go_on(self) -> None:
        os.close(os.open(self._fifo, os.O_RDWR | os.O_NONBLOCK))

    def assert_computes(self) -> None:
        clock, end = (~self.pid << 3) | 2, time.monotonic() + 10
        before = time.clock_gettime(clock)
        while time.clock_gettime(clock) < before + 0.005:
            assert time.monotonic() < end, "no thread of it runs"
            time.sleep(0.001)

    def close(self) -> None:
        self.go_on()
        self.process.kill()
        self.process.communicate()


class Counter:
    def __init__(self, threads: int = 1, **options) -> None:
        import mmap

        self._fd = os.memfd_create("counter")
        os.truncate(self._fd, 4096)
        self._shared = mmap.mmap(self._fd, 4096)
        self._threads = threads
        self.process = subprocess.Popen(
            [sys.executable, "-c", _COUNTER, str(self._fd), str(threads)],
            pass_fds=[self._fd], stdout=subprocess.PIPE, **options,
        )  # fmt: skip
        self.pid = self.process.pid
        self.process.stdout.readline()

    def counts(self) -> bytes:
        return self._shared[: 8 * self._threads]

    def assert_runs(self) -> None:
        before, end = self.counts(), time.monotonic() + 10
        while self.counts() == before:
            assert time.monotonic() < end, f"the target does not run: state {state(self.pid)}"
            time.sleep(0.001)

    def assert_stands(self) -> None:
        before = self.counts()
        time.sleep(0.02)
        assert self.counts() == before, "the target runs"

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._shared.close()
        os.close(self._fd)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def tasks(pid: int) -> list[int]:
    return [int(name) for name in names_in(f"/proc/{pid}/task")]


def tracer(pid: int) -> str:
    return next(line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "TracerPid" in line)
