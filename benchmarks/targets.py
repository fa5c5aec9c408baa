"""Processes to watch: the bundled training and access patterns, started and ended with a benchmark."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.table import Skip

PATTERN_PAGES_PER_GIB = 262_144
_SPARE_GIB = 2.5  # left to everything else on the machine
_STEP = re.compile(rb"^step (\d+) ", re.M)


def needs_root() -> None:
    """Page tables are read as root only."""
    if os.geteuid() != 0:
        raise Skip("needs root")


def lacks_memory(gib: float) -> str | None:
    """Why a target of a size does not fit into this machine; None where it does."""
    if psutil.virtual_memory().available >= (gib + _SPARE_GIB) * 2**30:
        return None
    return f"not {gib + _SPARE_GIB:g} GiB of memory are free"


class Training:
    """A running training of the bundled network, and when it made each of its steps."""

    def __init__(self, *, images: int = 50_000, batch_size: int = 32) -> None:
        # torch is looked for without importing it: 200 MiB that this process does not need
        network = "cnn" if importlib.util.find_spec("torch") else "numpy_cnn"
        words = ["--images", images, "--batch-size", batch_size, "--validation-images", 0, "--epochs", 0]
        words += ["--threads", 1, "--progress", 1, "--exit-with-parent"]
        command = [sys.executable, "-m", f"memtui.study.workloads.{network}", *map(str, words)]
        self.network = network
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        self._times: list[float] = []
        self._steps: list[int] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            now = time.monotonic()
            if found := _STEP.match(line):
                self._times.append(now)
                self._steps.append(int(found[1]))

    def wait_for_step(self, step: int, seconds: float = 120) -> None:
        """Return once it has made so many steps."""
        deadline = time.monotonic() + seconds
        while not self._steps or self._steps[-1] < step:
            if self.process.poll() is not None:
                raise RuntimeError("the training ended by itself")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the training made no {step} steps in {seconds:.0f} s")
            time.sleep(0.05)

    def seconds_per_step(self, begin: float, end: float) -> float | None:
        """Mean time of the steps that lie whole inside a span of ``time.monotonic``."""
        times, steps = np.array(self._times), np.array(self._steps[: len(self._times)])
        inside = np.flatnonzero((times >= begin) & (times <= end))
        if len(inside) < 2:
            return None
        first, last = inside[0], inside[-1]
        return float((times[last] - times[first]) / (steps[last] - steps[first]))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def training(**how: int) -> Iterator[Training]:
    """The bundled training past its first steps: RSS about 1 GiB."""
    made = Training(**how)
    try:
        made.wait_for_step(20)
        yield made
    finally:
        made.end()


@contextmanager
def pattern(*words: object) -> Iterator[int]:
    """The pid of a running access pattern (``memtui.study.workloads.access_patterns``); all its pages are resident."""
    with pattern_of(*words) as said:
        yield said["pid"]


@contextmanager
def pattern_of(*words: object) -> Iterator[dict[str, Any]]:
    """The same, and what it says of itself."""
    command = [sys.executable, "-m", "memtui.study.workloads.access_patterns", *map(str, words), "--exit-with-parent"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            line = child.stdout.readline()
            if not line:
                raise RuntimeError(f"{' '.join(map(str, words))}: the pattern did not start")
            said = json.loads(line)
            assert said["pid"] == child.pid
            yield said
        finally:
            child.kill()


def compiled(source: Path, folder: Path) -> Path:
    """Compile a target that is written in C into a folder and return the program. Raises Skip without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise Skip("it needs a C compiler")
    program = folder / source.stem
    subprocess.run([compiler, "-std=gnu11", "-O1", "-o", program, source, "-lm"], check=True)
    return program


def status_bytes(pid: int | str, name: str) -> int:
    """A size of ``/proc/PID/status``, such as VmRSS or VmHWM, in bytes."""
    found = re.search(rf"^{name}:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    if found is None:
        raise RuntimeError(f"process {pid} has no {name}")
    return int(found[1]) * 1024
