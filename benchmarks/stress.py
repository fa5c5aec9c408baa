"""Reads a process whose page tables come and go, and compares every window with what is known to be touched.

Run as ``python -m benchmarks.stress [SECONDS]`` (root, a C compiler). The target (``stress.c``) shares its memory with
two processes that map and unmap, one of them no child of it; it makes huge pages and takes them apart, answers its own
page faults (userfaultfd), starts children, and has locked, hugetlb and PFN-mapped memory. Meanwhile khugepaged scans as
fast as it can, and MADV_COLLAPSE comes from outside. Exits with 1 for a wrong page, a complaint of the kernel, or a
target whose memory does not hold what it wrote.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from memtui.core.errors import UserError
from memtui.core.page_sizes import PAGE_BYTES, PAGES_PER_BLOCK
from memtui.core.procfs import read_stat
from memtui.core.samples import Status
from memtui.probes.competing_observers import other_observers
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.window_reader import Lost, Outcome, PageReader, Reading, Subject

SECONDS = 600.0
PHASE_S = 5.0  # then the next mode
INTERVAL_S = 0.02
MAX_PAUSE_NS = 1_000_000_000  # on a busy machine most windows of the default would be of a running target
FEW, STEP, BLOCKS = 4096, 64, 16  # pages, the touched ones of them, huge pages: as in stress.c
# By mode, which of the processes that share the target's memory are paused with it. Where both are, nobody runs, and
# windows are called exact.
MODES = {
    "one": (),
    "tree": ("inside",),
    "together": ("inside", "outside"),
    "working-set": ("inside", "outside"),
    "full": ("inside", "outside"),
    "no-pause": (),
}
_KHUGEPAGED = Path("/sys/kernel/mm/transparent_hugepage/khugepaged")
_FAST = {"scan_sleep_millisecs": 5, "alloc_sleep_millisecs": 5, "pages_to_scan": 8192, "max_ptes_none": 511}
_COMPLAINTS = re.compile(
    r"\bBUG\b|WARNING:|[Bb]ad page|[Bb]ad rss|\bOops\b|general protection|rcu.*stall|soft lockup|hung task|page_fault"
)


@dataclass
class Found:
    """What a run came to.

    Attributes:
        windows: how many windows there are of each mode and status.
        compared: windows of which every page is known.
        exact: those of them that are called exact, and in which everything that is touched was touched.
        wrong: what was wrong, in words.
    """

    windows: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    exact: int = 0
    pages_compared: int = 0
    rounds: int = 0
    collapsed: int = 0
    wrong: list[str] = field(default_factory=list)


def stress(seconds: float, phase_s: float = PHASE_S) -> Found:
    """Read the target for so long, ``phase_s`` in each mode in turn, and in each of them once at least.

    Raises UserError where it cannot be built or run.
    """
    compiler = shutil.which("cc")
    if os.geteuid() or compiler is None:
        raise UserError("it needs root and a C compiler: it reads the page tables of a program that it builds")
    found = Found()
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)
    collapsed = _collapses()
    with tempfile.TemporaryDirectory() as folder, _hugetlb_page(), _khugepaged_fast():
        program = Path(folder, "stress")
        source = Path(__file__).with_suffix(".c")
        subprocess.run([compiler, "-std=gnu11", "-O1", "-pthread", "-o", program, source], check=True)
        counter = os.memfd_create("rounds")
        os.truncate(counter, PAGE_BYTES)
        command = [str(program), str(counter)]
        with (
            mmap.mmap(counter, PAGE_BYTES) as shared,
            subprocess.Popen(command, pass_fds=[counter], stdout=subprocess.PIPE, text=True) as child,
        ):
            assert child.stdout
            about = json.loads(child.stdout.readline())
            try:
                # Not in this process, which takes its own lock for harmless.
                with subprocess.Popen([program, str(child.pid), str(about["collapsing"])]) as collapser:
                    try:
                        _watch(child.pid, about, shared, time.monotonic() + seconds, phase_s, found)
                    finally:
                        collapser.kill()
                child.send_signal(signal.SIGTERM)
                said = child.communicate(timeout=60)[0]
                result = json.loads(said or "{}")
                found.rounds = result.get("rounds", 0)
                if child.returncode or result.get("damaged") != 0:
                    found.wrong.append(f"the target came to harm: exit {child.returncode}, {said.strip()}")
            finally:
                child.kill()
                with suppress(ProcessLookupError):
                    os.kill(about["outside"], signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(about["outside"], 0)
        os.close(counter)
    found.collapsed = _collapses() - collapsed
    found.wrong += [f"the kernel says: {line}" for line in _lines(log) if _COMPLAINTS.search(line)]
    os.close(log)
    return found


def _watch(pid: int, about: dict[str, int], shared: mmap.mmap, until: float, phase_s: float, found: Found) -> None:
    for number, mode in enumerate(itertools.cycle(MODES)):
        if number >= len(MODES) and time.monotonic() >= until:
            return
        _phase(mode, pid, about, shared, phase_s, found)


def _phase(mode: str, pid: int, about: dict[str, int], shared: mmap.mmap, seconds: float, found: Found) -> None:
    pause = mode != "no-pause"
    tracker = PageTableTracker(rearm=mode if mode in ("working-set", "full") else "auto", paused=pause)
    reader = PageReader(tracker, pause=pause, max_pause_ns=MAX_PAUSE_NS)
    # As in the sampler, memory that several processes share is read once: each reading clears the marks for all.
    pids = [about[name] for name in MODES[mode]]
    sharers = tuple(Subject(one, os.pidfd_open(one), read_stat(one).start_ticks) for one in pids)
    subject = Subject(pid, os.pidfd_open(pid), read_stat(pid).start_ticks, (), sharers)
    try:
        tracker.notice()
        with suppress(Exception):  # not paused: the first window begins with it, and is not compared
            reader.start(subject)
        begun, until = False, time.monotonic() + seconds
        while time.monotonic() < until:
            before = _rounds(shared)
            time.sleep(INTERVAL_S)
            # Since all marks were cleared, everything that is touched was touched once from the first to the last page.
            whole = _rounds(shared) - before >= 2
            outcome = reader.read([subject], want_resident=False)[0]
            found.windows[f"{mode}: {_status(outcome)}"] += 1
            if isinstance(outcome, Lost) or outcome.window.pages is None:
                begun = False  # after a lost window the next one goes back to where it began
                continue
            if begun:
                _compare(mode, outcome, about, whole and not outcome.running and outcome.window.flush != "off", found)
            begun = True
    finally:
        reader.close()
        for one in (subject, *sharers):
            if one.pidfd is not None:
                os.close(one.pidfd)


def _status(outcome: Outcome) -> str:
    """Return what the sampler would call the window: one of a target that ran is approximate at best."""
    if isinstance(outcome, Lost):
        return "lost"
    return "running" if outcome.running and outcome.window.status == Status.OK else str(outcome.window.status)


def _compare(mode: str, reading: Reading, about: dict[str, int], whole: bool, found: Found) -> None:
    """No page that nothing touches; and of a window with a whole round, each that something does."""
    pages = reading.window.pages
    assert pages is not None
    seen = pages.pages()
    found.compared += 1
    found.exact += whole and reading.window.status == Status.OK
    few = np.arange(0, FEW, STEP)
    for name in ("plain", "locked", "never", "faulted"):
        if not about[name]:
            continue
        number = about[name] // PAGE_BYTES
        there = seen[(seen >= number) & (seen < number + FEW)] - np.uint64(number)
        expected = few if name != "never" else few[:0]
        found.pages_compared += FEW
        _note(mode, name, reading, np.setdiff1d(there, expected), "nothing touches", found)
        # The target throws its faulted pages away now and then.
        if whole and name != "faulted":
            _note(mode, name, reading, np.setdiff1d(expected, there), "missing", found)
    for name, touched in (("thp", True), ("cold_thp", False), ("collapsing", True)):
        first = about[name] // PAGE_BYTES // PAGES_PER_BLOCK
        blocks = np.concatenate((seen // np.uint64(PAGES_PER_BLOCK), pages.huge))
        there = np.unique(blocks[(blocks >= first) & (blocks < first + BLOCKS)]) - np.uint64(first)
        found.pages_compared += BLOCKS * PAGES_PER_BLOCK
        if not touched:
            _note(mode, name, reading, there, "nothing touches", found)
        # Of a folio that is mapped page by page, or that a child has since a fork, what DAMON took cannot be read back:
        # it leaves one note for all of it. Of whole huge pages the window tells that, and that one is just made.
        elif whole and not (
            "changed" in reading.window.reason
            or ("took accessed bits" in reading.window.reason if name == "thp" else other_observers())
        ):
            _note(mode, name, reading, np.setdiff1d(np.arange(BLOCKS), there), "missing", found)
    if about["hugetlb"]:
        inside = (seen >= about["hugetlb"] // PAGE_BYTES) & (seen < about["hugetlb"] // PAGE_BYTES + PAGES_PER_BLOCK)
        _note(mode, "hugetlb", reading, seen[inside], "whose marks nobody can clear", found)


def _note(mode: str, name: str, reading: Reading, which: np.ndarray, what: str, found: Found) -> None:
    if len(which):
        window = reading.window
        how = f"{window.status}, {window.flush}, {window.rearm}, {window.reason or 'no reason'}"
        found.wrong.append(f"{mode}: {len(which)} of {name} {what} ({which[:4].tolist()}...; {how})")


def _rounds(shared: mmap.mmap) -> int:
    return int.from_bytes(shared[:8], "little")


@contextmanager
def _khugepaged_fast() -> Iterator[None]:
    """Let khugepaged scan without rest over the block, and as before after it."""
    kept = {}
    for name, value in _FAST.items():
        with suppress(OSError):
            path = _KHUGEPAGED / name
            kept[path] = path.read_text()
            path.write_text(str(value))
    try:
        yield
    finally:
        for path, text in kept.items():
            path.write_text(text)


@contextmanager
def _hugetlb_page() -> Iterator[None]:
    """Have a hugetlb page over the block, if the kernel gives one."""
    path = Path("/proc/sys/vm/nr_hugepages")
    try:
        before = path.read_text()
        path.write_text(str(int(before) + 1))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        path.write_text(before)


def _collapses() -> int:
    found = re.search(r"^thp_collapse_alloc (\d+)", Path("/proc/vmstat").read_text(), re.M)
    return int(found[1]) if found else 0


def _lines(log: int) -> Iterator[str]:
    """What the kernel has said since the descriptor was opened."""
    while True:
        try:
            yield os.read(log, 8192).decode(errors="replace").partition(";")[2].strip()
        except BlockingIOError:
            return
        except BrokenPipeError:
            continue  # some lines were overwritten before they were read


def main() -> int:
    """0: nothing was wrong."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was set for all of the machine is put back
    try:
        found = stress(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    for name, count in sorted(found.windows.items()):
        print(f"{name}: {count} windows")
    print(
        f"{found.compared} windows and {found.pages_compared:,} pages compared, {found.exact} of these windows exact, "
        f"{found.rounds:,} rounds of the target, {found.collapsed:,} huge pages made: {len(found.wrong)} wrong"
    )
    for line in found.wrong[:50]:
        print(line)
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
