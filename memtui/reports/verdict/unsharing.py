"""Rule ``unsharing``: forked processes write to memory that they shared with their parent, and get copies of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.limit_forecast import rate
from memtui.analysis.range_uses import uses_of
from memtui.analysis.tensor_pages import TensorMap, tensor_name
from memtui.core.readings import MemoryUse
from memtui.core.samples import LOADER, TARGET, Process
from memtui.core.units import size, span
from memtui.reports.verdict.fork_copies import fork_copies
from memtui.reports.verdict.recent import FRESH_S, NO_FILE, Check, Finding, Floats, Recent
from memtui.session.vma_row import VmaRow

RULE = "unsharing"
SETTING_UP_S = 5.0  # after its start a program copies what it sets up, which is not how it goes on
LEAST_READINGS = 3
LEAST_S = 20.0
LEAST_BYTES = 64 << 20  # that stopped being shared
LEAST_RISING = 0.75  # of the readings: copies that were made are not shared again
STILL_SHARE = 0.5  # of the rate over all readings: what the last third of them has at least, ...
STILL_BYTES_PER_S = 4 << 20  # ... or so much
MUCH_BYTES, MUCH_SHARE = 256 << 20, 0.25  # copied, and as a share of the PSS: it counts though it has ended
GENERATIONS_S, SAME_RSS = 120.0, 0.9  # of workers that are renewed; and of their RSS, or they gave memory back
HELPER_S = 10.0  # more processes for a shorter time are helpers, and the others went on sharing meanwhile
MOST_PROCESSES, MOST_PLACES = 3, 2
LEAST_TENSOR_BYTES = 8 << 20  # a smaller one may lie beside what was copied
KINDS = {
    "probably Python heap": "Python objects (probably)",
    "malloc heap": "heaps of malloc",
    "thread stack": "stacks",
}
"""Names of the uses that a layout gives away (``analysis.range_uses``)."""
_ACTION = (
    "A forked process copies a page when it writes to it. Python writes to every object that it uses, to count "
    "references: there, keep the index of a data set in a numpy array, or in shared memory."
)


@dataclass(frozen=True)
class _Readings:
    """Readings of all processes of a tree, as long as these were the same: RSS and PSS, summed over them."""

    samples: list[int]
    t_s: Floats
    rss_bytes: Floats
    pss_bytes: Floats

    def since(self, t_s: float) -> _Readings:
        """Return the readings from a time on; all, where few would be left."""
        late = self.t_s >= t_s
        if late.sum() < LEAST_READINGS or self.t_s[-1] - self.t_s[late][0] < LEAST_S:
            return self
        samples = [sample for sample, is_late in zip(self.samples, late.tolist(), strict=True) if is_late]
        return _Readings(samples, self.t_s[late], self.rss_bytes[late], self.pss_bytes[late])

    @cached_property
    def copied_bytes(self) -> Floats:
        """What stopped being shared since the first reading: PSS grows by it, and RSS does not.

        Where much is shared again, workers were renewed: what those before had copied counts, too.
        """
        steps = -np.diff(self.rss_bytes - self.pss_bytes)
        return np.concatenate(([0.0], np.cumsum(np.where(self.renewed, 0.0, steps))))

    @property
    def copying_s(self) -> float:
        """Seconds between the readings, without those in which workers were renewed."""
        return float(np.diff(self.t_s)[~self.renewed].sum())

    @property
    def renewed(self) -> NDArray[np.bool_]:
        """Which steps between readings are those of new workers: bool[n - 1]."""
        return np.diff(self.rss_bytes - self.pss_bytes) >= LEAST_BYTES


def unsharing(recent: Recent) -> Check:
    """Return how much memory the processes of a tree do not share any more, and how fast."""
    check = _growing_copies(recent)
    if check.finding is not None:
        return check
    if (finding := _held_copies(recent) or _renewed_copies(recent)) is not None:
        looked_at = check.looked_at if check.measured else f"memory that processes share: {finding.short.rstrip('.')}"
        return replace(check, looked_at=looked_at, measured=True, applies=True, finding=finding)
    if not check.applies and (readings := _readings_of_generations(recent)) is not None:
        looked_at = f"memory that processes share: they are started anew too often ({len(readings.t_s)} readings)"
        return Check(RULE, looked_at, measured=False)
    return check


def _renewed_copies(recent: Recent) -> Finding | None:
    """Return what workers copy that are started anew before they are read several times; None: nothing, or little."""
    readings = _readings_of_generations(recent)
    if readings is None or not readings.renewed.any():
        return None
    saved_bytes = readings.rss_bytes - readings.pss_bytes
    most, least = int(saved_bytes.argmax()), int(saved_bytes.argmin())
    copied_bytes, pss_bytes = float(saved_bytes[most] - saved_bytes[least]), float(readings.pss_bytes[least])
    if readings.rss_bytes[least] < SAME_RSS * readings.rss_bytes[most]:
        return None  # they gave back what they shared
    if copied_bytes < max(MUCH_BYTES, MUCH_SHARE * pss_bytes):
        return None
    children = [process for process in recent.source.processes() if process.role.partition(" ")[0] != TARGET]
    start = _whose(children)
    return Finding(
        f"{start} are started anew again and again, and each time copy memory that they share: up to "
        f"{size(copied_bytes)}.",
        f"{start} copy memory that they share.",
        _ACTION,
        (
            f"PSS: {size(float(readings.pss_bytes.min()))} to {size(float(readings.pss_bytes.max()))} in "
            f"{len(saved_bytes)} readings of as many processes, while the sum of their RSS was "
            f"{size(float(readings.rss_bytes[least]))}",
        ),
    )


def _readings_of_generations(recent: Recent) -> _Readings | None:
    """Return the readings of the number of processes that was the usual one lately; None where that is one process."""
    uses = [use for use in recent.uses if use.t_ns > recent.read_until_ns - GENERATIONS_S * 1e9]
    usual = Counter(use.processes for use in uses).most_common(1)
    if not usual or usual[0][0] == 1:
        return None
    uses = [use for use in uses if use.processes == usual[0][0] and use.pss_bytes is not None]
    return _Readings(
        [],
        np.array([(use.t_ns - recent.read_until_ns) / 1e9 for use in uses]),
        np.array([use.rss_bytes for use in uses], np.float64),
        np.array([use.pss_bytes for use in uses], np.float64),
    )


def _held_copies(recent: Recent) -> Finding | None:
    """Return what workers copied since they were forked, where it is much: they may have done so before any reading."""
    private_bytes = [row["private_bytes"] or 0 for row in recent.processes.values()]
    resident_bytes = sum(row["pss_bytes"] or 0 for row in recent.processes.values())
    least_bytes = max(MUCH_BYTES, MUCH_SHARE * resident_bytes)
    if sum(private_bytes) < least_bytes:
        return None
    copies = fork_copies(recent)
    copied_bytes = sum(of.copied_bytes for of in copies)
    if copied_bytes < least_bytes:
        return None
    start = f"{_whose(of.process for of in copies)} copied memory that they shared"
    return Finding(
        f"{start}: {size(copied_bytes)} since they were forked.",
        f"{start}.",
        _ACTION,
        tuple(
            f"{_title(of.process)}: copies of {size(of.copied_bytes)}"
            f"{_parts(_named(recent, of.process, of.by_row))}, of {size(of.parent_bytes)} that its parent has had since"
            for of in copies[:MOST_PROCESSES]
        ),
    )


def _growing_copies(recent: Recent) -> Check:
    """Return how fast the PSS of a tree grows while the sum of its RSS does not."""
    subject = "memory that processes share"
    readings = _readings(recent)
    if readings is None:
        return Check(RULE, f"{subject}: there is one process", measured=False, applies=False)
    readings = readings.since(-recent.age_s + SETTING_UP_S)
    if len(readings.t_s) < LEAST_READINGS or readings.t_s[-1] - readings.t_s[0] < LEAST_S:
        seen_s = float(readings.t_s[-1] - readings.t_s[0]) if len(readings.t_s) else 0.0
        count = f"{len(readings.t_s)} reading{'s' * (len(readings.t_s) != 1)} in {span(seen_s)}"
        enough = f"from {LEAST_READINGS} in {span(LEAST_S)} on, while none begins or ends"
        return Check(RULE, f"{subject}: {count} of the PSS: {enough}", measured=False)
    copied, t_s = readings.copied_bytes, readings.t_s
    over_s, age_s = float(t_s[-1] - t_s[0]), -float(t_s[-1])
    ago = f", as read last {span(age_s)} ago" if age_s > FRESH_S else ""
    what = f"{subject}: {size(float(readings.rss_bytes[-1] - readings.pss_bytes[-1]))} saved"
    copied_text = size(max(float(copied[-1]), 0))
    renewed = readings.renewed.any()  # and so is what they save
    what += (
        f", {copied_text} copied in {span(over_s)}" if renewed else f", {copied_text} less than {span(over_s)} before"
    )
    what += f", read {span(age_s)} ago" * bool(ago)
    third = max(len(copied) // 3, 1)
    overall = float(copied[-1]) / max(readings.copying_s, 1.0)
    lately = float(copied[-1] - copied[-1 - third]) / float(t_s[-1] - t_s[-1 - third])
    rising = float((np.diff(copied) > 0).mean())
    still = rising >= LEAST_RISING and lately >= min(STILL_SHARE * overall, STILL_BYTES_PER_S)
    much = copied[-1] >= max(MUCH_BYTES, MUCH_SHARE * float(readings.pss_bytes[-1]))
    if copied[-1] < LEAST_BYTES or not (still or much):
        return Check(RULE, what)
    grown = _grown(recent, readings)
    copied_pages = [member for member in grown if not member.is_parent]
    whose = _whose(member.process for member in copied_pages)
    when = f"in {span(over_s)}{ago}" if ago else f"in the last {span(over_s)}"
    if still and not ago:
        start = f"{whose} copy memory that they share: {rate(overall)}"
        sentence = f"{start}, {size(float(copied[-1]))} {when}."
    else:
        start = f"{whose} copied memory that they shared"
        sentence = f"{start}: {size(float(copied[-1]))} {when}."
    return Check(
        RULE,
        what,
        finding=Finding(
            sentence,
            f"{start}.",
            _ACTION,
            (
                *_by_process(recent, grown[:MOST_PROCESSES]),
                f"PSS: {size(float(readings.pss_bytes[0]))} to {size(float(readings.pss_bytes[-1]))}, while the sum of "
                f"RSS went from {size(float(readings.rss_bytes[0]))} to {size(float(readings.rss_bytes[-1]))}",
            ),
        ),
    )


def _readings(recent: Recent) -> _Readings | None:
    """Return the readings since the processes changed last, but for helpers; None where there is one process."""
    if recent.uses:
        count, first_use = _unchanged(recent.uses)
        if count == 1:
            return None
        uses = [use for use in recent.uses[first_use:] if use.processes == count and use.pss_bytes is not None]
        ends_ns = recent.source.samples.end_ns[recent.windows]
        after = np.searchsorted(ends_ns, [use.t_ns for use in uses]).clip(max=len(ends_ns) - 1)
        return _Readings(
            recent.source.samples.sample[recent.windows][after].tolist(),
            np.array([(use.t_ns - recent.read_until_ns) / 1e9 for use in uses]),
            np.array([use.rss_bytes for use in uses], np.float64),
            np.array([use.pss_bytes for use in uses], np.float64),
        )
    samples, of = recent.source.samples, recent.windows
    processes = samples.processes[of]
    if processes[-1] == 1:
        return None
    changed = np.flatnonzero(processes != processes[-1])
    first = int(changed[-1]) + 1 if len(changed) else 0
    read_ns = samples.pss_ns[of][first:]
    pss, rss = samples.pss_bytes[of][first:], samples.rss_bytes[of][first:]
    # A reading stands in the windows after it, too: the first of them has the RSS of that time.
    new = np.isfinite(read_ns) & np.isfinite(pss) & np.isfinite(rss)
    new[1:] &= read_ns[1:] != read_ns[:-1]
    index = np.flatnonzero(new)
    numbers = samples.sample[of][first:][index].tolist()
    return _Readings(numbers, recent.t_s[first:][index], rss[index], pss[index])


def _unchanged(uses: Sequence[MemoryUse]) -> tuple[int, int]:
    """Return the number of processes without short-lived helpers, and the first reading since that number changed."""
    ends_ns = uses[-1].t_ns
    processes = min(use.processes for use in uses if use.t_ns > ends_ns - HELPER_S * 1e9)
    since_ns = ends_ns
    first = len(uses)
    for n, use in reversed(list(enumerate(uses))):
        if use.processes == processes:
            first, since_ns = n, use.t_ns
        elif use.processes < processes or since_ns - use.t_ns >= HELPER_S * 1e9:
            break
    return processes, first


class _Grown(NamedTuple):
    """A process that got memory for itself: how much it had when that was read first and last, and since when.

    ``is_parent``: of another one that did. What its children copied is left to it alone, though it wrote nothing.
    """

    process: Process
    before_bytes: int
    after_bytes: int
    since_sample: int
    is_parent: bool


def _grown(recent: Recent, readings: _Readings) -> list[_Grown]:
    """Return the processes that got memory for themselves, parents of others last, and most first."""
    source = recent.source
    first, last = dict[int, tuple[int, int]](), dict[int, int]()
    for row in source.process_samples(readings.samples[0], readings.samples[-1]):
        if row["private_bytes"] is not None:  # of a process that has just begun it is read later
            last[row["process"]] = row["private_bytes"]
            first.setdefault(row["process"], (row["private_bytes"], row["sample"]))
    processes = source.processes()
    grown = [process for process in processes if process.key in first and last[process.key] > first[process.key][0]]
    parents = _ancestors(grown, processes)
    members = [
        _Grown(process, first[process.key][0], last[process.key], first[process.key][1], process.pid in parents)
        for process in grown
    ]
    return sorted(members, key=lambda member: (member.is_parent, member.before_bytes - member.after_bytes))


def _ancestors(of: Sequence[Process], processes: Sequence[Process]) -> set[int]:
    """Return the PIDs of those that some processes descend from."""
    parent_of = {process.pid: process.parent_pid for process in processes}
    ancestors: set[int] = set()
    for process in of:
        pid = process.parent_pid
        while pid in parent_of and pid not in ancestors:
            ancestors.add(pid)
            pid = parent_of[pid]
    return ancestors


def _by_process(recent: Recent, grown: list[_Grown]) -> list[str]:
    """Return a line for each of these processes: what it got for itself, and where."""
    places = _Places(recent, {member.process.key: member.since_sample for member in grown})
    lines = []
    for process, before_bytes, after_bytes, _, is_parent in grown:
        left = ", left to it where the others copied" * is_parent
        grew = f"{size(before_bytes)} to {size(after_bytes)} of its own{_parts(places.grown(process))}"
        lines.append(f"{_title(process)}: {grew}{left}")
    return lines


def _whose(processes: Iterable[Process]) -> str:
    """Return what all of these processes are, as the start of a sentence."""
    loaders = [is_loader(process) for process in processes]
    return f"Its {'DataLoader workers' if loaders and all(loaders) else 'processes'}"


def _title(process: Process) -> str:
    return f"pid {process.pid}{' (DataLoader worker)' * is_loader(process)}"


def _parts(places: list[tuple[str, int]]) -> str:
    parts = ", ".join(f"{size(in_bytes)} in {where}" for where, in_bytes in places)
    return f" (at least {parts})" * bool(parts)


def is_loader(process: Process) -> bool:
    """Return whether a process is a worker of PyTorch's DataLoader."""
    return process.role.partition(" ")[0] == LOADER


class _Places:
    """Where the private memory of processes grew, each since a sample, as far as it was read by mapping."""

    def __init__(self, recent: Recent, since_samples: Mapping[int, int]) -> None:
        self._recent = recent
        self._first: dict[int, dict[int, int]] = {}
        self._last: dict[int, dict[int, int]] = {}
        first_sample = int(recent.source.samples.sample[recent.windows.start])
        for sample, process, by_row in recent.source.vma_private(first_sample, recent.sample):
            if sample <= since_samples.get(process, -1) or process not in self._first:
                self._first[process] = by_row
            self._last[process] = by_row

    def grown(self, process: Process) -> list[tuple[str, int]]:
        """Return (what a process has there, bytes) of what grew most."""
        if process.key not in self._last:
            return []
        first, last = self._first[process.key], self._last[process.key]
        more = {row: last.get(row, 0) - first.get(row, 0) for row in first.keys() | last.keys()}
        return _named(self._recent, process, more)


def _named(recent: Recent, process: Process, by_row: Mapping[int, int]) -> list[tuple[str, int]]:
    """Return (what a process has there, bytes) of the VMA rows of which most is given."""
    rows = recent.source.drawn_rows(process.key)
    uses, sums = uses_of(rows), dict[str, int]()
    # A forked process has the tensors of its parent at the same addresses.
    latest, end_ns = recent.source.latest_tensors, recent.end_ns
    tensors = latest(process.pid, end_ns) or latest(process.parent_pid, end_ns)
    for row in rows:
        use = KINDS.get(uses.get(row.id, "").rstrip(" 0123456789"), NO_FILE)
        in_bytes = by_row.get(row.id, 0)
        where = row.name or (tensors and _tensor(tensors, row, in_bytes)) or use
        sums[where] = sums.get(where, 0) + in_bytes
    most = sorted(sums.items(), key=lambda item: -item[1])[:MOST_PLACES]
    return [(where, in_bytes) for where, in_bytes in most if in_bytes > 0]


def _tensor(tensors: TensorMap, row: VmaRow, grown_bytes: int) -> str:
    """Return the tensor that can be most of what grew in a row; empty without one."""
    number = tensors.largest_in(row.start, row.end)
    if number is None:
        return ""
    start, size_bytes = int(tensors.start[number]), int(tensors.size_bytes[number])
    inside = min(start + size_bytes, row.end) - max(start, row.start)
    if 2 * inside < max(grown_bytes, 2 * LEAST_TENSOR_BYTES):
        return ""
    return tensor_name(tensors.names[number], tensors.parts[number]) or tensors.title(number)
