"""``memtui record`` as a user runs it, watched from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.run import Run, memtui
from benchmarks.targets import needs_root, status_bytes, training
from memtui.session.file_format import SessionError
from memtui.session.packed_column import Column
from memtui.session.sample_arrays import SampleArrays
from memtui.session.session import Session

START_SECONDS, SETTLE_SECONDS = 30.0, 2.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one recording was like. ``samples`` are those after it had settled."""

    path: Path
    file_bytes: int
    all_samples: int
    samples: SampleArrays
    target_rss_bytes: int
    sampler_peak_bytes: int
    recorder_peak_bytes: int
    interval_s: float

    def cpu_ms_per_sample(self, part: str) -> list[float]:
        """CPU time of "sampler" or "recorder", a value per second of recording: some work comes once a second."""
        table, each = self.samples, max(1, round(1 / self.interval_s))
        used = (table.sampler_cpu_ns if part == "sampler" else table.recorder_cpu_ns)[::each]
        return (np.diff(used) / each / 1e6).tolist()


def environment() -> dict[str, str]:
    """Under sudo memtui would work for another user, who cannot write into the folder of a benchmark.

    And modules are compiled once, as on a user's machine, whatever is set here.
    """
    left_out = ("PYTHONDONTWRITEBYTECODE",)
    return {k: v for k, v in os.environ.items() if not k.startswith("SUDO_") and k not in left_out}


@contextmanager
def recording(pid: int, path: Path, interval_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """``memtui record`` on a process, from its first sample on; ended in order."""
    path.unlink(missing_ok=True)
    command = memtui(
        "record", pid, "--interval", interval_s, "--max-overhead", "none", "--tracker", "pagetable", "-o", path
    )
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment())
    try:
        wait_for_sample(path, child)
        yield child
        child.send_signal(signal.SIGINT)
        if child.wait(30):
            raise RuntimeError(f"memtui record exited with {child.returncode}")
    finally:
        child.kill()
        child.wait()


def wait_for_sample(path: Path, child: subprocess.Popen[bytes]) -> None:
    """Return once the session holds a sample."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise RuntimeError(f"memtui ended with {child.returncode} before its first sample")
        try:
            reader = Session(path)
            found = len(reader.samples)
            reader.close()
        except SessionError:
            found = 0
        if found:
            return
        time.sleep(0.05)
    raise RuntimeError(f"no sample within {START_SECONDS:.0f} s")


def part(of: int, module: str) -> int:
    """The pid of the sampler or recorder of a running memtui."""
    for child in psutil.Process(of).children(recursive=True):
        if module in child.cmdline():
            return child.pid
    raise RuntimeError(f"{module} does not run")


def record(pid: int, path: Path, interval_s: float, seconds: float) -> Recorded:
    """Record a process for some time."""
    with recording(pid, path, interval_s) as child:
        sampler, recorder = (
            part(child.pid, "memtui.recording.sampler"),
            part(child.pid, "memtui.recording.recorder"),
        )
        time.sleep(SETTLE_SECONDS + seconds)
        peaks = [status_bytes(process, "VmHWM") for process in (sampler, recorder)]
        rss = status_bytes(pid, "VmRSS")
    reader = Session(path)
    table = reader.samples
    reader.close()
    settled = int(np.searchsorted(table.start_ns, table.start_ns[0] + SETTLE_SECONDS * 1e9))
    parts = {name: getattr(table, name)[settled:] for name in SampleArrays.__dataclass_fields__}
    columns = {name: Column.of(part) if isinstance(part, np.ndarray) else part for name, part in parts.items()}
    return Recorded(path, path.stat().st_size, len(table), SampleArrays(**columns), rss, *peaks, interval_s)


def of_training(run: Run, interval_s: float) -> Recorded:
    """A recording of the bundled training; made once in a run."""
    key = "training", interval_s
    if key not in run.kept:
        needs_root()
        path = run.folder / f"training-{interval_s:g}.memtui"
        with training() as target:
            run.kept[key] = record(target.pid, path, interval_s, (6 if run.quick else 60) * max(1.0, interval_s))
    return run.kept[key]
