"""What a process of very many mappings loses by being recorded with the default options, and what that takes.

60,000 are nearly as many as the kernel allows by default, and a million are more than memtui reads. The target measures
how long it stands still by its own clock (``many_mappings.c``), alone and then while it is recorded from start to end.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.recording import environment
from benchmarks.run import Run, memtui
from benchmarks.table import Row, once
from benchmarks.targets import compiled, needs_root, status_bytes
from memtui.session.session import Session

STOCK, MANY = 60_000, 1_000_000
SECONDS, QUICK_SECONDS = 30, 5
STALL_MS = 100  # the default of --max-pause
PART_MIB = 64 + 128  # of sampler and recorder each: 2 KiB for each of the most mappings that are read
MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
SPARE = 1000  # mappings that a process has besides
PARTS = {"memtui.recording.sampler": "sampler", "memtui.recording.recorder": "recorder"}


@contextmanager
def allowing(mappings: int, setting: Path = MAX_MAP_COUNT) -> Iterator[None]:
    """Set how many mappings the kernel allows a process; the limit is what it was before, also after a ``kill -9``."""
    before = setting.read_text().strip()
    if int(before) >= mappings + SPARE:
        yield
        return
    # This shell waits until its input ends, and the other end of that pipe is held by this process alone.
    restore = ["sh", "-c", 'cat; echo "$0" > "$1"', before, str(setting)]
    with subprocess.Popen(restore, stdin=subprocess.PIPE, start_new_session=True):
        setting.write_text(str(mappings + SPARE))
        yield


@dataclass(frozen=True, slots=True)
class Stalls:
    """The longest round of the target by its clock, and the longest without the time in which it waited for a CPU."""

    clock_ms: float
    awake_ms: float


class Target:
    """A running target."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self.pid = child.pid

    def stalls(self) -> Stalls:
        """Return the stalls since this was called before."""
        assert self._child.stdout is not None
        self._child.send_signal(signal.SIGUSR1)
        return Stalls(*(int(word) / 1e6 for word in self._child.stdout.readline().split()))


@contextmanager
def target(mappings: int, folder: Path) -> Iterator[Target]:
    """A target that has made its mappings. Raises Skip without a C compiler, RuntimeError where it cannot make them."""
    argv = [str(compiled(Path(__file__).with_suffix(".c"), folder)), str(mappings)]
    with allowing(mappings), subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            if child.stdout.readline() != b"ready\n":
                raise RuntimeError(f"the target could not make {mappings:,} mappings")
            yield Target(child)
        finally:
            child.kill()


@dataclass(slots=True)
class Use:
    """What a part of memtui took until it ended: its most memory, and its CPU time."""

    peak_bytes: int = 0
    cpu_s: float = 0.0


def measure(run: Run) -> Iterator[Row]:
    """Measure a target of each size; of the smaller one alone in a quick run."""
    needs_root()
    seconds = QUICK_SECONDS if run.quick else SECONDS
    for mappings in (STOCK,) if run.quick else (STOCK, MANY):
        path = run.folder / f"{mappings}.memtui"
        with target(mappings, run.folder) as program:
            program.stalls()
            time.sleep(seconds)
            alone = program.stalls()
            uses = record(program.pid, path, seconds)
            recorded = program.stalls()
        name = f"{mappings:,} mappings"
        yield once(f"{name}: the target's longest stall alone", alone.clock_ms, "ms")
        yield once("... recorded, default options", recorded.clock_ms, "ms")
        yield once("... alone, without the time in which it waited for a CPU", alone.awake_ms, "ms")
        yield once("... recorded", recorded.awake_ms, "ms", STALL_MS)
        yield from _session_rows(path)
        for part, use in uses.items():
            yield once(f"... peak RSS of the {part}", use.peak_bytes / 2**20, "MiB", PART_MIB)
            yield once(f"... its CPU time in {seconds} s", use.cpu_s, "s")


def record(pid: int, path: Path, seconds: float) -> dict[str, Use]:
    """Record a process with the default options; return what each part of memtui took, and print what memtui says."""
    uses = {name: Use() for name in PARTS.values()}
    parts: dict[str, psutil.Process] = {}
    argv = memtui("record", pid, "-o", path, "--duration", seconds)
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=environment()) as child:
        memtui_process = psutil.Process(child.pid)
        while child.poll() is None:
            if len(parts) < len(PARTS):
                parts |= _parts(memtui_process)
            for name, process in parts.items():
                try:
                    uses[name].cpu_s = sum(process.cpu_times()[:2])
                    uses[name].peak_bytes = status_bytes(process.pid, "VmHWM")
                except (psutil.Error, OSError, RuntimeError):
                    pass  # it ended: what it took until then is known
            time.sleep(0.1)
    if child.returncode:
        raise RuntimeError(f"memtui record exited with {child.returncode}")
    return uses


def _parts(memtui_process: psutil.Process) -> dict[str, psutil.Process]:
    try:
        commands = [(child, child.cmdline()) for child in memtui_process.children(recursive=True)]
    except psutil.Error:
        return {}
    return {name: child for child, argv in commands for module, name in PARTS.items() if module in argv}


def _session_rows(path: Path) -> Iterator[Row]:
    """What the session says of its windows, and how large it is."""
    session = Session(path)
    try:
        samples = session.samples
        windows = session.processes.samples(0, samples.newest)
        pauses_ns = [window["paused_ns"] or 0 for window in windows]
    finally:
        session.close()
    yield once("... the longest pause", max(pauses_ns, default=0) / 1e6, "ms", STALL_MS)
    for (status, reason), count in Counter((window["status"], window["reason"]) for window in windows).most_common():
        yield once(f"... windows that are `{status}`{': ' * bool(reason)}{reason}", count, "")
    yield once("... size of the session", path.stat().st_size / 1e3, "kB")
