"""Kills every part of memtui at random moments, for a long time, and looks each time what became of the target.

Run as ``python -m benchmarks.soak [SECONDS]`` (root). The target trains, starts short-lived children and moves its
memory about. After each kill it has to go on within a second, with no thread stopped or traced, memtui's other parts
have to end (without the viewer they have to go on), and the session has to be readable. Exits with 1 at the first
violation and leaves the session. SIGINT ends it early.
"""

from __future__ import annotations

import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psutil

from memtui.core.errors import UserError
from memtui.core.privilege import invoker, state_directory
from memtui.recording.client import stop
from memtui.recording.registry import find_all
from memtui.session.file_format import SessionError
from memtui.session.session import Session

SECONDS = 1800
GOES_ON_S = 1.0
PARTS = ("memtui.recording.sampler", "memtui.recording.recorder", "supervisor", "viewer")
MODES = ((), ("--together",), ("--no-pause",))
_TARGET = """
import ctypes, mmap, os, random, sys, threading, time
import numpy as np
beats = memoryview(mmap.mmap(int(sys.argv[1]), 8)).cast("Q")
def storm():
    memory = bytearray(1 << 20)
    while True:
        for i in range(100):
            child = os.fork()
            if child == 0:
                memory[::4096] = b"x" * 256
                os._exit(0)
            os.waitpid(child, 0)
        time.sleep(0.5)
def churn():
    while True:
        with mmap.mmap(-1, random.randrange(1, 500) * 4096) as memory:
            for at in range(0, len(memory), 4096): memory[at] = 1
        time.sleep(0.001)
for work in (storm, churn): threading.Thread(target=work, daemon=True).start()
x, w = np.random.rand(64, 256), np.random.rand(256, 256)
while True:
    for _ in range(20): w -= 1e-6 * x.T @ (np.maximum(x @ w, 0) - x)
    beats[0] += 1
"""


class Violation(Exception):
    """What must never happen."""


class Target:
    """The training, and how far it has come."""

    def __init__(self) -> None:
        import mmap

        self._fd = os.memfd_create("beats")
        os.truncate(self._fd, 8)
        self._beats = mmap.mmap(self._fd, 8)
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-W", "ignore", "-c", _TARGET, str(self._fd)]
        self.process = subprocess.Popen(words, pass_fds=[self._fd], env=environment)
        self.pid = self.process.pid
        self.goes_on(20)

    def goes_on(self, seconds: float = GOES_ON_S) -> float:
        """Wait until it gets further; how long that took. Raises Violation."""
        before, begin = self._beats[:8], time.monotonic()
        while self._beats[:8] == before:
            if self.process.poll() is not None:
                raise Violation(f"the target ended: {self.process.returncode}")
            if time.monotonic() - begin > seconds:
                raise Violation(f"the target stands still: {self.threads()}")
            time.sleep(0.002)
        return time.monotonic() - begin

    def threads(self) -> list[str]:
        """State and tracer of each thread, also of its children."""
        found = []
        for process in (self.pid, *(child.pid for child in psutil.Process(self.pid).children(recursive=True))):
            try:
                tasks = [entry.name for entry in Path(f"/proc/{process}/task").iterdir()]
            except OSError:
                continue  # a child that has ended meanwhile
            for task in tasks:
                try:
                    text = Path(f"/proc/{process}/task/{task}/status").read_text()
                except OSError:
                    continue
                fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
                found.append(f"{fields['State'][0]}{fields['TracerPid']}")
        return found

    def is_free(self) -> None:
        """Raise Violation when a thread stays stopped or traced."""
        end = time.monotonic() + GOES_ON_S
        while held := [thread for thread in self.threads() if thread[0] in "Tt" or thread[1:] != "0"]:
            if time.monotonic() > end:
                raise Violation(f"threads are held by nobody who lives: {held}")
            time.sleep(0.005)


def _start(words: list[str], screen: bool) -> tuple[subprocess.Popen[bytes], int]:
    """memtui, on a terminal of its own for the viewer; (process, other end of the terminal or -1)."""
    if not screen:
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(words, **quiet), -1
    master, slave = pty.openpty()
    child = subprocess.Popen(
        words, stdin=slave, stdout=slave, stderr=slave, env=os.environ | {"TERM": "xterm-256color"}
    )
    os.close(slave)
    threading.Thread(target=_drain, args=(master,), daemon=True).start()
    return child, master


def _drain(master: int) -> None:
    try:
        while os.read(master, 1 << 16):
            pass
    except OSError:
        os.close(master)


def _part(child: subprocess.Popen[bytes], module: str) -> psutil.Process | None:
    try:
        for process in psutil.Process(child.pid).children(recursive=True):
            if module in process.cmdline():
                return process
    except psutil.Error:
        pass
    return None


def _wait_for_samples(path: Path, child: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 40
    while time.monotonic() < end:
        try:
            reader = Session(path)
            count = len(reader.samples)
            reader.close()
            if count > 2:
                return
        except SessionError:
            pass
        if child.poll() is not None:
            raise Violation(f"memtui ended by itself: {child.returncode}")
        time.sleep(0.05)
    raise Violation("no samples in 40 seconds")


def _end_detached(path: Path, parts: list[psutil.Process]) -> None:
    """Without its screen the recording goes on, and can be ended from elsewhere. Raises Violation."""
    time.sleep(random.random())
    if not all(process.is_running() for process in parts):
        raise Violation("the recording ended with its screen")
    found = [running for running in find_all(state_directory(invoker())) if running.path == str(path)]
    if len(found) != 1:
        raise Violation(f"{len(found)} recordings say that they write {path}")
    try:
        stop(found[0])
    except UserError as error:
        raise Violation(f"it cannot be stopped: {error}") from None


def strike(target: Target, path: Path, counts: Counter[str]) -> float:
    """Watch the target, kill one part of memtui, and look at everything; how long the target needed to go on."""
    victim, mode = random.choice(PARTS), random.choice(MODES)
    verb = "attach" if victim == "viewer" else "record"
    words = [
        sys.executable,
        "-m",
        "memtui",
        verb,
        str(target.pid),
        "-o",
        str(path),
        "--interval",
        "0.02",
        "--max-overhead",
        "none",
        *mode,
    ]
    child, _ = _start(words, victim == "viewer")
    parts: list[psutil.Process] = []
    try:
        _wait_for_samples(path, child)
        parts = [process for name in PARTS[:2] if (process := _part(child, name))]
        time.sleep(random.random())
        killed = _part(child, victim) if victim in PARTS[:2] else psutil.Process(child.pid)
        if killed is None:
            raise Violation(f"{victim} is not there")
        killed.send_signal(signal.SIGKILL)
        took = target.goes_on()
        if victim == "viewer":
            _end_detached(path, parts)
        if psutil.wait_procs(parts, timeout=10)[1]:
            raise Violation(f"after the end of {victim} another part goes on")
        target.is_free()
    finally:
        if child.poll() is None:
            try:
                child.wait(0 if sys.exc_info()[0] else 15)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for process in parts:
            if process.is_running():
                process.kill()
    reader = Session(path)
    counts["windows"] += len(reader.samples)
    counts["gaps"] += int(reader.samples.gaps.sum())
    last = int(reader.samples.sample[-1])
    rows = reader.processes.samples(0, last)
    counts["held windows"] += sum((row["paused_ns"] or 0) > 0 for row in rows)
    counts["longest pause us"] = max(counts["longest pause us"], *((row["paused_ns"] or 0) // 1000 for row in rows))
    for one in {row["process"] for row in rows if row["sample"] == last}:
        reader.pages.page_set(last, one)
    reader.close()
    counts[f"killed {victim}"] += 1
    return took


def main() -> int:
    """Counts on standard output; 1 at the first violation."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    folder = Path(tempfile.mkdtemp(prefix="memtui-soak-"))
    counts: Counter[str] = Counter()
    # What a shell runs in the background ignores SIGINT, which ends this early, with its counts.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    target, path, slowest, end = Target(), folder / "s.memtui", 0.0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            path = folder / f"{counts['rounds']}.memtui"
            slowest = max(slowest, strike(target, path, counts))
            counts["rounds"] += 1
            path.unlink()
        if zombies := [c.pid for c in psutil.Process(target.pid).children() if c.status() == psutil.STATUS_ZOMBIE]:
            time.sleep(1)
            if any(psutil.pid_exists(pid) for pid in zombies):
                raise Violation(f"zombies are left: {zombies}")
    except KeyboardInterrupt:
        pass
    except (Violation, SessionError, psutil.Error) as error:
        print(f"violation in round {counts['rounds']}: {error}; see {path}", file=sys.stderr)
        return 1
    finally:
        target.process.kill()
        target.process.wait()
        print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())), end="")
        print(f"; the target went on after {slowest * 1000:.0f} ms at most")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
