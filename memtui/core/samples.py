"""The data model: what a probe returns, a message carries and a session stores.

Every name carries its unit (``_ns``, ``_bytes``, ``_w``, ``_j``). A value that could not be measured is ``None``, and
its sample has a ``status`` other than ``"ok"`` and a ``reason`` in plain words. Times are ``CLOCK_MONOTONIC``
nanoseconds. Address ranges are half open, in bytes. This module imports only ``page_set`` of memtui, so every layer can
use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # processes that know no pages (the GPU reader) do without numpy
    from memtui.core.page_set import PageSet

VmaSizes = tuple[tuple[int, int | None], ...]  # (start of a VMA, bytes; None: cannot be known), zeros left out

# What a gap event says of a process whose first window is not one of accesses
NOT_CLEARED = "not cleared before its first window, which says what is resident"
# The reason of an upper bound: the working set of several processes, where the tracker sees no page frames.
SHARED_UNKNOWN = "pages that several processes share count once for each of them"
# The reason of missing values where each window reads another part of the memory.
SAMPLED = "a part of the memory is read in each window: reuse distances and tensors need all of it (--pages exact)"

# What disturbed a window in which the kernel took pages of the program's own memory cgroup back.
RECLAIM, IN_CGROUP = "reclaim", "in its memory cgroup"
LIMIT = f"{RECLAIM}: its memory cgroup is at its limit"
OWN_RECLAIM = LIMIT, f"{RECLAIM} {IN_CGROUP}"
LONG_GAP_S = 0.5  # between the last window and the end: reports and screens say so

# How a program ended that was killed because memory ran out: the kernel's log says so, or a counter.
KILLED_FOR_MEMORY, PROBABLY_KILLED = "killed by the kernel (SIGKILL): ", "killed by SIGKILL, probably by the kernel: "

# In the reasons of a lower bound: what was touched is that much, or more.
MORE_TOUCHED, MISSED = "more may have been touched", "touched pages may be missed"


def is_lower_bound(reason: str) -> bool:
    """Return whether the reason of a window says that its working set may lack pages that were touched."""
    return MORE_TOUCHED in reason or MISSED in reason


class Status(StrEnum):
    """Whether a value is there, and why not."""

    OK = "ok"
    APPROXIMATE = "approximate"  # the value is there, but not exact; the reason says how
    UNSUPPORTED = "unsupported"  # this kernel, machine or tracker cannot know it
    DENIED = "denied"  # it could, with more rights
    FAILED = "failed"  # measuring was tried and failed
    NOT_PAUSED = "not paused"  # the target did not stop in time
    GONE = "gone"  # the process ended
    DROPPED = "dropped"  # measured, but the recorder was too slow to take it


@dataclass(frozen=True, slots=True)
class Clock:
    """One anchor per session between the monotonic clock and the wall clock."""

    monotonic_ns: int
    wall_ns: int
    utc_offset_s: int
    boot_id: str

    @property
    def wall_offset_ns(self) -> int:
        """What turns a moment of the monotonic clock into nanoseconds since 1970 (UTC)."""
        return self.wall_ns - self.monotonic_ns


@dataclass(frozen=True, slots=True)
class Host:
    """The machine a session was taken on.

    ``huge_pages``: for which memory the kernel takes transparent huge pages: "always", "madvise" or "never"; empty
    where that was not read. ``numa_nodes``: how many have memory; None: not read.
    """

    hostname: str
    kernel: str
    architecture: str
    cpu_count: int
    memory_bytes: int
    huge_pages: str = ""
    numa_nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The root of the observed process tree. ``start_ticks`` (field 22 of stat) guards against a reused pid."""

    pid: int
    start_ticks: int
    command: str
    user: str


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options of a recording."""

    interval_ns: int
    tracker: str = "auto"
    pause: bool = True
    flush: str = "auto"
    rearm: str = "auto"
    filter: str = "default"
    pages: str = "exact"  # or "sampled": a part of the memory in each window
    children: bool = True
    duration_ns: int | None = None
    together: bool = False  # one pause over the whole tree, not one process after the other
    keep_command: bool = False  # record command lines with the secrets on them
    keep_resident: bool = False  # record which pages were resident, about once a second
    max_overhead_ppm: int | None = None  # of the time, for pauses and own CPU: the interval is stretched to keep it
    chassis_power: bool = False  # ask the management controller for the power of the machine
    trace_every: int | None = None  # of a traced program: one training step in this many is recorded

    @property
    def samples_pages(self) -> bool:
        """Whether a window reads a part of the memory only."""
        return self.pages == "sampled"


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether a tracker, flush or power source works here; if not, why, and what would change it."""

    name: str
    ok: bool
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of every stream."""

    memtui_version: str
    clock: Clock
    host: Host
    target: Target
    options: Options
    tracker: str
    flush: str
    rearm: str
    rejected: tuple[Capability, ...] = ()  # trackers and flushes that were tried before the chosen ones and do not work
    wss: Capability = Capability("wss", True)  # not ok: the chosen tracker knows no working set
    pages: Capability = Capability("pages", True)  # not ok: it knows no single pages (heat map, reuse)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary of JSON values, as a stream carries and a session stores it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Hello:
        """Undo ``to_dict``. Raises KeyError and TypeError: a field is missing or unknown."""
        parts = {"clock": Clock, "host": Host, "target": Target, "options": Options, "wss": Capability}
        built = {name: part(**values[name]) for name, part in (parts | {"pages": Capability}).items()}
        return cls(
            **{**values, **built, "rejected": tuple(Capability(**capability) for capability in values["rejected"])}
        )


TARGET, CHILD, LOADER = "target", "child", "loader"
"""Roles of a process: the first one of the tree, another one, and a worker of PyTorch's DataLoader."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the tree. ``key`` is small and unique in one stream: (pid, start, exec generation) by number."""

    key: int
    pid: int
    parent_pid: int
    start_ticks: int
    generation: int
    command: str
    role: str = ""  # TARGET, CHILD or LOADER, and what torchrun says: "child RANK=1 LOCAL_RANK=1"


@dataclass(frozen=True, slots=True)
class Vma:
    """One line of /proc/PID/maps. ``name`` is the path or ``[heap]``; empty for anonymous memory."""

    start: int
    end: int
    perms: str
    name: str = ""

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class VmaTable:
    """All VMAs of one process, sent when they changed. Valid from window ``sample`` on."""

    process: int
    sample: int
    vmas: tuple[Vma, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ProcessWindow:
    """The values of one process in one window. Counters (``*_ns`` of CPU, faults) count since the process began."""

    process: int
    start_ns: int
    end_ns: int
    paused_ns: int | None = None
    walk_ns: int | None = None
    rearm_ns: int | None = None
    clear_gap_ns: int | None = None  # from the walk to the clear: if it ran meanwhile, accesses in between are lost
    flush: str = "off"
    rearm: str = "off"  # how accessed bits were cleared: "full", "working-set", "off"
    status: str = Status.OK
    reason: str = ""
    pages: PageSet | None = None  # the accessed pages; None when they are not known
    resident: PageSet | None = None  # pages present in the page tables, sent about once a second
    faulted_in_bytes: int | None = None  # part of pages: file pages first mapped here, with neighbours
    unknown_bytes: int | None = None  # part of pages: their bits could not be cleared before, so perhaps not accessed
    rss_bytes: int | None = None
    cpu_ns: int | None = None
    threads: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    # In place of pages, from a tracker that counts by VMA; together with pages, the VMAs without known ones (hugetlb).
    vma_wss_bytes: VmaSizes | None = None
    vma_rss_bytes: VmaSizes | None = None  # in place of resident
    # Part of the accessed bytes: page frames that another process of the tree accessed, too. None: not known.
    vma_shared_bytes: VmaSizes | None = None
    # Where ``pages`` are of a part of the memory: an estimate of all accessed bytes, and its 95 % interval.
    wss_estimate_bytes: int | None = None
    wss_low_bytes: int | None = None
    wss_high_bytes: int | None = None
    scale: float | None = None  # bytes of the process for which one byte of that part stands
    # Resident memory in which a page of several processes counts once in all; not read of a process that is alone.
    pss_bytes: int | None = None
    pss_ns: int | None = None  # when it was read, of all processes together
    pss_reason: str = ""  # why it is not known
    # Of the same reading as the PSS: what no other process maps (USS), with hugetlb pages, and what is swapped out. The
    # swap of a process that is alone is read without them, within a second before.
    private_bytes: int | None = None
    swap_bytes: int | None = None
    vma_private_bytes: VmaSizes | None = None  # private_bytes by VMA, where that was read since the last window
    # The accessed pages of each part of a window that was cut into ever shorter parts, and the lengths of all but the
    # first; the last one is a probe of some milliseconds. Empty: it was not cut.
    parts: tuple[PageSet, ...] = ()
    part_lengths_ns: tuple[int, ...] = ()
    longest_pause_ns: int | None = None  # of the pauses that ``paused_ns`` sums up; None: that is one pause

    @property
    def shared_bytes(self) -> int | None:
        """The accessed bytes that another process of the tree accessed, too."""
        return None if self.vma_shared_bytes is None else sum(size or 0 for _, size in self.vma_shared_bytes)

    @property
    def wss_bytes(self) -> int | None:
        """The accessed bytes, however they were counted, without memory of which nothing is known (hugetlb)."""
        if self.wss_estimate_bytes is not None:
            return self.wss_estimate_bytes
        if self.pages is not None:
            return self.pages.size_bytes
        if self.vma_wss_bytes is not None:
            return sum(size for _, size in self.vma_wss_bytes if size is not None)
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One sample of the tree. ``asked_ns`` is the requested interval; the true one is ``end_ns - start_ns``.

    Attributes:
        budgeted_ns: the interval to which a budget stretched the requested one; None: there is no budget.
        next_ns: the same, after this window.
        lost_ns: about how much time the tree lost by this window (``memtui.recording.sampler.slowdown_estimate``);
            None: not known.
        set_again_ns: the part of ``lost_ns`` in which accessed bits were set again.
        gaps: processes of the tree that were born or ended during this window, and so are missing in a part of it.
        disturbed: who else cleared accessed bits in this window, or moved pages; empty: nobody, as far as known.
        shared_excess_bytes: the bytes that the sum over the processes overcounts, because several accessed the same
            page frames; None: not known.
    """

    sample: int
    start_ns: int
    end_ns: int
    asked_ns: int
    sampler_cpu_ns: int
    processes: tuple[ProcessWindow, ...]
    gaps: int = 0
    disturbed: str = ""
    shared_excess_bytes: int | None = None
    budgeted_ns: int | None = None
    next_ns: int | None = None
    lost_ns: int | None = None
    set_again_ns: int | None = None


def tree_paused_ns(processes: Iterable[ProcessWindow], *, together: bool) -> int | None:
    """Return for how long any process of a tree was paused: one after another, or all ``together``; None: not known."""
    parts = [process.paused_ns for process in processes]
    measured = [part for part in parts if part is not None]
    if len(measured) < len(parts) or not parts:
        return None
    return max(measured) if together else sum(measured)


@dataclass(frozen=True, slots=True)
class Event:
    """An event at one moment: a mark, a gap, an exec, a target that someone stopped."""

    t_ns: int
    kind: str  # "mark", "gap", "exec", "process", "stopped", "warning", "interval", "thinned", "step"; also "end"
    text: str


@dataclass(frozen=True, slots=True)
class End:
    """Last message of a stream that ended in order.

    ``kind``: "target exited", "stopped", "duration", "error"; the recorder adds "interrupted" and those of
    ``memtui.recording.recorder.limits``. ``text``: details; for "target exited", how it ended, where that is known:
    "killed by SIGKILL". ``sampler_cpu_ns``, ``recorder_cpu_ns``: their CPU time until then; None in old sessions.
    """

    t_ns: int
    kind: str
    text: str = ""
    sampler_cpu_ns: int | None = None
    recorder_cpu_ns: int | None = None

    @property
    def description(self) -> str:
        """How the stream ended, as a text for the user."""
        if self.of_target:
            return f"target {self.text or 'ended'}"
        return self.text or self.kind

    @property
    def of_target(self) -> bool:
        """Whether the program itself ended; else it may go on."""
        return self.kind == "target exited"

    @property
    def killed_for_memory(self) -> bool:
        """Whether the kernel killed the program, or probably did, because memory ran out."""
        return self.of_target and self.text.startswith((KILLED_FOR_MEMORY, PROBABLY_KILLED))

    @property
    def is_bad(self) -> bool:
        """Whether the program was killed, or ended with a code other than 0."""
        return self.of_target and self.text not in ("", "exited")  # with code 0, or nothing is known
