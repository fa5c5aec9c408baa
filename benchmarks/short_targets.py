"""Watches programs that end while the recording starts, and checks what memtui says of each.

Run as ``python -m benchmarks.short_targets [STARTS]`` (root): 1,000 starts unless told otherwise, two at a time. Each
program lives for up to 3 s, or up to twice as long as a start takes on this machine where that is more: one thread or
several, with a child or without, a shell, one that executes another. A start is wrong that ends in a traceback, in
several lines of an error, with a status that is not documented, with no window of a session and no word of that, or
that takes longer than 20 s, or ten times as long as one does here. Exits with 1 if any is.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.run import memtui
from memtui.core.errors import UserError
from memtui.recording.supervisor.foreground import NO_SAMPLE
from memtui.session.file_format import SessionError
from memtui.session.session import Session

STARTS, LONGEST_S, TIMEOUT_S = 1000, 3.0, 20.0
EQUALLY_BUSY = 50  # starts, after which it is measured again how long one takes
PROGRESS = re.compile(r"\([0-9.]+ (s|min)\)$")  # at the end of a line that says how far a slow start is
PROGRAMS = {
    "sleep": "exec sleep {life}",
    "shell": "sleep {life}; true",
    "python": "exec {python} -c 'import time; b = bytearray(8 << 20); time.sleep({life})'",
    "threads": "exec {python} -c 'import threading, time\n"
    "for _ in range(20): threading.Thread(target=time.sleep, args=({life},)).start()'",
    "first thread": "exec {python} -c 'import ctypes, threading, time\n"
    "threading.Thread(target=time.sleep, args=({life},)).start(); ctypes.CDLL(None).pthread_exit(None)'",
    "child": "exec {python} -c 'import os, time\nos.fork(); b = bytearray(4 << 20); time.sleep({life})'",
    "exec": "sleep {life}; exec sleep 0.1",
    "killed": "sleep {life}; kill -9 $$",
}


def main() -> int:
    starts = int(sys.argv[1]) if len(sys.argv) > 1 else STARTS
    outcomes, wrong = watch(starts)
    print(f"{starts} starts: " + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
    return 1 if wrong else 0


def watch(starts: int) -> tuple[Counter[str], list[str]]:
    """Record that many programs; return how often each outcome came, and a text of each that was wrong."""
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        for first in range(0, starts, EQUALLY_BUSY):
            start_s = _start_s(folder)
            numbers = range(first, min(first + EQUALLY_BUSY, starts))
            print(f"a start takes {start_s:.1f} s here", file=sys.stderr, flush=True)
            for outcome, text in pool.map(partial(_start, start_s=start_s, folder=folder), numbers):
                outcomes[outcome] += 1
                if outcome.startswith("wrong"):
                    wrong.append(text)
                    print(text, file=sys.stderr, flush=True)
            print(f"{numbers.stop} of {starts}: {dict(outcomes)}", file=sys.stderr, flush=True)
    return outcomes, wrong


def _start_s(folder: Path) -> float:
    """Return how long it takes to record a program for a moment."""
    path = folder / "start.memtui"
    start_s = time.monotonic()
    argv = memtui("record", "-o", path, "--interval", 0.1, "--", "sleep", 0.1)
    subprocess.run(argv, capture_output=True, check=False)
    path.unlink(missing_ok=True)
    return time.monotonic() - start_s


def _start(number: int, start_s: float, folder: Path) -> tuple[str, str]:
    """Record one program; return what came of it, and a text that says it whole."""
    longest_s, timeout_s = max(LONGEST_S, 2 * start_s), max(TIMEOUT_S, 10 * start_s)
    chance = random.Random(number)
    name = chance.choice(sorted(PROGRAMS))
    words = PROGRAMS[name].format(python=sys.executable, life=f"{chance.uniform(0, longest_s):.3f}")
    path = folder / f"{number}.memtui"
    target = subprocess.Popen(["sh", "-c", words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(chance.uniform(0, 0.1))
    argv = memtui("record", target.pid, "--interval", 0.1, "--duration", 2, "-o", path)
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return "wrong: it did not end", f"{number} {name}: {words}"
    finally:
        target.kill()
        target.wait()
    printed = [line for line in done.stderr.splitlines() if "names another user" not in line]
    lines = [line for line in printed if not PROGRESS.search(line)]
    whole = f"{number} {name} ({words}): exit {done.returncode}, {done.stderr!r}"
    if "Traceback" in done.stderr or "Error:" in done.stderr:
        return "wrong: a raw error", whole
    if done.returncode not in (0, 1, 2) or (done.returncode and len(lines) != 1):
        return "wrong: not one line", whole
    windows = _windows(path)
    path.unlink(missing_ok=True)
    if done.returncode and windows == 0 and NO_SAMPLE in done.stderr:
        return "recorded without a sample, as was said", whole
    if done.returncode:
        return ("wrong: a session is left" if windows is not None else f"refused ({done.returncode})"), whole
    return ("recorded" if windows else "wrong: nothing is recorded"), whole


def _windows(path: Path) -> int | None:
    """Return how many windows a session has; None: there is no session."""
    if not path.exists():
        return None
    try:
        session = Session(path)
    except (SessionError, UserError):
        return 0
    try:
        return len(session.samples.wss_bytes)
    finally:
        session.close()


if __name__ == "__main__":
    sys.exit(main())
