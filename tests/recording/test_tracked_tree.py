"""Which processes of a tree are tracked: from birth to end, despite errors, and each event is reported once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from memtui.core.procfs import read_stat
from memtui.core.samples import Options, Process
from memtui.probes import address_space
from memtui.probes.pages.tracker import TrackerError
from memtui.probes.pause.pauser import PauseError
from memtui.recording.sampler import tracked_tree
from memtui.recording.sampler.commands import SamplerConfig
from memtui.recording.sampler.pause_warnings import PauseWarnings
from memtui.recording.sampler.target_lock import TargetLocks
from memtui.recording.sampler.tracked_tree import TrackedTree
from tests.support.folders import names_in
from tests.support.live import wait_until
from tests.support.pid_state import places_of
from tests.support.sampler_parts import Outbox, Reader

PARENT = """
import subprocess, sys
child = None
print("up", flush=True)
for line in sys.stdin:
    if line == "fork\\n":
        child = subprocess.Popen(["sleep", "100"])
    else:
        child.kill()
        child.wait()
    print(child.pid, flush=True)
"""


class Family:
    """A process that forks on command, and its tree."""

    def __init__(self, process: subprocess.Popen, owner: int | None = None) -> None:
        self.process, self.pid = process, process.pid
        order = SamplerConfig(self.pid, read_stat(self.pid).start_ticks, Options(10**9, "referenced"))
        self.outbox, self.reader, self.locks = Outbox(), Reader(), TargetLocks()
        warnings = PauseWarnings(order, self.outbox, self.reader)
        self.tree = TrackedTree(order, owner, self.outbox, self.reader, warnings, self.locks)

    def tell(self, line: str) -> int:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def round(self) -> None:
        self.tree.refresh()
        self.tree.follow()


@contextmanager
def family(owner: int | None = None):
    """All descriptors are closed when all are forgotten."""
    before = set(names_in("/proc/self/fd"))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", PARENT], **pipes, start_new_session=True)
    try:
        assert process.stdout.readline() == "up\n"
        made = Family(process, owner)
        yield made
        for pid in tuple(made.tree.processes):
            made.tree.forget(pid)
        made.locks.close()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the child as well, which has its stdout
        process.communicate()
    assert set(names_in("/proc/self/fd")) <= before


@pytest.fixture(autouse=True)
def at_every_refresh(monkeypatch):
    monkeypatch.setattr(tracked_tree, "TREE_EVERY_NS", 0)


def test_a_process_is_sent_once_its_accessed_bits_are_cleared():
    with family() as one:
        one.reader.held_ns = 7
        begun_when_sent = []
        put = one.outbox.put
        one.outbox.put = lambda message: (begun_when_sent.append(list(one.reader.begun)), put(message))
        one.round()
        (process,) = one.outbox.take()
        assert isinstance(process, Process)
        assert process.pid == one.pid
        assert begun_when_sent == [[one.pid]]
        tracked = one.tree.processes[one.pid]
        assert (tracked.paused_ns, tracked.maps) == (7, Path(f"/proc/{one.pid}/maps").read_bytes())
        one.round()
        assert (one.reader.begun, one.outbox.take()) == ([one.pid], [])


def test_children_come_and_go_and_are_counted():
    with family() as one:
        one.round()
        assert (one.tree.take_gaps(), one.tree.take_gaps()) == (1, 0)
        one.outbox.take()
        child = one.tell("fork")
        one.round()
        assert set(one.tree.processes) == {one.pid, child}
        assert [message.pid for message in one.outbox.take()] == [child]
        assert one.tree.take_gaps() == 1
        one.tree.usage.read(child)
        one.tell("kill")
        one.round()
        assert set(one.tree.processes) == {one.pid}
        assert one.reader.forgotten == [child]
        assert places_of(child, one.tree) == {"_reader.begun", "_reader.forgotten"}  # the notes of the stand-in
        assert one.tree.take_gaps() == 1


def test_inside_a_window_those_are_tracked_that_live_for_a_while(monkeypatch):
    monkeypatch.setattr(tracked_tree, "BETWEEN_REST", 0)
    monkeypatch.setattr(tracked_tree, "LEAST_AGE_S", 60)
    with family() as one:
        one.round()
        child = one.tell("fork")
        one.tree.follow_between()
        assert set(one.tree.processes) == {one.pid}, "it may be gone soon"
        one.outbox.take()
        monkeypatch.setattr(tracked_tree, "LEAST_AGE_S", 0.05)
        wait_until(lambda: one.tree.follow_between() or child in one.tree.processes)
        assert [message.pid for message in one.outbox.take()] == [child]
        one.tell("kill")
        wait_until(lambda: one.tree.follow_between() or child not in one.tree.processes)
        assert one.tree.take_gaps() == 3, "two births and an end"
        started = one.tell("fork")
        one.tree.follow()
        assert started not in one.tree.processes, "not seen yet"
        one.round()
        assert started in one.tree.processes


def test_to_look_inside_a_window_rests_longer_than_it_takes(monkeypatch):
    with family() as one:
        one.round()
        monkeypatch.setattr(tracked_tree, "TREE_EVERY_NS", 60 * 10**9)  # a fork may take longer than a rest
        one.tree.follow_between()
        child = one.tell("fork")
        monkeypatch.setattr(tracked_tree, "LEAST_AGE_S", 0)
        one.tree.follow_between()
        assert child not in one.tree.processes
        one.process.kill()
        one.process.wait()
        monkeypatch.setattr(tracked_tree, "BETWEEN_REST", 0)
        one.tree._between_due_ns = 0
        one.tree.follow_between()  # its end is the business of who waits for it


@pytest.mark.parametrize("error", [TrackerError("no"), PauseError("no"), OSError("no")])
def test_one_that_cannot_be_cleared_is_tracked_all_the_same_and_that_is_reported(error):
    with family() as one:
        one.reader.error = error
        one.round()
        assert one.pid in one.tree.processes
        (event,) = one.outbox.events()
        assert event == ("gap", f"pid {one.pid}: not cleared before its first window, which says what is resident: no")


@pytest.mark.parametrize("seen_by", ["the tree", "its window"])
def test_whose_memory_belonged_to_one_that_ended_is_watched_by_itself_from_then_on(seen_by, monkeypatch):
    """It goes on with that memory: its marks are cleared, and its windows are its own."""
    with family() as one:
        owner, sharer = one.tell("fork"), one.tell("fork")
        monkeypatch.setattr(address_space, "same_memory", lambda *pids: set(pids) == {owner, sharer})
        for _ in range(2):
            one.round()
        assert set(one.tree.processes) == {one.pid, owner}
        (held,) = one.tree.subject(one.tree.processes[owner]).sharers
        assert held.pid == sharer
        assert [text for _, text in one.outbox.events()] == [
            f"pid {sharer} uses the memory of pid {owner} (CLONE_VM): it is counted there, once"
        ]
        os.kill(owner, signal.SIGKILL)
        wait_until(lambda: read_stat(owner).ended)
        if seen_by == "its window":
            one.tree.forget(owner)
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(held.pidfd)
        one.round()
        assert set(one.tree.processes) == {one.pid, sharer}
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(held.pidfd)
        assert one.reader.begun == [one.pid, owner, sharer]
        assert one.tree.subject(one.tree.processes[sharer]).sharers == ()
        assert not one.outbox.events()
        one.tell("kill")
        one.round()
        assert set(one.tree.processes) == {one.pid}


def test_what_another_memtui_watches_is_left_out_and_reported_once():
    with family() as one:
        other = TargetLocks()
        one.round()
        child = one.tell("fork")
        other.acquire(child)
        for _ in range(2):
            one.round()
        assert child not in one.tree.processes
        (event,) = [event for event in one.outbox.events() if str(child) in event[1]]
        assert event[0] == "warning"
        assert event[1].endswith("; until then it is left out here")
        other.close()
        one.round()
        assert child in one.tree.processes
        one.tell("kill")


def test_the_next_process_with_the_number_of_one_that_was_left_out_is_reported_too():
    with family() as one:
        other = TargetLocks()
        one.round()
        child = one.tell("fork")
        other.acquire(child)
        one.round()
        (event,) = [event for event in one.outbox.events() if str(child) in event[1]]
        # As a refresh finds it where one ended and its number was given to another one since.
        one.tree._ended = one.tree._new = [process for process in one.tree._tree.processes if process.pid == child]
        one.tree.follow()
        assert [text for text in one.outbox.events() if text[0] == "warning"] == [event]
        one.tell("kill")
        one.round()
        assert places_of(child, one.tree) == {"_reader.forgotten"}
        other.close()


def test_another_users_process_is_left_out():
    with family(owner=os.getuid() + 1) as one:
        one.round()
        one.round()
        assert not one.tree.processes
        ((kind, text),) = one.outbox.events()
        assert kind == "warning"
        assert text.endswith(": it is left out (sudo memtui watches it)")


def test_a_target_that_ends_before_anything_was_observed_is_an_error():
    with family() as one:
        one.tree.refresh()
        one.process.kill()
        one.process.wait()
        with pytest.raises(ProcessLookupError):
            one.tree.follow()


def test_a_target_that_ends_before_its_first_window_was_observed():
    """The recorder knows of it: the session says how it ended, and is not called broken off."""
    with family() as one:
        one.tree.refresh()
        one.tree.follow()
        one.process.kill()
        one.process.wait()
        one.tree.forget(one.process.pid)
        assert not one.tree.processes
        one.tree.follow()
