"""``--print-sbatch``: a sweep as a script for Slurm, one task of an array for each part."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence

from memtui.bench import asked
from memtui.bench.configuration import Configuration
from memtui.bench.jobs import MEMTUI, longest_minutes, number_of_jobs, part_path, part_words
from memtui.errors import UserError


def script(args: argparse.Namespace, configurations: Sequence[Configuration]) -> str:
    """The script; what it needs besides, such as an account, goes on the command line of sbatch.

    The number of parts stands in it: SLURM_ARRAY_TASK_COUNT is another one where a single task is submitted again.

    Raises:
        UserError: a word or path that has a line break, which would end a comment.
    """
    count = number_of_jobs(args, configurations)
    name = f"memtui-{args.what}"
    measure = shlex.join([*MEMTUI, *part_words(args)])
    whole = asked.database_path(args).absolute()
    paths = [str(part_path(whole, number, count)) for number in range(count)]
    if any(not word.isprintable() for word in (measure, *paths)):
        raise UserError("a path or word with a line break or another control character cannot stand in a script")
    # One after another: a part without a database must not keep the others out.
    merge = f'for part in {shlex.join(paths)}; do {shlex.join(MEMTUI)} bench db merge "$part"'
    merge += f" --db {shlex.quote(str(whole))}; done"
    path = part_path(whole, "$SLURM_ARRAY_TASK_ID", count)
    minutes = longest_minutes(asked.plan(args), math.ceil(len(configurations) / count))
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
    """A path quoted for the shell, but for the number of the task in it."""
    before, _, after = path.rpartition("$SLURM_ARRAY_TASK_ID")
    return f'{shlex.quote(before)}"$SLURM_ARRAY_TASK_ID"{shlex.quote(after)}'
