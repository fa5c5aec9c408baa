"""A sweep in parts: the part of this machine, the database of its rows, and all parts as a script for Slurm.

An option names a part, or the variables that Slurm and torchrun put into the environment. ``--print-sbatch`` prints
the script, with one task of an array for each part.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from memtui.bench import request
from memtui.bench.configuration import Configuration
from memtui.bench.plan import BenchPlan
from memtui.bench.sweep import REFERENCE_EVERY
from memtui.core.errors import UserError

Shard = tuple[int, int]  # (number, count)
# Variables of (number, count, first number), in order of precedence.
_PLACES = (
    ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"),
    ("SLURM_PROCID", "SLURM_NTASKS", ""),
    ("RANK", "WORLD_SIZE", ""),
)


def parse(text: str) -> Shard:
    """Parse ``i/n``. Raises ValueError."""
    number, slash, count = text.partition("/")
    if not (slash and number.isascii() and number.isdigit() and count.isascii() and count.isdigit()):
        raise ValueError(f"{text!r} is not of the form i/n, such as 0/4")
    if not int(number) < int(count):
        raise ValueError(f"shard {number} is out of range: of {count} they are 0 to {int(count) - 1}")
    return int(number), int(count)


def from_environment(environment: Mapping[str, str]) -> Shard | None:
    """Return the part that a scheduler assigns.

    Return None without a scheduler, or where there is only one part. Raises UserError for invalid variables.
    """
    for number, count, first in _PLACES:
        if number in environment and count in environment:
            try:
                shard = int(environment[number]) - int(environment.get(first, 0)), int(environment[count])
                if not 0 <= shard[0] < shard[1]:
                    raise ValueError
            except ValueError:
                text = f"{number}={environment[number]} of {count}={environment[count]}"
                raise UserError(f"{text} is not part of the whole; --shard i/n says which") from None
            return shard if shard[1] > 1 else None
    return None


def part(configurations: Sequence[Configuration], shard: Shard | None) -> list[Configuration]:
    """Return this machine's part: every n-th in the order of their keys, which is the same everywhere."""
    number, count = shard or (0, 1)
    return sorted(configurations, key=lambda c: c.key)[number::count]


def script(args: argparse.Namespace, configurations: Sequence[Configuration]) -> str:
    """Return the script; further options, such as an account, go on the command line of sbatch.

    The script has the number of parts: SLURM_ARRAY_TASK_COUNT differs where a single task is submitted again.

    Raises:
        UserError: an argument or path with a line break, which would end a comment.
    """
    count = number_of_jobs(args, configurations)
    name = f"memtui-{args.what}"
    measure = shlex.join([*MEMTUI, *part_argv(args)])
    whole = request.database_path(args).absolute()
    paths = [str(part_path(whole, number, count)) for number in range(count)]
    if any(not word.isprintable() for word in (measure, *paths)):
        raise UserError("a path or word with a line break or another control character cannot stand in a script")
    # One after another: a part without a database must not keep the others out.
    merge = f'for part in {shlex.join(paths)}; do {shlex.join(MEMTUI)} bench db merge "$part"'
    merge += f" --db {shlex.quote(str(whole))}; done"
    path = part_path(whole, "$SLURM_ARRAY_TASK_ID", count)
    minutes = longest_minutes(request.plan(args), math.ceil(len(configurations) / count))
    alone = "--gres=gpu:1" if args.device.startswith("cuda") else "--exclusive"
    return f"""#!/bin/bash
# {args.what}, {len(configurations)} configurations in {count} parts, each with a database of its own:
#   job=$(sbatch --parsable THIS_FILE)
# and when all have ended, however they ended, one job that puts them together:
#   sbatch --dependency=afterany:$job --job-name={name}-merge --wrap {shlex.quote(merge)}
# A part that was cut off goes on where it stopped when it is submitted again: sbatch --array=NUMBER THIS_FILE
#SBATCH --job-name={name}
#SBATCH --array=0-{count - 1}
#SBATCH --ntasks=1
#SBATCH {alone}
#SBATCH --time={minutes}
#SBATCH --output={name}-%A_%a.log
exec {measure} \\
    --shard="$SLURM_ARRAY_TASK_ID/{count}" \\
    --db={_with_variable(str(path))}
"""


def _with_variable(path: str) -> str:
    """Return a path quoted for the shell, except for the variable of the task's number."""
    before, _, after = path.rpartition("$SLURM_ARRAY_TASK_ID")
    return f'{shlex.quote(before)}"$SLURM_ARRAY_TASK_ID"{shlex.quote(after)}'


MEMTUI = (sys.executable, "-m", "memtui")
# Options that are passed on to a part; the others are a part's own, or about output for people.
PASSED_ON = (
    "grid", "config", "space", "dtype", "mode", "cache", "weights", "threads", "windows", "seconds", "warm_up", "quick",
    "seed", "assume_watts", "again",
)  # fmt: skip
_START_S = 60.0  # of Python, torch and a CUDA context from a slow file system
_DATA_S = 10.0  # random numbers of a row
_LONGER = 1.3  # than the windows themselves: phases between them, counters to wait for
_LEAST_S = 2.0  # of a window, which is lengthened to the steps of an energy counter


def number_of_jobs(args: argparse.Namespace, configurations: Sequence[Configuration]) -> int:
    """Return ``--jobs``, or the number of configurations if it is smaller. Raises UserError with ``--shard``."""
    if args.shard is not None:
        raise UserError("--shard is one part, and --print-sbatch and --engine make all of them; --jobs says how many")
    return min(args.jobs, len(configurations))


def part_path(whole: Path, number: int | str, count: int) -> Path:
    """Return the path of a part's database, next to the whole one. The file stays, so that a part can be resumed."""
    return whole.with_name(f"{whole.stem}-{number}-of-{count}{whole.suffix}")


def part_argv(args: argparse.Namespace) -> list[str]:
    """Return the arguments of ``memtui`` that measure a part, without ``--shard`` and ``--db``.

    The options already include those of a config file. A job sees the GPUs assigned to it, from 0 on.
    """
    device = "cuda:0" if args.device.startswith("cuda") else args.device
    argv = ["bench", args.what, f"--device={device}", "--no-config", "--no-tui"]
    for name in PASSED_ON:
        value, option = getattr(args, name), f"--{name.replace('_', '-')}"
        if isinstance(value, list):
            argv += [f"{option}={item}" for item in value]
        elif isinstance(value, Path):
            argv.append(f"{option}={value.absolute()}")
        elif value is True:
            argv.append(option)
        elif value is not None and value is not False and (value or name != "threads"):  # no threads: all CPUs but one
            argv.append(f"{option}={value}")
    return argv


def longest_minutes(plan: BenchPlan, rows: int) -> int:
    """Return an upper bound on the minutes of a part with ``rows`` rows, for a batch system."""
    references = 2 + rows // REFERENCE_EVERY
    row_s = plan.visits * (plan.warm_up_s + _DATA_S) + _LONGER * plan.most_windows * max(plan.seconds, _LEAST_S)
    return math.ceil((_START_S + (rows + references) * row_s) / 60)
