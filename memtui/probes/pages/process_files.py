"""The open files of /proc through which a tracker reads and clears the accessed bits of one process."""

from __future__ import annotations

import os
from dataclasses import dataclass

from memtui.probes.pages.tracker import identity
from memtui.probes.proc_maps import read_maps

_FEW_MAPPINGS = 2048  # their count is not read again: as many more cost some ms


@dataclass(frozen=True, slots=True)
class ProcessFiles:
    """The open files of one process.

    Attributes:
        source: ``pagemap`` or ``smaps``; it belongs to one address space and is empty after an exec.
        clear_refs: takes the commands to clear and to flush.
        identity: of the address space (``tracker.identity``).
    """

    source: int
    clear_refs: int
    identity: tuple[bytes, ...]

    @classmethod
    def open(cls, pid: int, source: str) -> ProcessFiles:
        """Open them; ``source`` is the name of that file. Raises ProcessLookupError and PermissionError."""
        try:
            source_fd = os.open(f"/proc/{pid}/{source}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                clear_refs = os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
            except BaseException:
                os.close(source_fd)
                raise
        except FileNotFoundError:
            raise ProcessLookupError(f"process {pid} ended") from None
        try:
            return cls(source_fd, clear_refs, identity(pid))
        except BaseException:
            os.close(source_fd)
            os.close(clear_refs)
            raise

    def close(self) -> None:
        """Close them, once."""
        os.close(self.source)
        os.close(self.clear_refs)


def count_mappings(pid: int, last: int | None) -> int:
    """Return how many mappings a process had in its last window, or has now if these were many or are not known.

    Raises ProcessLookupError, PermissionError and TooManyMappings.
    """
    return last if last is not None and last <= _FEW_MAPPINGS else read_maps(pid).count(b"\n")
