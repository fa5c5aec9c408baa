"""Arguments of ``memtui tune``; ``command`` runs it."""

from __future__ import annotations

import argparse
from pathlib import Path

from memtui.core import argtypes
from memtui.core.argtypes import Parser
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.invoking_user import drop_root
from memtui.tui.arguments import add_screen


def _add_arguments(parser: Parser) -> None:
    add_screen(parser)
    parser.add_argument(
        "what",
        metavar="GRID.toml",
        nargs="?",
        help="TOML with [grid]; or a folder to look at; or, with --grid, NETWORK",
    )
    parser.add_argument("network", metavar="NETWORK", nargs="?", help="of all runs, where no axis is called name")
    group = parser.add_argument_group("what is run")
    group.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="K=V,V",
        help="values of a setting, or name=NETWORK,NETWORK; every combination is run, the first axis slowest",
    )
    group.add_argument("--set", action="append", default=[], metavar="K=V", help="a setting of all runs")
    group.add_argument("--config", type=argtypes.path, metavar="FILE", help="TOML with networks of yours")
    group.add_argument("--resume", type=argtypes.path, metavar="DIR", help="go on with the grid of this folder")
    group.add_argument("--again", action="store_true", help="from the beginning, though the same grid was run before")
    group.add_argument("--retry", action="store_true", help="run what failed once more")
    group.add_argument("--jobs", type=argtypes.jobs, default=1, metavar="N", help="runs at a time (1)")
    group = parser.add_argument_group("results")
    group.add_argument(
        "-o",
        "--output",
        type=argtypes.path,
        default=Path("results"),
        metavar="DIR",
        help="where the folder is made (results)",
    )
    group.add_argument(
        "--tensorboard",
        type=argtypes.path,
        metavar="DIR",
        help="write event files of TensorBoard, as train does, in a folder of each run",
    )
    group.add_argument("--json", action="store_true", help="one JSON document at the end")
    group.add_argument(
        "--tui", action=argparse.BooleanOptionalAction, default=True, help="a screen, where there is a terminal"
    )


def _run(args: argparse.Namespace, console: Console) -> int:
    from memtui.training.tune.command import tune

    drop_root()
    return tune(args, console)


TUNE = Command(
    "tune",
    "train a grid of settings, run by run, and go on where it was interrupted: tune GRID.toml, tune results/TIME",
    _add_arguments,
    _run,
)
