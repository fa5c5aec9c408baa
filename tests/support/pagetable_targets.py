"""A process to observe, which does what a test tells it, line by line, and the tools to observe it with."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.core.samples import Vma
from memtui.probes.pages.pagetable.proof import prove
from memtui.probes.pause.pauser import NotPaused, Pauser

PAGE = 4096

# The other side of ``Target``: runs each line it is sent and answers with the repr of ``answer``.
_PROGRAM = """
import ctypes, mmap, os, sys, threading, time
import numpy as np
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

def anonymous(pages, advice=15, flags=0x22, align=4096):
    "Address of new private memory; advice 15 forbids huge pages, 14 asks for them."
    size = pages * 4096
    address = libc.mmap(None, size + align, 3, flags, -1, 0)
    address = -(-address // align) * align
    libc.madvise(address, size, advice)
    return address

def view(address, pages):
    "One byte of each page."
    return np.frombuffer((ctypes.c_ubyte * (pages * 4096)).from_address(address), np.uint8)[::4096]

def drawn(pages, count, seed):
    return np.sort(np.random.default_rng(seed).choice(pages, count, replace=False))

beats = np.frombuffer(mmap.mmap(int(sys.argv[1]), 4096), np.uint64)

def loop(array, places, write):
    "Touch the places for ever, and count how often."
    while True:
        beats[0] += np.uint64(1)
        if write:
            array[places] += 1
        else:
            array[places].sum()
        time.sleep(0.001)  # its CPU is for the tests that run at the same time

space = globals()
for line in sys.stdin:
    answer = None
    exec(line.replace("\\\\n", "\\n"), space)
    print(repr(space.pop("answer", None)), flush=True)
"""


def drawn(pages: int, count: int, seed: int) -> np.ndarray:
    """The same random pages as in the target."""
    return np.sort(np.random.default_rng(seed).choice(pages, count, replace=False))


class Target:
    """A child process that is told what to touch."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        fd = os.memfd_create("beats")
        os.truncate(fd, PAGE)
        self._beats = mmap.mmap(fd, PAGE)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            pass_fds=[fd],
        )
        os.close(fd)
        self.pid = self._process.pid
        self.do("pass")

    def send(self, line: str) -> None:
        """Without waiting for the answer: for what never ends."""
        assert self._process.stdin
        self._process.stdin.write(line.replace("\n", "\\n") + "\n")
        self._process.stdin.flush()

    def receive(self) -> object:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the target died"
        return eval(line)

    def do(self, line: str) -> object:
        self.send(line)
        return self.receive()

    def touch_for_ever(self, pages: int, touched: int, seed: int, *, write: bool = True, align: int = PAGE) -> int:
        """Memory of this many pages, of which a random set is touched in a loop. Returns its address."""
        address = self.do(
            f"a = anonymous({pages}, align={align}); v = view(a, {pages}); v[:] = 1; "
            f"p = drawn({pages}, {touched}, {seed}); answer = a"
        )
        self.send(f"loop(v, p, {write})")
        assert isinstance(address, int)
        self.let_run(0.02)
        return address

    def let_run(self, window_s: float) -> None:
        """Let a loop go on for this long, and until it has gone once through all its pages.

        Times alone would not do: a virtual machine does not notice when its host gives the CPU to others.
        """
        last, end = self._passes() + 2, time.monotonic() + 60
        time.sleep(window_s)
        while self._passes() < last:
            assert time.monotonic() < end, "the target does not loop"
            time.sleep(0.001)

    def _passes(self) -> int:
        return int.from_bytes(self._beats[:8], "little")

    def wait_for_end(self) -> None:
        self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def vmas_of(pid: int) -> tuple[Vma, ...]:
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        where, perms, _, _, _, *name = line.split(None, 5)
        start, end = (int(part, 16) for part in where.split("-"))
        found.append(Vma(start, end, perms, name[0] if name else ""))
    return tuple(found)


def within(pages: PageSet, address: int, count: int) -> list[int]:
    """Indices of the 4 KiB pages of the set that lie in this memory."""
    numbers = pages.pages().astype(np.int64) - address // PAGE
    return [int(n) for n in numbers if 0 <= n < count]


def assert_exactly(pages: PageSet, address: int, count: int, expected) -> None:
    """No page more and no page less, also where DAMON runs: pages touched in every window are asked for its notes."""
    assert within(pages, address, count) == sorted(int(page) for page in expected)


def assert_touched(pid: int, pages: PageSet, address: int, count: int, expected) -> None:
    """Exactly the expected pages were seen, which were touched for the first time.

    Some machines run DAMON, which clears the accessed bit of a random page now and then, behind everybody's back. It
    flags such a page as idle, so a page may be missing only if it is flagged, and only few.
    """
    seen, wanted = set(within(pages, address, count)), {int(page) for page in expected}
    assert not seen - wanted, f"{len(seen - wanted)} pages were seen that nothing touched"
    missing = sorted(wanted - seen)
    assert len(missing) <= 2 + len(wanted) // 50, f"{len(missing)} of {len(wanted)} pages are missing"
    unexplained = [page for page in missing if not _is_idle(pid, address // PAGE + page)]
    assert not unexplained, f"{len(unexplained)} of {len(wanted)} pages are missing, first {unexplained[:5]}"


def _is_idle(pid: int, page: int) -> bool:
    """Whether something else than we cleared the mark of this page (KPF_IDLE)."""
    with (
        Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap,
        Path("/proc/kpageflags").open("rb", buffering=0) as flags,
    ):
        entry = int.from_bytes(os.pread(pagemap.fileno(), 8, page * 8), "little")
        frame = entry & ((1 << 55) - 1)
        found = int.from_bytes(os.pread(flags.fileno(), 8, frame * 8), "little")
    return bool(entry >> 63 and found >> 25 & 1)


class Observer:
    """Takes windows of a target with a tracker, paused."""

    def __init__(self, tracker, *, notices: bool = True) -> None:
        self.tracker, self._notices = tracker, notices
        self.pauser = Pauser()

    def start(self, pid: int) -> None:
        if self._notices:
            self.tracker.notice()
        self.tracker.prepare(pid)
        self.paused(pid, lambda: self.tracker.start(pid, vmas_of(pid)))

    def window(self, pid: int, *, want_resident: bool = False):
        return self.paused(pid, lambda: self.tracker.window(pid, vmas_of(pid), want_resident=want_resident))

    def paused(self, pid: int, work):
        """Try again when a busy machine kept the target from a CPU, and so from stopping, for too long."""
        for attempt in range(20):
            try:
                with self.pauser.paused(pid):
                    return work()
            except NotPaused:
                if attempt == 19:
                    raise
        return None

    def close(self) -> None:
        self.pauser.close()


def need_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it looks into the page tables of another process")


def need_pagetable() -> None:
    need_root()
    capability = prove()
    if "not to be trusted" in capability.reason:
        pytest.fail(f"a kernel whose page tables can be read, and they are misread: {capability.reason}")
    if not capability.ok:
        pytest.skip(f"no page-table tracker here: {capability.reason}")
