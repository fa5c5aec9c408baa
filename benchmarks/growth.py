"""Watches a program whose children live for a moment, and measures whether any part of memtui grows with them.

Run as ``python -m benchmarks.growth [SECONDS]`` (root): 20 children a second at an interval of 0.1 s, for an hour
unless told otherwise. Resident memory and CPU time of viewer, sampler and recorder are printed every 10 s, with the
load average, because a CPU figure of a busy machine is not comparable. After the first five minutes, or the first third
of a shorter run, no part may grow by more than 5 MiB until the end, nor the viewer take a tenth more of a CPU; `judge`
says how that is measured. Exits with 1 otherwise. SIGINT ends it early.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

SECONDS, EVERY_S, SETTLED_S = 3600, 10, 300
EDGE_S = 300  # whose mean is compared at either end: single lines are noise
MOST_BYTES, MOST_CPU = 5 << 20, 1.1
PARTS = ("memtui.recording.sampler", "memtui.recording.recorder")
CHILDREN_A_SECOND = 20
_TARGET = """
import os, sys, time
rate, memory, begun, count = float(sys.argv[1]), bytearray(8 << 20), time.monotonic(), 0
while True:
    while count < (time.monotonic() - begun) * rate:
        count += 1
        if os.fork() == 0:
            memory[:1 << 20:4096] = b"x" * 256
            time.sleep(0.25)
            os._exit(0)
    memory[:4 << 20:4096] = bytes(1024)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
    time.sleep(0.01)
"""


Line = tuple[float, dict[str, tuple[int, float]]]
"""Seconds, and by part its resident bytes and the share of a CPU that it took since the line before."""


def _attach(pid: int, path: Path, output: deque[bytes]) -> subprocess.Popen[bytes]:
    """Start memtui on a terminal of its own, from which the newest ``output`` is kept."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    options = ("--interval", "0.1", "--max-overhead", "none")
    words = [sys.executable, "-m", "memtui", "attach", str(pid), "-o", str(path), *options]
    environment = os.environ | {"TERM": "xterm-256color"}
    child = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True)
    os.close(slave)
    threading.Thread(target=_drain, args=(master, output), daemon=True).start()
    return child


def _drain(master: int, output: deque[bytes]) -> None:
    try:
        while received := os.read(master, 1 << 16):
            output.append(received)
    except OSError:
        os.close(master)


def _parts(viewer: int) -> dict[str, psutil.Process]:
    found = {"viewer": psutil.Process(viewer)}
    for process in found["viewer"].children(recursive=True):
        found |= {part: process for part in PARTS if part in process.cmdline()}
    return found


def main() -> int:
    """A line every 10 s on standard output; 1 where a part grows."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    settled_s = min(SETTLED_S, seconds / 3)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="memtui-growth-") as folder:
        target = subprocess.Popen([sys.executable, "-c", _TARGET, str(CHILDREN_A_SECOND)], start_new_session=True)
        output: deque[bytes] = deque(maxlen=64)
        viewer = _attach(target.pid, Path(folder) / "s.memtui", output)
        try:
            time.sleep(5)
            parts = _parts(viewer.pid)
            if missing := sorted({"viewer", *PARTS} - parts.keys()):
                print(f"no process of memtui is {', '.join(missing)}", file=sys.stderr)
                return 1
            lines = _measure(parts, seconds)
        except psutil.NoSuchProcess as error:
            viewer.terminate()  # a viewer stays after the end of a recording
            viewer.wait(30)
            print(f"process {error.pid} of memtui ended ({error.name}); on leaving memtui says:", file=sys.stderr)
            print(b"".join(output).decode(errors="replace").rpartition("\x1b[?1049l")[2], file=sys.stderr)
            print("the session says:", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "memtui", "report", folder + "/s.memtui"], stdout=sys.stderr)
            return 1
        finally:
            viewer.terminate()
            viewer.wait(30)
            target.kill()
            target.wait()
    return judge([line for line in lines if line[0] >= settled_s])


def _measure(parts: dict[str, psutil.Process], seconds: float) -> list[Line]:
    begin = time.monotonic()
    lines: list[Line] = []
    spent = {name: sum(part.cpu_times()[:2]) for name, part in parts.items()}
    before = begin
    try:
        while time.monotonic() - begin < seconds:
            time.sleep(EVERY_S)
            now = time.monotonic()
            row: dict[str, tuple[int, float]] = {}
            for name, part in parts.items():
                cpu = sum(part.cpu_times()[:2])
                row[name] = part.memory_info().rss, (cpu - spent[name]) / (now - before)
                spent[name] = cpu
            before = now
            lines.append((now - begin, row))
            cells = (f"{name} {held / 2**20:.1f} MiB {100 * cpu:.1f} %" for name, (held, cpu) in row.items())
            print(f"{now - begin:6.0f} s  load {os.getloadavg()[0]:.2f}  {'  '.join(cells)}", flush=True)
    except KeyboardInterrupt:
        pass
    return lines


def judge(lines: list[Line]) -> int:
    """Print by how much each part grew over these lines; return 1 if one grew by more than it may.

    Two figures, of which the larger counts: the mean of the last five minutes less that of the first five, and the
    median slope between any two lines (Theil and Sen) times the length, which sees steady growth whole.
    """
    if len(lines) < 4:
        print("too short to tell whether anything grows", file=sys.stderr)
        return 1
    times_s = np.array([time_s for time_s, _ in lines])
    code = 0
    for name in lines[0][1]:
        resident, cpu = (_Change.of(times_s, np.array([row[name][of] for _, row in lines])) for of in (0, 1))
        grows = resident.growth > MOST_BYTES or (name == "viewer" and cpu.growth > (MOST_CPU - 1) * cpu.first)
        code |= grows
        first, last, growth = (value / 2**20 for value in resident)
        memory = f"{first:.1f} to {last:.1f} MiB (grown by {growth:.1f})"
        print(f"{name}: {memory}, {100 * cpu.first:.1f} to {100 * cpu.last:.1f} % CPU{': grows' * grows}")
    return int(code)


class _Change(NamedTuple):
    """How a value changed: its means at either end, and its growth."""

    first: float
    last: float
    growth: float

    @classmethod
    def of(cls, times_s: NDArray[np.float64], values: NDArray[np.float64]) -> _Change:
        length_s = times_s[-1] - times_s[0]
        edge_s = min(EDGE_S, length_s / 2)
        first, last = (
            float(values[part].mean()) for part in (times_s <= times_s[0] + edge_s, times_s >= times_s[-1] - edge_s)
        )
        earlier, later = np.triu_indices(len(values), 1)
        slope = np.median((values[later] - values[earlier]) / (times_s[later] - times_s[earlier]))
        return cls(first, last, max(last - first, float(slope * length_s)))


if __name__ == "__main__":
    sys.exit(main())
