"""``memtui calibrate``: it finds the slow-down of a program, and reports what is unknown."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.slowdown import Block, count_in, doubts, slow_down
from memtui.core.errors import UserError
from memtui.core.page_set import PageSet
from memtui.core.procfs import read_stat
from memtui.core.samples import Options, Process, ProcessWindow, Window
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from memtui.study.calibration import Blocks, CalibrationPlan, _result
from memtui.study.progress_counters import Bytes, LastNumber, Lines, Steps, open_counter, parse_counter, steps_in
from tests.support import sessions
from tests.support.cli import memtui
from tests.support.live import TRACKER
from tests.support.sessions import MS, write_session

FAST = ("--interval", 0.1, *TRACKER)


def simulate(slower: float, *, pairs: int = 8, step_s: float = 0.01, poll_s: float = 0.02, drift: float = 0.0):
    """Return blocks over a program whose steps take ``slower`` longer under observation."""
    watched, now_s, steps, due_s = [False], 0.0, 0, step_s
    times: list[float] = []
    values: list[float] = []
    plan = CalibrationPlan(1, Options(200_000_000), "steps", "", pairs, 2.0)
    blocks = Blocks(plan, lambda on: watched.__setitem__(0, on), 0.5, random.Random(7))
    while not blocks.done:
        while due_s <= now_s:
            steps += 1
            due_s += step_s * (1 + drift * now_s) * (1 + slower * watched[0])
        if not values or values[-1] != steps:
            times.append(now_s)
            values.append(float(steps))
        blocks.step(now_s)
        now_s += poll_s
    measured = []
    for pair, observed, start_s, end_s in blocks.spans:
        measured.append(Block(pair, observed, start_s, end_s, *count_in(times, values, start_s, end_s), windows=10))
    return measured


@settings(deadline=None, max_examples=40)
@given(st.floats(0, 2), st.floats(0.005, 0.05), st.floats(0, 0.01))
def test_a_program_that_is_slowed_is_seen_to_be(slower, step_s, drift):
    result = slow_down(simulate(slower, step_s=step_s, drift=drift))
    assert result is not None
    assert result.count == 8
    assert result.median == pytest.approx(slower, abs=0.07 * (1 + slower))
    assert result.low is not None
    assert result.high is not None
    assert result.low <= result.median <= result.high
    assert result.confidence >= 0.95
    if slower > 0.2:
        assert result.low > 0


def test_halves_of_pairs_come_in_both_orders():
    blocks = simulate(0.1, pairs=20)
    firsts = [block.observed for block in blocks[::2]]
    assert {True, False} == set(firsts)
    assert all(a.observed != b.observed and a.pair == b.pair for a, b in zip(blocks[::2], blocks[1::2], strict=True))
    assert all(a.end_s < b.begin_s for a, b in pairwise(blocks))


def test_a_rate_is_of_whole_steps():
    times, values = [1.0, 2.0, 3.0, 4.0, 9.0], [10, 20, 30, 40, 50]
    assert count_in(times, values, 1.5, 4.5) == (20.0, 2.0, 3)
    assert count_in(times, values, 1.5, 2.5) == (0.0, None, 1)
    assert count_in([], [], 0, 1) == (0.0, None, 0)


def test_too_little_is_told():
    assert slow_down([]) is None
    few = [Block(0, True, 0, 1, 3.0, 0.9, 3, 1), Block(0, False, 1, 2, 4.0, 0.9, 4, 0)]
    interval = slow_down(few)
    assert interval is not None
    assert (interval.low, interval.high, interval.count) == (None, None, 1)
    text = "\n".join(doubts(few))
    assert "--blocks 6" in text
    assert "moved 3.5 times" in text
    assert "1 windows a block" in text
    assert "1 of 3 blocks have no rate" in "\n".join(doubts([*few, Block(1, True, 2, 3, 0.0, None, 1)]))
    assert slow_down([few[0], Block(0, False, 1, 2, 0.0, None, 1)]) is None
    assert doubts(simulate(0.1)) == []


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (b"step 120  epoch 1  loss 0.3 12.0 images/s\nstep 121", [120, 121]),
        (b"Iter: 7 | loss 2\nglobal_step=8\n{'iteration': 9}", [7, 8, 9]),
        (b"Epoch: [3][ 20/5005]\tTime 0.1", [20]),
        (b"\r 45%|###   | 450/1000 [00:12<00:15, 35.1it/s]", [450]),
        (b"loss 0.12 lr 3e-4 footstep 4 3/4 done", []),
    ],
)
def test_steps_in_logs(text, steps):
    assert steps_in(text) == steps


def test_counters_of_files(tmp_path):
    path = tmp_path / "log"
    path.write_text("step 1\nstep 2\n")
    steps, lines, last = Steps("", str(path)), Lines("", str(path)), LastNumber("", str(path))
    assert (steps.read(), lines.read(), last.read()) == (0, 0, 2)
    with path.open("a") as log:
        log.write("step 3\nstep 5\nste")
        log.flush()
        assert (steps.read(), lines.read()) == (2, 2)
        log.write("p 6\nstep 1\nstep 2\n")  # another epoch
        log.flush()
        assert (steps.read(), lines.read(), last.read()) == (5, 5, 2)
    path.write_text("step 4\n")  # written anew
    assert (steps.read(), lines.read(), last.read()) == (7, 6, 4)
    path.unlink()
    for counter in (steps, lines, last):
        counter.poll()  # says nothing
        assert counter.values == []


def test_bytes_written_are_counted():
    program = "import os, sys\nfor _ in sys.stdin: os.write(3, b'x' * 1000); os.write(1, b'.')"
    with Path(os.devnull).open("wb") as null:
        child = subprocess.Popen(
            ["sh", "-c", 'exec "$0" -c "$1" 3>/dev/null', sys.executable, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=null,
        )
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.read(1)
        counter = Bytes("", child.pid, "wchar")
        before = counter.read()
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.read(1)
        after = counter.read()
        assert before is not None
        assert after == before + 1001
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("text", ["", "cpu", "file", "file=", "lines=", "wchar=x", "steps x", "marks=2"])
def test_what_is_no_counter(text):
    with pytest.raises(ValueError, match="--counter steps=FILE"):
        parse_counter(text)


TRAINING = (
    "-m memtui.study.workloads.numpy_cnn --images 32 --batch-size 1 --validation-images 0 --epochs 0 --progress 1"
)
PRINTING = "import itertools, time\nfor n in itertools.count(): print('step', n, flush=True), time.sleep(0.005)"


@contextmanager
def printing(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that prints every step to a file."""
    with log.open("wb") as output, subprocess.Popen([sys.executable, *arguments], stdout=output) as child:
        try:
            deadline = time.monotonic() + 60
            while b"step 3" not in log.read_bytes():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield child
        finally:
            child.kill()


@pytest.mark.slow
def test_windows_further_apart_than_half_a_block_have_an_estimate(tmp_path):
    """As a budget spaces them: of 8 s with one window that cost 40 ms, 20 of them held, 0.5 and 0.25 % are lost."""
    second = 10**9
    stream = [sessions.hello(), Process(1, 4242, 1, 777, 0, "python train.py", "target")]
    for sample, end_ns in enumerate((5 * second, 14 * second, 25 * second)):  # the second one while it is left alone
        window = ProcessWindow(1, end_ns - second, end_ns, paused_ns=20 * MS, pages=PageSet.empty())
        stream.append(Window(sample, end_ns - second, end_ns, second, 0, (window,), lost_ns=40 * MS))
    path = write_session(tmp_path / "s.memtui", stream)
    plan = CalibrationPlan(4242, Options(second), "steps", "", 2, 8.0)
    blocks = Blocks(plan, lambda on: None, 0.0, random.Random(7))
    spans = ((0, True, 0.0, 8.0), (0, False, 10.0, 18.0), (1, False, 10.0, 18.0), (1, True, 20.0, 28.0))
    blocks.spans.extend(spans)
    counter = Lines.__new__(Lines)
    counter.what, counter.times_s, counter.values = "steps", np.arange(0, 30, 0.1), np.arange(300.0)
    overhead = _result(plan, "python", path, counter, blocks, "done")["overhead"]
    assert overhead["lost_fraction"] == pytest.approx(2 * 0.04 / 16)
    assert overhead["paused_fraction"] == pytest.approx(2 * 0.02 / 16)
    assert overhead["self_cpu_fraction"] is None, "no block has two windows"


@pytest.mark.real_clock(alone=False)
def test_a_real_training_is_calibrated(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with printing(tmp_path / "log", *TRAINING.split()) as target:
        done = memtui("calibrate", target.pid, "--blocks", 2, "--seconds", 1.5, *FAST, "--json")
        assert read_stat(target.pid).state not in "Tt"
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["counter"] == f"steps in {tmp_path / 'log'}"
    assert result["end"] == "done"
    assert len(result["blocks"]) == 4
    for block in result["blocks"]:
        assert (block["per_second"] is None) is (block["changes"] < 2)  # a machine that is busy makes few steps
        assert block["end_s"] - block["begin_s"] >= 1.5
        assert bool(block["windows"]) is block["observed"]  # without means without
    assert sum(block["counted"] for block in result["blocks"]) >= 2
    assert 1 <= result["slow_down"]["count"] <= 2
    assert result["slow_down"]["low"] is None
    assert any("--blocks 6" in text for text in result["doubts"])
    assert not list(tmp_path.glob("*.memtui*"))


@pytest.mark.real_clock(alone=False)
def test_an_interrupt_leaves_what_there_is(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with printing(tmp_path / "log", "-c", PRINTING) as target:
        arguments = ("calibrate", target.pid, "--blocks", 50, "--seconds", 0.5, *FAST, "--no-config")
        command = [sys.executable, "-m", "memtui", *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            deadline = time.monotonic() + 60
            while _rests(tmp_path) < 3:  # the third began: two pairs of blocks are nearly over
                assert child.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            child.send_signal(signal.SIGINT)
            output, errors = child.communicate(timeout=60)
        assert psutil.Process(target.pid).is_running()
        assert read_stat(target.pid).state not in "Tt"
    assert child.returncode == 0, errors
    assert "ended        interrupted, after" in output
    assert output.startswith("target ")
    assert not list(tmp_path.glob("*.memtui*"))


def _rests(folder: Path) -> int:
    for path in folder.glob("*.memtui"):
        try:
            reader = Session(path)
        except SessionError:
            continue
        texts = [event.text for event in reader.events(0, 1 << 62)]
        reader.close()
        return sum("is paused" in text for text in texts)
    return 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--counter", "cpu"), "is not a counter"),
        (("--counter", "lines=/no/such/file"), "No such file"),
        (("--counter", "lines=/dev/null"), "is not a file"),
        (("--blocks", "0"), "--blocks"),
        (("--seconds", "0"), "--seconds"),
        (("--seconds", "0.5"), "too short for windows"),
        (("--max-overhead", "0"), "--max-overhead"),
        ((), "its output goes to pipe:"),
    ],
)
def test_bad_input_is_one_line(arguments, says):
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=pipe, stdout=pipe, stderr=pipe) as target:
        done = memtui("calibrate", target.pid, *arguments)
        target.kill()
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_nobody_to_calibrate():
    assert "name a running process" in memtui("calibrate").stderr


def test_a_log_without_steps_is_refused(tmp_path):
    path = tmp_path / "log"
    path.write_text("hello\n")
    with pytest.raises(UserError, match="no numbers of steps"):
        open_counter("auto", str(path), os.getpid())
    assert open_counter("lines", str(path), os.getpid()).read() == 0
