"""The virtual memory areas of a process, from /proc/PID/maps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from memtui.core.samples import Vma

PROC = Path("/proc")
MOST_MAPPINGS = 65_536  # of a process that are read; no process has more unless vm.max_map_count was raised
MANY = f"it has more than {MOST_MAPPINGS:,} mappings: its pages are not looked at"
_READ_BYTES = 1 << 14  # the kernel gives a page at once


class TooManyMappings(Exception):
    """The process has so many mappings that reading and storing them would take long and much memory."""

    def __init__(self) -> None:
        super().__init__(MANY)


def read_maps(pid: int, proc: Path = PROC, *, check: Callable[[], None] = lambda: None) -> bytes:
    """Return the raw table, as fast as possible: the target may be paused meanwhile.

    ``check`` is called after every part, and may raise an error.

    Raises ProcessLookupError when the process ended, PermissionError when it may not be read, and TooManyMappings.
    """
    parts: list[bytes] = []
    lines = 0
    try:
        with open(proc / str(pid) / "maps", "rb", buffering=0) as file:  # noqa: PTH123 (Path.open takes 9 us more)
            while part := file.read(_READ_BYTES):
                parts.append(part)
                lines += part.count(b"\n")
                if lines > MOST_MAPPINGS:
                    raise TooManyMappings
                check()
        return b"".join(parts)
    except FileNotFoundError as error:
        raise ProcessLookupError(f"process {pid} ended") from error


def parse_maps(text: bytes) -> tuple[Vma, ...]:
    """Parse a maps table. ``[vsyscall]`` is left out: it is the kernel's page, the same in every process."""
    return MapsParser().parse(text)


class MapsParser:
    """Parses the tables of one process; most lines of a table are those of the table before."""

    def __init__(self) -> None:
        self._parsed: dict[bytes, Vma | None] = {}

    def parse(self, text: bytes) -> tuple[Vma, ...]:
        """Parse as ``parse_maps``; a line of the table before gives the same object."""
        before = self._parsed
        lines = text.split(b"\n")  # a name may hold a carriage return; the kernel escapes only line ends
        self._parsed = {line: before[line] if line in before else _parse_line(line) for line in lines}
        return tuple(vma for vma in self._parsed.values() if vma is not None)


def _parse_line(line: bytes) -> Vma | None:
    fields = line.split(None, 5)
    if not fields:
        return None
    name = fields[5].decode(errors="backslashreplace") if len(fields) > 5 else ""
    if name == "[vsyscall]":
        return None
    start, _, end = fields[0].partition(b"-")
    return Vma(int(start, 16), int(end, 16), fields[1].decode(), name)
