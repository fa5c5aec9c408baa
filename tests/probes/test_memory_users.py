"""Who uses the memory of a watched process is found wherever it is, and each window that this makes inexact says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import closing
from types import SimpleNamespace

import pytest

from memtui.core.page_set import PageSet
from memtui.core.procfs import read_stat
from memtui.core.samples import Capability, Status
from memtui.probes import memory_users, window_reader
from memtui.probes.memory_users import MemoryUsers, same_memory
from memtui.probes.pages.tracker import PageWindow, first_window
from memtui.probes.pause.ptrace import PauseRefused
from memtui.probes.window_reader import PageReader, Reading, Subject
from tests.support.live import needs_root
from tests.support.memory_sharers import COMPILER, compile_sharers, shared
from tests.support.streams import sample

pytestmark = pytest.mark.real_clock
real = pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed")
UNCOMPARED = "not known of all processes yet"
MISSED = "1 process(es) (pid {}) that share its memory ran meanwhile (CLONE_VM, vfork): what they touched"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compile_sharers(tmp_path_factory.mktemp("sharers"))


class Machine:
    """A /proc of which this test says who is there, and who shares memory."""

    def __init__(self, folder, monkeypatch) -> None:
        self.folder, self.sharing, self.compared = folder, set(), []
        monkeypatch.setattr(memory_users, "same_memory", self._same)
        self.born(0, pids=(1, 7, 8))

    def _same(self, one: int, other: int) -> bool:
        self.compared.append((one, other))
        return frozenset((one, other)) in self.sharing

    def born(self, last_pid: int, pids=(), *, parent: int = 1, start_ticks: int = 0) -> None:
        for pid in pids or (last_pid,):
            made = self.folder / f"next {pid}"  # beside one that has the pid now, so that it gets another inode
            made.mkdir()
            (made / "statm").write_text("100 50 20 1 0 30 0\n")
            fields = ["0"] * 17 + [str(start_ticks)] + ["0"] * 30
            (made / "stat").write_text(f"{pid} (x) S {parent} {' '.join(fields)}\n")
            shutil.rmtree(self.folder / str(pid), ignore_errors=True)
            made.rename(self.folder / str(pid))
        (self.folder / "loadavg").write_text(f"0.17 0.29 0.27 3/186 {last_pid}\n")

    def share(self, one: int, other: int) -> None:
        self.sharing.add(frozenset((one, other)))


@pytest.fixture
def all_compared(monkeypatch):
    """However slow this machine is and whatever runs on it: in one look."""
    monkeypatch.setattr(memory_users, "_LONGEST_NS", 10**15)


@pytest.fixture
def machine(all_compared, tmp_path, monkeypatch):
    monkeypatch.setattr(memory_users, "_EVERY_NS", 10**15)
    monkeypatch.setattr(memory_users, "_REST", 0)
    return Machine(tmp_path, monkeypatch)


def test_each_process_is_compared_once_when_it_is_born(machine):
    machine.share(7, 8)
    with closing(MemoryUsers(machine.folder)) as users:
        users.poll([7])
        assert sorted(machine.compared) == [(7, 1), (7, 8)]
        assert (users.of(7), users.of(8)) == ({8}, frozenset())
        machine.compared.clear()
        users.poll([7])
        assert not machine.compared, "nobody was born"
        machine.share(7, 9)
        machine.born(9)
        users.poll([7])
        assert machine.compared == [(7, 9)]
        assert users.of(7) == {8, 9}
        machine.compared.clear()
        users.poll([7, 8])
        assert sorted(machine.compared) == [(8, 1), (8, 7), (8, 9)], "of one that is new, all"


def test_one_born_since_the_last_listing_is_compared_with_its_parent_and_its_tree(machine):
    with closing(MemoryUsers(machine.folder)) as users:
        users.poll([7])
        machine.compared.clear()
        machine.born(0, (9, 10), parent=8, start_ticks=1 << 60)
        machine.share(7, 9)
        machine.share(8, 9)
        machine.share(9, 10)
        users.poll([7, 9])
        assert sorted(machine.compared) == [(7, 9), (7, 10), (9, 8), (9, 10)]
        assert (users.of(7), users.of(9)) == ({9}, {7, 8, 10})


def test_another_process_with_the_pid_of_one_that_ended_is_new(machine):
    with closing(MemoryUsers(machine.folder)) as users:
        users.poll([7])
        machine.share(7, 8)
        machine.born(8)
        users.poll([7])
        assert users.of(7) == {8}


@pytest.fixture
def clocks(monkeypatch):
    """Two clocks that this test sets: the time of day, and the CPU time of this thread. A look has 5 ms."""
    clocks = SimpleNamespace(ns=0, cpu_ns=0)
    monkeypatch.setattr(memory_users, "_LONGEST_NS", 5 * 10**6)
    monkeypatch.setattr(memory_users.time, "monotonic_ns", lambda: clocks.ns)
    monkeypatch.setattr(memory_users.time, "thread_time_ns", lambda: clocks.cpu_ns)
    return clocks


def test_a_look_ends_in_time_and_the_next_ones_go_on(machine, clocks, monkeypatch):
    pids = range(100, 200)
    machine.born(0, pids)
    machine.share(7, 100)
    machine.share(7, 199)
    same = memory_users.same_memory

    def slow(*pair) -> bool:
        clocks.ns += 10**6
        clocks.cpu_ns += 10**6
        return same(*pair)

    monkeypatch.setattr(memory_users, "same_memory", slow)
    with closing(MemoryUsers(machine.folder)) as users:
        users.poll([7])
        assert len(machine.compared) == 5
        assert users.uncompared([7, 8]) == {7, 8}
        oldest = next(other for other in users._left if other != 150)
        shutil.rmtree(machine.folder / "150")
        machine.compared.clear()
        machine.born(200)
        users.poll([7])
        assert machine.compared[0] == (7, 200), "the newest is first"
        assert machine.compared[1] == (7, oldest), "and the oldest next"
        for _ in range(len(pids) // 5):
            users.poll([7])
        # All but those of the first look, with the processes 1, 8 and 200, and without the one that ended.
        assert len(machine.compared) == len(set(machine.compared)) == len(pids) - 5 + 3 - 1
        assert (7, 150) not in machine.compared, "it has ended"
        assert users.of(7) == {100, 199}
        assert users.uncompared([7]) == set()


def test_time_in_which_others_have_the_cpu_is_not_that_of_a_look(machine, clocks, monkeypatch):
    """Neither of its comparisons, nor of the rest after it."""
    machine.born(0, range(100, 200))
    same = memory_users.same_memory

    def waits_for_a_cpu(*pair) -> bool:
        clocks.ns += 10**9
        clocks.cpu_ns += 10**4
        return same(*pair)

    monkeypatch.setattr(memory_users, "same_memory", waits_for_a_cpu)
    monkeypatch.setattr(memory_users, "_REST", 49)
    with closing(MemoryUsers(machine.folder)) as users:
        users.poll([7])
        assert len(machine.compared) == 102
        assert users.uncompared([7]) == set()
        machine.born(300)
        users.poll([7])
        assert users.uncompared([7]) == set()
        assert (7, 300) not in machine.compared, "it rests"
        clocks.ns += 49 * clocks.cpu_ns
        users.poll([7])
        assert (7, 300) in machine.compared


def test_a_window_says_that_not_all_processes_were_compared():
    window = PageWindow(PageSet.empty())
    assert window.used_by(()) is window
    assert window.used_by((), compared=False).status == Status.APPROXIMATE
    assert UNCOMPARED in window.used_by((), compared=False).reason


def test_a_sharer_stays_while_no_file_can_be_opened(machine, monkeypatch):
    machine.share(7, 8)
    with closing(MemoryUsers(machine.folder)) as users:
        users.poll([7])
        monkeypatch.setattr(memory_users.Path, "read_bytes", fails)
        users.recheck()
        assert users.of(7) == {8}
        monkeypatch.setattr(memory_users.Path, "read_bytes", lambda path: (_ for _ in ()).throw(FileNotFoundError()))
        users.recheck()
        assert users.of(7) == frozenset()


def test_one_that_was_listed_already_is_compared_with_all(machine):
    """It may have been born, with a child that shares its memory, while the list was made."""
    machine.born(0, (9, 10), start_ticks=1 << 60)
    machine.share(9, 10)
    with closing(MemoryUsers(machine.folder)) as users:
        users.poll([7])
        users.poll([7, 9])
        assert users.of(9) == {10}


def test_where_no_file_can_be_opened_the_next_round_tries_again(machine, monkeypatch):
    machine.share(7, 8)
    with closing(MemoryUsers(machine.folder)) as users:
        with monkeypatch.context() as patch:
            patch.setattr(memory_users, "process_inodes", fails)
            users.poll([7])
        assert users.of(7) == frozenset()
        users.poll([7])
        assert users.of(7) == {8}


@needs_root
def test_zombies_share_nothing():
    with subprocess.Popen(["true"]) as one, subprocess.Popen(["true"]) as other:
        for child in (one, other):
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        if not same_memory(one.pid, other.pid):
            pytest.skip("this kernel compares no memory (CONFIG_KCMP)")
        with closing(MemoryUsers()) as users:
            users.poll([one.pid, other.pid])
            assert users.of(one.pid) == users.of(other.pid) == frozenset()
            users._users[one.pid].add(other.pid)  # from the time when they ran
            users.recheck()
            assert users.of(one.pid) == frozenset()


def test_who_has_memory_of_its_own_is_dropped(machine):
    machine.share(7, 8)
    with closing(MemoryUsers(machine.folder)) as users:
        users.poll([7])
        users.recheck()
        assert users.of(7) == {8}
        machine.sharing.clear()
        users.recheck()
        assert users.of(7) == frozenset()
        machine.share(7, 8)  # another process with this pid: the one that was watched is forgotten before
        users.forget(7)
        users.poll([7])
        assert users.of(7) == {8}


def fails(*_words):
    raise OSError("Transport endpoint is not connected")


@pytest.mark.parametrize("there", [False, True])
def test_without_the_last_pid_it_looks_now_and_then(machine, there, monkeypatch):
    if there:
        monkeypatch.setattr(memory_users.os, "pread", fails)
    else:
        (machine.folder / "loadavg").unlink()
    with closing(MemoryUsers(machine.folder)) as users:
        users.poll([7])
        (machine.folder / "9").mkdir()
        machine.share(7, 9)
        users.poll([7])
        assert users.of(7) == frozenset()
        users._due_ns = 0
        users.poll([7])
        assert users.of(7) == {9}


def test_on_a_machine_that_forks_all_the_time_it_rests_after_a_look(machine):
    with closing(MemoryUsers(machine.folder)) as users:
        users.poll([7])
        users._rest_until_ns = 1 << 62
        machine.born(9)
        machine.share(7, 9)
        users.poll([7])
        assert users.of(7) == frozenset()
        users._rest_until_ns = 0
        users.poll([7])
        assert users.of(7) == {9}


class Reads:
    """A tracker that reads nothing, while its targets are paused."""

    name, flush, rearm, page_ns = "reads", "off", "off", 0
    wss = pages = Capability("wss", True)
    pauses, clears, reads_running, counts_users = True, True, False, False
    resume_by_ns = None

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.result = PageWindow(PageSet.empty(), maps=bytes)

    def start_round(self, processes):
        pass

    def count_mappings(self, pid):
        return 1

    def prepare(self, pid):
        return 0

    def is_prepared(self, pid):
        return True

    def start(self, pid, vmas):
        pass

    def window(self, pid, vmas, *, want_resident):
        return self.result

    def forget(self, pid):
        pass

    def close(self):
        pass


@pytest.fixture(autouse=True)
def _long_to_stop(monkeypatch):
    """Also on a busy machine a target stands still in time."""
    monkeypatch.setattr(window_reader, "DEADLINE_S", 5.0)


def reader_of(tracker: Reads, *, together: bool = False) -> PageReader:
    return PageReader(tracker, pause=True, together=together, max_pause_ns=5 * 10**9)


def subject_of(pid: int, *sharers: Subject) -> Subject:
    return Subject(pid, None, read_stat(pid).start_ticks, sharers=sharers)


@real
@pytest.mark.parametrize("kind", ["none", "inside", "outside"])
@pytest.mark.parametrize("together", [False, True])
def test_a_window_of_any_tracker_says_who_used_the_memory_meanwhile(all_compared, program, kind, together):
    tracker = Reads()
    with shared(program, kind, 16) as target, closing(reader_of(tracker, together=together)) as reader:
        subjects = [subject_of(target.pid)]
        reader.start(subjects[0])
        for before in ("", "already in doubt"):
            tracker.result = PageWindow(
                PageSet.empty(), maps=bytes, status="approximate" if before else "ok", reason=before
            )
            (outcome,) = reader.read(subjects, want_resident=False)
            assert isinstance(outcome, Reading), outcome
            if target.sharer:
                assert outcome.window.status == "approximate"
                assert outcome.window.reason.startswith(f"{before}; " * bool(before) + MISSED.format(target.sharer))
            else:
                assert (outcome.window.status, outcome.window.reason) == (tracker.result.status, before)


@real
@pytest.mark.parametrize("held", [True, False])
def test_one_that_is_held_with_its_owner_takes_nothing(all_compared, program, held, monkeypatch):
    with shared(program, "inside", 16) as target, closing(reader_of(Reads())) as reader:
        owner = subject_of(target.pid, subject_of(target.sharer))
        check = reader._check

        def refused(subject: Subject) -> str:
            if subject.pid == target.sharer:
                raise PauseRefused("a debugger traces it")
            return check(subject)

        if not held:
            monkeypatch.setattr(reader, "_check", refused)
        (outcome,) = reader.read([owner], want_resident=False)
        assert isinstance(outcome, Reading), outcome
        assert outcome.window.status == ("ok" if held else "approximate")
        assert (MISSED.format(target.sharer) in outcome.window.reason) == (not held)


@real
def test_a_window_without_a_pause_is_approximate_for_that_reason(program, monkeypatch):
    tracker = Reads()
    tracker.reads_running = True
    with shared(program, "inside", 16) as target, closing(reader_of(tracker)) as reader:
        monkeypatch.setattr(reader, "_check", lambda _subject: (_ for _ in ()).throw(PauseRefused("a debugger")))
        (outcome,) = reader.read([subject_of(target.pid)], want_resident=False)
        assert isinstance(outcome, Reading), outcome
        assert (outcome.running, outcome.window.status) == ("a debugger", "ok")


@real
def test_one_that_ends_in_the_pause_is_named_all_the_same(all_compared, program, monkeypatch):
    """It ran at the beginning."""
    tracker = Reads()
    with shared(program, "inside", 16) as target, closing(reader_of(tracker)) as reader:
        subject = subject_of(target.pid)
        reader.read([subject], want_resident=False)

        def ends(*_words, **_options):
            monkeypatch.setattr(memory_users, "same_memory", lambda *_: False)
            return tracker.result

        monkeypatch.setattr(tracker, "window", ends)
        (outcome,) = reader.read([subject], want_resident=False)
        assert MISSED.format(target.sharer) in outcome.window.reason
        (outcome,) = reader.read([subject], want_resident=False)
        assert outcome.window.status == "ok"


def test_what_has_no_working_set_is_no_better_known():
    for window in (first_window(), PageWindow(None, status=Status.FAILED, reason="lost")):
        assert window.used_by({7}) is window
    assert PageWindow(None).used_by(()).status == "ok"


def test_of_many_a_few_are_named():
    window = PageWindow(PageSet.empty())
    assert window.used_by(range(6)).reason.startswith("6 process(es) (pid 0, 1, 2, 3, 4, 5) that share")
    assert window.used_by(range(5000)).reason.startswith("5000 process(es) (pid 0, 1, 2, 3, 4, 5 and 4994 more) that")


@real
@pytest.mark.parametrize(("kind", "related"), [
    ("none", False), ("inside", True), ("outside", True), ("toucher", True), ("vfork", True)
])  # fmt: skip
def test_real_ones_are_found_wherever_they_are(all_compared, program, kind, related):
    with shared(program, kind, 16) as target, closing(MemoryUsers()) as users:
        users.poll([target.pid])
        assert users.of(target.pid) == ({target.sharer} if related else frozenset())
        assert all(same_memory(target.pid, pid) for pid in users.of(target.pid))


@real
@needs_root
def test_the_referenced_tracker_is_not_exact_beside_one_outside_of_the_tree(program):
    with shared(program, "outside", 2000) as target:
        stream = sample(target.pid, 1, tracker="referenced", interval_ns=50_000_000)
    # On a busy machine it may not stand still in time.
    windows = [window for window in stream.of_pid(target.pid)[1:] if window.status != "not paused"]
    assert len(windows) >= 2
    assert {window.status for window in windows} == {"approximate"}
    missed = [MISSED.format(target.sharer) in window.reason for window in windows]
    assert missed[-1]
    # On a machine that is slow, or has very many processes, one after another is compared.
    assert all(UNCOMPARED in window.reason for window, named in zip(windows, missed, strict=True) if not named)
