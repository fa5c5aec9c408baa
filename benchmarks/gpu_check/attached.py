"""A training on the GPU while memtui watches it: its progress in pairs, memtui's own cost, and the screen."""

from __future__ import annotations

import importlib.util
import re
import signal
import statistics
import subprocess
import time
from pathlib import Path

import psutil

from benchmarks.gpu_check.checks import Report
from benchmarks.gpu_check.children import Load, running, torch_with_cuda
from benchmarks.gpu_check.traces import steps_per_second
from benchmarks.run import ROOT, memtui
from benchmarks.terminal import Terminal

SIZES = ((80, 24), (120, 36), (200, 50))
PAIRS, BLOCK_S, START_S = 4, 4.0, 2.5
SCREEN_S = 5.0  # until a screen is looked at
LOST_WITHIN = 1.0  # per cent, as promised
_POWER = re.compile(r"GPU 0.*\d W\b")
PARTS = {
    "nvml_worker": "process that asks the driver",
    "recording.sampler": "sampler",
    "recording.recorder": "recorder",
}


def run(report: Report) -> None:
    """Run the stage."""
    if torch_with_cuda(report) is None:
        return
    progress = report.folder / "attached.txt"
    progress.unlink(missing_ok=True)
    words = ("training", report.folder / "attached.json", "plain", 10**9, f"progress={progress}", "batch=256")
    with running(*words) as load:
        time.sleep(1.0)
        with report.part("progress in pairs"):
            _progress(report, load, progress)
        with report.part("screen"):
            _screen(report, load)
        report.holds("the training still runs", load.process.poll() is None, str(load.process.poll()), "None")
    report.missing("a driver call that hangs", "tests do this with a stand-in, on any machine")


def _progress(report: Report, load: Load, progress: Path) -> None:
    rates: dict[bool, list[float]] = {True: [], False: []}
    cpu: dict[str, list[float]] = {}
    for pair in range(PAIRS):
        for watched in (pair % 2 == 0, pair % 2 == 1):
            recorder = _record(load.process.pid, report.folder) if watched else None
            time.sleep(START_S if watched else 0.3)
            begin_ns, before = time.monotonic_ns(), _cpu_s(recorder)
            time.sleep(BLOCK_S)
            end_ns, after = time.monotonic_ns(), _cpu_s(recorder)
            rates[watched].append(steps_per_second(progress, begin_ns=begin_ns, end_ns=end_ns))
            for part, seconds in after.items():
                cpu.setdefault(part, []).append(100 * (seconds - before.get(part, seconds)) / BLOCK_S)
            if recorder is not None:
                recorder.send_signal(signal.SIGINT)
                recorder.wait(20)
    lost = [100 * (1 - on / off) for on, off in zip(rates[True], rates[False], strict=True)]
    spread = 100 * (max(rates[False]) / min(rates[False]) - 1)
    report.holds(
        "training loses of its speed", statistics.median(lost) <= LOST_WITHIN, f"{statistics.median(lost):.2f} %",
        f"at most {LOST_WITHIN:g} %",
        f"pairs: {', '.join(f'{value:.2f} %' for value in lost)}; without memtui its speed varies by {spread:.1f} %",
    )  # fmt: skip
    for part, shares in cpu.items():
        report.figure(f"CPU of the {part}", f"{statistics.median(shares):.1f} % of one CPU")


def _record(pid: int, folder: Path) -> subprocess.Popen[bytes]:
    command = memtui("record", pid, "--force", "-o", folder / "attached.memtui")
    with (folder / "attached.err").open("wb") as errors:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, cwd=ROOT)


def _cpu_s(recorder: subprocess.Popen[bytes] | None) -> dict[str, float]:
    """Return the CPU seconds so far of each part of memtui, by name."""
    found: dict[str, float] = {}
    if recorder is None:
        return found
    root = psutil.Process(recorder.pid)
    for process in (root, *root.children(recursive=True)):
        try:
            words, times = " ".join(process.cmdline()), process.cpu_times()
        except psutil.Error:
            continue
        name = next((text for word, text in PARTS.items() if word in words), "other processes")
        found[name] = found.get(name, 0.0) + times.user + times.system
    return found


def _screen(report: Report, load: Load) -> None:
    if importlib.util.find_spec("pyte") is None:
        report.missing("screen", "pyte, a terminal emulator, is not installed")
        return
    for columns, rows in SIZES:
        command = memtui("attach", load.process.pid, "--force", "-o", report.folder / "screen.memtui")
        with Terminal(command, columns=columns, rows=rows, home=report.folder) as terminal:
            time.sleep(SCREEN_S)
            if (columns, rows) == SIZES[0]:  # has no room for all panels: 4 shows the power
                terminal.send("4")
                time.sleep(1.0)
            shown = terminal.text()
        (report.folder / f"screen-{columns}x{rows}.txt").write_text(shown + "\n")
        found = _POWER.search(shown)
        power = found[0] if found else ""
        report.holds(f"screen of {columns} x {rows}: GPU power", bool(power), power, "a line with GPU and W")
