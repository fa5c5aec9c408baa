"""The request in the arguments and options of ``memtui bench``: an operator, its configurations, a database."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memtui.bench.configuration import Configuration, from_file, make, parse_grid, product
from memtui.bench.decomposition.client import decompose
from memtui.bench.decomposition.names import is_network as names_network
from memtui.bench.decomposition.names import network_name
from memtui.bench.decomposition.result import Decomposition
from memtui.bench.operators import CATALOGUE, NETWORK
from memtui.bench.operators.base import Value
from memtui.bench.plan import BenchPlan
from memtui.bench.spaces import in_space, resnet50_counts
from memtui.core.errors import UserError
from memtui.core.privilege import invoker, state_directory
from memtui.core.text import nearest

QUICK = BenchPlan(windows=3, seconds=1.0, warm_up_s=5.0)
PATIENCE = 4  # times the windows, where other programs use the measured cores
VISITS = 2  # of a configuration on a CPU, minutes apart: a shared machine is faster at one time than at another
BUNDLED = "resnet50"  # the network whose operators are known
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
            return product(op, grid(args), usual)
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


def is_network(args: argparse.Namespace, what: str) -> bool:
    """Whether a word names a network that is to be seen as its operators.

    The bundled one is given as it is, or with one size of its input; else it is an operator.
    """
    if what != BUNDLED or args.config or args.space:
        return names_network(what)
    given = grid(args)
    return given.keys() <= CATALOGUE[BUNDLED].defaults.keys() and all(len(values) == 1 for values in given.values())


@dataclass(frozen=True, slots=True)
class NetworkParts:
    """A network and its operators.

    Attributes:
        network: the whole network as one configuration.
        counts: its operators, and how often one pass calls each.
        decomposition: how it was taken apart; None for the bundled one.
    """

    network: Configuration
    counts: Mapping[Configuration, int]
    decomposition: Decomposition | None


def network_parts(args: argparse.Namespace, what: str) -> NetworkParts:
    """Return a network and its operators; one that is not bundled is run for that. Raises UserError."""
    # The tensors between layers were just written: they are in the cache.
    usual: dict[str, Value] = {"cache": "warm", "weights": "same", **conditions(args)}
    dtype = str(usual.get("dtype", "fp32"))
    try:
        if what == BUNDLED:
            network = make(BUNDLED, usual | {key: value for key, (value,) in grid(args).items()})
            n, size = (int(network.parameters[key]) for key in ("n", "size"))
            return NetworkParts(network, resnet50_counts(n, size, usual), None)
        if args.config or args.space:
            raise ValueError("--config and --space are for configurations of an operator")
        make(NETWORK.name, usual)  # conditions that no network has
        check_dtype(args.device, [dtype])
        decomposition = decompose(network_name(what, grid(args)), args.device, dtype, args.threads)
        counts = decomposition.counts(usual)
        return NetworkParts(decomposition.network(usual, counts), counts, decomposition)
    except ValueError as error:
        raise UserError(str(error)) from None


def check_dtype(device: str, dtypes: Sequence[str]) -> None:
    """Raise UserError for a type of numbers that the device does not have."""
    if not device.startswith("cuda") and "tf32" in dtypes:
        raise UserError("tf32 is a type of CUDA devices; fp32, fp16 or bf16 on a CPU")


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
