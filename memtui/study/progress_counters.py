"""The progress of any program: counters that rise as it goes on.

CPU time is not such a counter: a program that waits, or whose caches were emptied, uses as much for less. Nor are
system calls: a call that is interrupted by a pause is counted twice. A counter must rise because a step was made, and
not because a second has passed.
"""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.os_errors import READ, refused
from memtui.core.small_file import open_regular

KINDS = ("auto", "steps", "lines", "file", "marks", "rchar", "wchar")
HOW = (
    "say what counts its steps: --counter steps=FILE (a log with numbers after step or iter), lines=FILE (a line a "
    "step), file=FILE (the last number in it), marks (it calls memtui.mark), rchar or wchar (bytes it reads or writes)"
)
_READ_BYTES = 1 << 20  # at once
_TAIL_BYTES = 1 << 16  # of the present content of a log
_CARRY_BYTES = 256  # of an incomplete line
# "step 120", "iter: 1200", "global_step=5", "Epoch: [0][ 20/5005]", and tqdm's "450/1000 ["
_STEP = re.compile(
    rb"(?i)(?:\b|_)(?:steps?|iter(?:ation)?s?|batch(?:es)?|updates?)\b[\s:=#\[(\"']{1,4}(\d{1,15})\b"
    rb"|\]\[\s*(\d{1,15})/\d+\]|\b(\d{1,15})/\d+ \["
)
_NUMBER = re.compile(rb"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


class Counter:
    """A number that rises. ``times_s`` (``time.monotonic``) and ``values`` have every change that was seen."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.times_s: list[float] = []
        self.values: list[float] = []

    def poll(self) -> None:
        """Read the number once. A failed read changes nothing."""
        try:
            value = self.read()
        except (OSError, UserError):
            return
        if value is not None and (not self.values or value != self.values[-1]):
            self.times_s.append(time.monotonic())
            self.values.append(value)

    def read(self) -> float | None:
        """Return the number now; None while there is none. Raises OSError."""
        raise NotImplementedError


class _Appended(Counter):
    """A counter of text that is appended to a file."""

    def __init__(self, what: str, path: str) -> None:
        super().__init__(what)
        self._path, self._carry = path, b""
        self._offset = _size(path)
        self.total = 0.0

    def read(self) -> float | None:
        size = _size(self._path)
        if size < self._offset:
            self._offset, self._carry = 0, b""  # written anew
        if size > self._offset:
            with open_regular(self._path) as file:
                file.seek(self._offset)
                chunk = file.read(_READ_BYTES)
            self._offset += len(chunk)
            self.add(chunk)
        return self.total

    def add(self, chunk: bytes) -> None:
        raise NotImplementedError


class Lines(_Appended):
    """The lines of a file."""

    def add(self, chunk: bytes) -> None:
        self.total += chunk.count(b"\n")


class Steps(_Appended):
    """The numbers of steps in a log. A smaller number than the one before starts again, as in another epoch."""

    _last: float | None = None

    def add(self, chunk: bytes) -> None:
        text = self._carry + chunk
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1  # the last number may be incomplete
        self._carry = text[end:][-_CARRY_BYTES:]
        for value in steps_in(text[:end]):
            if self._last is not None:
                self.total += value - self._last if value >= self._last else value
            self._last = value


class LastNumber(Counter):
    """The last number in a file, which may be written anew each time."""

    def __init__(self, what: str, path: str) -> None:
        super().__init__(what)
        self._path = path

    def read(self) -> float | None:
        numbers = _NUMBER.findall(_tail(self._path, 4096))
        return float(numbers[-1]) if numbers else None


class Bytes(Counter):
    """``rchar`` or ``wchar`` of a process: bytes that went through read and write, whatever they were read from."""

    def __init__(self, what: str, pid: int, field: str) -> None:
        super().__init__(what)
        self._path, self._field = f"/proc/{pid}/io", f"{field}: ".encode()

    def read(self) -> float | None:
        with Path(self._path).open("rb") as file:
            text = file.read()
        return float(text.partition(self._field)[2].partition(b"\n")[0])


class Annotations(Counter):
    """Calls of ``memtui.mark``. The session has them, with their own times: see ``set_times``."""

    def read(self) -> float | None:
        return None

    def set_times(self, times_ns: list[int]) -> None:
        self.times_s = [t_ns / 1e9 for t_ns in times_ns]
        self.values = list(range(1, len(times_ns) + 1))


def steps_in(text: bytes) -> list[float]:
    """Return the numbers of steps in a piece of a log."""
    return [float(next(group for group in match.groups() if group)) for match in _STEP.finditer(text)]


def parse_counter(text: str) -> tuple[str, str]:
    """Return (kind, path or nothing) of ``--counter``. Raises ValueError."""
    kind, equals, path = text.partition("=")
    if kind not in KINDS or (equals and (kind not in ("steps", "lines", "file") or not path)):
        raise ValueError(f"{text!r} is not a counter: {HOW}")
    if kind == "file" and not path:
        raise ValueError(f"{text!r}: which file? {HOW}")
    return kind, path


def open_counter(kind: str, path: str, pid: int) -> Counter:
    """Return the counter of this kind. Raises UserError where it cannot be read or has no numbers."""
    if kind == "marks":
        return Annotations("calls of memtui.mark")
    if kind in ("rchar", "wchar"):
        counter = Bytes(f"bytes {'read' if kind == 'rchar' else 'written'} (/proc/{pid}/io)", pid, kind)
        try:
            counter.read()
        except OSError as error:
            raise refused(f"/proc/{pid}/io", error, READ, remedy=HOW) from None
        return counter
    wants_steps = kind in ("auto", "steps")
    candidates = [(path, path)] if path else _outputs_of(pid)
    for path, shown in candidates:
        try:
            if not stat.S_ISREG(Path(path).stat().st_mode):
                raise UserError(f"{shown}: is not a file; {HOW}")
            tail = _tail(path, _TAIL_BYTES)
        except OSError as error:
            raise refused(shown, error, READ, remedy=HOW) from None
        if not wants_steps or steps_in(tail):
            break
    else:
        names = ", ".join(shown for _, shown in candidates)
        raise UserError(f"{names}: no numbers of steps (such as: step 120) until now; {HOW}")
    if kind == "lines":
        return Lines(f"lines of {shown}", path)
    if kind == "file":
        return LastNumber(f"the last number in {shown}", path)
    return Steps(f"steps in {shown}", path)


def _outputs_of(pid: int) -> list[tuple[str, str]]:
    """Return (path that opens it, name) of the files that a process prints to. Raises UserError."""
    names: list[str] = []
    outputs: dict[str, str] = {}
    for fd in (1, 2):
        path = f"/proc/{pid}/fd/{fd}"
        try:
            names.append(str(Path(path).readlink()))
            if stat.S_ISREG(Path(path).stat().st_mode):
                outputs.setdefault(names[-1], path)
        except OSError:
            continue
    if not outputs:
        where = f"its output goes to {names[0]}" if names else "where its output goes cannot be seen"
        raise UserError(f"process {pid}: {where}, where no steps can be counted; {HOW}")
    return [(path, name) for name, path in outputs.items()]


def _tail(path: str, size: int) -> bytes:
    with open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return file.read(size)


def _size(path: str) -> int:
    return Path(path).stat().st_size
