"""Many processes: held together or one by one, born and gone inside a window, and those that must never be held."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import termios
import time
from contextlib import suppress
from itertools import combinations
from pathlib import Path

import psutil
import pytest

from memtui.core.samples import Process
from memtui.probes.protected_processes import ProtectedProcesses
from memtui.recording.sampler.commands import STOP
from tests.support.folders import names_in
from tests.support.live import needs_root, needs_tracker, pattern_argv, truth_in, wait_until
from tests.support.paused import state, tracer
from tests.support.streams import finish, order_for, sample

pytestmark = pytest.mark.real_clock

_FAMILY = f"""
import subprocess, sys
words = {pattern_argv("random", "--pages", 4000, "--touched", 1000)} + ["--seed"]
children = [subprocess.Popen([*words, str(seed)], stdout=subprocess.PIPE, text=True) for seed in range(3)]
for child in children: print(child.stdout.readline().strip(), flush=True)
sys.stdin.read()
for child in children: child.kill()
"""
# Short-lived children, of which some touch memory, for as long as somebody listens.
_STORM = """
import os, sys, time
memory, n = bytearray(1 << 20), int(sys.argv[1])
sys.stdin.readline()
for i in range(n):
    child = os.fork()
    if child == 0:
        if i % 3 == 0: memory[::4096] = b"x" * 256
        os._exit(0)
    if os.waitpid(child, 0)[1]: sys.exit(1)
print("done", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def family():
    import json

    argv = [sys.executable, "-c", _FAMILY]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield child.pid, [json.loads(child.stdout.readline()) for _ in range(3)]
    child.communicate()


@needs_tracker
@pytest.mark.parametrize("together", [False, True], ids=["one after the other", "together"])
def test_a_tree_is_exact_and_held_as_asked(family, together):
    pid, truths = family
    stream = sample(pid, 4, together=together, interval_ns=500_000_000)
    assert stream.returncode == 0, stream.errors
    keys = {p.pid: p.key for p in stream.of(Process)}
    whole = [w for w in stream.windows[:-1] if len(w.processes) == 4]
    assert len(whole) >= 4
    overlaps = 0
    for window in whole:
        by_key = {part.process: part for part in window.processes}
        assert {part.status for part in window.processes} == {"ok"}
        for truth in truths:
            seen, expected = truth_in(truth, by_key[keys[truth["pid"]]].pages)
            assert seen.tolist() == expected.tolist()
        holds = [(part.end_ns, part.end_ns + part.paused_ns) for part in window.processes]
        overlaps += all(a < d and c < b for (a, b), (c, d) in combinations(holds, 2))
    assert overlaps == (len(whole) if together else 0)


_VFORK_FAMILY = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2], "and a busy thread"])
subprocess.Popen([sys.executable, "-c", "while True: pass"])
sys.stdin.read()
"""


@needs_tracker
def test_one_that_does_not_stop_costs_the_others_no_window(tmp_path):
    from tests.support.paused import _VFORK

    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    parent = subprocess.Popen([sys.executable, "-c", _VFORK_FAMILY, _VFORK, str(fifo)], stdin=subprocess.PIPE)
    family = psutil.Process(parent.pid)
    try:
        end = time.monotonic() + 20
        while not [c for c in family.children() if state(c.pid) == "D" and c.children()]:
            assert time.monotonic() < end
            time.sleep(0.01)
        (stuck,) = [c.pid for c in family.children() if state(c.pid) == "D"]
        (busy,) = [c.pid for c in family.children() if c.pid != stuck]
        stream = sample(parent.pid, 2, together=True, interval_ns=100_000_000)
        assert {w.status for w in stream.of_pid(stuck)} == {"not paused"}
        assert all(0 < w.paused_ns < 150_000_000 for w in stream.of_pid(stuck))
        others = stream.of_pid(busy)
        assert len(others) > 4
        # It cost all of them, if any. One may be lost where other work takes both CPUs while the process is to stop.
        lost = [w.status for w in others if w.status != "ok"]
        assert lost in ([], ["not paused"]), lost
        assert all(w.paused_ns < 200_000_000 for w in others)
    finally:
        os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))
        for child in family.children(recursive=True):
            child.kill()
        parent.kill()
        parent.communicate()


def _is_tracked(sampler: int, pid: int) -> bool:
    """Whether its marks were cleared for a first window."""
    return _open_files(sampler).count(f"/proc/{pid}/clear_refs") > 1  # the first is the claim


def _open_files(pid: int) -> list[str]:
    paths = []
    for name in names_in(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed since, as some are in every window
            paths.append(str(Path(f"/proc/{pid}/fd/{name}").readlink()))
    return paths


@needs_tracker
@pytest.mark.parametrize("together", [False, True], ids=["one after the other", "together"])
def test_a_storm_of_short_children(together):
    argv = [sys.executable, "-c", _STORM, "1000"]
    target = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    sampler = subprocess.Popen(
        [sys.executable, "-P", "-m", "memtui.recording.sampler"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        sampler.stdin.write(order_for(target.pid, together=together).to_line())
        sampler.stdin.flush()
        import threading

        found = []
        reading = threading.Thread(target=lambda: found.append(finish(sampler)))
        reading.start()
        end = time.monotonic() + 20
        while not _is_tracked(sampler.pid, target.pid):
            assert time.monotonic() < end
            time.sleep(0.01)
        target.stdin.write("go\n")
        target.stdin.flush()
        assert target.stdout.readline() == "done\n", "a child was held back or killed"
        time.sleep(0.5)
        files = _open_files(sampler.pid)
        threads = names_in(f"/proc/{sampler.pid}/task")
        assert psutil.Process(target.pid).children() == [], "a zombie was left"
        sampler.stdin.write(STOP)
        sampler.stdin.flush()
        reading.join(30)
        (stream,) = found
        assert stream.returncode == 0, stream.errors
        assert not stream.errors
        # At least one is counted where there was one; how many of a window nobody saw, the kernel does not tell.
        busy = [number for number, window in enumerate(stream.windows) if window.gaps]
        assert len(busy) > 1, "children came and went"
        assert len(busy) > (busy[-1] - busy[0]) / 3
        assert stream.windows[-1].gaps == 0
        # The walkers have some 30 each, and are as many as it takes.
        left = [link for link in files if not link.startswith("anon_inode:bpf")]
        assert len(left) < 32, "files of 1,000 children that ended are open"
        assert len(threads) < 24
        assert tracer(target.pid) == "0"
        wait_until(lambda: state(target.pid) == "S")  # it may have to wait for a CPU to go back to sleep
    finally:
        for child in (sampler, target):
            child.kill()
        target.communicate()
        sampler.wait()


# Its child is the sampler that observes it.
_ANCESTOR = """
import subprocess, sys, time
sampler = subprocess.Popen([sys.executable, "-P", "-m", "memtui.recording.sampler"], start_new_session=True)
idle = subprocess.Popen(["sleep", "1000"])
sampler.wait()
idle.kill()
"""


@needs_tracker
def test_neither_itself_nor_what_it_runs_under():
    """It could not let go of itself, and a shell that stands still makes it stand still in the end."""
    child = subprocess.Popen(
        [sys.executable, "-c", _ANCESTOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        child.stdin.write(order_for(child.pid, duration_ns=1_500_000_000).to_line())
        child.stdin.flush()
        stream = finish(child)
        assert stream.returncode == 0, stream.errors
        commands = {p.pid: p.command for p in stream.of(Process)}
        (sampler,) = [pid for pid, command in commands.items() if "-m memtui.recording.sampler" in command]
        (idle,) = [pid for pid, command in commands.items() if "sleep 1000" in command]
        for pid, reason in ((child.pid, "started this memtui"), (sampler, "is memtui itself")):
            windows = stream.of_pid(pid)
            assert {w.status for w in windows} == {"not paused"}
            assert all(reason in w.reason and w.paused_ns == 0 for w in windows)
        assert "ok" in {w.status for w in stream.of_pid(idle)}
    finally:
        child.kill()
        child.wait()


@needs_root
def test_not_the_recorder():
    """Who reads what the sampler writes: here a stand-in for the sampler, and one for the recorder."""
    read, write = os.pipe()
    with (
        subprocess.Popen(["sleep", "100"], stdout=write) as sampler,
        subprocess.Popen(["sleep", "100"], stdin=read) as recorder,
        subprocess.Popen(["sleep", "100"], stdin=subprocess.DEVNULL) as other,
    ):
        try:
            guard = ProtectedProcesses(sampler.pid)
            guard.refresh()
            assert "recorder" in guard.objection(recorder.pid)
            assert guard.objection(other.pid) == ""
            assert "itself" in guard.objection(sampler.pid)
            assert "started" in guard.objection(os.getpid())
        finally:
            for child in (sampler, recorder, other):
                child.kill()
            os.close(read)
            os.close(write)


@needs_root
def test_not_the_owner_of_its_terminal():
    """Who holds the other end of the pseudo-terminal that memtui runs in, without being above it."""
    master, slave = pty.openpty()
    with (
        subprocess.Popen(["sleep", "100"], stdin=slave, start_new_session=True,
                         preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as inside,
        subprocess.Popen(["sleep", "100"], pass_fds=[master]) as owner,
        subprocess.Popen(["sleep", "100"]) as other,
    ):  # fmt: skip
        try:
            # The stand-in for the sampler is a child of the one inside the terminal.
            guard = ProtectedProcesses(inside.pid)
            guard.refresh()
            assert guard.objection(owner.pid, 1) == "", "only what is above memtui has a terminal"
            guard._terminals.add(int(os.ttyname(slave).rpartition("/")[2]))
            assert "owns the terminal" in guard.objection(owner.pid, 2)
            assert guard.objection(other.pid, 2) == ""
        finally:
            for child in (inside, owner, other):
                child.kill()
            os.close(master)
            os.close(slave)


def test_a_program_at_the_gate_is_called_what_it_will_be(tmp_path, monkeypatch):
    from memtui.probes.process_tree import ProcessTree
    from tests.support.proc_trees import write_process

    monkeypatch.setattr("memtui.probes.process_tree.command_of", lambda pid: f"command {pid}")
    write_process(tmp_path, 10, "root", 1, 100)
    tree = ProcessTree(10, proc=tmp_path, command="sh -c exit")
    tree.refresh()
    assert [p.command for p in tree.processes] == ["sh -c exit"]
    assert tree.new_generation(10).command == "command 10"


def test_gaps_count_what_was_never_seen_alive(tmp_path, monkeypatch):
    from memtui.probes.process_tree import ProcessTree
    from tests.support.proc_trees import write_process

    monkeypatch.setattr("memtui.probes.process_tree.command_of", lambda pid: f"command {pid}")
    write_process(tmp_path, 10, "root", 1, 100)
    tree = ProcessTree(10, proc=tmp_path)
    stat, children = tmp_path / "10" / "stat", tmp_path / "10" / "task" / "10" / "children"
    tree.refresh()
    assert tree.unseen == 0

    def faults(count: int) -> None:
        fields = stat.read_text().split()
        fields[10] = str(count)
        stat.write_text(" ".join(fields))

    faults(5)
    assert tree.refresh() == ([], [])
    assert tree.unseen == 1, "it waited for a child that nobody saw"
    assert tree.refresh() == ([], [])
    assert tree.unseen == 0
    write_process(tmp_path, 11, "zombie", 10, 101)
    (tmp_path / "11" / "stat").write_text((tmp_path / "11" / "stat").read_text().replace(") S ", ") Z "))
    children.write_text("11")
    assert tree.refresh() == ([], [])
    assert tree.unseen == 1, "it was born and ended"
    tree.refresh()
    assert tree.unseen == 0, "a zombie that stays is counted once"
    children.write_text("")
    faults(9)
    tree.refresh()
    assert tree.unseen == 0, "the zombie explains the faults"
    write_process(tmp_path, 12, "child", 10, 102)
    children.write_text("12")
    new, _ = tree.refresh()
    assert [p.pid for p in new] == [12]
    children.write_text("")
    faults(20)
    _, gone = tree.refresh()
    assert [p.pid for p in gone] == [12]
    assert tree.unseen == 0


def test_a_first_look_is_cheap_on_a_crowded_machine():
    """Only the tree is looked at, however many other processes there are."""
    from memtui.probes.process_tree import ProcessTree

    crowd = [subprocess.Popen(["sleep", "100"]) for _ in range(200)]
    try:
        tree = ProcessTree(crowd[0].pid)
        tree.refresh()
        start_s = time.process_time()
        for _ in range(100):
            tree.refresh()
        assert (time.process_time() - start_s) / 100 < 0.002
    finally:
        for child in crowd:
            child.kill()
        for child in crowd:
            child.wait()
