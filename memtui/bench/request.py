"""The request in the arguments and options of ``memtui bench``: an operator, its configurations, a database."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from memtui.bench.configuration import Configuration, from_file, make, parse_grid, product
from memtui.bench.operators import CATALOGUE
from memtui.bench.operators.base import Value
from memtui.bench.plan import BenchPlan
from memtui.bench.spaces import in_space
from memtui.core.errors import UserError
from memtui.core.privilege import invoker, state_directory
from memtui.core.text import nearest

QUICK = BenchPlan(windows=3, seconds=1.0, warm_up_s=5.0)
PATIENCE = 4  # times the windows, where other programs use the measured cores
VISITS = 2  # of a configuration on a CPU, minutes apart: a shared machine is faster at one time than at another
VERBS = ("list", "resolution", "compare", "predict", "db")


def operator(name: str) -> str:
    """Return the name of an existing operator. Raises UserError."""
    if name in CATALOGUE:
        return name
    hint = nearest(name, (*CATALOGUE, *VERBS), "memtui bench list names them")
    raise UserError(f"there is no operator {name or repr(name)}; {hint}")


def configurations(args: argparse.Namespace, op: str) -> list[Configuration]:
    """Return the configurations of ``--grid``, ``--config`` or ``--space``, or the default one. Raises UserError."""
    usual = conditions(args)
    try:
        if sum((bool(args.grid), bool(args.config), args.space is not None)) > 1:
            raise ValueError("--grid, --config and --space each say which configurations: one of them")
        if args.config:
            return from_file(args.config, op, usual)
        if args.space:
            return in_space(args.space, op, usual)
        if args.grid:
            return product(op, parse_grid(args.grid), usual)
        return [make(op, usual)]
    except ValueError as error:
        raise UserError(str(error)) from None


def grid(args: argparse.Namespace) -> dict[str, list[Value]]:
    """Return the values of each key of ``--grid``; empty without it. Raises UserError."""
    try:
        return parse_grid(args.grid or ())
    except ValueError as error:
        raise UserError(str(error)) from None


def conditions(args: argparse.Namespace) -> dict[str, Value]:
    """Return the conditions given as options."""
    return {key: value for key in ("dtype", "mode", "cache", "weights") if (value := getattr(args, key)) is not None}


def plan(args: argparse.Namespace) -> BenchPlan:
    """Return the plan of the options."""
    changes = {"windows": args.windows, "seconds": args.seconds, "warm_up_s": args.warm_up, "seed": args.seed}
    given = {key: value for key, value in changes.items() if value is not None}
    chosen = replace(QUICK if args.quick else BenchPlan(), patience=PATIENCE, **given)
    several = args.device == "cpu" and not args.quick
    return replace(chosen, visits=min(VISITS, chosen.windows) if several else 1)


def database_path(args: argparse.Namespace, shard: tuple[int, int] | None = None) -> Path:
    """Return ``--db``, or the default database of this user; each part of a sweep has its own."""
    if args.db is not None:
        return Path(args.db)
    name = f"bench-{shard[0]}-of-{shard[1]}.db" if shard else "bench.db"
    return state_directory(invoker()) / name
