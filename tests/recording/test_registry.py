"""What a user does with recordings that run: list, mark, pause, another interval, stop."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memtui.core import options
from memtui.core.errors import UserError
from memtui.recording import client
from memtui.recording.client import sole_recording
from memtui.recording.registry import Running, find_all
from memtui.session.session import Session
from tests.support.cli import memtui, refused
from tests.support.folders import names_in
from tests.support.live import (
    gone,
    needs_tracker,
    own_state,
    part,
    pattern,
    runs,
    start,
    stop,
    wait_for_samples,
    wait_until,
)
from tests.support.schemas import check

pytestmark = pytest.mark.real_clock(alone=False)

TRACKER = ("--tracker", "rss")  # these tests are about recordings, and not about what they measure


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch) -> Iterator[Path]:
    with own_state(tmp_path / "state", monkeypatch) as state:
        yield state


@pytest.fixture
def recording(tmp_path, state) -> Iterator[tuple[Running, Path, int]]:
    """A recording that runs: (its entry, its session, the pid of its target)."""
    path = tmp_path / "s.memtui"
    with pattern("loop", "--pages", 300) as truth:
        child = start("record", truth["pid"], "-o", path, "--interval", "0.05", *TRACKER)
        try:
            wait_for_samples(path, 3).close()
            (running,) = wait_for(lambda: find_all(state))  # others find it a moment after its first window
            yield running, path, truth["pid"]
            assert runs(truth["pid"])
        finally:
            child.kill() if child.poll() is None and not path.exists() else stop(child)


def events(path: Path, kind: str) -> list[tuple[int, str]]:
    reader = Session(path)
    marked = [(e.t_ns, e.text) for e in reader.events(0, 2**62) if e.kind == kind]
    reader.close()
    return marked


def wait_for(condition):
    return wait_until(condition, 15, 0.1)


def test_list(recording):
    running, path, pid = recording
    assert re.fullmatch("[a-z]{4}", running.id)
    text = memtui("list").stdout
    for word in (running.id, str(pid), "memtui.study.workloads.access_patterns", str(path)):
        assert word in text
    document = json.loads(memtui("list", "--json").stdout)
    check("list", document)
    (listed,) = document["recordings"]
    assert (listed["id"], listed["pid"], listed["session"], listed["interval_s"], listed["paused"]) == (
        running.id, pid, str(path), 0.05, False,
    )  # fmt: skip
    assert listed["samples"] > 0
    assert listed["rss_bytes"] > 1 << 20
    assert abs(time.time() - running.began_s - listed["duration_s"]) < 20


def test_nothing_runs():
    assert memtui("list").stdout == "no recording of yours runs; memtui attach PID begins one\n"
    assert json.loads(memtui("list", "--json").stdout)["recordings"] == []
    refused(memtui("stop", "abcd"), "no recording of yours has the ID or PID 'abcd'; none of yours runs")
    assert memtui("stop", "all").returncode == 0
    refused(memtui("mark", "x"), "there is nothing to mark; none of yours runs")


def test_stop_by_id(recording):
    running, path, _ = recording
    parts = [part(running.memtui_pid, f"memtui.recording.{name}") for name in ("sampler", "recorder")]
    refused(memtui("stop", "nope"), f"running: {running.id} (PID {running.pid}, python")
    refused(memtui("stop", "nope"), "-m memtui.study.workloads.")
    done = memtui("stop", running.id)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"stopped {running.id}: {path}\n", "")
    assert all(map(gone, parts))
    reader = Session(path)
    assert reader.end is not None
    assert reader.end.kind == "stopped"
    reader.close()
    assert names_in(path.parent / "state" / "memtui" / "control") == []


def test_marks(recording):
    running, path, _ = recording
    before_ns = time.monotonic_ns()
    for text, which_recording in (("epoch 1", ()), ("é\x1b[31m\n" * 30, ("--session", running.id))):
        done = memtui("mark", *which_recording, text)
        notice = "" if which_recording else f"marked in {path}, the recording of PID {running.pid}"
        assert (done.returncode, done.stdout, notice in done.stderr, not done.stderr) == (0, "", True, not notice)
    stored = wait_for(lambda: len(events(path, "mark")) >= 2 and events(path, "mark"))
    assert [text for _, text in stored][:2] == ["epoch 1", "é\x1b[31m\n" * 30]
    assert all(before_ns < t_ns < time.monotonic_ns() for t_ns, _ in stored)
    refused(memtui("mark", ""), "1 to 500 characters, not 0")
    refused(memtui("mark", "x" * 501), "not 501")
    refused(memtui("mark", "x", "--session", "nope"), "no recording of yours has")


def test_a_moment_that_cannot_be_is_not_believed(recording):
    running, path, _ = recording
    now_ns = time.monotonic_ns()
    for t_ns in (0, max(now_ns - 3600 * 10**9, 1), now_ns + 3600 * 10**9):
        client.send_request(running, "mark", text=str(t_ns), t_ns=t_ns)
    client.send_request(running, "mark", text="late", t_ns=now_ns - 10**9)
    stored = wait_for(lambda: len(events(path, "mark")) == 4 and events(path, "mark"))
    times = {text: t_ns for t_ns, text in stored}
    assert times.pop("late") == now_ns - 10**9
    assert all(now_ns < t_ns < time.monotonic_ns() for t_ns in times.values())


def test_too_many_marks_are_refused_and_the_recording_goes_on(recording):
    running, path, _ = recording
    taken, why = 0, ""
    while not why and taken < 5000:
        try:
            client.send_request(running, "mark", text="x" * options.MARK_CHARACTERS)
            taken += 1
        except UserError as error:
            if "too slow" not in str(error):  # the recorder had no CPU for a moment: another reason, for another test
                why = str(error)
            time.sleep(0.05)
    assert "marks a second" in why
    assert taken >= 500
    before = len(Session(path).samples)
    wait_for_samples(path, before + 10).close()
    assert wait_for(lambda: len(events(path, "mark")) == taken)


def test_marks_of_the_program_itself(tmp_path, state):
    """``memtui.mark()``, in the program and in its child; and by the shell, which need not say of which recording."""
    source = (
        "import memtui, os, subprocess, sys, time\n"
        "heavy = {'textual', 'numpy', 'psutil', 'sqlite3', 'rich'}\n"
        "deadline = time.monotonic() + 30\n"
        "while time.monotonic() < deadline and not os.path.exists(sys.argv[1]):\n"
        "    memtui.mark('epoch'); time.sleep(0.3)\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "subprocess.run([sys.executable, '-c', 'import memtui; memtui.mark(7)'])\n"
        "subprocess.run([sys.executable, '-m', 'memtui', 'mark', 'by the child'], check=True)\n"
        "memtui.mark(''); memtui.mark(object()); memtui.mark('x\\udc80' * 5000)\n"
        "time.sleep(1)\n"
    )
    path, flag = tmp_path / "s.memtui", tmp_path / "flag"
    argv = ("record", "-o", path, "--interval", "0.1", *TRACKER, "--", sys.executable, "-c", source, flag)
    other = tmp_path / "other.memtui"
    with pattern("loop", "--pages", 300) as truth:  # a second recording runs, so that "the only one" is not an answer
        second = start("record", truth["pid"], "-o", other, "--interval", "0.1", *TRACKER)
        wait_for_samples(other, 1).close()
        child = start(*argv)
        wait_for_samples(path, 3).close()
        wait_for(lambda: events(path, "mark"))
        done = memtui("mark", "whose?")
        refused(done, "name one with --session; running: ")
        flag.touch()
        _, err = child.communicate(timeout=30)
        assert child.returncode == 0, err
        stop(second)
    texts = [text for _, text in events(path, "mark")]
    assert texts[0] == "epoch"
    assert {"7", "by the child"} <= set(texts)
    assert any(text.startswith("<object object") for text in texts)
    assert any(text.startswith("x\\x80") and len(text) == options.MARK_CHARACTERS for text in texts)
    assert events(other, "mark") == []


def test_marks_of_a_stranger_go_to_the_only_recording(recording, tmp_path):
    """And to none where several run; of a process that is observed to its own recording, also when that began later."""
    running, path, _ = recording
    source = (
        "import os, sys, time\n"
        "from memtui.recording import client as marks\n"
        "marks.RETRY_S = 0\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
        "print(marks.put(sys.argv[2]))\n"
    )

    def stranger(text: str, flag: Path) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", source, str(flag), text]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    flag = tmp_path / "flag"
    with stranger("alone", path) as child:
        assert child.communicate(timeout=20)[0] == "True\n"
    wait_for(lambda: [text for _, text in events(path, "mark")] == ["alone"])
    other = tmp_path / "other.memtui"
    with stranger("mine", flag) as child:
        second = start("record", child.pid, "-o", other, "--interval", "0.1", *TRACKER)
        wait_for_samples(other, 1).close()
        with stranger("nobody's", path) as third:
            assert third.communicate(timeout=20)[0] == "False\n"
        flag.touch()
        assert child.communicate(timeout=20)[0] == "True\n"
        second.communicate(timeout=20)
    assert [text for _, text in events(other, "mark")] == ["mine"]
    assert [text for _, text in events(path, "mark")] == ["alone"]
    calibration = Running(1, 1, 1, 1, "/tmp/memtui-calibrate-1-ab.memtui")
    assert sole_recording([calibration]) is None
    assert sole_recording([calibration, running]) == running
    assert sole_recording([running, running]) is None


def test_a_mark_where_nobody_records_does_nothing_and_loads_nothing():
    source = (
        "import sys, memtui\n"
        "for n in range(1000): memtui.mark('x')\n"
        "heavy = {'textual', 'numpy', 'psutil', 'sqlite3', 'rich'}\n"
        "assert not heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=os.environ, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    broken = os.environ | {"HOME": "/nowhere", "XDG_STATE_HOME": "/proc/1/nowhere", "SUDO_UID": "x"}
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=broken, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_interval(recording):
    running, path, _ = recording
    client.send_request(running, "interval", interval_ns=400_000_000)
    assert json.loads(memtui("list", "--json").stdout)["recordings"][0]["interval_s"] == 0.4
    reader = wait_for_samples(path, 1)
    wait_for(lambda: reader.refresh() and (reader.samples.asked_ns == 400_000_000).sum() >= 4)
    lengths = reader.samples.end_ns - reader.samples.start_ns
    intervals_ns = reader.samples.asked_ns
    assert set(intervals_ns.tolist()) == {50_000_000, 400_000_000}
    assert (np.diff(intervals_ns) >= 0).all()
    assert (lengths[intervals_ns == 400_000_000][1:] >= 390_000_000).all()
    assert [text for _, text in events(path, "interval")] == ["the interval is 0.4 s from here on"]
    reader.close()
    with pytest.raises(client.UserError, match="interval_ns must be a whole number from"):
        client.send_request(running, "interval", interval_ns=5)


@needs_tracker
def test_pause_and_go_on(recording):
    """While sampling is paused nothing of the target is read; the time between is not a window."""
    running, path, pid = recording
    client.send_request(running, "pause")
    began_ns = wait_for(lambda: events(path, "gap"))[0][0]
    assert json.loads(memtui("list", "--json").stdout)["recordings"][0]["paused"]
    assert "sampling is paused" in memtui("list").stdout
    time.sleep(1.2)
    reader = Session(path)
    assert reader.samples.end_ns[-1] <= began_ns
    tracers = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("TracerPid")]
    assert tracers == ["TracerPid:\t0"]
    count = len(reader.samples)
    client.send_request(running, "resume")
    wait_for(lambda: reader.refresh() and len(reader.samples) > count + 5)
    (_, _), (again_ns, text) = events(path, "gap")
    assert text.startswith("sampling goes on after ")
    assert reader.samples.sample.tolist() == list(range(len(reader.samples)))
    assert reader.samples.start_ns[count] - reader.samples.end_ns[count - 1] > 10**9
    lengths = reader.samples.end_ns - reader.samples.start_ns
    assert lengths[count] < 10**9, "the window over the pause is not a sample"
    assert again_ns > began_ns + 10**9
    reader.close()


def test_stop_while_paused(recording):
    running, path, _ = recording
    client.send_request(running, "pause")
    wait_for(lambda: events(path, "gap"))
    last = len(Session(path).samples)
    assert memtui("stop", running.id).returncode == 0
    assert len(Session(path).samples) <= last + 1
