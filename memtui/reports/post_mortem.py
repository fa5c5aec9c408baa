"""What grew in the last minutes before a program was killed or failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.memory_sentences import Forms
from memtui.analysis.resident import PSS, RSS, SEVERAL_TIMES, SUM_OF_RSS
from memtui.analysis.resident_readings import pss_of_several
from memtui.core.readings import MemoryUse
from memtui.core.text import printable
from memtui.core.units import duration, size
from memtui.reports.source import ReportSource, Source
from memtui.session.ending import stored_end
from memtui.session.file_format import SessionError
from memtui.session.tables.training import ProgressRow, RecordedProgress
from memtui.session.vma_row import VmaRow

if TYPE_CHECKING:
    from memtui.session.sample_arrays import SampleArrays

LAST_NS = 300_000_000_000
LEAST_BYTES, LEAST_SHARE = 1 << 20, 0.05  # of a growth that is told, and its share of the whole
MOST_RANGES = 3
NOTABLE_SHARE = 0.02  # of the time: without a window at the end
ANONYMOUS, SHARED = "anonymous memory", "shared anonymous memory"
_NAMES = {RSS: "resident memory", PSS: "resident memory (PSS)", SUM_OF_RSS: f"the sum of RSS ({SEVERAL_TIMES})"}


class TrainingSource(Protocol):
    """What is read of a session about its training: a part of ``ReportSource``."""

    def training(self, first_ns: int, last_ns: int) -> list[ProgressRow]: ...
    def training_progress(self, row: ProgressRow) -> RecordedProgress: ...


@dataclass(frozen=True, slots=True)
class GrownMemory:
    """Mappings of one name in one process, and by how many resident bytes they grew."""

    pid: int
    name: str
    grown_bytes: int


@dataclass(frozen=True, slots=True)
class GrownTensors:
    """Tensors of one category, and by how many bytes they grew from step to step."""

    pid: int
    category: str
    grown_bytes: int


@dataclass(frozen=True, slots=True)
class PostMortem:
    """Memory of the last minutes of a program that was killed, or that ended with a code other than 0.

    Attributes:
        over_s: time from the first of the two moments that are compared until the end of the program.
        first_bytes, last_bytes: resident bytes at the first and at the last moment at which they were read.
        grown: what grew most, by mapping, until the end of the last window. Of a process that began since the first
            moment, what others have, too, is left out.
        grown_until_s: time from then until the end of the program.
        tensors: what grew most, by category of tensor; empty where nothing was traced.
        resident: which resident bytes these are: ``RSS``, ``PSS`` or ``SUM_OF_RSS`` of ``analysis.resident``.
    """

    over_s: float
    first_bytes: int
    last_bytes: int
    grown: tuple[GrownMemory, ...]
    tensors: tuple[GrownTensors, ...]
    grown_until_s: float
    resident: str = RSS


def post_mortem(reader: ReportSource) -> PostMortem | None:
    """Return what grew before a bad end; None where the program runs or ended well, or nothing was read twice.

    Raises:
        SessionError: the session is damaged.
    """
    end, samples = reader.end, reader.samples
    if end is None or not end.is_bad or not len(samples):
        return None
    ends_ns = np.asarray(samples.end_ns[:])
    last_ns = int(ends_ns[-1])
    ended_ns = max(end.t_ns, last_ns)
    uses = reader.memory_use(0, ended_ns)
    later = [use for use in uses if use.t_ns >= last_ns and use.rss_bytes]  # 0: it is ending
    index = int(np.searchsorted(ends_ns, last_ns - LAST_NS))
    first, last = (reader.vma_rss(int(samples.sample[n])) for n in (index, -1))
    if not first or not last or (len(samples) == 1 and not later):
        return None
    before = _at_window(samples, index, sum(first.values()))
    after = _at_reading(later[-1], uses) if later else _at_window(samples, -1, sum(last.values()))
    resident, sizes = _of_one_kind(before, after)
    rows = reader.vma_rows()
    if resident != RSS:
        read = reader.process_samples(int(samples.sample[index]), int(samples.sample[-1]))
        private_bytes = {row["process"]: row["private_bytes"] for row in read if row["private_bytes"] is not None}
        last = _of_own(rows, first, last, private_bytes)
    return PostMortem(
        over_s=(ended_ns - int(ends_ns[index])) / 1e9,
        first_bytes=sizes[0],
        last_bytes=sizes[1],
        grown=grown_memory(rows, first, last),
        tensors=grown_tensors(reader, int(samples.start_ns[index]), last_ns),
        grown_until_s=(ended_ns - last_ns) / 1e9,
        resident=resident,
    )


class _Moment(NamedTuple):
    """The resident memory of all processes at one time; ``pss_bytes`` None: it is not known."""

    processes: int
    rss_bytes: int
    pss_bytes: int | None


def _at_window(samples: SampleArrays, index: int, rss_bytes: int) -> _Moment:
    processes, pss_bytes = samples.processes[index], float(samples.pss_bytes[index])
    if not processes > 1:  # or not known, in old sessions
        return _Moment(1, rss_bytes, rss_bytes)
    return _Moment(int(processes), rss_bytes, None if np.isnan(pss_bytes) else round(pss_bytes))


def _at_reading(use: MemoryUse, uses: Sequence[MemoryUse]) -> _Moment:
    if use.processes <= 1:
        return _Moment(use.processes, use.rss_bytes, use.rss_bytes)
    return _Moment(use.processes, use.rss_bytes, dict(pss_of_several(uses)).get(use.t_ns))


def _of_one_kind(before: _Moment, after: _Moment) -> tuple[str, tuple[int, int]]:
    """Return which resident bytes can be compared, and those of both moments."""
    if before.processes <= 1 and after.processes <= 1:
        return RSS, (before.rss_bytes, after.rss_bytes)
    if before.pss_bytes is None or after.pss_bytes is None:
        return SUM_OF_RSS, (before.rss_bytes, after.rss_bytes)
    return PSS, (before.pss_bytes, after.pss_bytes)


def _of_own(
    rows: Sequence[VmaRow], first: Mapping[int, int], last: Mapping[int, int], private_bytes: Mapping[int, int]
) -> dict[int, int]:
    """Return the resident bytes of rows; each row of a process that began since ``first`` at most its private bytes.

    A forked process begins with all that its parent has. ``private_bytes``: by process, as they were read last; of a
    process where they were not read, nothing counts.
    """
    were_there = {row.process for row in rows if first.get(row.id)}
    return {
        row.id: last.get(row.id, 0)
        if row.process in were_there
        else min(last.get(row.id, 0), private_bytes.get(row.process, 0))
        for row in rows
    }


def post_mortem_lines(growth: PostMortem | None) -> list[str]:
    """Return a line of the report on what grew; none where nothing did."""
    sentence = "" if growth is None else growth_sentence(growth)
    return [f"grew         {sentence}"] if sentence else []


def growth_sentence(growth: PostMortem) -> str:
    """Return what grew as a sentence; "" where nothing is worth telling."""
    whole_bytes = growth.last_bytes - growth.first_bytes
    if whole_bytes < max(LEAST_BYTES, LEAST_SHARE * growth.last_bytes):
        return ""
    grown = _fitting(growth.grown, whole_bytes) or growth.grown
    several = growth.resident != RSS or len({part.pid for part in growth.grown}) > 1
    parts = [f"{part.name}{f' of pid {part.pid}' * several} by {size(part.grown_bytes)}" for part in grown]
    parts += [f"tensors ({part.category}) by {size(part.grown_bytes)}" for part in growth.tensors]
    sentence = (
        f"in its last {duration(growth.over_s)} {_NAMES[growth.resident]} went from {size(growth.first_bytes)} to "
        f"{size(growth.last_bytes)}"
    )
    if not parts:
        return sentence
    until = f" (as read {duration(growth.grown_until_s)} before its end)"
    more = sum(part.grown_bytes for part in grown) > whole_bytes  # it shrank since
    is_notable = more or growth.grown_until_s > NOTABLE_SHARE * growth.over_s
    return f"{sentence}: {', '.join(parts)}{until * is_notable}"


def _fitting(grown: Sequence[GrownMemory], whole_bytes: int) -> list[GrownMemory]:
    """Return the largest parts that are together not more than the whole: what a child had that ended is not in it."""
    fitting: list[GrownMemory] = []
    for part in grown:
        if part.grown_bytes <= whole_bytes:
            fitting.append(part)
            whole_bytes -= part.grown_bytes
    return fitting


def last_line(path: Path) -> str:
    """Return how the program of a session ended, and what grew; "" where it ended well, or no window can be read."""
    return next(iter(ending_forms(path)), "")


def ending_forms(path: Path) -> Forms:
    """Return the same in several forms, the longest first; none where ``last_line`` is empty."""
    try:
        end = stored_end(path)
        if end is None or not end.is_bad:
            return ()
        with closing(Source(path)) as reader:
            growth, begun = post_mortem(reader), len(reader.samples)
    except SessionError:  # who opens it gets the reason
        return ()
    if not begun:
        return ()
    how = printable(end.description)
    sentence = "" if growth is None else printable(growth_sentence(growth))
    return tuple(dict.fromkeys((f"{how}; {sentence}" if sentence else how, how, how.partition(":")[0])))


def grown_memory(rows: list[VmaRow], first: Mapping[int, int], last: Mapping[int, int]) -> tuple[GrownMemory, ...]:
    """Return the mappings that grew most between two moments, by their resident bytes at each."""
    by_name: dict[tuple[int, str], int] = defaultdict(int)
    for row in rows:
        by_name[row.pid, _name(row)] += last.get(row.id, 0) - first.get(row.id, 0)
    least = max(LEAST_BYTES, LEAST_SHARE * (sum(last.values()) - sum(first.values())))
    most = sorted(((grown, *key) for key, grown in by_name.items() if grown >= least), reverse=True)[:MOST_RANGES]
    return tuple(GrownMemory(pid, name, grown) for grown, pid, name in most)


def _name(row: VmaRow) -> str:
    # The kernel maps /dev/zero where a program asks for shared memory without a file (mmap(2), MAP_ANONYMOUS).
    return SHARED if row.name.startswith("/dev/zero") else row.file_name or row.name or ANONYMOUS


def grown_tensors(reader: TrainingSource, first_ns: int, last_ns: int) -> tuple[GrownTensors, ...]:
    """Compare the fullest moments of the first and the last stretch of steps of each process."""
    grown = []
    rows = reader.training(first_ns, last_ns)
    for pid in sorted({row.pid for row in rows}):
        seen = [row for row in rows if row.pid == pid and row.peak_bytes]
        if len(seen) < 2:
            continue
        before, after = (reader.training_progress(row).usage.usage_bytes.max(axis=0) for row in (seen[0], seen[-1]))
        grown += [
            GrownTensors(pid, category, int(by))
            for category, by in zip(CATEGORIES, after - before, strict=True)
            if by >= LEAST_BYTES
        ]
    return tuple(sorted(grown, key=lambda part: -part.grown_bytes)[:MOST_RANGES])
