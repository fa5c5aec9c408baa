"""Runs under a limit on memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from memtui.study.plan import Run
from memtui.study.runs.messages import MemoryOrder
from memtui.study.runs.runner import perform

MIB = 1 << 20


def touches(order: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", "memtui.study.workloads.known_accesses", order, *arguments)


def perform_limited(folder: Path, program, limit_bytes: int | None, seconds: float = 4.0):
    shared = {"tracker": "rss", "pause": False, "interval_s": 0.5, "memory_share": 0.5, "needs_steps": True}
    run = Run("x", tuple(program), 5.0, limit_s=seconds, **shared)
    swap_bytes = 128 * MIB if limit_bytes else 0
    memory = MemoryOrder(limit_bytes, swap_bytes, ("/var/tmp", "/tmp"))
    return perform(run, folder / "run", [min(os.sched_getaffinity(0))], (), lambda word: None, memory)
