"""Training steps recorded on a GPU, against what PyTorch's allocator says itself; and what recording costs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checks import Report
from benchmarks.gpu_check.children import load, torch_with_cuda
from benchmarks.run import ROOT, memtui
from memtui.session.session import Session

STEPS, EVERY = 45, 10
KINDS = ("plain", "streams", "graphs", "expandable")
COST_SECONDS, COST_PAIRS = 4.0, 2


@dataclass
class _Run:
    kind: str
    process: subprocess.Popen[bytes]
    session: Path
    told: Path


def run(report: Report) -> None:
    """Run the stage."""
    if torch_with_cuda(report) is None:
        return
    for one in [_start(kind, report.folder) for kind in KINDS]:  # all at once: sizes do not depend on time
        with report.part(f"trace {one.kind}"):
            _compare(report, one)
    if not report.short:
        with report.part("cost of recording steps"):
            _cost(report)
    with report.part("recordings for tests"):
        _recordings(report.folder)


def _environment(kind: str) -> dict[str, str]:
    words = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    return {**os.environ, **(words if kind == "expandable" else {})}


def _recordings(folder: Path) -> None:
    """Write recordings for tests; not a check."""
    for kind in KINDS:
        words = load("recordings", folder, kind)
        subprocess.run(words, env=_environment(kind), cwd=ROOT, check=False, timeout=60, stdout=subprocess.DEVNULL)


def _start(kind: str, folder: Path) -> _Run:
    session, told = folder / f"trace-{kind}.memtui", folder / f"trace-{kind}.json"
    words = load("training", told, "plain" if kind == "expandable" else kind, STEPS)
    command = memtui("record", "--trace", "--every", EVERY, "--force", "-o", session, "--", *words)
    with (folder / f"trace-{kind}.err").open("wb") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=_environment(kind), cwd=ROOT
        )
    return _Run(kind, process, session, told)


def _compare(report: Report, one: _Run) -> None:
    if one.process.wait(120) != 0:
        last = (report.folder / f"trace-{one.kind}.err").read_text().strip().splitlines()[-1:]
        raise RuntimeError(f"memtui record exited with {one.process.returncode}: {' '.join(last)}")
    allocator: list[dict[str, Any]] = json.loads(one.told.read_text())["allocator"]
    session = Session(one.session)
    steps = [step for step in session.allocations.steps() if step.device == "cuda:0"]
    session_steps = [step for step in steps if 0 <= step.step < len(allocator)]
    if not session_steps:
        raise RuntimeError("no step of cuda:0 was recorded")
    peaks = {step.step: step.peak_bytes for step in session_steps}
    source = "memory_stats of PyTorch"
    requested = {number: allocator[number]["peak_requested_bytes"] for number in peaks}
    what = f"{one.kind}: requested bytes at the peak of steps {_numbers(peaks)}"
    report.equal(what, _bytes(peaks.values()), _bytes(requested.values()), source)
    allocated = {step.step: getattr(step, "allocated_peak_bytes", None) for step in session_steps}
    what = f"{one.kind}: allocated bytes at the peak"
    if any(value is None for value in allocated.values()):
        report.missing(what, "the session does not have it")
    else:
        reference = [allocator[number]["peak_allocated_bytes"] for number in allocated]
        report.equal(what, _bytes(allocated.values()), _bytes(reference), "torch.cuda.max_memory_allocated")
    wrong, counted = "", 0
    for step in session_steps:
        blocks = allocator[step.step].get("blocks")
        if blocks is None:
            continue
        trace = session.allocations.trace(step)
        live = sorted(block.size_bytes for block in trace.live_at(len(trace) - 1))
        counted += len(live)
        wrong = wrong or _difference(live, blocks)
    what = f"{one.kind}: blocks in use at the end of these steps"
    report.holds(what, counted > 0 and not wrong, f"{counted} blocks", "sizes as in memory_snapshot", wrong)


def _numbers(steps: Any) -> str:
    return ", ".join(map(str, steps))


def _bytes(values: Iterable[int]) -> str:
    """Return "5 x 1,024 B" for five equal values, else all of them."""
    each = list(values)
    same = len(each) > 1 and len(set(each)) == 1
    return f"{len(each)} x {each[0]:,} B" if same else ", ".join(f"{value:,} B" for value in each)


def _difference(left: list[int], right: list[int]) -> str:
    """Return what is in one list only: "only here 512, 1024; only there 64"."""
    rest, extra = list(right), []
    for size in left:
        if size in rest:
            rest.remove(size)
        else:
            extra.append(size)
    parts = [
        f"only {where}: {', '.join(map(str, sizes[:6]))}"
        for where, sizes in (("memtui", extra), ("PyTorch", rest))
        if sizes
    ]
    return "; ".join(parts)


def _cost(report: Report) -> None:
    """Compare steps a second with and without recording, in pairs."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(COST_PAIRS):
        for traced in (pair % 2 == 0, pair % 2 == 1):
            told, progress = report.folder / "cost.json", report.folder / "cost.txt"
            progress.unlink(missing_ok=True)
            words = load(
                "training", told, "plain", 10**9, f"progress={progress}", "batch=256", f"seconds={COST_SECONDS}"
            )
            command = words
            if traced:
                session = report.folder / "cost.memtui"
                command = memtui("record", "--trace", "--force", "-o", session, "--", *words)
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True, cwd=ROOT)
            rates[traced].append(steps_per_second(progress, skip_s=1.0))
    slower = [100 * (1 - on / off) for on, off in zip(rates[True], rates[False], strict=True)]
    report.figure(
        "training with every 20th step recorded", f"{statistics.median(slower):.1f} % fewer steps a second",
        f"pairs: {', '.join(f'{value:.1f} %' for value in slower)}; {rates[False][0]:.0f} steps a second without",
    )  # fmt: skip


def steps_per_second(progress: Path, skip_s: float = 0.0, begin_ns: int = 0, end_ns: int = 1 << 62) -> float:
    """Return the steps a second between two moments, by the file that a training writes."""
    lines = [tuple(map(int, line.split())) for line in progress.read_text().splitlines()]
    first = max(begin_ns, lines[0][0] + int(skip_s * 1e9))
    kept = [(t, n) for t, n in lines if first <= t <= end_ns]
    return (kept[-1][1] - kept[0][1]) / ((kept[-1][0] - kept[0][0]) / 1e9)
