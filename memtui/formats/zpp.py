"""The text of ZPP-MEM (its plots/*_meta.txt), read and written: ``%d %d %d %s``, a line for each allocation and free.

The columns are microseconds since 1970, bytes in use, change in bytes, and the operation. Paths of operations begin
with the phase of the training step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memtui.analysis.allocation_trace import PHASES, StepTrace
from memtui.core.text import storable
from memtui.formats.allocation_ledger import BETWEEN, UNKNOWN, Ledger
from memtui.formats.imported import Imported, NotImportable, Part, Warnings
from memtui.formats.infer_categories import with_kinds
from memtui.session.records.imported import WALL, ImportedFrom

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
    """Return the whole text; commas in place of blanks and carriage returns are taken, too. Raises NotImportable."""
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


SCOPES = {"forward": "forward/", "backward": "gradients/", "optimiser": "optimizer/"}


_BLANK = re.compile(r"[ \t\r\n\v\f]")


def zpp_lines(trace: StepTrace, since_epoch_ns: int = 0) -> Iterator[str]:
    r"""``%d %d %d %s\n``: microseconds since 1970, bytes in use afterwards, change in bytes, path of the operation.

    What was there before has no line of its own: it is in the second number of all of them.

    Args:
        trace: a recorded step; rows of no bytes are lines like others.
        since_epoch_ns: what makes its times those of the wall clock.
    """
    paths: dict[tuple[int, int, int], str] = {}
    columns = (trace.t_ns + since_epoch_ns) // 1000, trace.usage_bytes, trace.delta_bytes
    keys = zip(trace.phase.tolist(), trace.layer.tolist(), trace.op.tolist(), strict=True)
    for row, (t_us, usage, delta, key) in enumerate(zip(*(c.tolist() for c in columns), keys, strict=True)):
        if row < trace.existing:
            continue
        if key not in paths:
            paths[key] = _path(trace, *key)
        yield f"{t_us} {usage} {delta} {paths[key]}\n"


def _path(trace: StepTrace, phase: int, layer: int, op: int) -> str:
    """``forward/features.0/aten::conv2d``; a name that has its scope keeps it. One word: blanks become ``_``."""
    path = "/".join(filter(None, (trace.name(layer), trace.name(op)))) or "unknown"
    scope = SCOPES.get(PHASES[phase], "")
    return _BLANK.sub("_", path if path.startswith(scope) else scope + path)
