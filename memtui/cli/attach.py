"""Commands that record with a screen: ``demo``, ``attach``, ``run``, ``trace``."""

from __future__ import annotations

import argparse
import sys

from memtui.core.argtypes import Parser
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.recording.arguments import TRACE_HELP, add_keeping, add_observation, add_target, add_tracing, find_pid
from memtui.tui.arguments import add_screen

NETWORKS = ("auto", "torch", "numpy")


def _add_demo(parser: Parser) -> None:
    _add_how(parser)
    add_screen(parser)
    parser.add_argument("--network", choices=NETWORKS, default="auto", help="what trains: torch where it is installed")


def _demo(args: argparse.Namespace, console: Console) -> int:
    from memtui.recording.supervisor.program import Launch
    from memtui.tui.watch import watch

    argv = (sys.executable, "-P", "-m", "memtui.study.workloads.demo", "--network", args.network)
    return watch(args, console, Launch(argv, name="demo", log=True, dies_with_memtui=True))


def _add_attach(parser: Parser) -> None:
    add_target(parser)
    _add_how(parser)
    add_screen(parser)


def _attach(args: argparse.Namespace, console: Console) -> int:
    from memtui.tui.watch import watch

    if args.pid is None and args.rank is None:
        raise UserError("name a process by PID, name or rank: memtui attach 4242, attach train.py, attach --rank 3")
    return watch(args, console, find_pid(args, console))


def _add_run(parser: Parser) -> None:
    _add_trace(parser)
    parser.add_argument("--trace", action="store_true", help=TRACE_HELP)


def _run(args: argparse.Namespace, console: Console) -> int:
    return _start(args, console, args.every if args.trace else None)


def _add_trace(parser: Parser) -> None:
    _add_how(parser)
    add_tracing(parser)
    add_screen(parser)


def _trace(args: argparse.Namespace, console: Console) -> int:
    return _start(args, console, args.every)


def _start(args: argparse.Namespace, console: Console, trace_every: int | None) -> int:
    """Start the program behind ``--`` and watch it."""
    from memtui.recording.supervisor.program import Launch
    from memtui.tui.watch import watch

    if not args.command:
        raise UserError(f"no program named; say: memtui {args.verb} -- python train.py")
    return watch(args, console, Launch(tuple(args.command), log=True, trace_every=trace_every))


def _add_how(parser: Parser) -> None:
    add_observation(parser)
    add_keeping(parser)


DEMO = Command("demo", "start a small training (bundled) and watch it: the first thing to try", _add_demo, _demo)
ATTACH = Command("attach", "watch a running process and its children", _add_attach, _attach)
RUN = Command(
    "run", "start a program and watch it from its first instruction: run -- CMD... (o shows its output)", _add_run, _run
)
TRACE = Command(
    "trace",
    "run, and record every tensor allocation of some training steps (PyTorch): trace -- python train.py",
    _add_trace,
    _trace,
)
