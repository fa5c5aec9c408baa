"""The one small interface of every access tracker, and which address space a process has: another after every exec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memtui.core.page_set import PageSet
from memtui.core.samples import Capability, Status, Vma, VmaSizes
from memtui.probes.pages.shared_frames import TouchedFrames


class TrackerError(Exception):
    """A window could not be measured; the text is the reason shown to the user."""


class HoldTooLong(TrackerError):
    """Of this window the marks are read and not cleared, which would take longer than the process may be held.

    ``finish`` does the rest while it runs.
    """

    def __init__(self, finish: Callable[[], PageWindow]) -> None:
        super().__init__("its marks cannot be cleared in the time that it may be held")
        self.finish = finish


@dataclass(frozen=True, slots=True, eq=False)
class PageWindow:
    """What a tracker says of one process and one window."""

    pages: PageSet | None
    resident: PageSet | None = None  # pages present in the page tables, when asked for
    flush: str = "off"  # the flush that was really used this time
    rearm: str = "off"  # how the marks were really cleared
    generation: int = 0  # rises when the process got a new address space (exec)
    walk_ns: int | None = None
    rearm_ns: int | None = None
    clear_gap_ns: int | None = None  # from the start of the walk to the end of the clear
    unknown_bytes: int | None = None
    status: str = Status.OK
    reason: str = ""
    # The text of its table of mappings, from a tracker that knows it; to be asked after the pause and before the next
    # window. None: to be read.
    maps: Callable[[], bytes] | None = None
    # Of a tracker that counts by VMA and knows no pages, or VMAs of whose pages nothing can be known. Asked for after
    # the pause, as taking text apart takes time.
    vma_wss: Callable[[], VmaSizes] | None = None
    vma_rss: Callable[[], VmaSizes] | None = None  # when residents were asked for
    # Of a tracker that reads a part of the memory in each window: what of it is there. ``pages`` are of that part.
    sampled: PageSet | None = None
    # Of a round over several processes: the page frames behind the touched pages. To be asked before the next round.
    frames: Callable[[], TouchedFrames] | None = None

    @property
    def knows_wss(self) -> bool:
        """Whether this window has a working set."""
        return self.pages is not None or self.vma_wss is not None


def first_window() -> PageWindow:
    """Return the window of a process of which nothing was known before: it has no pages."""
    return PageWindow(None, status=Status.FAILED, reason="tracking of this process began in this window")


class PageTracker(Protocol):
    """Reads and re-arms the access information of processes. All calls come from one thread; the target is paused."""

    name: str
    flush: str  # the flush that was chosen
    rearm: str  # how accessed bits will be cleared where that is possible: "working-set", "full", "off"
    wss: Capability  # not ok: this tracker knows no working set (rss), and why
    pages: Capability  # not ok: it knows no single pages, and why
    pauses: bool  # reading needs the target to stand still, where it may be paused
    clears: bool  # it clears accessed bits, which the target's processors have to set again
    running: set[int]  # of processes that are held otherwise, those that run on while they are read
    reads_running: bool  # it reads a process all the same that may not be paused (yama, a debugger), and says so
    hold_until_ns: int | None  # by when the target is to run again; None: whenever it is done

    def notice(self) -> str:
        """Return something new that the user should know; empty when there is nothing. Nothing is paused."""

    def pace(self, interval_ns: int | None) -> None:
        """Prepare for windows of this length; None: the targets are to be left alone until further notice."""

    def approach(self, pid: int) -> None:
        """Do what is long and can be done while the target runs, before the pause in which ``start`` is called."""

    def start(self, pid: int, vmas: tuple[Vma, ...]) -> None:
        """Clear all accessed bits, so that the first window reports accesses and not residency."""

    def mappings(self, pid: int) -> int | None:
        """Return how many mappings a process has; None: not known before they are read. Nothing is paused.

        Raises ProcessLookupError and TrackerError.
        """

    def start_round(self, processes: int) -> None:
        """Prepare for a window of each of this many processes. Nothing is paused."""

    def window(self, pid: int, vmas: tuple[Vma, ...], *, want_resident: bool) -> PageWindow:
        """Read the accessed bits, then clear them for the next window. Raises TrackerError and ProcessLookupError."""

    def forget(self, pid: int) -> None:
        """Release what is kept of a process that ended."""

    def close(self) -> None:
        """Release everything."""


# Where identity changes with every exec, even where the kernel does not randomise: fields of /proc/PID/stat counted
# from the state (proc_pid_stat(5)): startcode, endcode, startstack, arg_start, env_start.
_PLACES = (23, 24, 25, 45, 47)


def identity(pid: int) -> tuple[bytes, ...]:
    """Return where the program, its stack and its arguments lie. Raises ProcessLookupError."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"process {pid} ended") from None
    return tuple(fields[place] for place in _PLACES)
