"""``--engine submitit``: the parts of a sweep as jobs, on Slurm where it is available, else on this machine."""

from __future__ import annotations

import argparse
import math
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memtui.bench import request
from memtui.bench.configuration import Configuration
from memtui.bench.database_file import DatabaseError
from memtui.bench.jobs import MEMTUI, longest_minutes, number_of_jobs, part_argv, part_path
from memtui.bench.store import Database
from memtui.core.console import Console
from memtui.core.errors import FAILURE, UserError
from memtui.core.os_errors import refused
from memtui.core.processes import exit_with_parent

LOCAL = "local"  # submitit's name for processes on this machine


@dataclass(frozen=True)
class Part:
    """A part that has ended.

    Attributes:
        number: number of the part, from 0.
        database: path of its own database.
        rows: number of its rows that were new to the whole database.
        reason: why the part failed; "" if it did not.
    """

    number: int
    database: str
    rows: int
    reason: str


def measure(args: argparse.Namespace, configurations: Sequence[Configuration], console: Console) -> int:
    """Run the parts and merge them, also the finished rows of a failed part; return the exit code.

    On one machine the parts run one after another: a device takes one measurement at a time. Jobs that have not ended
    when this function is interrupted are cancelled.

    Args:
        args: the parsed arguments.
        configurations: configurations of all parts.
        console: prints the results and messages about failures.

    Raises:
        UserError: submitit is not installed, or refuses.
    """
    count = number_of_jobs(args, configurations)
    whole = request.database_path(args).absolute()
    Database(whole).close()  # errors of the database are raised before a job is submitted
    folder = whole.with_name(f"{whole.stem}-jobs")
    minutes = longest_minutes(request.plan(args), math.ceil(len(configurations) / count))
    executor = _executor(folder, args, minutes)
    parts = []
    for number, reason in _ended(executor, [_argv(args, whole, number, count) for number in range(count)]):
        path = part_path(whole, number, count)
        rows, trouble = _merged(whole, path)
        reason = reason or trouble
        parts.append(Part(number, str(path), rows, reason))
        if not args.json:
            console.print_line(f"part {number} of {count}: {parts[-1].rows} new rows")
        if reason:
            console.notify(f"part {number} of {count}: {reason}")
    if args.json:
        console.print_json({"database": str(whole), "parts": [asdict(part) for part in parts]})
    else:
        console.print_line(f"{sum(part.rows for part in parts)} new rows in {whole}; what the jobs said: {folder}")
    return FAILURE if any(part.reason for part in parts) else 0


def run_part(argv: list[str]) -> tuple[int, str]:
    """Run memtui in the job, with these arguments; return its exit code, and its last line on standard error."""
    # A job that is cancelled takes its measurement with it.
    done = subprocess.run(
        [*MEMTUI, *argv], stderr=subprocess.PIPE, text=True, errors="replace", preexec_fn=exit_with_parent
    )
    print(done.stderr, end="", flush=True)  # into the log of the job
    lines = done.stderr.splitlines()
    return done.returncode, lines[-1] if lines else ""


def _argv(args: argparse.Namespace, whole: Path, number: int, count: int) -> list[str]:
    return [*part_argv(args), f"--shard={number}/{count}", f"--db={part_path(whole, number, count)}"]


def _executor(folder: Path, args: argparse.Namespace, minutes: int) -> Any:
    """Return submitit's executor, for jobs with an exclusive node, or one GPU. Raises UserError."""
    try:
        import submitit
    except ImportError:
        raise UserError("submitit is not installed: pip install 'memtui[submitit]'", FAILURE) from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # submitit unpickles results, so other users must not write there
        executor = submitit.AutoExecutor(folder=folder)
    except OSError as error:
        raise refused(folder, error) from None
    wanted: dict[str, Any] = {"name": f"memtui-{args.what}", "timeout_min": minutes}
    if args.device.startswith("cuda"):
        wanted |= {"gpus_per_node": 1, "local_visible_gpus": [int(args.device.partition(":")[2])]}
    else:
        wanted |= {"slurm_exclusive": True}
    executor.update_parameters(**wanted)
    return executor


def _ended(executor: Any, parts: Sequence[list[str]]) -> Iterator[tuple[int, str]]:
    """Yield (number, why it failed or "") of each part as it ends. Raises UserError when no job can be submitted."""
    from submitit.core.utils import FailedSubmissionError

    jobs: list[Any] = []
    try:
        if executor.cluster == LOCAL:
            for number, argv in enumerate(parts):
                jobs.append(executor.submit(run_part, argv))
                yield number, _outcome(jobs[-1])
        else:
            jobs += executor.map_array(run_part, parts)
            for number, job in enumerate(jobs):
                yield number, _outcome(job)
    except FailedSubmissionError as error:
        raise UserError(f"the jobs cannot be submitted: {' '.join(str(error).split())[:200]}", FAILURE) from None
    finally:
        for job in jobs:
            if not job.done():
                job.cancel(check=False)


def _outcome(job: Any) -> str:
    """Wait for a job; return why it failed, or ""."""
    from submitit.core.utils import UncompletedJobError

    try:
        code, message = job.result()
    except UncompletedJobError:
        return f"its job ended without a result; {job.paths.stderr} may say why"
    return message.removeprefix("memtui bench: ") or f"it ended with code {code}" if code else ""


def _merged(whole: Path, path: Path) -> tuple[int, str]:
    """Merge a part; return the number of new rows, and why not all rows could be merged or ""."""
    if not path.exists():
        return 0, ""
    try:
        with closing(Database(whole)) as database:
            return database.merge(path), ""
    except DatabaseError as error:
        return 0, str(error)
