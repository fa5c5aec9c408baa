"""Measurements that a program asks for: ``memtui.bench.run``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from memtui.api.results import bench_table
from memtui.bench.configuration import written
from memtui.core.errors import UserError
from memtui.recording.background_recording import environment

if TYPE_CHECKING:
    import pandas


def measured(
    operator: str,
    grid: Mapping[str, object | Iterable[object]],
    options: Mapping[str, object],
    *,
    quick: bool,
    database: str | os.PathLike[str] | None,
    progress: bool,
) -> pandas.DataFrame:
    """Run ``memtui bench`` and return what it measured; see ``memtui.bench.run``. ``options``: None is left out."""
    arguments = [operator, "--no-tui", *(["--quick"] if quick else [])]
    for name, values in grid.items():
        arguments += ["--grid", f"{name}={_listed(values)}"]
    for name, value in options.items():
        arguments += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    with tempfile.TemporaryDirectory(prefix="memtui-bench-") as folder:
        path = Path(folder) / "bench.db" if database is None else Path(database).absolute()
        start_ns = time.time_ns()
        _run([*arguments, "--db", str(path)], progress=progress)
        return bench_table(path, operator, start_ns).to_pandas()


def _listed(values: object | Iterable[object]) -> str:
    """Return one value or several as the command line takes them."""
    several = [values] if isinstance(values, str) or not isinstance(values, Iterable) else values
    return ",".join(written(value) for value in several)


def _run(arguments: list[str], *, progress: bool) -> None:
    """Run the command and print what it says while it works. Raises UserError."""
    last = ""
    command = [sys.executable, "-m", "memtui", "bench", *arguments]
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, stdin=null, stdout=null, stderr=pipe, text=True, env=environment()) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                last = line.strip() or last
                if progress:
                    print(line, end="", file=sys.stderr, flush=True)
        except BaseException:  # a cell that is interrupted
            process.terminate()
            raise
    if process.returncode:
        raise UserError(last.removeprefix("memtui bench: ") or f"memtui bench ended with {process.returncode}")
