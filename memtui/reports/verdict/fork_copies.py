"""What forked processes hold as copies of memory that they shared with their parent.

Growth of the copies needs several readings (rule ``unsharing``). A worker of a ``DataLoader`` may copy all that it uses
within seconds, before the second one. Where the recording saw the fork, one reading is enough: what a process has for
itself in mappings that its parent had, and still has, is a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from memtui.core.procfs import TICKS_PER_S
from memtui.core.samples import Process
from memtui.reports.verdict.recent import Recent, is_anonymous
from memtui.session.vma_row import VmaRow


class ForkCopies(NamedTuple):
    """The copies that a process has: in all, of how much that its parent had, and by VMA row of the process."""

    process: Process
    copied_bytes: int
    parent_bytes: int
    by_row: dict[int, int]


def fork_copies(recent: Recent) -> list[ForkCopies]:
    """Return what the processes of the last window copied of what their parents had when they were forked, most first.

    Processes that were forked before the first window are left out: what is at the same address in both may be memory
    that each got later. Where a parent has freed what it shared, nothing counts: there is no second copy.
    """
    source = recent.source
    processes = [process for process in source.processes() if process.key in recent.processes]
    parents = {process.pid: process for process in processes}
    forked = [(child, parents[child.parent_pid]) for child in processes if child.parent_pid in parents]
    births = {child.key: sample for child, _ in forked if (sample := _birth_sample(recent, child)) is not None}
    if not births:
        return []
    private = {key: by_row for _, key, by_row in source.vma_private(min(births.values()), recent.sample)}
    at_birth = {sample: source.vma_rss(sample) for sample in sorted(set(births.values()))}
    now = source.vma_rss(recent.sample)
    copies = []
    for child, parent in forked:
        if child.key not in births or child.key not in private:
            continue
        sample = births[child.key]
        rows = [row for row in source.drawn_rows(parent.key) if is_anonymous(row) and row.first_sample <= sample]
        bounds = [(row, min(at_birth[sample].get(row.id, 0), now.get(row.id, 0))) for row in rows]
        before = [(row, had_bytes) for row, had_bytes in bounds if had_bytes]
        rows = source.drawn_rows(child.key)
        first_sample = min((row.first_sample for row in rows), default=0)
        inherited = [row for row in rows if is_anonymous(row) and row.first_sample == first_sample]
        by_row = dict(_copied(inherited, private[child.key], before))
        parent_bytes = sum(least for _, least in before)
        copies.append(ForkCopies(child, sum(by_row.values()), parent_bytes, by_row))
    return sorted((of for of in copies if of.copied_bytes), key=lambda of: -of.copied_bytes)


def _birth_sample(recent: Recent, process: Process) -> int | None:
    """Return the sample in which a process was forked; None where that was not seen, or it runs another program."""
    samples = recent.source.samples
    forked_ns = process.start_ticks * (10**9 // TICKS_PER_S)
    index = int(samples.end_ns[: recent.windows.stop].searchsorted(forked_ns))
    if process.generation or forked_ns < samples.start_ns[0] or index >= recent.windows.stop:
        return None
    return int(samples.sample[index])


def _copied(
    inherited: Iterable[VmaRow], private: Mapping[int, int], before: list[tuple[VmaRow, int]]
) -> Iterable[tuple[int, int]]:
    """Yield (row, bytes) of private memory where the parent had some, and no more than that."""
    for row in inherited:
        if row.id in private:
            there = sum(_overlap_bytes(row, parent_row, had_bytes) for parent_row, had_bytes in before)
            if there:
                yield row.id, min(private[row.id], there)


def _overlap_bytes(row: VmaRow, parent_row: VmaRow, had_bytes: int) -> int:
    return min(max(min(row.end, parent_row.end) - max(row.start, parent_row.start), 0), had_bytes)
