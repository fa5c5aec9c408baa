"""The virtual memory areas of a process, from /proc/PID/maps."""

from __future__ import annotations

from pathlib import Path

from memtui.samples import Vma

PROC = Path("/proc")


def read_maps(pid: int, proc: Path = PROC) -> bytes:
    """The raw table, as fast as the kernel gives it (the target may be paused meanwhile).

    Raises ProcessLookupError when the process ended and PermissionError when it may not be read.
    """
    try:
        with open(proc / str(pid) / "maps", "rb", buffering=0) as file:
            return file.readall() or b""
    except FileNotFoundError as error:
        raise ProcessLookupError(f"process {pid} ended") from error


def parse_maps(text: bytes) -> tuple[Vma, ...]:
    """Parse a maps table. ``[vsyscall]`` is left out: it is the kernel's page, the same in every process."""
    vmas = []
    for line in text.split(b"\n"):  # a name may hold a carriage return; the kernel escapes only line ends
        fields = line.split(None, 5)
        if not fields:
            continue
        name = fields[5].decode(errors="backslashreplace") if len(fields) > 5 else ""
        if name == "[vsyscall]":
            continue
        start, _, end = fields[0].partition(b"-")
        vmas.append(Vma(int(start, 16), int(end, 16), fields[1].decode(), name))
    return tuple(vmas)
