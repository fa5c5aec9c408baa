"""Child processes of the stages: loads, and memtui itself as a user starts it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checks import Report
from benchmarks.run import ROOT, memtui


class Load:
    """A load that runs. ``result`` waits for its end."""

    def __init__(self, *words: object) -> None:
        """Start a load of ``loads`` and wait until it is ready. Raises RuntimeError."""
        self.process = subprocess.Popen(load(*words), stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self.process.stdout
        if self.process.stdout.readline().strip() != "ready":
            self.process.kill()
            raise RuntimeError(f"the load {' '.join(map(str, words))} did not start")

    def result(self) -> Any:
        assert self.process.stdout
        last = self.process.stdout.read().strip()
        self.process.wait()
        return json.loads(last) if last else None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def load(*words: object) -> list[str]:
    """Return the command of a load."""
    return [sys.executable, "-m", "benchmarks.gpu_check.loads", *map(str, words)]


@contextmanager
def running(*words: object) -> Iterator[Load]:
    """A load, from when it is ready."""
    one = Load(*words)
    try:
        yield one
    finally:
        one.end()


def run_memtui(*words: object, folder: Path, seconds: float = 120.0, name: str = "") -> str:
    """Return what memtui wrote to standard output. Raises RuntimeError with its last line of errors.

    Args:
        words: of its command line.
        folder: keeps what it wrote to standard error, as NAME.err.
        seconds: it is killed after these.
        name: of that file.
    """
    began = time.monotonic()
    name = name or "-".join(str(word) for word in words[:2])
    with (folder / f"{name}.err").open("w") as errors:
        done = subprocess.run(
            memtui(*words), stdout=subprocess.PIPE, stderr=errors, text=True, timeout=seconds, cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        errors.write(f"took {time.monotonic() - began:.1f} s\n")
    if done.returncode != 0:
        lines = (folder / f"{name}.err").read_text().strip().splitlines()[:-1]
        raise RuntimeError(f"memtui {name} exited with {done.returncode}: {lines[-1] if lines else ''}")
    return done.stdout


def first_gpu() -> dict[str, str] | None:
    """Return name, uuid and driver of the first GPU as nvidia-smi tells them; None without it."""
    try:
        values = smi("name,uuid,driver_version")
    except (OSError, subprocess.SubprocessError, IndexError):
        return None
    return dict(zip(("name", "uuid", "driver"), values, strict=True))


def smi(query: str, what: str = "gpu") -> list[str]:
    """Return the values of the first line of a query of nvidia-smi. Raises OSError, SubprocessError and IndexError."""
    return smi_lines(query, what)[0]


def smi_text(*words: str) -> str:
    """Return what ``nvidia-smi`` writes. Raises OSError and SubprocessError."""
    return subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=20, check=True).stdout


def smi_monitor(*words: str) -> list[dict[str, str]]:
    """Return the rows of nvidia-smi's ``pmon``, by the names in its heading.

    Raises OSError, SubprocessError and IndexError.
    """
    lines = smi_text(*words).strip().splitlines()
    names = [name.lower() for name in lines[0].lstrip("# ").split()]
    return [dict(zip(names, line.split(), strict=False)) for line in lines if not line.startswith("#")]


def smi_lines(query: str, what: str) -> list[list[str]]:
    """Return the values of all lines of a query of nvidia-smi. Raises OSError and SubprocessError."""
    text = smi_text(f"--query-{what}={query}", "--format=csv,noheader,nounits")
    return [[value.strip() for value in line.split(",")] for line in text.strip().splitlines()]


def zeus_monitor() -> Any:
    """Return a monitor of Zeus for the first GPU; None where Zeus is not installed, or finds this machine wanting."""
    try:
        from zeus.monitor import ZeusMonitor

        return ZeusMonitor(gpu_indices=[0], cpu_indices=[])
    except Exception as error:  # it is not installed, or finds this machine wanting
        print(f"no Zeus: {error}", flush=True)
        return None


def torch_with_cuda(report: Report) -> Any:
    """Return PyTorch; None where it finds no GPU, which the report then says."""
    import torch

    if torch.cuda.is_available():
        return torch
    report.missing(report.stage, f"this PyTorch ({torch.__version__}) finds no CUDA device")
    return None
