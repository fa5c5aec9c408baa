"""A sweep in parts, each a job of its own on some machine: what a part is called, and where its rows go."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from memtui.bench.configuration import Configuration
from memtui.bench.plan import Plan
from memtui.bench.sweep import REFERENCE_EVERY
from memtui.errors import UserError

MEMTUI = (sys.executable, "-m", "memtui")
# Options that a part has from the one who asked; the others are a part's own, or are for people.
PASSED_ON = (
    "grid", "config", "space", "dtype", "mode", "cache", "weights", "threads", "windows", "seconds", "warm_up", "quick",
    "seed", "assume_watts", "again",
)  # fmt: skip
_START_S = 60.0  # of Python, torch and a CUDA context from a slow file system
_DATA_S = 10.0  # random numbers of a row
_LONGER = 1.3  # than the windows themselves: phases between them, counters to wait for
_LEAST_S = 2.0  # of a window, which is lengthened to the steps of an energy counter


def number_of_jobs(args: argparse.Namespace, configurations: Sequence[Configuration]) -> int:
    """``--jobs``, but no more than there are configurations. Raises UserError where another option is against it."""
    if args.shard is not None:
        raise UserError("--shard is one part, and --print-sbatch and --engine make all of them; --jobs says how many")
    return min(args.jobs, len(configurations))


def part_path(whole: Path, number: int | str, count: int) -> Path:
    """The database of a part, beside the one that all are merged into. It stays, so that a part can go on."""
    return whole.with_name(f"{whole.stem}-{number}-of-{count}{whole.suffix}")


def part_words(args: argparse.Namespace) -> list[str]:
    """The words behind ``memtui`` that measure a part, but for ``--shard`` and ``--db``.

    What a config file says is in the options already. A job sees the GPUs that it was given, from 0 on.
    """
    device = "cuda:0" if args.device.startswith("cuda") else args.device
    found = ["bench", args.what, f"--device={device}", "--no-config", "--no-tui"]
    for name in PASSED_ON:
        value, option = getattr(args, name), f"--{name.replace('_', '-')}"
        if isinstance(value, list):
            found += [f"{option}={one}" for one in value]
        elif isinstance(value, Path):
            found.append(f"{option}={value.absolute()}")
        elif value is True:
            found.append(option)
        elif value is not None and value is not False and (value or name != "threads"):  # no threads: all CPUs but one
            found.append(f"{option}={value}")
    return found


def longest_minutes(plan: Plan, rows: int) -> int:
    """What a part of so many rows takes at most, as a batch system asks for it."""
    references = 2 + rows // REFERENCE_EVERY
    row_s = plan.visits * (plan.warm_up_s + _DATA_S) + _LONGER * plan.most_windows * max(plan.seconds, _LEAST_S)
    return math.ceil((_START_S + (rows + references) * row_s) / 60)
