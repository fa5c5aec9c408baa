"""Watches a program whose children live for a moment, and measures whether any part of memtui grows with them.

Run as ``python -m benchmarks.growth [SECONDS]`` (root): 20 children a second at an interval of 0.1 s, for an hour
unless told otherwise. Resident memory and CPU time of viewer, sampler and recorder are printed every 10 s. After the
first five minutes, or the first third of a shorter run, no part may grow by more than 5 MiB, nor the viewer take a
tenth more of a CPU. Exits with 1 otherwise. SIGINT ends it early.
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
from pathlib import Path

import psutil

SECONDS, EVERY_S, SETTLED_S = 3600, 10, 300
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


_Line = tuple[float, dict[str, tuple[int, float]]]
"""Seconds, and by part its resident bytes and the share of a CPU that it took since the line before."""


def _attach(pid: int, path: Path) -> subprocess.Popen[bytes]:
    """Start memtui on a terminal of its own, which somebody reads."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    options = ("--interval", "0.1", "--max-overhead", "none")
    words = [sys.executable, "-m", "memtui", "attach", str(pid), "-o", str(path), *options]
    environment = os.environ | {"TERM": "xterm-256color"}
    child = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True)
    os.close(slave)
    threading.Thread(target=_drain, args=(master,), daemon=True).start()
    return child


def _drain(master: int) -> None:
    try:
        while os.read(master, 1 << 16):
            pass
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
        viewer = _attach(target.pid, Path(folder) / "s.memtui")
        try:
            time.sleep(5)
            lines = _measure(_parts(viewer.pid), seconds)
        except psutil.NoSuchProcess as error:
            print(f"process {error.pid} of memtui ended ({error.name}); the session says:", file=sys.stderr)
            viewer.wait(30)
            subprocess.run([sys.executable, "-m", "memtui", "report", folder + "/s.memtui"], stdout=sys.stderr)
            return 1
        finally:
            viewer.terminate()
            viewer.wait(30)
            target.kill()
            target.wait()
    return _judge([line for line in lines if line[0] >= settled_s])


def _measure(parts: dict[str, psutil.Process], seconds: float) -> list[_Line]:
    begin = time.monotonic()
    lines: list[_Line] = []
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
            print(f"{now - begin:6.0f} s  {'  '.join(cells)}", flush=True)
    except KeyboardInterrupt:
        pass
    return lines


def _judge(lines: list[_Line]) -> int:
    """Compare the last third of the time with the first third: single lines are noise."""
    third = len(lines) // 3
    if not third:
        print("too short to tell whether anything grows", file=sys.stderr)
        return 1
    code = 0
    for name in lines[0][1]:
        held, cpu = (
            [sum(row[name][of] for _, row in some) / third for some in (lines[:third], lines[-third:])] for of in (0, 1)
        )
        grown = held[1] - held[0] > MOST_BYTES or (name == "viewer" and cpu[1] > MOST_CPU * cpu[0])
        code |= grown
        figures = f"{held[0] / 2**20:.1f} to {held[1] / 2**20:.1f} MiB, {100 * cpu[0]:.1f} to {100 * cpu[1]:.1f} % CPU"
        print(f"{name}: {figures}{': grows' * grown}")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
