"""Proportional set sizes of a tree: resident memory in which a page of several processes counts once.

The same reading says how much of each process nobody else maps, and how much is swapped out. For it the kernel walks
all page tables of a process and locks its mappings meanwhile (about 13 ms for a GiB of 4 KiB pages). So it is done as
seldom as its cost demands, and not at all where it would take long. The first three readings come sooner, because it
takes three to tell whether workers copy memory that they share. Private memory is read by mapping, too, where it has
changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from memtui.core.procfs import PROC, rss_bytes_of, swap_bytes_of
from memtui.core.samples import VmaSizes
from memtui.core.units import duration, size

SHARE = 0.002  # of the time, for reading
SHARE_OF_BUDGET = 0.2  # of the budget where there is one, if that is less
LEAST_APART_NS = 1_000_000_000
LONGEST_NS = 250_000_000  # of reading one process, whose mappings are locked meanwhile
USUAL_NS_PER_BYTE = 15e6 / (1 << 30)  # until it is measured
EARLY_RESTS, EARLY_REST = 2, 100  # the count of shorter rests at the start; each is this many times a reading, ...
EARLY_NS = 15_000_000_000  # ... and this at least, unless the usual rest is shorter
# Times a reading: after the RSS of all processes has changed (a short child, a burst), or while their PSS changes.
SOON_REST = 250
MOST_WAITING = 10  # times its CPU time: what a reading may take of the time that its share allows
CHANGED_BYTES = 32 << 20  # a change of private memory by this much has it read by mapping
RSS_CHANGE = 0.25  # of the RSS, and more than these bytes: sizes that were read before it are not those of now
PSS_CHANGE = 0.02  # of the PSS, from one reading to the next: it goes on changing, while the RSS may say nothing of it
_MOST_TEXT_BYTES = 4 << 20  # of smaps, about 5,000 mappings: longer texts are not parsed
_EXAMPLE_BYTES = 64 << 20  # of a smaller process the time is not measured
CHANGED = "processes began or ended since it was read last"
NOT_READ = "not read yet"
_PRIVATE = re.compile(rb"^(?:([0-9a-f]+)-[0-9a-f]+ |Private_(?:Clean|Dirty|Hugetlb): *(\d+) kB)", re.MULTILINE)
_SIZES = re.compile(rb"^(Rss|Pss|Private_Clean|Private_Dirty|Private_Hugetlb|Swap): *(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rollup:
    """What smaps_rollup says about one process at ``t_ns``; without a PSS the reason says why.

    Of a process that is alone only the swap is known, from its ``status``; it has no reason.

    Attributes:
        pss_bytes: resident memory, each page divided by the number of processes that map it.
        t_ns: when it was read, of all processes of the tree together.
        reason: why it was not.
        private_bytes: what no other process maps (USS), with hugetlb pages, which are in neither RSS nor PSS.
        swap_bytes: what is swapped out of it.
        private_by_vma: ``private_bytes`` by start of the mapping, when they were read last; None where they were not.
        rss_bytes: the RSS of the same moment.
    """

    pss_bytes: int | None
    t_ns: int | None = None
    reason: str = ""
    private_bytes: int | None = None
    swap_bytes: int | None = None
    private_by_vma: VmaSizes | None = None
    rss_bytes: int | None = None

    @property
    def shared_bytes(self) -> int | None:
        """What others map, too, of the RSS of the same moment; None: not read."""
        if self.rss_bytes is None or self.private_bytes is None:
            return None
        return self.rss_bytes - self.private_bytes

    def for_rss(self, rss_bytes: int | None) -> Rollup:
        """Return this reading for a process that has so much RSS now; without sizes where that is much more or less."""
        if self.rss_bytes is None or rss_bytes is None:
            return self
        if not _differ(rss_bytes, self.rss_bytes):
            return self
        reason = f"read when its RSS was {size(self.rss_bytes)}"
        return Rollup(None, None, reason, swap_bytes=self.swap_bytes, private_by_vma=self.private_by_vma)


def _differ(rss_bytes: int, before_bytes: int) -> bool:
    return abs(rss_bytes - before_bytes) > max(RSS_CHANGE * before_bytes, CHANGED_BYTES)


class PssProbe:
    """Reads the processes of a tree together, so that their values are of one moment."""

    def __init__(self, max_overhead_ppm: int | None = None, proc: Path = PROC) -> None:
        """Start without a reading.

        Args:
            max_overhead_ppm: the overhead budget of the recording; None: no budget.
            proc: where the process file system is mounted.
        """
        budget = SHARE if max_overhead_ppm is None else max_overhead_ppm / 1e6 * SHARE_OF_BUDGET
        self._rest = 1 / min(SHARE, budget)
        self._proc = proc
        self._due_ns = 0
        self._early = EARLY_RESTS
        self._readings: dict[int, Rollup] = {}
        self._alone: dict[int, Rollup] = {}  # of a process without others, its swap
        self._alone_due_ns = 0
        # Private bytes of a process when they were last read by mapping, and by mapping; 0 and None: they were not yet.
        self._mapped: dict[int, tuple[int, VmaSizes | None]] = {}
        self._ns_per_byte = USUAL_NS_PER_BYTE
        self._watched: set[int] = set()  # at the last call
        self._rss_bytes, self._pss_bytes = 0, 0  # of all processes at the last reading
        self._soon_ns = 0  # when they may be read again soonest

    def poll(self, pids: Iterable[int], others: Iterable[int] = (), rss_bytes: int | None = None) -> None:
        """Read all processes if a reading is due. Of a single process the RSS is its PSS: only its swap is read.

        ``others``: more processes, which may end at any time. ``rss_bytes``: the RSS of all of them, where it is known.
        """
        watched = list(pids)
        wanted = [*watched, *others]
        if len(wanted) < 2:
            self._readings, self._mapped = {}, {}
            self._read_swap(wanted)
            return
        self._alone = {}
        # A child that was read as one of the others, and is watched from now on, changes nothing.
        if self._readings and set(watched) not in (self._watched, self._readings.keys()):
            self._readings = {pid: Rollup(None, None, CHANGED) for pid in wanted}
        self._watched = set(watched)
        began_ns, began_cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        changed = rss_bytes is not None and _differ(rss_bytes, self._rss_bytes)
        if began_ns < (self._soon_ns if changed else self._due_ns):
            return
        results = {pid: self._read(pid) for pid in wanted}
        ended_ns = time.monotonic_ns()
        self._readings = {
            pid: result if result.reason else replace(result, t_ns=ended_ns) for pid, result in results.items()
        }
        self._mapped = {pid: mapped for pid, mapped in self._mapped.items() if pid in results}
        # Time in which this thread had no CPU does not count in full: on a busy machine nothing would be read.
        took_ns = max(time.thread_time_ns() - began_cpu_ns, (ended_ns - began_ns) // MOST_WAITING)
        rest_ns = round(self._rest * took_ns)
        if self._early:
            self._early -= 1
            rest_ns = min(rest_ns, max(EARLY_NS, EARLY_REST * took_ns))
        self._due_ns = ended_ns + max(LEAST_APART_NS, rest_ns)
        self._rss_bytes = sum(result.rss_bytes or 0 for result in results.values())
        self._soon_ns = min(self._due_ns, ended_ns + max(LEAST_APART_NS, SOON_REST * took_ns))
        pss_bytes = sum(result.pss_bytes or 0 for result in results.values())
        if self._pss_bytes and abs(pss_bytes - self._pss_bytes) > PSS_CHANGE * self._pss_bytes:
            self._due_ns = self._soon_ns
        self._pss_bytes = pss_bytes

    def expire(self) -> None:
        """Have the next call of ``poll`` read all processes: it is the last one."""
        self._due_ns = 0

    def of(self, pid: int) -> Rollup:
        """Return the last reading of a process; without bytes and reason where the process is alone."""
        return self._readings.get(pid) or self._alone.get(pid) or Rollup(None, None, NOT_READ if self._readings else "")

    def _read_swap(self, pids: list[int]) -> None:
        if self._alone.keys() == set(pids) and time.monotonic_ns() < self._alone_due_ns:
            return
        self._alone, self._alone_due_ns = {}, time.monotonic_ns() + LEAST_APART_NS
        for pid in pids:
            with suppress(OSError, IndexError):
                self._alone[pid] = Rollup(None, swap_bytes=swap_bytes_of(self._proc / str(pid)))

    def _read(self, pid: int) -> Rollup:
        folder = self._proc / str(pid)
        try:
            resident_bytes = rss_bytes_of(folder)
            expected_ns = resident_bytes * self._ns_per_byte
            if expected_ns > LONGEST_NS:
                return Rollup(None, None, f"reading it would lock its mappings for about {duration(expected_ns / 1e9)}")
            began_ns = time.thread_time_ns()  # what the kernel's walk takes: no waiting for a CPU or for a lock
            text = (folder / "smaps_rollup").read_bytes()
            if resident_bytes >= _EXAMPLE_BYTES:
                self._ns_per_byte = (time.thread_time_ns() - began_ns) / resident_bytes
            return self._with_mappings(pid, parse_rollup(text))
        except (FileNotFoundError, ProcessLookupError):
            there = folder.exists() and not (self._proc / "self" / "smaps_rollup").exists()
            return Rollup(None, None, "this kernel has no smaps_rollup (Linux 4.14)" if there else "it ended")
        except PermissionError:
            return Rollup(None, None, "smaps_rollup may not be read: root may")
        except (OSError, ValueError, IndexError) as error:
            return Rollup(None, None, f"smaps_rollup: {error}")

    def _with_mappings(self, pid: int, rollup: Rollup) -> Rollup:
        """Return a reading with private bytes by mapping, which are read where they changed much."""
        if rollup.private_bytes is None:
            return rollup
        before_bytes, _ = self._mapped.setdefault(pid, (0, None))
        if abs(rollup.private_bytes - before_bytes) >= CHANGED_BYTES:
            with (self._proc / str(pid) / "smaps").open("rb") as file:
                text = file.read(_MOST_TEXT_BYTES + 1)
            by_vma = private_by_vma(text) if len(text) <= _MOST_TEXT_BYTES else None
            self._mapped[pid] = rollup.private_bytes, by_vma
        return replace(rollup, private_by_vma=self._mapped[pid][1])


def private_by_vma(text: bytes) -> VmaSizes:
    """Return (start, bytes that no other process maps) of the mappings in an smaps text, without zeros."""
    sizes: dict[int, int] = {}
    start = 0
    for address, kib in _PRIVATE.findall(text):
        if address:
            start = int(address, 16)
        elif kib != b"0":
            sizes[start] = sizes.get(start, 0) + (int(kib) << 10)
    return tuple(sizes.items())


def parse_rollup(text: bytes) -> Rollup:
    """Return the sizes in a smaps_rollup, without a time; None for private memory or swap that it has no line of.

    Raises ValueError where there is no line ``Pss:``.
    """
    sizes = {name: int(kib) << 10 for name, kib in _SIZES.findall(text)}
    if b"Pss" not in sizes:
        raise ValueError("has no line Pss")
    private_bytes = None
    if b"Private_Clean" in sizes and b"Private_Dirty" in sizes:
        private_bytes = sizes[b"Private_Clean"] + sizes[b"Private_Dirty"] + sizes.get(b"Private_Hugetlb", 0)
    swap_bytes, rss_bytes = sizes.get(b"Swap"), sizes.get(b"Rss")
    return Rollup(sizes[b"Pss"], private_bytes=private_bytes, swap_bytes=swap_bytes, rss_bytes=rss_bytes)
