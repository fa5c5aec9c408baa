"""Programs that nobody wrote for memtui, under the default options: they do what they do without it, and numbers hold.

How much slower they get is not a test's to say: ``python -m benchmarks strangers`` measures that.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import threading
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import psutil
import pytest

from benchmarks import strangers
from benchmarks.strangers import PROGRAMS, command_of
from memtui.session.sample_arrays import SampleArrays
from memtui.session.session import Session
from memtui.tui.presenters.ranges import RangeTable
from tests.support.live import TRACKED, start

pytestmark = pytest.mark.real_clock

EVERY_S, PSS_EVERY = 0.02, 5  # /proc is read so often, and PSS at every fifth time: the kernel walks tables for it
NEAR_NS = 10**8
SLACK = 0.02  # of a size: memory that came or went between two reads
MIB = 1 << 20


class Program(NamedTuple):
    """A program and what is known of it.

    Attributes:
        steps: so many take longer than the 5 s in which a second window comes.
        needs: what it imports.
        least_bytes: what it touches in ``whole_steps`` steps at least.
        most_beside_bytes: what it touches beside that at most, once it makes steps; None: not known.
        slow: another test sees the same in the gate.
    """

    name: str
    steps: int
    needs: str
    least_bytes: int
    most_beside_bytes: int | None = None
    whole_steps: int = 1
    slow: bool = False


RANKS = Program("torch_ranks.py", 8, "torch", 2 * 3 * 4 * 1_050_000, whole_steps=2, slow=True)
ALL = (
    # Of 16,384 pages 400,000 writes at random leave none out (one in 2.5 million times).
    Program("random_writes.c", 400, "", 64 * MIB, 4 * MIB, whole_steps=4, slow=True),
    Program("numpy_power.py", 1100, "numpy", 3000 * 3000 * 8, 32 * MIB, slow=True),
    Program("numpy_memmap.py", 280, "numpy", 20_000 * 512 * 4, 48 * MIB),
    Program("sklearn_boosting.py", 50, "sklearn", 20_000 * 40 * 8, slow=True),
    Program("xgboost_trees.py", 44, "xgboost", 50_000 * 40, slow=True),  # a bin of each feature takes a byte or more
    # Parameters, gradients and what the optimizer keeps: two moments, or one.
    Program("torch_language_model.py", 30, "torch", 4 * 4 * 850_000, slow=True),
    Program("torch_resnet18.py", 40, "torch", 3 * 4 * 11_170_000, slow=True),
    Program("torch_workers.py", 4, "torch", 0, slow=True),  # workers that ended in a window are not in it
    RANKS,
)


@dataclass
class Watch:
    """Reads what the kernel says of a process and its children, in a thread."""

    pid: int
    at_ns: list[int] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)
    pss: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)  # by process: when, and how much
    done: bool = False

    def run(self) -> None:
        while not self.done:
            try:
                root = psutil.Process(self.pid)
                tree = [root, *root.children(recursive=True)]
                self.rss_bytes.append(sum(member.memory_info().rss for member in tree))
                self.at_ns.append(time.monotonic_ns())
                if len(tree) > 1 and len(self.at_ns) % PSS_EVERY == 0:
                    for member in tree:
                        at_ns, sizes = self.pss.setdefault(member.pid, ([], []))
                        sizes.append(member.memory_full_info().pss)
                        at_ns.append(time.monotonic_ns())
            except psutil.Error:
                pass  # one of them ended
            time.sleep(EVERY_S)


def around(at_ns: list[int], sizes: list[int], begin_ns: int, end_ns: int) -> list[int]:
    """Return the sizes that were read in a span of time, and the ones before and after it."""
    first, last = bisect_left(at_ns, begin_ns) - 1, bisect_right(at_ns, end_ns)
    return sizes[max(first, 0) : last + 1]


def child_that_runs(command: list[str], parent: int) -> int:
    """Wait for the child of a process that has executed a command."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for child in psutil.Process(parent).children(recursive=True):
            try:
                if child.cmdline() == command:
                    return child.pid
            except psutil.Error:
                continue  # it ended
        time.sleep(0.01)
    raise AssertionError(f"{command[0]} did not start")


def assert_rss(reader: Session, watch: Watch) -> None:
    """The RSS of all samples is what psutil read at that time."""
    samples = reader.samples
    for at in range(len(samples)):
        end_ns = int(samples.end_ns[at])
        near = around(watch.at_ns, watch.rss_bytes, end_ns - NEAR_NS, end_ns + NEAR_NS)
        # Of a process that was born in a window only the next one tells, and the window says so.
        # Where this machine gave the reader no CPU, memory may have come and gone unseen.
        if len(near) >= 6 and np.isfinite(samples.rss_bytes[at]) and not samples.gaps[at]:
            assert (1 - SLACK) * min(near) <= samples.rss_bytes[at] <= (1 + SLACK) * max(near), f"sample {at}"


def assert_pss(reader: Session, watch: Watch) -> None:
    """The PSS of each process is what psutil read of it about that time."""
    samples = reader.samples
    of_pid = {process.key: process.pid for process in reader.processes.all()}
    for part in reader.processes.samples(0, samples.newest):
        if part["pss_bytes"] is None or (pid := of_pid[part["process"]]) not in watch.pss:
            continue
        near = around(*watch.pss[pid], part["pss_ns"] - 3 * NEAR_NS, part["pss_ns"] + 3 * NEAR_NS)
        if len(near) >= 4:
            assert (1 - SLACK) * min(near) <= part["pss_bytes"] <= (1 + SLACK) * max(near), f"sample {part['sample']}"
    known = np.isfinite(samples.pss_bytes)
    assert (samples.pss_bytes[known] <= samples.rss_bytes[known] * (1 + SLACK)).all()


def assert_sums(reader: Session) -> None:
    """The table accounts for the header's working set, and hides nothing of which pages are stored."""
    samples = reader.samples
    for at, sample in enumerate(samples.sample.tolist()):
        wss_bytes, stored_bytes = samples.wss_bytes[at], samples.stored_bytes[at]
        if not np.isfinite(wss_bytes):
            continue
        assert wss_bytes <= samples.rss_bytes[at] * (1 + SLACK)
        parts = reader.processes.samples(sample, sample)
        # What processes share counts in the ranges for each of them, and once in the header.
        shared_bytes = samples.shared_bytes[at]
        excess_bytes = sum(part["shared_bytes"] for part in parts) - shared_bytes if np.isfinite(shared_bytes) else 0
        assert excess_bytes == 0 or len(parts) > 1
        view = RangeTable().view(reader, sample, reader.processes.all())
        rows_bytes = sum(row.wss_bytes or 0 for row in view.rows)
        assert rows_bytes + view.left_out_bytes + view.not_matching_bytes == view.ranges_bytes
        assert view.ranges_bytes == wss_bytes + excess_bytes, f"sample {sample}"
        assert view.not_matching_bytes == 0
        if np.isfinite(stored_bytes):
            assert view.left_out_bytes <= view.ranges_bytes - stored_bytes, f"sample {sample}"
        of_pid = {process.key: process.pid for process in reader.processes.all()}
        for part in parts:
            table = RangeTable()
            table.pid = of_pid[part["process"]]
            assert table.view(reader, sample, reader.processes.all()).ranges_bytes == part["wss_bytes"]


def measured(samples: SampleArrays, at: int) -> bool:
    """Return whether a window has a working set: an exact one, or an estimate with its interval."""
    estimated = samples.status[at] == "approximate" and bool(np.isfinite(samples.wss_high_bytes[at]))
    return samples.status[at] == "ok" or estimated


def windows_as_known(reader: Session, program: Program, steps_ns: list[int]) -> int:
    """Assert that the working set of windows with whole steps is what is known of the program; return their count."""
    samples = reader.samples
    count, missed = 0, []
    for at in range(len(samples)):
        begin_ns, end_ns = int(samples.start_ns[at]), int(samples.end_ns[at])
        whole = bisect_right(steps_ns, end_ns) - bisect_left(steps_ns, begin_ns) - 1
        if whole < program.whole_steps or not measured(samples, at):
            continue
        exact = samples.status[at] == "ok"
        # What a program unmaps as it ends is not in the window any more (its released memory says how much that was).
        if exact and end_ns <= steps_ns[-1]:
            assert samples.wss_bytes[at] >= program.least_bytes, f"sample {at}"
        if not exact and samples.wss_high_bytes[at] < program.least_bytes:
            missed.append(at)
        if exact and program.most_beside_bytes is not None and steps_ns[0] <= begin_ns <= end_ns <= steps_ns[-1]:
            assert samples.wss_bytes[at] <= program.least_bytes + program.most_beside_bytes, f"sample {at}"
        count += 1
    assert len(missed) <= 1 + count // 10, "an interval of 95 % misses one time in 40"
    return count


def wall_per_cpu_time() -> float:
    """Return how many times longer than its CPU time a program takes here at the moment."""
    begin_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns() + 10**8
    while time.thread_time_ns() < cpu_ns:
        pass
    return (time.monotonic_ns() - begin_ns) / 10**8


@pytest.mark.usefixtures("default_options")
@pytest.mark.parametrize(("program", "with_twin"), [
    *(pytest.param(program, True, id=program.name, marks=[pytest.mark.slow] * program.slow) for program in ALL),
    pytest.param(  # six times torch would take long
        RANKS._replace(steps=3), False, id="torch_ranks.py-numbers-only", marks=pytest.mark.slow
    ),
])  # fmt: skip
def test_a_program_does_what_it_does_and_the_numbers_hold(program, with_twin, tmp_path, monkeypatch):
    if program.needs and importlib.util.find_spec(program.needs) is None:
        pytest.skip(f"{program.needs} is not installed")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # more of them wait for one another where tests run beside
    command = command_of(program.name, program.steps, folder=tmp_path)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    twin = [subprocess.Popen(command, **streams) for _ in range(with_twin)]
    path = tmp_path / "s.memtui"
    longest_ns, before_ns = 3e9 * wall_per_cpu_time(), time.monotonic_ns()
    recording = start("record", "-o", path, "--", *command)
    watch = Watch(child_that_runs(command, recording.pid))
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        watched, errors = recording.communicate(timeout=240)
    finally:
        watch.done = True
        thread.join()
        recording.kill()
        unwatched = [alone.communicate()[0].strip() for alone in twin]
    assert recording.returncode == 0, errors
    result = watched.splitlines()[0]
    assert re.fullmatch("[0-9a-f]{16,}", result)
    assert unwatched in ([], [result])  # to the bit

    reader = Session(path)
    samples = reader.samples
    assert reader.hello.options.max_overhead_ppm == 10_000
    assert len(samples) >= 2
    assert samples.end_ns[0] - before_ns < longest_ns  # a first picture within 3 s, where there is a CPU for it
    assert_rss(reader, watch)
    assert_pss(reader, watch)
    assert_sums(reader)
    if TRACKED.ok and os.geteuid() == 0:
        assert reader.hello.tracker == "pagetable"
        assert np.isfinite(samples.lost_ns).all()
        steps_ns = [int(ns) for ns in re.findall(r"^step \d+ at (\d+)$", errors, re.M)]
        # A window has whole steps if it is longer than these and lies among them; there need be no such window of a
        # program that starts for as long as it makes steps, or beside others that take the CPU.
        least_ns = (program.whole_steps + 1) * max(np.diff(steps_ns))
        wide = [
            at
            for at in range(len(samples))
            if measured(samples, at)
            and min(samples.end_ns[at], steps_ns[-1]) - max(samples.start_ns[at], steps_ns[0]) > least_ns
        ]
        assert windows_as_known(reader, program, steps_ns) or not with_twin or not wide
    reader.close()


def test_each_program_is_tried_and_measured():
    files = {path.name for path in PROGRAMS.iterdir() if path.suffix in (".py", ".c")}
    assert {program.name for program in ALL} == files
    assert {program.name for program in strangers.ALL} == files
