"""Which threads are seized and interrupted: the kernel's answers are given, as no program can be made to give them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest

from memtui.probes.pause import ptrace
from memtui.probes.pause.ptrace import BUSY, EXEC, NotPaused, Seizure

PID = (1 << 22) + 10  # above the kernel's limit: nobody has these numbers
SECOND, THIRD = PID + 1, PID + 2


class Kernel:
    """Lists the threads of a process, a next list at each call, and notes which of them are interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lists: Sequence[Sequence[int]], ended: Sequence[int] = ()):
        self._lists: Iterator[Sequence[int]] = iter(lists)
        self.seized: list[int] = []
        self.requests: list[tuple[int, int]] = []
        self._ended = ended
        monkeypatch.setattr(ptrace, "_threads", lambda _pid: list(next(self._lists)))
        monkeypatch.setattr(ptrace, "_seize", self._seize)
        monkeypatch.setattr(ptrace, "_ptrace", lambda request, tid, _data=0: self.requests.append((request, tid)) or 0)

    def _seize(self, tid: int) -> bool:
        self.seized.append(tid)
        return tid not in self._ended


def test_a_thread_that_is_gone_after_it_was_seized_is_not_interrupted(monkeypatch):
    """Its number may be another process's by now, which nobody asked to pause."""
    kernel = Kernel(monkeypatch, [[PID, SECOND], [PID, SECOND], [PID]])
    with pytest.raises(NotPaused, match=re.escape(EXEC)):
        Seizure(PID, None, 20).stop()
    assert kernel.seized == [PID, SECOND]
    assert kernel.requests == []


def test_a_thread_that_ended_before_it_was_seized_is_left_out(monkeypatch):
    kernel = Kernel(monkeypatch, [[PID, SECOND], [PID], [PID]], ended=[SECOND])
    assert Seizure(PID, None, 20)._seize_new(set()) == [PID]
    assert kernel.seized == [PID, SECOND]


def test_threads_that_start_while_others_are_seized_are_seized_too(monkeypatch):
    kernel = Kernel(monkeypatch, [[PID], [PID, SECOND], [PID, SECOND, THIRD]] + 2 * [[PID, SECOND, THIRD]])
    seen: set[int] = set()
    assert Seizure(PID, None, 20)._seize_new(seen) == [PID, SECOND, THIRD]
    assert kernel.seized == [PID, SECOND, THIRD]
    assert seen == {PID, SECOND, THIRD}


@pytest.mark.parametrize(("seen", "why"), [([], BUSY), ([PID], "it starts threads faster than they can be stopped")])
def test_none_is_seized_after_the_deadline(monkeypatch, seen, why):
    kernel = Kernel(monkeypatch, [[PID, SECOND]])
    with pytest.raises(NotPaused, match=re.escape(why)):
        Seizure(PID, None, -1)._seize_new(set(seen))
    assert kernel.seized == []
