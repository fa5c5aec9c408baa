"""How far a program is that nobody here wrote: counters that rise as it goes on.

CPU time is none of them: a program that waits, or whose caches were emptied, uses as much for less. Nor are system
calls: one that is interrupted by a pause is counted twice. What is counted must be written because a step was made, and
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
from memtui.core.small_file import open_plain

KINDS = ("auto", "steps", "lines", "file", "marks", "rchar", "wchar")
HOW = (
    "say what counts its steps: --counter steps=FILE (a log with numbers after step or iter), lines=FILE (a line a "
    "step), file=FILE (the last number in it), marks (it calls memtui.mark), rchar or wchar (bytes it reads or writes)"
)
_READ_BYTES = 1 << 20  # at once
_TAIL_BYTES = 1 << 16  # of what a log holds already
_CARRY_BYTES = 256  # of a line that has not come whole
# "step 120", "iter: 1200", "global_step=5", "Epoch: [0][ 20/5005]", and tqdm's "450/1000 ["
_STEP = re.compile(
    rb"(?i)(?:\b|_)(?:steps?|iter(?:ation)?s?|batch(?:es)?|updates?)\b[\s:=#\[(\"']{1,4}(\d{1,15})\b"
    rb"|\]\[\s*(\d{1,15})/\d+\]|\b(\d{1,15})/\d+ \["
)
_NUMBER = re.compile(rb"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


class Counter:
    """A number that rises. ``times_s`` and ``values`` have every change that was seen (``time.monotonic``)."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.times_s: list[float] = []
        self.values: list[float] = []

    def poll(self) -> None:
        """Look once. What cannot be read says nothing."""
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
    """What is appended to a file."""

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
            with open_plain(self._path) as file:
                file.seek(self._offset)
                chunk = file.read(_READ_BYTES)
            self._offset += len(chunk)
            self.take(chunk)
        return self.total

    def take(self, chunk: bytes) -> None:
        raise NotImplementedError


class Lines(_Appended):
    """The lines of a file."""

    def take(self, chunk: bytes) -> None:
        self.total += chunk.count(b"\n")


class Steps(_Appended):
    """The numbers of steps in a log. One that is smaller than the one before begins anew, as in another epoch."""

    _last: float | None = None

    def take(self, chunk: bytes) -> None:
        text = self._carry + chunk
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1  # a number may not have come whole
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
        found = _NUMBER.findall(_tail(self._path, 4096))
        return float(found[-1]) if found else None


class Bytes(Counter):
    """``rchar`` or ``wchar`` of a process: bytes that went through read and write, whatever they were read from."""

    def __init__(self, what: str, pid: int, field: str) -> None:
        super().__init__(what)
        self._path, self._field = f"/proc/{pid}/io", f"{field}: ".encode()

    def read(self) -> float | None:
        with Path(self._path).open("rb") as file:
            text = file.read()
        return float(text.partition(self._field)[2].partition(b"\n")[0])


class Marks(Counter):
    """Calls of ``memtui.mark``. They come with the session, and with their own times: ``note`` is told of them."""

    def read(self) -> float | None:
        return None

    def note(self, times_ns: list[int]) -> None:
        self.times_s = [t_ns / 1e9 for t_ns in times_ns]
        self.values = list(range(1, len(times_ns) + 1))


def steps_in(text: bytes) -> list[float]:
    """Return the numbers of steps in a piece of a log."""
    return [float(next(group for group in found.groups() if group)) for found in _STEP.finditer(text)]


def parse_counter(text: str) -> tuple[str, str]:
    """Return (kind, path or nothing) of ``--counter``. Raises ValueError."""
    kind, equals, path = text.partition("=")
    if kind not in KINDS or (equals and (kind not in ("steps", "lines", "file") or not path)):
        raise ValueError(f"{text!r} is no counter: {HOW}")
    if kind == "file" and not path:
        raise ValueError(f"{text!r}: which file? {HOW}")
    return kind, path


def open_counter(kind: str, path: str, pid: int) -> Counter:
    """Return the counter that was asked for. Raises UserError with what is wrong with it."""
    if kind == "marks":
        return Marks("calls of memtui.mark")
    if kind in ("rchar", "wchar"):
        made = Bytes(f"bytes {'read' if kind == 'rchar' else 'written'} (/proc/{pid}/io)", pid, kind)
        try:
            made.read()
        except OSError as error:
            raise refused(f"/proc/{pid}/io", error, READ, remedy=HOW) from None
        return made
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
    """Return the files that a process prints to: paths that open them, and what they are called. Raises UserError."""
    names: list[str] = []
    found: dict[str, str] = {}
    for fd in (1, 2):
        path = f"/proc/{pid}/fd/{fd}"
        try:
            names.append(str(Path(path).readlink()))
            if stat.S_ISREG(Path(path).stat().st_mode):
                found.setdefault(names[-1], path)
        except OSError:
            continue
    if not found:
        where = f"its output goes to {names[0]}" if names else "where its output goes cannot be seen"
        raise UserError(f"process {pid}: {where}, where no steps can be counted; {HOW}")
    return [(path, name) for name, path in found.items()]


def _tail(path: str, size: int) -> bytes:
    with open_plain(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return file.read(size)


def _size(path: str) -> int:
    return Path(path).stat().st_size
