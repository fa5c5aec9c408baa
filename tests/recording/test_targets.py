"""The process that a number names: its threads, containers, and those that cannot be observed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from memtui.core.errors import UserError
from memtui.core.procfs import read_stat
from memtui.recording import targets
from memtui.recording.targets import ancestors, check_target, find_target, is_own, others, parse_pid, pids_inside
from tests.support.cli import memtui

THREADED = """
import os, threading, time
threading.Thread(target=time.sleep, args=(120,), daemon=True).start()
print(max(map(int, os.listdir("/proc/self/task"))), flush=True)
time.sleep(120)
"""


@pytest.fixture
def thread() -> Iterator[tuple[int, int]]:
    """(a process, its second thread)."""
    with subprocess.Popen([sys.executable, "-c", THREADED], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield child.pid, int(child.stdout.readline())
        child.kill()


@pytest.mark.real_clock
def test_a_thread_is_a_part_of_its_process(thread):
    pid, number = thread
    assert number != pid
    target, notice = find_target(number)
    assert target == pid
    assert notice.startswith(f"{number} is a thread of process {pid} (")
    assert find_target(pid) == (pid, "")
    assert find_target(os.getpid()) == (os.getpid(), "")


@pytest.mark.real_clock
def test_its_process_is_recorded_and_that_is_said(thread, tmp_path):
    pid, number = thread
    options = ("--tracker", "rss", "--duration", "0.5", "-o", tmp_path / "s.memtui")
    done = memtui("record", number, *options)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/s.memtui\n"), done
    assert f"{number} is a thread of process {pid}" in done.stderr
    assert f'"pid": {pid}' in memtui("report", tmp_path / "s.memtui", "--json").stdout


def test_a_notice_about_a_process_has_no_secret_of_its_command_line():
    with subprocess.Popen(
        [sys.executable, "-c", THREADED, "--token=hunter2"], stdout=subprocess.PIPE, text=True
    ) as child:
        _, notice = find_target(int(child.stdout.readline()))
        shown = targets.recognisable(child.pid, 500)
        child.kill()
    assert "hunter2" not in notice
    assert "--token" in shown
    assert "hunter2" not in shown
    assert targets.recognisable(child.pid) == "ended"


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("python -m memtui attach 1", True),
        ("/srv/venv/bin/memtui record 1", True),
        ("python -P -m memtui.recording.sampler", True),
        ("python -m memtui.study.workloads.cnn --epochs 3", False),
        ("python /home/ada/memtui-runs/train.py", False),
    ],
)
def test_memtui_itself_is_no_candidate_and_what_it_trains_is(command, own):
    assert is_own(command) == own


@pytest.mark.parametrize(("text", "says"), [("x", "must be a number, not 'x'"), ("0", "above 0"), ("-3", "above 0")])
def test_a_number_is_checked(text, says):
    with pytest.raises(UserError, match=says):
        parse_pid(text)


def write_status(proc: Path, pid: int, numbers: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "status").write_text(f"Name:\tx\nTgid:\t{pid}\nNSpid:\t{numbers}\n")


def test_a_number_inside_a_container_is_found_where_there_is_one(tmp_path, monkeypatch):
    write_status(tmp_path, 400, "400\t7")
    write_status(tmp_path, 401, "401\t90\t8")
    write_status(tmp_path, 402, "402\t8")
    write_status(tmp_path, 403, "403")
    (tmp_path / "self").mkdir()
    (tmp_path / "404").mkdir()  # it ends just now
    assert pids_inside(7, tmp_path) == [400]
    assert pids_inside(8, tmp_path) == [401, 402]
    assert pids_inside(400, tmp_path) == [], "its number here is not one inside"
    monkeypatch.setattr(targets, "PROC", tmp_path)
    monkeypatch.setattr(targets, "pids_inside", lambda pid: pids_inside(pid, tmp_path))
    monkeypatch.setattr(targets, "recognisable", lambda pid: "train.py")
    assert find_target(7) == (400, "PID 7 exists in a container only; out here it is 400 (train.py)")
    with pytest.raises(
        UserError, match=r"exists in 2 containers only; name one .*: 401 \(train.py\), 402 \(train.py\)$"
    ):
        find_target(8)
    with pytest.raises(UserError, match="no process has PID 9, here or in a container"):
        find_target(9)


def test_ancestors_go_up_to_init():
    assert {os.getppid(), 1} <= ancestors(os.getpid())
    assert os.getpid() not in ancestors(os.getpid())
    assert ancestors(1) == set()


def test_ancestors_of_one_that_ends_are_those_before_it(monkeypatch):
    def read(pid: int) -> SimpleNamespace:
        if pid == 30:
            raise ProcessLookupError
        return SimpleNamespace(parent_pid={50: 40, 40: 30}[pid])

    monkeypatch.setattr(targets, "read_stat", read)
    assert ancestors(50) == {40, 30}
    assert ancestors(30) == set()


def test_what_cannot_be_observed_is_said():
    with pytest.raises(UserError, match="is memtui itself"):
        check_target(os.getpid())
    with pytest.raises(UserError, match="pausing it would stop memtui too"):
        check_target(os.getppid())
    with subprocess.Popen(["sleep", "60"]) as child:
        assert check_target(child.pid) == read_stat(child.pid).start_ticks
        assert child.pid in dict(others())
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(UserError, match=r"waits for its parent \(zombie\)"):
            check_target(child.pid)
        assert child.pid not in dict(others())
    with pytest.raises(UserError, match="no process has PID"):
        check_target(child.pid)
    assert not {os.getpid(), os.getppid()} & dict(others()).keys()


def test_a_kernel_thread_has_no_memory(monkeypatch):
    stat = replace(read_stat(os.getpid()), kernel_thread=True)
    monkeypatch.setattr(targets, "read_stat", lambda pid: stat if pid == 77 else read_stat(pid))
    with pytest.raises(UserError, match="is a kernel thread"):
        check_target(77)
