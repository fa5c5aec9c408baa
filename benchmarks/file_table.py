"""A line for each file of another tool: its size, what came of it before and now, and what that took.

``MEMTUI_BEFORE`` names a checkout of an older memtui, which imports the same files; ``MEMTUI_FILES`` a folder of more
files. Those of ``tests/recordings`` are of a real GPU.
"""

from __future__ import annotations

import json
import lzma
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.run import ROOT, Run
from memtui.core.units import size
from memtui.session.session import Session

BEFORE, FILES = "MEMTUI_BEFORE", "MEMTUI_FILES"
HEAD = ("file", "size", "before", "after", "CPU s", "MiB")
# The kernel's own figure of a child begins with what its parent had in memory when it was started.
_PROGRAM = """
import sys
from pathlib import Path
from memtui.cli.main import main
code = main(sys.argv[2:])
Path(sys.argv[1]).write_text(Path("/proc/self/status").read_text())
sys.exit(code)
"""
_MOST_WHY = 60  # characters
_RECORDINGS = ROOT / "tests" / "recordings" / "h200"


@dataclass(frozen=True, slots=True)
class Import:
    """An import: CPU seconds of the whole command, its most resident memory, and why it failed."""

    seconds: float
    peak_mib: float
    failed: str = ""


def import_with(checkout: Path, path: Path, session: Path) -> Import:
    """Import a file with the program of a checkout."""
    errors, status_file = session.with_suffix(".errors"), session.with_suffix(".status")
    with errors.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, status_file, "import", path, "-o", session, "--force"],
            stdout=subprocess.DEVNULL,
            stderr=file,
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout)},
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    failed = (errors.read_text().splitlines() or ["ended without a word"])[-1] if process.returncode else ""
    failed = failed.rpartition(f"{path}: ")[2]
    peak_kib = int(status_file.read_text().partition("VmHWM:")[2].split()[0])
    return Import(usage.ru_utime + usage.ru_stime, peak_kib / 1024, textwrap.shorten(failed, _MOST_WHY))


def line(
    path: Path, name: str, folder: Path, now: Import | None = None, session: Path | None = None
) -> tuple[str, ...]:
    """Return the cells of a file. ``now`` and ``session``: of this version, where it was imported already."""
    session = folder / "table.memtui" if session is None else session
    now = import_with(ROOT, path, session) if now is None else now
    after = now.failed or content(session)
    before = ""
    if older := os.environ.get(BEFORE):
        imported = import_with(Path(older), path, folder / "before.memtui")
        before = imported.failed or f"{imported.seconds:.1f} s, {imported.peak_mib:,.0f} MiB"
    return name, size(path.stat().st_size), before, after, f"{now.seconds:.1f}", f"{now.peak_mib:,.0f}"


def content(path: Path) -> str:
    """Return what a session has: rows, and call stacks where there are any."""
    with closing(Session(path)) as session:
        rows = sum(step.rows for step in session.allocations.steps())
        stacks = session.allocations.call_stacks()
    return f"{rows:,} rows" + (f", {len(stacks):,} stacks of {len(stacks.frames):,} frames" if len(stacks) else "")


def real_files(run: Run) -> Iterator[tuple[Path, str]]:
    """Yield files that PyTorch wrote on an H200, and those of the folder that was named, with their names."""
    for path in sorted(_RECORDINGS.glob("*.json.xz")):
        name = path.name.removesuffix(".json.xz")
        if name.startswith("kineto-"):
            yield path, f"H200, trace {name.removeprefix('kineto-')} (xz)"
        elif name.startswith("history-"):
            recorded = json.loads(lzma.decompress(path.read_bytes()))
            snapshot = run.folder / f"{name}.pickle"
            parts = {"segments": recorded["after"], "device_traces": recorded["device_traces"]}
            snapshot.write_bytes(pickle.dumps(parts))
            yield snapshot, f"H200, snapshot {name.removeprefix('history-')}"
    if more := os.environ.get(FILES):
        for path in sorted(Path(more).iterdir()):
            yield path, path.name
