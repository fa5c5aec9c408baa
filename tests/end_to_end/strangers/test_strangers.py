"""Programs that nobody wrote for memtui, under the default options: they do what they do without it, and numbers hold.

How much slower they get is not a test's to say: ``python -m benchmarks strangers`` measures that.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pytest

from memtui.session.session import Session
from tests.support.live import TRACKED, start

pytestmark = pytest.mark.real_clock

PROGRAMS = Path(__file__).parent / "programs"
EVERY_S = 0.02  # /proc is read so often
SLACK = 0.02  # of a size: memory that came or went between two reads
# Program, how many steps take longer than the 5 s in which a second window comes, what it imports.
ALL = [
    ("random_writes.c", 400, ""),
    ("numpy_power.py", 1100, "numpy"),
    ("numpy_memmap.py", 280, "numpy"),
    ("sklearn_boosting.py", 6, "sklearn"),
    ("xgboost_trees.py", 11, "xgboost"),
    ("torch_language_model.py", 30, "torch"),
    ("torch_workers.py", 4, "torch"),
]

LIKE_OTHERS = ("random_writes.c", "numpy_power.py", "xgboost_trees.py", "torch_language_model.py")


@dataclass
class Watch:
    """Reads what the kernel says of a process and its children, in a thread."""

    pid: int
    at_ns: list[int] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)
    done: bool = False

    def run(self) -> None:
        while not self.done:
            try:
                root = psutil.Process(self.pid)
                tree = [root, *root.children(recursive=True)]
                total = sum(one.memory_info().rss for one in tree)
            except psutil.Error:
                time.sleep(EVERY_S)
                continue
            self.at_ns.append(time.monotonic_ns())
            self.rss_bytes.append(total)
            time.sleep(EVERY_S)

    def around(self, begin_ns: int, end_ns: int) -> list[int]:
        """The sizes that were read in a span of time, and the ones before and after it."""
        first, last = bisect_left(self.at_ns, begin_ns) - 1, bisect_right(self.at_ns, end_ns)
        return self.rss_bytes[max(first, 0) : last + 1]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder with the programs that have to be compiled."""
    folder = tmp_path_factory.mktemp("compiled")
    for source in PROGRAMS.glob("*.c"):
        subprocess.run(["cc", "-O2", "-o", folder / source.stem, source], check=True)
    return folder


def command_of(program: str, steps: int, compiled: Path) -> list[str]:
    if program.endswith(".c"):
        return [str(compiled / Path(program).stem), str(steps)]
    return [sys.executable, str(PROGRAMS / program), str(steps)]


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


@pytest.mark.usefixtures("default_options")
@pytest.mark.parametrize(("program", "steps", "needs"), [
    pytest.param(*one, id=one[0], marks=[pytest.mark.slow] * (one[0] in LIKE_OTHERS)) for one in ALL
])  # fmt: skip
def test_a_program_does_what_it_does_and_the_numbers_hold(program, steps, needs, compiled, tmp_path, monkeypatch):
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # more of them wait for one another where tests run beside
    command = command_of(program, steps, compiled)
    alone = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    path = tmp_path / "s.memtui"
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
        said, _ = alone.communicate()
    assert recording.returncode == 0, errors
    assert watched.splitlines()[0] == said.strip()  # to the bit

    reader = Session(path)
    samples = reader.samples
    assert reader.hello.options.max_overhead_ppm == 10_000
    assert len(samples) >= 2
    assert int(samples.start_ns[0]) - reader.hello.clock.monotonic_ns < 3 * 10**9  # a first picture within 3 s
    for at in range(len(samples)):
        near = watch.around(int(samples.end_ns[at]) - 10**8, int(samples.end_ns[at]) + 10**8)
        # Of a process that was born in a window only the next one tells, and the window says so.
        # Where this machine gave the reader no CPU, memory may have come and gone unseen.
        if len(near) >= 6 and np.isfinite(samples.rss_bytes[at]) and not samples.gaps[at]:
            assert (1 - SLACK) * min(near) <= samples.rss_bytes[at] <= (1 + SLACK) * max(near), f"sample {at}"
    for at, sample in enumerate(samples.sample.tolist()):
        wss, rss = samples.wss_bytes[at], samples.rss_bytes[at]
        if not np.isfinite(wss):
            continue
        assert wss <= rss * (1 + SLACK)
        _, _, by_row = reader.vmas.wss(sample, sample)
        alone_here = len(reader.processes.samples(sample, sample)) == 1
        rows = int(by_row[by_row > 0].sum())
        # Rows of a tree count a page that several processes touched for each of them.
        assert rows == wss if alone_here else rows >= wss, f"sample {at}"
    pss = samples.pss_bytes[np.isfinite(samples.pss_bytes)]
    assert (pss <= samples.rss_bytes[np.isfinite(samples.pss_bytes)] * (1 + SLACK)).all()
    if TRACKED.ok and os.geteuid() == 0:
        assert reader.hello.tracker == "pagetable"
        assert np.isfinite(samples.lost_ns).all()
    reader.close()
