"""Which part of the configurations is this machine's: by an option, or by what SLURM and torchrun put in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memtui.bench.configuration import Configuration
from memtui.errors import UserError

Shard = tuple[int, int]  # number, of how many
# (number, how many, the first number) in the environment, in the order in which they are asked.
_PLACES = (
    ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"),
    ("SLURM_PROCID", "SLURM_NTASKS", ""),
    ("RANK", "WORLD_SIZE", ""),
)


def parse(text: str) -> Shard:
    """``i/n``. Raises ValueError."""
    number, slash, count = text.partition("/")
    if not (slash and number.isascii() and number.isdigit() and count.isascii() and count.isdigit()):
        raise ValueError(f"{text!r} is not of the form i/n, such as 0/4")
    if not int(number) < int(count):
        raise ValueError(f"shard {number} is out of range: of {count} they are 0 to {int(count) - 1}")
    return int(number), int(count)


def from_environment(environment: Mapping[str, str]) -> Shard | None:
    """What a scheduler says; None without one, or where there is only one part. Raises UserError for nonsense."""
    for number, count, first in _PLACES:
        if number in environment and count in environment:
            try:
                found = int(environment[number]) - int(environment.get(first, 0)), int(environment[count])
                if not 0 <= found[0] < found[1]:
                    raise ValueError
            except ValueError:
                text = f"{number}={environment[number]} of {count}={environment[count]}"
                raise UserError(f"{text} is no part of the whole; --shard i/n says which") from None
            return found if found[1] > 1 else None
    return None


def part(configurations: Sequence[Configuration], shard: Shard | None) -> list[Configuration]:
    """This machine's: every n-th in the order of their keys, which is the same everywhere."""
    number, count = shard or (0, 1)
    return sorted(configurations, key=lambda c: c.key)[number::count]
