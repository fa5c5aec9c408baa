"""Recorded /proc trees."""

from __future__ import annotations

from pathlib import Path


def write_process(proc: Path, pid: int, name: str, parent: int, start: int, children=(), flags: int = 0) -> None:
    folder = proc / str(pid)
    task = folder / "task" / str(pid)
    task.mkdir(parents=True, exist_ok=True)
    fields = ["S", parent, pid, pid, 0, -1, flags, 11, 0, 13, 0, 1, 2, 0, 0, 20, 0, 1, 0, start, 0, 0]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}\n")
    (task / "children").write_text(" ".join(map(str, children)))
