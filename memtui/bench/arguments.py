"""Arguments of ``memtui bench``; ``command`` runs it."""

from __future__ import annotations

import argparse

from memtui.core import argtypes
from memtui.core.argtypes import Parser
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.options import CACHE_STATES, DTYPES, ENGINES, MODES, SPACES, WEIGHT_SETS
from memtui.tui.arguments import add_screen

FIGURES = ("svg", "html")


def _add_arguments(parser: Parser) -> None:
    add_screen(parser)
    parser.add_argument(
        "what",
        metavar="OP",
        help="an operator (bench list); a network: resnet50, FILE.py:function, torchvision:NAME, timm:NAME; "
        "list, resolution, compare, predict, db",
    )
    parser.add_argument(
        "rest",
        metavar="WORD",
        nargs="*",
        default=[],  # without one argparse calls it required
        help="of resolution: OP; of compare: A.db B.db; of predict: fit [OP...], eval [OP...], run OP (or a network); "
        "of db: info, merge FILE..., export FILE.csv, export [OP...] with --to",
    )
    group = parser.add_argument_group("what is measured, or predicted")
    group.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="K=V,V",
        help="values of a parameter; every combination is taken. Of a library's network: n=V, size=V",
    )
    group.add_argument("--config", type=argtypes.path, metavar="FILE", help="TOML with [OP.grid] and [[OP.list]]")
    group.add_argument("--space", choices=SPACES, help="a bundled set of configurations")
    group.add_argument("--dtype", choices=DTYPES, help="type of the numbers (fp32)")
    group.add_argument("--mode", choices=MODES, help="passes (forward)")
    group.add_argument("--cache", choices=CACHE_STATES, help="where inputs come from: new memory, or the cache (cold)")
    group.add_argument("--weights", choices=WEIGHT_SETS, help="several sets of weights take turns, or one (rotate)")
    group = parser.add_argument_group("how")
    group.add_argument("--device", type=argtypes.device, default="cpu", metavar="D", help="cpu or cuda:N (cpu)")
    group.add_argument("--threads", type=argtypes.threads, default=0, metavar="N", help="of a CPU (all CPUs but one)")
    group.add_argument("--windows", type=argtypes.windows, metavar="K", help="measured one after another (5)")
    group.add_argument("--seconds", type=argtypes.window_seconds, metavar="T", help="each (2)")
    group.add_argument(
        "--warm-up",
        type=argtypes.window_seconds,
        metavar="S",
        help="wait at most S seconds until the load has settled (10)",
    )
    group.add_argument("--quick", action="store_true", help="three windows of one second, 5 s of warm-up at most")
    group.add_argument("--seed", type=argtypes.seed, metavar="N", help="of random numbers and of the order (0)")
    group.add_argument(
        "--assume-watts", type=argtypes.watts, metavar="W", help="for an estimate, kept apart and called so"
    )
    group.add_argument("--again", action="store_true", help="measure anew what is in the database")
    group = parser.add_argument_group("several machines")
    group.add_argument("--shard", type=_shard, metavar="I/N", help="the I-th of N parts of the configurations")
    group.add_argument("--print-sbatch", action="store_true", help="print a script for Slurm, and measure nothing here")
    group.add_argument(
        "--engine", choices=ENGINES, help="measure in jobs of submitit: on Slurm, or one after another here"
    )
    group.add_argument("--jobs", type=argtypes.jobs, default=4, metavar="N", help="into at most N parts (4)")
    group = parser.add_argument_group("results")
    group.add_argument(
        "--db", type=argtypes.path, metavar="FILE", help="database (default: bench.db in your state directory)"
    )
    group.add_argument("--json", action="store_true", help="one JSON document at the end")
    group.add_argument(
        "--to",
        choices=FIGURES,
        help="draw what was measured (an operator, a network, db export), or predicted (predict eval, run)",
    )
    group.add_argument("-o", "--output", metavar="DIR", type=argtypes.path, help="folder to write figures into")
    group.add_argument(
        "--tui", action=argparse.BooleanOptionalAction, default=True, help="a screen, where there is a terminal"
    )
    group.add_argument("--force", action="store_true", help="overwrite a file that is there")
    group = parser.add_argument_group("which rows predictions are fitted to")
    group.add_argument(
        "--from-run",
        action="append",
        metavar="ID",
        help="those of its device and versions (default: of the newest run's); again, or all: of several together",
    )
    group.add_argument("--clock", type=argtypes.megahertz, metavar="MHZ", help="of a GPU that run predicts for")
    group.add_argument("--unflagged", action="store_true", help="only those without a flag")


def _shard(text: str) -> tuple[int, int]:
    """Parse ``--shard``."""
    from memtui.bench.jobs import parse

    shard: tuple[int, int] = argtypes.checked(parse, text)
    return shard


def _run(args: argparse.Namespace, console: Console) -> int:
    from memtui.bench.command import bench

    return bench(args, console)


BENCH = Command(
    "bench",
    "what an operator or a network costs in time and energy: bench conv2d, bench net.py:build, bench list",
    _add_arguments,
    _run,
)
