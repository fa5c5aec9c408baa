r"""The raw text of ZPP-MEM, ``%d %d %d %s\n``: microseconds since 1970, bytes in use, change in bytes, operation."""

from __future__ import annotations

import re

from memtui.analysis.step_trace import PHASES
from memtui.analysis.zpp_scopes import SCOPES
from memtui.foreign import storable
from memtui.importing.ledger import BETWEEN, UNKNOWN, Ledger
from memtui.importing.outcome import with_kinds
from memtui.importing.result import Imported, NotImportable, Part, Warnings
from memtui.session.imported import WALL, ImportedFrom

FORMAT = "ZPP-MEM text"
MOST_US = (1 << 62) // 1000
_LINE = re.compile(rb"\s*(\d{1,18})[ ,]\s*(-?\d{1,18})[ ,]\s*(-?\d{1,18})[ ,]\s*(.*?)\s*")
_ABSENT = (
    "addresses: the text has none; which block is freed is known by its operation and size",
    "kinds: found by the scope of the operation and what became of the block",
)


def recognises(data: bytes) -> bool:
    """Whether the first line that is not empty is of that form."""
    return _LINE.fullmatch(data[: 1 << 16].lstrip().partition(b"\n")[0]) is not None


def parse(data: bytes) -> Imported:
    """The whole text; commas in place of blanks and carriage returns are taken, too. Raises NotImportable."""
    ledger, wrong = Ledger(), Warnings()
    usage = last_us = number = 0
    first_ns: int | None = None
    known: dict[bytes, tuple[str, int]] = {}  # operations and their phases
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        found = _LINE.fullmatch(line)
        if found is None:
            if not line.strip():
                continue
            cut = " (the file was cut off there)" if number == len(lines) else ""
            raise NotImportable(f"line {number} is not four words: time, usage, change, operation{cut}")
        t_us, said, change = int(found[1]), int(found[2]), int(found[3])
        if first_ns is None:
            usage = said - change
            if usage < 0:
                raise NotImportable(f"line {number} allocates more than it says is in use")
            ledger = Ledger({UNKNOWN: usage})
            first_ns = t_us * 1000
        if not last_us <= t_us < MOST_US:
            why = "is no time" if t_us >= MOST_US else f"is earlier than line {number - 1}"
            raise NotImportable(f"line {number} {why}: lines are in the order of time")
        last_us, usage = t_us, usage + change
        if said != usage:
            wrong.say(f"line {number} says {said} bytes are in use; the changes so far come to {usage}")
        if found[4] not in known:
            op = storable(found[4].decode("utf-8", "surrogateescape"))
            known[found[4]] = op, _phase(op)
        op, phase = known[found[4]]
        try:
            if change < 0:
                ledger.free(t_us * 1000, -change, op, key=op, phase=phase)
            else:
                ledger.allocate(t_us * 1000, change, op, key=op, phase=phase)
        except NotImportable as error:
            raise NotImportable(f"line {number} {error}") from None
    if first_ns is None:
        raise NotImportable("has no line")
    trace = with_kinds(ledger.trace(first_ns, last_us * 1000))
    about = ImportedFrom(FORMAT, clock=WALL, absent=_absent(ledger), warnings=wrong.lines())
    return Imported((Part(trace),), about)


def _phase(op: str) -> int:
    return next((PHASES.index(phase) for phase, scope in SCOPES.items() if op.startswith(scope)), BETWEEN)


def _absent(ledger: Ledger) -> tuple[str, ...]:
    if not ledger.split:
        return _ABSENT
    return (*_ABSENT, f"{ledger.split} frees fit no block: they are shown as parts of the newest ones")
