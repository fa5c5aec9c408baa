"""Numbers that people read off a list of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from memtui.recording.targets import find_target
from tests.support.cli import memtui

pytestmark = pytest.mark.real_clock

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


def test_a_thread_is_a_part_of_its_process(thread):
    pid, number = thread
    assert number != pid
    target, notice = find_target(number)
    assert target == pid
    assert notice.startswith(f"{number} is a thread of process {pid} (")
    assert find_target(pid) == (pid, "")
    assert find_target(os.getpid()) == (os.getpid(), "")


def test_its_process_is_recorded_and_that_is_said(thread, tmp_path):
    pid, number = thread
    options = ("--tracker", "rss", "--duration", "0.5", "-o", tmp_path / "s.memtui")
    done = memtui("record", number, *options)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/s.memtui\n"), done
    assert f"{number} is a thread of process {pid}" in done.stderr
    assert f'"pid": {pid}' in memtui("report", tmp_path / "s.memtui", "--json").stdout
