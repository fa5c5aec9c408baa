"""The open files of /proc through which a tracker reads and clears the accessed bits of one process."""

from __future__ import annotations

import os
from dataclasses import dataclass

from memtui.probes.pages.tracker import identity


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
