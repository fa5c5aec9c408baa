"""Which threads are seized and interrupted: the kernel's answers are given, as no program can be made to give them."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest

from memtui.probes.pause import ptrace
from memtui.probes.pause.ptrace import BUSY, EXEC, NotPaused, Seizure
from tests.support.pagetable_targets import need_root

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


def answer(monkeypatch, stopped: Sequence[int], ended: Sequence[int] = (), waiting: Sequence[int] = ()) -> None:
    """Have the kernel say which threads have stopped and ended, and for which it has no answer yet."""

    def has_stopped(seizure: Seizure, tid: int) -> bool:
        if tid in stopped:
            seizure._stopped[tid] = 0
        return tid not in waiting

    monkeypatch.setattr(Seizure, "_has_stopped", has_stopped)
    monkeypatch.setattr(ptrace, "has_ended", lambda tid: tid in ended)


@pytest.mark.parametrize(
    ("stopped", "why"),
    [(PID, "1 of its threads did not stop in time"), (SECOND, re.escape(EXEC))],
    ids=["second", "first"],
)
def test_what_has_stopped_is_released_where_another_thread_runs(monkeypatch, stopped, why):
    kernel = Kernel(monkeypatch, 4 * [[PID, SECOND]])
    answer(monkeypatch, [stopped])
    with pytest.raises(NotPaused, match=why):
        Seizure(PID, None, 20).stop()
    assert kernel.requests == [(ptrace._INTERRUPT, PID), (ptrace._INTERRUPT, SECOND), (ptrace._DETACH, stopped)]


def test_a_process_of_which_no_thread_is_left_has_ended(monkeypatch):
    Kernel(monkeypatch, 4 * [[PID]])
    answer(monkeypatch, [], ended=[PID])
    with pytest.raises(ProcessLookupError):
        Seizure(PID, None, 20).stop()


@pytest.mark.parametrize("ended", [True, False])
def test_a_first_thread_that_has_ended_is_not_waited_for_after_the_deadline(monkeypatch, ended):
    """The kernel reports its end only when all others have ended."""
    kernel = Kernel(monkeypatch, 4 * [[PID, SECOND]])
    answer(monkeypatch, [SECOND], ended=[PID] if ended else [], waiting=[PID])
    seizure = Seizure(PID, None, 20, lambda _pid: setattr(seizure, "_deadline_ns", 0))
    if ended:
        assert seizure.stop().threads == 1
        assert kernel.requests[2:] == []
    else:
        with pytest.raises(NotPaused, match="1 of its threads did not stop in time"):
            seizure.stop()
        assert kernel.requests[2:] == [(ptrace._DETACH, SECOND)]


@pytest.mark.parametrize("error", [ProcessLookupError, PermissionError, None])
def test_no_thread_is_interrupted_of_a_process_that_has_another_ones_pid(monkeypatch, error):
    """A process that may not be sent a signal is there."""
    kernel, pidfds = Kernel(monkeypatch, 4 * [[PID]]), []

    def send(pidfd, number):
        pidfds.append((pidfd, number))
        if error is not None:
            raise error

    monkeypatch.setattr(ptrace.signal, "pidfd_send_signal", send)
    answer(monkeypatch, [PID])
    if error is ProcessLookupError:
        with pytest.raises(ProcessLookupError):
            Seizure(PID, 99, 20).stop()
        assert kernel.requests == []
    else:
        assert Seizure(PID, 99, 20).stop().threads == 1
    assert pidfds == [(99, 0)]


def test_no_thread_is_interrupted_where_the_check_raises_and_it_is_called_once(monkeypatch):
    kernel, checked = Kernel(monkeypatch, [[PID], [PID], [PID], [PID, SECOND], [PID, SECOND], [PID, SECOND]] * 2), []
    answer(monkeypatch, [PID, SECOND])
    assert Seizure(PID, None, 20, checked.append).stop().threads == 2
    assert checked == [PID]
    kernel.requests.clear()

    def refuse(_pid):
        raise NotPaused("not now")

    seizure = Seizure(PID, None, 20, refuse)
    with pytest.raises(NotPaused, match="not now"):
        seizure.stop()
    assert kernel.requests == []
    assert seizure.start_ns is None, "nothing stood still"


@pytest.mark.parametrize("refused", [0, PID, SECOND])
def test_every_thread_is_released_with_its_signal_though_one_was_killed(monkeypatch, refused):
    requests = []
    monkeypatch.setattr(
        ptrace, "_ptrace", lambda *arguments: requests.append(arguments) or 3 * (arguments[1] == refused)
    )
    seizure = Seizure(PID, None, 20)
    seizure._stopped = {PID: 0, SECOND: 10}
    assert seizure.release() is (not refused)
    assert sorted(requests) == [(ptrace._DETACH, PID, 0), (ptrace._DETACH, SECOND, 10)]
    assert seizure.release()  # again: there is nothing left
    assert len(requests) == 2


def test_all_threads_but_the_first_are_reaped_without_waiting(monkeypatch):
    """The exit status of the process belongs to its parent."""
    Kernel(monkeypatch, 3 * [[PID, SECOND, THIRD]])
    seizure, reaped = Seizure(PID, None, 20), []
    seizure._seize_new(set())

    def waitid(id_type, tid, flags):
        reaped.append((id_type, tid, flags))
        raise ChildProcessError

    monkeypatch.setattr(ptrace.os, "waitid", waitid)
    seizure.reap()
    flags = os.WEXITED | os.WNOHANG | 0x40000000  # __WALL
    assert reaped == [(os.P_PID, SECOND, flags), (os.P_PID, THIRD, flags)]


def test_the_exit_status_of_a_child_that_is_killed_while_it_is_stopped_is_left_for_its_parent():
    need_root()
    with subprocess.Popen(["sleep", "100"]) as process:
        with pytest.raises(ProcessLookupError):
            Seizure(process.pid, None, 20, lambda pid: os.kill(pid, signal.SIGKILL)).stop()
        assert process.wait(20) == -signal.SIGKILL


@pytest.mark.parametrize(("result", "error"), [(0, 0), (-1, errno.ESRCH)])
def test_an_error_number_of_an_earlier_call_is_not_taken_for_one_of_this(monkeypatch, result, error):
    monkeypatch.setattr(ptrace, "_libc", SimpleNamespace(ptrace=lambda *_: result))
    ctypes.set_errno(errno.ESRCH)
    assert ptrace._ptrace(ptrace._DETACH, PID) == error


@pytest.mark.parametrize("code", [os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED])
def test_a_process_that_ends_after_another_thread_has_stopped_is_not_paused(monkeypatch, code):
    monkeypatch.setattr(ptrace.os, "waitid", lambda *_: SimpleNamespace(si_code=code))
    monkeypatch.setattr(ptrace.os, "waitpid", lambda *_: pytest.fail("its exit status is its parent's"))
    with pytest.raises(ProcessLookupError):
        Seizure(PID, None, 20)._has_stopped(PID)
