"""Runs the BPF programs of a walk over processes, on iterators that are opened before they are needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from memtui.probes.pages.pagetable.bpf_loader import BpfError, Program, open_iterator, run_iterator

EVERY_PROCESS = 0  # in place of a pid: the program visits all processes of the machine


class Iterators:
    """Links between the loaded programs and processes, and the iterators on them; all of them end with the programs."""

    def __init__(self, program: Program, ahead: Mapping[str, int]) -> None:
        """Start without a link.

        Args:
            program: the loaded programs.
            ahead: by name of a program, how many iterators a window needs.
        """
        self._program, self._count_ahead = program, ahead
        self._links: dict[tuple[int, str], int] = {}  # by process and name of the program
        self._ahead: dict[tuple[int, str], list[int]] = {}
        self._spent: list[int] = []  # iterators of those that ran

    def open_ahead(self, pid: int) -> None:
        """Open the iterators of the next window of a process, for the links that exist. Nothing should be paused.

        Opening and closing an iterator take about 0.1 ms together, more than the walk of a small process.
        """
        self._close_spent()
        for name, count in self._count_ahead.items():
            key = pid, name
            if key in self._links:
                opened = self._ahead.setdefault(key, [])
                with suppress(BpfError):  # ``run`` opens it where it is missing, and raises
                    while len(opened) < count:
                        opened.append(open_iterator(self._links[key]))

    def _close_spent(self) -> None:
        for fd in self._spent:
            os.close(fd)
        self._spent.clear()

    def run(self, pid: int, name: str, *, threads: bool) -> None:
        """Run a program over a process.

        Args:
            pid: of the process, or ``EVERY_PROCESS``.
            name: of the program.
            threads: visit all threads of the process.

        Raises:
            BpfError: the kernel refused.
        """
        key = pid, name
        if key not in self._links:
            self._links[key] = self._program.attach(name, pid, threads=threads)
        if opened := self._ahead.get(key):
            fd = opened.pop()
            self._spent.append(fd)
            run_iterator(fd)
            return
        fd = open_iterator(self._links[key])
        try:
            run_iterator(fd)
        finally:
            os.close(fd)

    def forget(self, pid: int) -> None:
        """Close the links and iterators of a process."""
        for name in self._count_ahead:
            for fd in self._ahead.pop((pid, name), ()):
                os.close(fd)
            if (link := self._links.pop((pid, name), None)) is not None:
                os.close(link)

    def close(self) -> None:
        """Close all of them."""
        self._close_spent()
        for pid in {pid for pid, _ in self._links}:
            self.forget(pid)
