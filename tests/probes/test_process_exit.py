"""How a target ended: what is known is said, and what is not is not guessed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memtui.core.samples import End
from memtui.probes import process_exit
from memtui.probes.process_exit import describe_status, how_it_ended
from memtui.reports.report import build_report
from memtui.reports.text import format_report
from memtui.session.session import Session
from tests.support.live import TRACKER, start, wait_for_samples

pytestmark = pytest.mark.real_clock

_WAITS = "import sys, time\nprint(1, flush=True)\n"
_CODES = {
    "exited": _WAITS + "sys.stdin.read()",
    "exited with code 3": _WAITS + "sys.stdin.read(); sys.exit(3)",
    "killed by SIGKILL": _WAITS + "time.sleep(100)",
    "killed by SIGTERM": _WAITS + "time.sleep(100)",
}
NOT_OUT_OF_MEMORY = {"killed by SIGKILL": "killed by SIGKILL, and not because memory ran out"}
_SIGNALS = {"killed by SIGKILL": signal.SIGKILL, "killed by SIGTERM": signal.SIGTERM}


def _end(child: subprocess.Popen, words: str) -> None:
    if words in _SIGNALS:
        os.kill(child.pid, _SIGNALS[words])
    else:
        child.stdin.close()


@pytest.mark.parametrize("waited", [False, True], ids=["by nobody waited for", "waited for at once"])
@pytest.mark.parametrize("words", _CODES)
def test_a_recording_says_how_its_target_ended(words, waited, tmp_path):
    """One whose parent waits is gone before anybody can look: since Linux 6.15 its pidfd tells it then, too."""
    path = tmp_path / "s.memtui"
    with subprocess.Popen(
        [sys.executable, "-c", _CODES[words]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        recording = start("record", child.pid, "-o", path, "--interval", 0.1, *TRACKER)
        wait_for_samples(path, 1).close()
        _end(child, words)
        if waited:
            child.wait()
        _, errors = recording.communicate(timeout=60)
        assert recording.returncode == 0, errors
    reader = Session(path)
    assert reader.end.kind == "target exited"
    words = NOT_OUT_OF_MEMORY.get(words, words)
    knowable = not waited or tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)
    assert reader.end.text == (words if knowable else "")
    assert reader.events(0, 2**62)[-1].text == f"target {words if knowable else 'ended'}"
    reader.close()
    assert f"ended: target {words if knowable else 'ended'}" in format_report(build_report(path))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("exited", "import time; time.sleep(0.5)"),
        ("exited with code 3", "import time; time.sleep(0.5); raise SystemExit(3)"),
        ("killed by SIGKILL", "import os, time; time.sleep(0.5); os.kill(os.getpid(), 9)"),
        ("killed by SIGTERM", "import os, time; time.sleep(0.5); os.kill(os.getpid(), 15)"),
    ],
)
def test_a_command_that_was_recorded_is_said_to_have_ended_as_it_did(words, code, tmp_path):
    path = tmp_path / "s.memtui"
    recording = start("record", "-o", path, "--interval", 0.1, *TRACKER, "--", sys.executable, "-c", code)
    recording.communicate(timeout=60)
    done = start("report", path, "--json")
    report = json.loads(done.communicate(timeout=60)[0])
    assert (report["end"], report["end_reason"]) == ("target exited", NOT_OUT_OF_MEMORY.get(words, words))


def _seen(pid: int) -> str:
    with Path("/dev/null").open() as ended:  # ready to be read, as the pidfd of what has ended is
        return how_it_ended(pid, ended.fileno())


def _zombie(code: str) -> subprocess.Popen:
    child = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with Path(f"/proc/{child.pid}/stat").open() as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                return child
        time.sleep(0.01)
    raise AssertionError("it did not end")


def test_an_exit_that_takes_long_is_waited_for(monkeypatch):
    """The memory of a process is gone, and its reading fails, before there is a status."""
    monkeypatch.setattr(process_exit, "is_exiting", lambda pid: True)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.5); raise SystemExit(3)"])
    pidfd = os.pidfd_open(child.pid)
    try:
        assert how_it_ended(child.pid, pidfd) == "exited with code 3"
    finally:
        child.wait()
        os.close(pidfd)


def test_on_a_kernel_before_6_15_one_that_nobody_waited_for_is_asked_by_its_stat(monkeypatch):
    monkeypatch.setattr(process_exit, "_status_from_pidfd", lambda pidfd: None)
    for code, words in (("raise SystemExit(7)", "exited with code 7"), ("", "exited")):
        child = _zombie(code)
        assert _seen(child.pid) == words
        child.wait()
    assert _seen(child.pid) == ""  # its parent took the status away: nobody knows


def test_a_zero_that_only_means_it_may_not_be_known_is_no_exit_code(monkeypatch, tmp_path):
    """The kernel tells 0 to those without the right to know."""
    monkeypatch.setattr(process_exit, "_status_from_pidfd", lambda pidfd: None)
    monkeypatch.setattr(process_exit, "PROC", tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a) b) Z " + "1 " * 48 + "0")
    assert _seen(7) == ""  # no io to be read
    (tmp_path / "7" / "io").write_text("rchar: 1")
    assert _seen(7) == "exited"


def test_words_of_wait_statuses():
    assert describe_status(0) == "exited"
    assert describe_status(255 << 8) == "exited with code 255"
    assert describe_status(11 | 0x80) == "killed by SIGSEGV"  # with a core dump
    assert describe_status(40) == "killed by signal 40"


def test_an_end_of_which_no_more_is_known_claims_no_more():
    assert End(1, "target exited").description == "target ended"
    assert End(1, "duration").description == "duration"
    assert End(1, "low disk", "only 1 MiB left").description == "only 1 MiB left"
