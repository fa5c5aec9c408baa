"""The arguments of ``memtui study`` and ``memtui calibrate``."""

from __future__ import annotations

import argparse

from memtui.core import argtypes
from memtui.core.argtypes import Parser, add_json
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.recording.arguments import add_observation, add_target, find_pid, options_of
from memtui.reports.arguments import add_redact


def _add_study(parser: Parser) -> None:
    add_redact(parser)
    add = parser.add_argument
    add("what", metavar="NAME", help="of a study (study list names them), all, or list")
    add("--quick", action="store_true", help="short runs and few repeats: minutes instead of hours")
    add(
        "-o",
        "--output",
        metavar="DIR",
        type=argtypes.path,
        help="folder for sessions and reports; the same one goes on there",
    )
    add(
        "--data",
        metavar="DIR",
        type=argtypes.path,
        help="CIFAR-10's binary files (default: generated images of that shape)",
    )
    add("--cpus", metavar="N", type=argtypes.threads, help="programs may use N CPUs (all that memtui may use)")
    add(
        "--seconds",
        metavar="S",
        type=argtypes.duration,
        help="end each run of your own program S seconds after its first step",
    )
    add("--seed", metavar="N", type=argtypes.seed, default=0, help="of data, weights and order (0)")
    add("--json", action="store_true", help="one JSON document at the end")


def _study(args: argparse.Namespace, console: Console) -> int:
    from memtui.study.command import study

    return study(args, console)


def _add_calibrate(parser: Parser) -> None:
    add_target(parser)
    add_observation(parser)
    parser.add_argument(
        "--counter",
        type=_counter,
        default=("auto", ""),
        metavar="WHAT",
        help="what counts its steps: steps=FILE (numbers after step or iter in a log), lines=FILE, file=FILE (the last "
        "number in it), marks (memtui.mark), rchar or wchar (bytes read, written); default: steps in its output file",
    )
    parser.add_argument(
        "--blocks", type=argtypes.blocks, default=10, metavar="N", help="blocks with, and as many without (10)"
    )
    parser.add_argument("--seconds", type=argtypes.duration, default=10.0, metavar="S", help="of each block (10)")
    add_json(parser, "as one JSON document, with every block")
    parser.set_defaults(duration=None, keep_command=False, keep_resident=False)


def _calibrate(args: argparse.Namespace, console: Console) -> int:
    from memtui.study.calibration import CalibrationPlan, calibrate, format_result

    if args.pid is None and args.rank is None:
        raise UserError("name a running process by PID, name or rank: memtui calibrate 4242")
    counter, path = args.counter
    pause_options = args.pause is True, round(args.max_pause * 1e9)
    pid = find_pid(args, console)
    plan = CalibrationPlan(pid, options_of(args), counter, path, args.blocks, args.seconds, args.sudo, *pause_options)
    result = calibrate(plan, console.notify)
    if args.json:
        console.print_json(result)
    else:
        print(format_result(result))
    return 0


def _counter(text: str) -> tuple[str, str]:
    """Return kind and file of ``--counter``."""
    from memtui.study.progress_counters import parse_counter

    counter: tuple[str, str] = argtypes.checked(parse_counter, text)
    return counter


STUDY = Command(
    "study",
    "a published experiment on working sets, done here: study basic, study all --quick, study NAME -- CMD...",
    _add_study,
    _study,
)
CALIBRATE = Command(
    "calibrate", "measure how much slower a process runs while it is watched", _add_calibrate, _calibrate
)
