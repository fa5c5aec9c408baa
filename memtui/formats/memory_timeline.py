"""The memory timeline of PyTorch's profiler (``export_memory_timeline``), as sums and as raw events.

``.json`` is ``[times in us, [[0, 8 sums by category], ...]]``, ``.raw.json.gz`` a list of
``[ns, action, bytes, category]``; the categories are those of ``torch/profiler/_memory_profiler.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.formats.allocation_ledger import Ledger
from memtui.formats.certainty import share_of
from memtui.formats.imported import Imported, NotImportable, Part
from memtui.session.tables.imported import SINCE_BOOT, WALL, ImportedFrom

SUMS, RAW = "memory timeline", "raw memory timeline"
_KINDS = (
    *("weights", "optimiser state", "inputs", "temporaries", "activations", "gradients"),
    *("temporaries", "unknown"),  # details of autograd; not known to the profiler
)
_OF_TORCH = tuple(CATEGORIES.index(kind) for kind in _KINDS)
_PREEXISTING, _CREATE, _VERSION, _DESTROY = 1, 2, 3, 4
_MOST = 1 << 61
_WALL_NS = 10**18  # since 1970: in 2001; no machine has an uptime of 31 years
_ABSENT = (
    "operators, layers and phases: the timeline has none",
    "the device: the file does not say whose memory it is",
)
_ABSENT_SUMS = "blocks: the file has sums by kind, so a row is what a sum rose or fell by"
_ABSENT_RAW = "addresses: which block is freed is known by its kind and size"


def certainty(document: Any) -> float:
    """Return 1 for a memory timeline as sums; for a raw one the share of rows that are like its; else 0."""
    return max(_certainty_of_raw(document), float(_is_sums(document)))


def _is_sums(document: Any) -> bool:
    return (
        isinstance(document, list)
        and len(document) == 2
        and all(isinstance(column, list) for column in document)
        and (not document[1] or isinstance(document[1][0], list))
    )


def _certainty_of_raw(document: Any) -> float:
    return share_of(document, _is_row) if isinstance(document, list) else 0.0


def _is_row(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 4 and all(type(value) is int for value in row)


def parse(document: Any) -> Imported:
    """Return the content of a timeline. Raises NotImportable."""
    return _parse_sums(document) if _is_sums(document) else _parse_raw(document)


def _table(rows: Any, columns: int) -> NDArray[np.int64]:
    """Return i8[n, columns]."""
    try:
        table = np.array(rows)
    except (ValueError, OverflowError):
        raise NotImportable("its rows differ in length, or hold numbers out of range") from None
    if not len(rows):
        raise NotImportable("its timeline is empty")
    if table.ndim != 2 or table.shape[1] != columns or table.dtype.kind != "i":
        raise NotImportable(f"its rows are not {columns} whole numbers")
    return table.astype(np.int64)


def _parse_sums(document: Any) -> Imported:
    times = _table([[t] for t in document[0]], 1)[:, 0]
    sums = _table(document[1], len(_OF_TORCH) + 1)[:, 1:]
    if len(times) != len(sums):
        raise NotImportable(f"has {len(times)} times and {len(sums)} rows of sums")
    if (np.diff(times) < 0).any() or times[0] < 0 or times[-1] >= _MOST // 1000:
        raise NotImportable("its times are not in order")
    if (sums < 0).any():
        raise NotImportable("a sum is below zero")
    in_use = np.zeros((len(sums), len(CATEGORIES)), np.int64)
    for column, category in enumerate(_OF_TORCH):
        in_use[:, category] += sums[:, column]
    ledger, t_ns = Ledger(dict(enumerate(in_use[0].tolist()))), (times * 1000).tolist()
    for index, (before, after) in enumerate(pairwise(in_use), 1):
        changes = after - before
        for category in np.flatnonzero(changes < 0).tolist():
            ledger.free(t_ns[index], -int(changes[category]), category=category)
        for category in np.flatnonzero(changes > 0).tolist():
            ledger.allocate(t_ns[index], int(changes[category]), "", category=category)
    return _imported(SUMS, ledger, t_ns[0], t_ns[-1], _ABSENT_SUMS)


def _parse_raw(document: Any) -> Imported:
    table = _table(document, 4)
    timed = table[table[:, 1] != _PREEXISTING]
    times = timed[:, 0]
    if len(times) and (times.min() < 0 or times.max() >= _MOST):
        raise NotImportable("a time is out of range")
    if ((table[:, 1] < _PREEXISTING) | (table[:, 1] > _DESTROY)).any():
        raise NotImportable("an action of its timeline is not a number of an action")
    if ((table[:, 3] < 0) | (table[:, 3] >= len(_OF_TORCH))).any():
        raise NotImportable("a category of its timeline is not a number of a category")
    before: dict[int, int] = {}
    for _, _, size, category in table[table[:, 1] == _PREEXISTING].tolist():
        before[_OF_TORCH[category]] = before.get(_OF_TORCH[category], 0) + _size(size)
    ledger = Ledger(before)
    rows = timed[np.argsort(times, kind="stable")].tolist()
    _replay(ledger, rows)
    first, last = (rows[0][0], rows[-1][0]) if rows else (0, 0)
    return _imported(RAW, ledger, first, last, _ABSENT_RAW)


def _replay(ledger: Ledger, rows: Sequence[list[int]]) -> None:
    """Enter rows of (time, action, size, category), in the order of time. Raises NotImportable."""
    index = 0
    while index < len(rows):
        t_ns, action, size, category = rows[index]
        kind = _OF_TORCH[category]
        index += 1
        if action == _CREATE:
            ledger.allocate(t_ns, _size(size), "", category=kind)
        elif action == _DESTROY and size:
            ledger.free(t_ns, _size(-size), category=kind)
        elif action == _VERSION:
            # Written in place: the old version goes, the new one, perhaps of another kind, comes.
            later = rows[index] if index < len(rows) else None
            if later is None or later[:3] != [t_ns, _VERSION, -size]:
                raise NotImportable("half of a change of version is missing")
            index += 1
            if _OF_TORCH[later[3]] != kind and size:
                ledger.free(t_ns, _size(-size), category=kind)
                ledger.allocate(t_ns, -size, "", category=_OF_TORCH[later[3]])


def _size(value: int) -> int:
    if value < 0:
        raise NotImportable("a size is below zero")
    return value


def _imported(form: str, ledger: Ledger, first_ns: int, last_ns: int, absent: str) -> Imported:
    clock = WALL if first_ns > _WALL_NS else SINCE_BOOT
    about = ImportedFrom(form, clock=clock, absent=(*_ABSENT, absent))
    return Imported((Part(ledger.trace(first_ns, last_ns)),), about)
