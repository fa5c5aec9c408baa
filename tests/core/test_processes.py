"""Child processes: one that answers requests, and work behind a screen with its messages, errors and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil
import pytest

from memtui.core import processes
from memtui.core.errors import FAILURE, UserError
from memtui.core.processes import (
    BackgroundTask,
    JsonLineProcess,
    Send,
    WorkEnded,
    WorkerEnded,
    WorkFailed,
    WorkStarted,
)

ANSWERS = """
import json, sys
print('{"at": "ready", "threads": 3}', flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["name"] == "die":
        raise SystemExit(7)
    if request["name"] == "twice":
        print('{"at": 1}\\n{"at": 2}\\n{"at"', end="", flush=True)
        print(": 3}", flush=True)
    if request["name"] == "closed":
        import os, time
        os.close(1)
        time.sleep(60)
"""


@dataclass(frozen=True, slots=True)
class Request:
    name: str


@dataclass(frozen=True, slots=True)
class Row:
    """A progress as a work sends it."""

    number: int


@pytest.fixture
def child() -> Iterator[JsonLineProcess]:
    process = JsonLineProcess([sys.executable, "-ISc", ANSWERS])
    yield process
    process.close()
    assert not psutil.pid_exists(process.pid)


def test_messages_are_whole_lines_in_their_order(child):
    assert child.ready == {"at": "ready", "threads": 3}
    assert os.getsid(child.pid) == child.pid, "keys of the terminal send it no signals"
    child.send_message(Request("twice"))
    assert [child.receive_message(10.0) for _ in range(3)] == [{"at": 1}, {"at": 2}, {"at": 3}]
    assert child.receive_message(0.01) is None


def test_a_child_that_ends_says_how(child):
    child.send_message(Request("die"))
    with pytest.raises(WorkerEnded, match=r"the worker ended \(7\)"):
        child.receive_message(10.0)
    with pytest.raises(WorkerEnded, match=r"the worker ended \(7\)"):
        child.send_message(Request("again"))


def test_a_child_that_is_killed_says_by_what(child):
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(WorkerEnded, match="killed by SIGKILL"):
        child.receive_message(10.0)


@pytest.mark.parametrize(
    ("code", "starting_s", "says"),
    [
        ('print(\'{"at": "unable", "text": "no torch"}\')', 10.0, "no torch"),
        ('print(\'{"at": "measured"}\')', 10.0, "it did not start"),
        ("raise SystemExit(3)", 10.0, r"the worker ended \(3\)"),
        ("import sys; sys.stdin.read()", 0.1, "it did not start"),
    ],
)
def test_a_child_that_does_not_start_is_ended(code, starting_s, says):
    before = set(psutil.Process().children())
    with pytest.raises(WorkerEnded, match=says):
        JsonLineProcess([sys.executable, "-ISc", code], starting_s)
    assert set(psutil.Process().children()) == before


def test_a_child_ends_with_its_parent():
    """Also where the parent ended before the child asked for that."""
    code = (
        "import os, time\nfrom memtui.core.processes import exit_with_parent\nparent, pid = os.getpid(), os.fork()\n"
        "if pid == 0:\n    exit_with_parent(parent)\nelse:\n    print(pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        other = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
    assert processes.select.select([other], [], [], 10)[0], "it is still there"
    os.close(other)
    with pytest.raises(SystemExit):
        processes.exit_with_parent(os.getppid() + 1)
    processes.ctypes.CDLL(None).prctl(processes._PR_SET_PDEATHSIG, 0, 0, 0, 0)


def received(task: BackgroundTask[Row]) -> list[Row | WorkEnded | WorkFailed]:
    messages, deadline_s = [], time.monotonic() + 20
    while not task.over and time.monotonic() < deadline_s:
        messages += task.receive_messages(1.0)
    task.end()
    return messages


def two_rows(send: Send) -> list[str]:
    send(Row(1))
    send(Row(2))
    return ["that was all", "really"]


def refused(send: Send) -> list[str]:
    send(Row(1))
    raise UserError("there is no such file", 2)


def broken(send: Send) -> list[str]:
    raise ZeroDivisionError("by 0")


def test_the_progress_and_the_end_of_work_are_messages():
    task = BackgroundTask(two_rows, Row)
    assert received(task) == [Row(1), Row(2), WorkEnded(("that was all", "really"))]
    assert (task.finished, task.error, task.conclusion) == (True, None, ("that was all", "really"))


@pytest.mark.parametrize(
    ("work", "messages"),
    [
        (refused, [Row(1), WorkFailed("there is no such file", 2)]),
        (broken, [WorkFailed("ZeroDivisionError: by 0", FAILURE)]),
    ],
)
def test_why_work_ended_early_is_a_message(work: Callable[[Send], list[str]], messages):
    task = BackgroundTask(work, Row)
    assert received(task) == messages
    assert (task.finished, task.conclusion) == (False, ())
    assert (str(task.error), task.error.code) == (messages[-1].text, messages[-1].code)


def test_work_starts_with_its_first_message_which_is_not_lost():
    task = BackgroundTask(two_rows, Row)
    assert task.wait_for_start()
    assert received(task)[:1] == [Row(1)]


def test_work_that_fails_before_it_starts_does_not_start():
    task = BackgroundTask(broken, Row)
    assert not task.wait_for_start()
    task.end()
    assert str(task.error) == "ZeroDivisionError: by 0"


class OnlySecond(BackgroundTask[Row]):
    def is_start(self, message: Row | WorkEnded) -> bool:
        return message == Row(2)


def test_what_the_start_is_depends_on_the_work():
    task = OnlySecond(two_rows, Row)
    assert task.wait_for_start()
    assert Row(2) in received(task)
    task = OnlySecond(lambda send: [], Row)
    assert not task.wait_for_start()
    task.end()


def test_work_without_progress_reports_its_start():
    def work(send: Send) -> list[str]:
        send(WorkStarted())
        return []

    assert received(BackgroundTask(work, WorkStarted)) == [WorkStarted(), WorkEnded(())]


def test_all_messages_can_be_waited_for():
    task = BackgroundTask(two_rows, Row)
    task.receive_all(20)
    assert (task.over, task.finished) == (True, True)
    assert task.receive_messages(0.0) == []
    task.end()


def test_a_message_of_another_type_is_refused():
    task = BackgroundTask(lambda send: [send({"text": "no number"})], Row)
    with pytest.raises(ValueError, match="number is missing"):
        task.receive_all(20)
    task.end()


def test_ending_interrupts_the_work():
    def work(send: Send) -> list[str]:
        try:
            send(WorkStarted())
            time.sleep(60)
        except KeyboardInterrupt:
            send(WorkStarted())
            raise
        return ["not interrupted"]

    task = BackgroundTask(work, WorkStarted)
    assert task.wait_for_start()
    start_s = time.monotonic()
    task.end()
    assert time.monotonic() - start_s < processes.ENDING_S
    assert (task.finished, task.error) == (False, None)


def test_work_that_ignores_the_interrupt_is_killed(monkeypatch):
    def work(send: Send) -> list[str]:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        send(WorkStarted())
        time.sleep(60)
        return []

    monkeypatch.setattr(processes, "ENDING_S", 0.1)
    task = BackgroundTask(work, WorkStarted)
    assert task.wait_for_start()
    task.end()
    assert not psutil.pid_exists(task._pid)


def test_the_child_writes_nothing_to_the_terminal():
    code = (
        "import sys\nfrom memtui.core.processes import BackgroundTask, WorkStarted\n"
        "def work(send):\n    print('noise', flush=True)\n    print('noise', file=sys.stderr, flush=True)\n"
        "    return []\ntask = BackgroundTask(work, WorkStarted)\ntask.receive_all(20)\ntask.end()\n"
        "print(task.finished)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_an_interrupt_at_any_moment_ends_the_child_only():
    """Also one that comes while it says why it ends: then it must not run on as a second parent."""
    code = (
        "import os\nfrom memtui.core import processes\n"
        "def child(*words): raise KeyboardInterrupt\n"
        "processes._child = child\nprocess = processes.BackgroundTask(None, dict)\n"
        "print(os.waitpid(process._pid, 0)[1] >> 8, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("130\n", "")
