"""Links and iterators are opened once and closed, whoever ran. No kernel is asked: descriptors are of /dev/null."""

from __future__ import annotations

import os

import pytest

from memtui.probes.pages.pagetable import iterators
from memtui.probes.pages.pagetable.bpf_loader import BpfError
from memtui.probes.pages.pagetable.iterators import Iterators
from tests.support.folders import names_in

AHEAD = {"walk": 1, "ask": 2, "ask_locked": 0}


class Programs:
    """In place of the loaded programs: notes what is attached, opened and run."""

    def __init__(self) -> None:
        self.attached: list[tuple[str, int, bool]] = []
        self.opened: list[int] = []
        self.ran: list[int] = []
        self.refuses = False

    def attach(self, name: str, pid: int, *, threads: bool) -> int:
        self.attached.append((name, pid, threads))
        return os.open(os.devnull, os.O_RDONLY)

    def open_iterator(self, link: int) -> int:
        os.fstat(link)  # it is open
        if self.refuses:
            raise BpfError(1, "no")
        self.opened.append(os.open(os.devnull, os.O_RDONLY))
        return self.opened[-1]

    def run_iterator(self, fd: int) -> None:
        os.fstat(fd)
        self.ran.append(fd)


@pytest.fixture
def programs(monkeypatch):
    """None of the descriptors that a test opened is left."""
    programs, before = Programs(), set(names_in("/proc/self/fd"))
    monkeypatch.setattr(iterators, "open_iterator", programs.open_iterator)
    monkeypatch.setattr(iterators, "run_iterator", programs.run_iterator)
    yield programs
    assert set(names_in("/proc/self/fd")) <= before


def test_a_program_is_attached_once_to_each_process(programs):
    opened = Iterators(programs, AHEAD)
    for pid, threads in ((7, False), (7, False), (8, True)):
        opened.run(pid, "walk", threads=threads)
    assert programs.attached == [("walk", 7, False), ("walk", 8, True)]
    opened.forget(7)
    opened.run(7, "walk", threads=False)
    assert len(programs.attached) == 3
    opened.close()


def test_what_was_opened_ahead_runs_first(programs):
    opened = Iterators(programs, AHEAD)
    opened.open_ahead(7)
    assert programs.opened == [], "nothing is attached yet"
    opened.run(7, "ask", threads=False)
    opened.open_ahead(7)
    ahead = programs.opened[1:]
    assert len(ahead) == 2
    for _ in range(3):
        opened.run(7, "ask", threads=False)
    assert len(programs.opened) == 4, "the third of a window is opened when it is needed"
    assert sorted(programs.ran[1:3]) == sorted(ahead)
    opened.open_ahead(7)
    opened.close()
    opened.close()


def test_an_iterator_that_runs_is_closed_whatever_comes(programs, monkeypatch):
    def fail(_fd: int) -> None:
        raise BpfError(5, "read")

    monkeypatch.setattr(iterators, "run_iterator", fail)
    opened = Iterators(programs, AHEAD)
    with pytest.raises(BpfError):
        opened.run(7, "walk", threads=False)
    opened.close()


def test_who_cannot_open_ahead_does_without(programs):
    opened = Iterators(programs, AHEAD)
    opened.run(7, "walk", threads=False)
    programs.refuses = True
    opened.open_ahead(7)
    with pytest.raises(BpfError):
        opened.run(7, "walk", threads=False)
    opened.close()
