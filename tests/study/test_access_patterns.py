"""The access patterns access exactly the pages of their first line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from memtui.study.workloads import access_patterns
from memtui.study.workloads.system import PAGE_BYTES


@contextmanager
def running(*arguments: str):
    command = [sys.executable, "-m", "memtui.study.workloads.access_patterns", *arguments, "--exit-with-parent"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline()), process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def finished(*arguments: str) -> list[dict]:
    command = [sys.executable, "-m", "memtui.study.workloads.access_patterns", *arguments]
    return [json.loads(line) for line in subprocess.check_output(command, text=True, timeout=60).splitlines()]


@pytest.mark.parametrize("thp", [(), ("--thp",)])
def test_the_mapping_is_one_vma_with_exactly_the_borders_told(thp):
    with running("loop", "--pages", "1500", *thp) as (truth, process):
        assert truth["pid"] == process.pid
        assert truth["end"] - truth["start"] == 1500 * PAGE_BYTES
        assert truth["huge"] is bool(thp)
        ranges = [line.split()[:2] for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines()]
        assert [f"{truth['start']:x}-{truth['end']:x}", "rw-p"] in ranges


def test_truth_of_loop_and_random():
    (loop,) = finished("loop", "--pages", "10", "--stride", "3", "--duration", "0.01")
    assert (access_patterns.truth_pages(loop) - loop["start"] // PAGE_BYTES).tolist() == [0, 3, 6, 9]
    (random,) = finished("random", "--pages", "1000", "--touched", "400", "--seed", "9", "--duration", "0.01")
    pages = access_patterns.truth_pages(random) - random["start"] // PAGE_BYTES
    assert len(set(pages)) == 400
    assert (np.diff(pages) > 0).all()
    np.testing.assert_array_equal(pages, access_patterns.random_subset(1000, 400, 9))


def test_truth_of_stairs_and_cycle():
    lines = finished("stairs", "--regions", "3", "--pages", "5", "--step-seconds", "0.01", "--duration", "0.04")
    first = lines[0]["start"] // PAGE_BYTES
    assert [(access_patterns.truth_pages(line) - first).tolist()[0] for line in lines] == [0, 5, 10, 0]
    assert all(len(access_patterns.truth_pages(line)) == 5 for line in lines)
    assert [line["t_ns"] for line in lines] == sorted(line["t_ns"] for line in lines)
    lines = finished("cycle", "--pages", "10", "--touched", "4", "--step-seconds", "0.01", "--duration", "0.03")
    assert [len(access_patterns.truth_pages(line)) for line in lines] == [4, 4, 2]


@pytest.mark.parametrize("mode", ["r", "w", "rw"])
def test_exactly_the_chosen_pages_are_written(mode):
    memory = access_patterns._Memory(300, huge=False)
    chosen = access_patterns.random_subset(300, 100, 1)
    memory._bytes[::PAGE_BYTES] = 7
    memory.scattered(chosen, mode)()
    after = memory._bytes[::PAGE_BYTES].copy()
    expected = np.full(300, 7)
    expected[chosen] = {"r": 7, "w": 1, "rw": 8}[mode]
    np.testing.assert_array_equal(after, expected)
    memory.strided(10, 300, 20, mode)()
    expected[10::20] = {"r": expected[10::20], "w": 1, "rw": expected[10::20] + 1}[mode]
    np.testing.assert_array_equal(memory._bytes[::PAGE_BYTES], expected)


@pytest.mark.parametrize(("rest_s", "rests"), [(0.0, 0), (0.004, 10)])
def test_it_rests_after_each_ms_if_asked_to(rest_s, rests, monkeypatch):
    """A pass takes 0.4 ms here: after three of them a ms is over."""
    now_s, slept_s, passes = 0.0, [], [0]

    def elapse(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def touch() -> None:
        passes[-1] += 1
        elapse(0.0004)

    def sleep(seconds: float) -> None:
        slept_s.append(seconds)
        passes.append(0)
        elapse(seconds)

    monkeypatch.setattr(access_patterns.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(access_patterns.time, "sleep", sleep)
    access_patterns._repeat(touch, 0.0525, rest_s)
    assert slept_s == [rest_s] * rests
    assert passes == ([3] * 10 + [2] if rests else [132])


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists() or os.geteuid() != 0, reason="needs root and /proc/PID/clear_refs"
)
def test_the_kernel_sees_the_same_pages():
    with running("random", "--pages", "2000", "--touched", "700", "--mode", "r") as (truth, process):
        Path(f"/proc/{process.pid}/clear_refs").write_text("1")
        Path(f"/proc/{process.pid}/clear_refs").write_text("4")  # flushes the TLB
        referenced = 0
        for _ in range(200):
            smaps = Path(f"/proc/{process.pid}/smaps").read_text().split(f"{truth['start']:x}-")[1]
            referenced = int(smaps.split("Referenced:")[1].split()[0]) * 1024 // PAGE_BYTES
            if referenced >= 700:
                break
        assert referenced == 700


@pytest.mark.parametrize(
    "arguments", [("random", "--pages", "4", "--touched", "5"), ("loop", "--pages", "0"), ("zigzag",), ()]
)
def test_bad_patterns_are_refused(arguments):
    command = [sys.executable, "-m", "memtui.study.workloads.access_patterns", *arguments]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 2
