"""The text of ZPP-MEM (its plots/*_meta.txt), read and written: ``%d %d %d %s``, a line for each allocation and free.

The columns are microseconds since 1970, bytes in use, change in bytes, and the operation. Paths of operations begin
with the phase of the training step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memtui.analysis.allocation_trace import PHASES, StepTrace
from memtui.core.text import utf8_safe
from memtui.formats.allocation_ledger import BETWEEN, UNKNOWN, Ledger
from memtui.formats.certainty import lines_of, share_of
from memtui.formats.imported import Imported, NotImportable, Part, Warnings
from memtui.formats.infer_categories import with_kinds
from memtui.session.tables.imported import WALL, ImportedFrom

FORMAT = "ZPP-MEM text"
MOST_US = (1 << 62) // 1000
_LINE = re.compile(rb"\s*(\d{1,18})[ ,]\s*(-?\d{1,18})[ ,]\s*(-?\d{1,18})[ ,]\s*(.*)")
_LEAST_SHARE = 0.5  # every line is to have them
_ABSENT = (
    "addresses: the text has none; which block is freed is known by its operation and size",
    "kinds: found by the scope of the operation and what became of the block",
)


def certainty(data: bytes) -> float:
    """Return the share of the first lines that have the four columns; 0 for less than a half."""
    share = share_of(lines_of(data), _LINE.fullmatch)
    return share if share >= _LEAST_SHARE else 0.0


def parse(data: bytes) -> Imported:
    """Return the content of a text; commas for blanks and carriage returns are accepted. Raises NotImportable."""
    text = _Text()
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is not None:
            text.add(number, match)
        elif line.strip():
            cut = " (the file was cut off there)" if number == len(lines) else ""
            raise NotImportable(f"line {number} is not four words: time, usage, change, operation{cut}")
    return text.imported()


class _Text:
    """Collects the allocations of a text line by line."""

    def __init__(self) -> None:
        self._ledger, self._warnings = Ledger(), Warnings()
        self._first_ns: int | None = None
        self._last_us = self._usage_bytes = 0
        self._operations: dict[bytes, tuple[str, int]] = {}  # and their phases, by the bytes of the line

    def add(self, number: int, match: re.Match[bytes]) -> None:
        """Enter a line. Raises NotImportable, with its number."""
        t_us, usage_bytes, change_bytes = int(match[1]), int(match[2]), int(match[3])
        if self._first_ns is None:
            self._start(number, t_us, usage_bytes - change_bytes)
        if not self._last_us <= t_us < MOST_US:
            why = "is not a time" if t_us >= MOST_US else f"is earlier than line {number - 1}"
            raise NotImportable(f"line {number} {why}: lines are in the order of time")
        self._last_us = t_us
        self._usage_bytes += change_bytes
        if usage_bytes != self._usage_bytes:
            self._warnings.add(
                f"line {number} says {usage_bytes} bytes are in use; the changes so far come to {self._usage_bytes}"
            )
        op, phase = self._operation(match[4].strip())
        try:
            if change_bytes < 0:
                self._ledger.free(t_us * 1000, -change_bytes, op, key=op, phase=phase)
            else:
                self._ledger.allocate(t_us * 1000, change_bytes, op, key=op, phase=phase)
        except NotImportable as error:
            raise NotImportable(f"line {number} {error}") from None

    def imported(self) -> Imported:
        """Return the content of the lines. Raises NotImportable where there was no line."""
        if self._first_ns is None:
            raise NotImportable("has no line")
        trace = with_kinds(self._ledger.trace(self._first_ns, self._last_us * 1000))
        warnings = self._warnings.lines()
        return Imported(
            (Part(trace),), ImportedFrom(FORMAT, clock=WALL, absent=_absent(self._ledger), warnings=warnings)
        )

    def _start(self, number: int, t_us: int, before_bytes: int) -> None:
        """Enter the bytes in use before the first line."""
        if before_bytes < 0:
            raise NotImportable(f"line {number} allocates more than it says is in use")
        self._ledger = Ledger({UNKNOWN: before_bytes})
        self._usage_bytes, self._first_ns = before_bytes, t_us * 1000

    def _operation(self, raw: bytes) -> tuple[str, int]:
        """Return the operation of a line, and its phase."""
        if raw not in self._operations:
            op = utf8_safe(raw.decode("utf-8", "surrogateescape"))
            self._operations[raw] = op, _phase(op)
        return self._operations[raw]


def _phase(op: str) -> int:
    return next((PHASES.index(phase) for phase, scope in SCOPES.items() if op.startswith(scope)), BETWEEN)


def _absent(ledger: Ledger) -> tuple[str, ...]:
    if not ledger.split:
        return _ABSENT
    return (*_ABSENT, f"{ledger.split} frees fit no block: they are shown as parts of the newest ones")


SCOPES = {"forward": "forward/", "backward": "gradients/", "optimiser": "optimizer/"}


_BLANK = re.compile(r"[ \t\r\n\v\f]")


def zpp_lines(trace: StepTrace, since_epoch_ns: int = 0) -> Iterator[str]:
    r"""Yield ``%d %d %d %s\n``: microseconds since 1970, bytes in use then, change in bytes, path of the operation.

    Blocks that existed before have no line of their own: they are in the second number of all lines.

    Args:
        trace: a recorded step; rows of no bytes are lines like others.
        since_epoch_ns: offset from the trace's times to the wall clock.
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
    """Return ``forward/features.0/aten::conv2d``; a name with its scope stays as it is. Blanks become ``_``."""
    path = "/".join(filter(None, (trace.name(layer), trace.name(op)))) or "unknown"
    scope = SCOPES.get(PHASES[phase], "")
    return _BLANK.sub("_", path if path.startswith(scope) else scope + path)
