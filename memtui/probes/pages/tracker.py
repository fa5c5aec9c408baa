"""The interface of all access trackers, and the identity of an address space, which changes with every exec."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from memtui.core.page_set import PageSet
from memtui.core.samples import Capability, Status, Vma, VmaSizes
from memtui.core.text import some_of
from memtui.probes.pages.shared_frames import TouchedFrames

_UNCOMPARED = "whether others share its memory (CLONE_VM) is not known of all processes yet"
BITS_TAKEN = "took accessed bits"  # another observer, in the reason of a window
_MOST_NAMED = 6  # of the processes that used the memory of a paused one
# With less of the working set in doubt, a window counts as exact: folios of libraries are shared and often noted
_EXACT_SHARE, _EXACT_BYTES = 0.01, 1 << 20


class TrackerError(Exception):
    """A window could not be measured; the text is the reason shown to the user."""


class ReadingTooLong(TrackerError):
    """Reading would take longer than the process may be paused. Nothing was cleared: read it again while it runs."""

    def __init__(self) -> None:
        super().__init__("it cannot be read in the time that it may be held")


class ClearingTooLong(TrackerError):
    """The accessed bits were read, but clearing them would take longer than the process may be paused.

    ``finish`` clears them while the process runs, and returns the window.
    """

    def __init__(self, finish: Callable[[], PageWindow]) -> None:
        super().__init__("its marks cannot be cleared in the time that it may be held")
        self.finish = finish


@dataclass(frozen=True, slots=True, eq=False)
class PageWindow:
    """One window of one process, as a tracker reads it."""

    pages: PageSet | None
    resident: PageSet | None = None  # pages present in the page tables, where wanted
    flush: str = "off"  # the flush that was really used this time
    rearm: str = "off"  # how the accessed bits were really cleared
    generation: int = 0  # rises when the process gets a new address space (exec)
    walk_ns: int | None = None
    rearm_ns: int | None = None
    clear_gap_ns: int | None = None  # from the start of the walk to the end of the clear
    unknown_bytes: int | None = None
    status: str = Status.OK
    reason: str = ""
    # The text of /proc/PID/maps, from a tracker that has it. Call it after the pause and before the next window. None:
    # the caller reads the file.
    maps: Callable[[], bytes] | None = None
    # From a tracker that counts bytes by VMA and knows no pages; or VMAs of whose pages nothing can be known. Call it
    # after the pause, as parsing takes time.
    vma_wss: Callable[[], VmaSizes] | None = None
    vma_rss: Callable[[], VmaSizes] | None = None  # where resident pages are wanted
    # From a tracker that reads a part of the memory in each window: the present pages of that part. ``pages`` are of
    # the part, too.
    sampled: PageSet | None = None
    doubtful_bytes: int = 0  # of that part: memory that was perhaps accessed, too, because others clear accessed bits
    # In a round over several processes: the page frames behind the accessed pages. Call it before the next round.
    frames: Callable[[], TouchedFrames] | None = None

    @property
    def knows_wss(self) -> bool:
        """Whether this window has a working set."""
        return self.pages is not None or self.vma_wss is not None

    def used_by(self, pids: Collection[int], *, compared: bool = True) -> PageWindow:
        """Return the window; it is not exact where these processes ran and used the memory while it was read.

        ``compared``: whether every other process was compared with this one.
        """
        if compared and not pids:
            return self
        some = some_of(sorted(pids), _MOST_NAMED)
        return self.doubted(describe_users(f"{len(pids)} process(es) (pid {some})") if pids else _UNCOMPARED)

    def doubted(self, why: str) -> PageWindow:
        """Return the window, which is not exact for a reason; an empty one changes nothing."""
        if not why or self.status not in (Status.OK, Status.APPROXIMATE):
            return self
        return replace(self, status=Status.APPROXIMATE, reason="; ".join(filter(None, (self.reason, why))))


def is_late(resume_by_ns: int | None, needed_ns: float = 0) -> bool:
    """Whether work of a duration would end after the time at which the target is to run again (None: any time)."""
    return resume_by_ns is not None and time.monotonic_ns() + needed_ns > resume_by_ns


def is_little(doubtful_bytes: int, pages: PageSet) -> bool:
    """Whether a window counts as exact though so much more may have been accessed."""
    return doubtful_bytes <= max(_EXACT_SHARE * pages.size_bytes, _EXACT_BYTES)


def describe_users(who: str) -> str:
    """Return a sentence about others that used the memory of a paused process and were not paused."""
    return f"{who} that share its memory ran meanwhile (CLONE_VM, vfork): what they touched just then may be missed"


def first_window() -> PageWindow:
    """Return the first window of a process, which has no pages: its accessed bits were not cleared before."""
    return PageWindow(None, status=Status.FAILED, reason="tracking of this process began in this window")


class PageTracker(Protocol):
    """Reads and re-arms the access information of processes. All calls come from one thread; the target is paused."""

    name: str
    flush: str  # the flush that was chosen
    rearm: str  # how accessed bits will be cleared where that is possible: "working-set", "full", "off"
    wss: Capability  # not ok: this tracker knows no working set (rss); the reason says why
    pages: Capability  # not ok: it knows no single pages; the reason says why
    pauses: bool  # its targets are to be paused while it reads them, where they may be
    clears: bool  # it clears accessed bits, which the target's processors have to set again
    running: set[int]  # processes that run while they are read, where others are paused
    reads_running: bool  # it also reads a process that may not be paused (yama, a debugger), and says so
    counts_users: bool  # its windows say by themselves that others use the memory of a paused target
    page_ns: int  # at most, for each page of the first window, before there is another one to judge by
    # Time at which the target is to run again; None: no pause, or it may last as long as the window does.
    resume_by_ns: int | None

    def notice(self) -> str:
        """Return a new notice for the user; empty when there is none. Nothing is paused."""

    def set_interval(self, interval_ns: int | None) -> None:
        """Prepare for windows of this length; None: leave the targets alone until the next call."""

    def prepare(self, pid: int) -> int:
        """Do what takes long and can be done while the target runs, before the pause in which ``start`` is called.

        Returns how many ns a walk over all of its page tables took; 0: there was none.
        """

    def is_prepared(self, pid: int) -> bool:
        """Whether ``prepare`` was called for this process, or there is nothing to prepare."""

    def start(self, pid: int, vmas: tuple[Vma, ...]) -> None:
        """Clear all accessed bits, so that the first window reports accesses and not residency.

        Raises ``ClearingTooLong``, with what returns the first window.
        """

    def count_mappings(self, pid: int) -> int | None:
        """Return how many mappings a process has; None: not known before they are read. Nothing is paused.

        Raises ProcessLookupError and TrackerError.
        """

    def start_round(self, processes: int) -> None:
        """Prepare for a window of each of this many processes. Nothing is paused."""

    def window(self, pid: int, vmas: tuple[Vma, ...], *, want_resident: bool) -> PageWindow:
        """Read the accessed bits, then clear them for the next window.

        Raises TrackerError, among them ``ReadingTooLong`` and ``ClearingTooLong``, and ProcessLookupError.
        """

    def forget(self, pid: int) -> None:
        """Release the state of a process that ended."""

    def close(self) -> None:
        """Release everything."""


# Fields of /proc/PID/stat, counted from the state (proc_pid_stat(5)): startcode, endcode, startstack, arg_start,
# env_start. Some of them change with every exec, even where the kernel does not randomise addresses.
_PLACES = (23, 24, 25, 45, 47)


def identity(pid: int) -> tuple[bytes, ...]:
    """Return the addresses of the program, its stack and its arguments. Raises ProcessLookupError."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"process {pid} ended") from None
    return tuple(fields[index] for index in _PLACES)
