"""Processes of a tree that share an address space without being threads of one another."""

from __future__ import annotations

import os
from collections.abc import Iterable

from memtui.probes.memory_users import same_memory
from memtui.probes.window_reader import Subject


def owner_of(pid: int, watched: Iterable[int]) -> int | None:
    """Return the watched process whose memory a process uses; None: it has its own."""
    return next((owner for owner in watched if same_memory(pid, owner)), None)


class Sharers:
    """Processes of a tree that use the memory of another one, which is read once; they are paused with its owner."""

    def __init__(self) -> None:
        self._sharers: dict[int, tuple[int, Subject, int]] = {}  # by pid: owner, subject, calls of ``add``

    def add(self, subject: Subject, watched: Iterable[int]) -> tuple[int, int] | None:
        """Add a process, with its pidfd, if it uses the memory of a watched one.

        Returns:
            The pid of the owner, and the count of calls about the process; None if the process has its own memory.
        """
        owner = owner_of(subject.pid, watched)
        _, _, count = self._sharers.get(subject.pid, (0, subject, 0))
        self.forget(subject.pid)
        if owner is None:
            return None
        self._sharers[subject.pid] = owner, subject, count + 1
        return owner, count + 1

    def of(self, pid: int) -> tuple[Subject, ...]:
        """Return those that use the memory of a process."""
        return tuple(subject for owner, subject, _ in self._sharers.values() if owner == pid)

    def forget(self, pid: int) -> None:
        """Drop a process that ended or has its own memory now, and those that used its memory."""
        for sharer in [user for user, (owner, _, _) in self._sharers.items() if pid in (user, owner)]:
            _, subject, _ = self._sharers.pop(sharer)
            if subject.pidfd is not None:
                os.close(subject.pidfd)
