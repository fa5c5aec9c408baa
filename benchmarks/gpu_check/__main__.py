"""``python -m benchmarks.gpu_check``: every GPU path once, against a second source; a table, and a file of JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path

from benchmarks import documents, machine
from benchmarks.gpu_check.checks import Check, Report, Verdict, counts, document_table, read_checks, table
from benchmarks.gpu_check.children import first_gpu
from benchmarks.run import ROOT, say

# The most valuable first: name, module, seconds it takes on an H200, what it does.
STAGES = {
    "nvml": ("nvml", 60, "power, energy, clocks, memory and use by process against nvidia-smi; how sensors average"),
    "trace": ("traces", 105, "recorded steps against PyTorch's allocator: streams, graphs, expandable segments; cost"),
    "attach": ("attached", 72, "a training's progress in pairs, memtui's own cost, the screen at three sizes"),
    "bench": ("operators", 215, "time against torch.utils.benchmark, energy against the counter and Zeus"),
    "place": ("placement", 85, "bandwidths against CUDA events, a plan that is executed"),
    "network": ("network", 190, "ResNet-50 against the sum of its operators, predictions from the GPU's own rows"),
}
SHORTEST_S = 10.0  # a stage is not started for less


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check", description="Every GPU path of memtui, against a second source."
    )
    parser.add_argument("--list", action="store_true", help="name the stages, and run nothing")
    parser.add_argument("--only", metavar="NAMES", help=f"of {','.join(STAGES)}")
    parser.add_argument("--budget", metavar="S", default="540s", help="for all stages together (540s)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu-check", help="results (build/gpu-check)")
    parser.add_argument("--short", action="store_true", help="fewer operators, and no cost of recording steps")
    parser.add_argument("--again", action="store_true", help="also stages that ended in that folder on this GPU")
    parser.add_argument("--into", type=Path, metavar="DOC.md", help="put the table there, if there is a GPU")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    try:
        given.budget_s = float(given.budget.removesuffix("s"))
    except ValueError:
        parser.error(f"--budget takes seconds, such as 540s; not {given.budget!r}")
    given.names = given.only.split(",") if given.only else list(STAGES)
    if unknown := [name for name in given.names if name not in STAGES]:
        parser.error(f"no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when nothing failed, 1 when a check failed, 2 for bad input."""
    given = _parsed(arguments)
    if given.stage:
        report = Report(given.stage, given.folder, short=given.short)
        importlib.import_module(f"benchmarks.gpu_check.{STAGES[given.stage][0]}").run(report)
        return 0
    if given.list:
        for name, (_, seconds, text) in STAGES.items():
            print(f"{name:8} about {seconds} s  {text}")
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    gpu = first_gpu()
    deadline = time.monotonic() + given.budget_s
    checks = [check for name in given.names for check in _stage(name, given, deadline, gpu)]
    title = _title(gpu)
    text = f"{title}\n\n{table(checks)}\n"
    print(f"\n{text}\n{counts(checks)}")
    document = {"schema_version": 1, "gpu": gpu, "title": title, "checks": [asdict(check) for check in checks]}
    (given.folder / "gpu-check.json").write_text(json.dumps(document, indent=1) + "\n")
    if given.into and gpu:
        documents.put(given.into, "gpu_check", f"{title}\n\n{document_table(checks)}")
    return 1 if any(check.verdict == Verdict.FAIL for check in checks) else 0


def _title(gpu: dict[str, str] | None) -> str:
    name = f"{gpu['name']}, driver {gpu['driver']}" if gpu else "No GPU"
    load = machine.load()
    return f"{name}, {date.today().isoformat()}; {machine.describe(load, load)}"


def _stage(name: str, given: argparse.Namespace, deadline: float, gpu: dict[str, str] | None) -> list[Check]:
    """Run a stage in a process of its own, until the deadline; return its checks."""
    file, done = given.folder / f"{name}.jsonl", given.folder / f"{name}.done"
    stamp = json.dumps(gpu)
    if not given.again and done.exists() and done.read_text() == stamp:
        say(f"gpu-check: {name} ended before")
        return read_checks(file)
    left = deadline - time.monotonic()
    if left < SHORTEST_S:
        return [Check(name, "the whole stage", Verdict.NOT_AVAILABLE, reason="no time was left for it")]
    done.unlink(missing_ok=True)
    file.unlink(missing_ok=True)
    say(f"gpu-check: {name}, {left:.0f} s left")
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--stage", name, "--folder", str(given.folder)]
    command += ["--short"] * given.short
    child = subprocess.Popen(command, start_new_session=True, cwd=ROOT)
    problem = ""
    try:
        if child.wait(left) != 0:
            problem = f"its process exited with {child.returncode}"
    except subprocess.TimeoutExpired:
        problem = "the time was up"
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    checks = read_checks(file)
    if problem:
        verdict = Verdict.NOT_AVAILABLE if problem == "the time was up" else Verdict.FAIL
        return [*checks, Check(name, "the rest of the stage", verdict, reason=problem)]
    done.write_text(stamp)
    say(f"gpu-check: {name} took {time.monotonic() - began:.0f} s")
    return checks


if __name__ == "__main__":
    sys.exit(main())
