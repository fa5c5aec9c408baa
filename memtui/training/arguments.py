"""Arguments of ``memtui train``, and its three ways to run: with a screen, recorded without a screen, or unrecorded."""

from __future__ import annotations

import argparse
from pathlib import Path

from memtui.core import argtypes
from memtui.core.argtypes import Parser, add_json
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.core.invoking_user import drop_root
from memtui.recording.arguments import add_keeping, add_observation, add_tracing, observe
from memtui.tui.arguments import add_screen


def _add_arguments(parser: Parser) -> None:
    add_observation(parser)
    add_keeping(parser)
    add_tracing(parser)
    add_screen(parser)
    parser.add_argument(
        "network",
        metavar="NETWORK",
        nargs="?",
        help="of what train list shows, or of your own: --config, --definitions",
    )
    group = parser.add_argument_group("what is trained, and how (the settings of ZPP-MEM; docs/guide/train.md)")
    group.add_argument("--name", metavar="NETWORK", help="the network, as experiment.py of ZPP-MEM has it")
    group.add_argument("--type", metavar="RULE", help="BP, FA, DFA or DFAMEM (BP)")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting: momentum=0, eval_period=50",
    )
    for name, metavar, text in (
        ("learning-rate", "R", "step size"),
        ("batch-size", "N", "examples in an iteration"),
        ("epochs", "N", "times through the data"),
        ("cost-function", "NAME", "softmax_cross_entropy, sigmoid_cross_entropy, mean_squared_error"),
        ("dataset-name", "NAME", "digits, clusters, mnist, cifar10, cifar100"),
        ("sequence", "NAME", "layers of another network"),
        ("seed", "N", "of weights, feedback and the order of the data"),
        ("data", "DIR", "folder with the files of MNIST or CIFAR"),
    ):
        group.add_argument(f"--{name}", metavar=metavar, help=text)
    group.add_argument(
        "--config", type=argtypes.path, metavar="FILE", help="TOML with networks of your own: [name], extends"
    )
    group.add_argument(
        "--definitions",
        type=argtypes.path,
        metavar="FILE",
        help="Python with functions name(output_size) -> [layers], or with tables of settings (files of ZPP-MEM)",
    )
    group.add_argument("--memory-only", action="store_true", help="write the memory of iteration 5 to plots/, and stop")
    group.add_argument("--save-graph", action="store_true", help="write operators and edges of that iteration to demo/")
    group.add_argument(
        "--gather-stats", action="store_true", help="write mean and spread of weights, activations, errors"
    )
    group = parser.add_argument_group("results")
    group.add_argument(
        "--no-tui", dest="tui", action="store_false", help="lines, also on a terminal; -o keeps a session"
    )
    group.add_argument(
        "--tensorboard",
        type=argtypes.path,
        metavar="DIR",
        help="write loss, accuracy, seconds and memory as event files of TensorBoard, in a folder of each run",
    )
    add_json(group, "one JSON document at the end; lines go to stderr")


def _run(args: argparse.Namespace, console: Console) -> int:
    """Train with the screen on a terminal; else without it, and recorded only where a session is requested."""
    from memtui.recording.supervisor.program import Launch
    from memtui.training.command import (
        MEMORY_ONLY_EVERY,
        print_document,
        print_networks,
        request_of,
        result_file,
        run_unrecorded,
    )

    if (args.network is None) == (args.name is None):
        raise UserError("name one network: memtui train NETWORK, or --name NETWORK; memtui train list shows them")
    args.network = args.name if args.network is None else args.network
    if args.network == "list":
        print_networks(console.print)
        return 0
    what = request_of(args)
    for note in what.notes:
        console.notify(note)
    shows = console.wants_screen(args)
    if not shows and args.output is None and args.metrics is None:
        drop_root()
        return run_unrecorded(what, console, as_json=args.json)
    every = MEMORY_ONLY_EVERY if what.settings.memory_only else args.every
    if shows:
        from memtui.tui.watch import watch

        name = f"{args.network}-{what.settings.type}"
        launch = Launch(what.argv(), name=name, log=True, dies_with_memtui=True, trace_every=every)
        return watch(args, console, launch, first="training")
    from memtui.recording.supervisor.foreground import record

    with result_file() as result:
        argv = what.argv("--result", str(result), *(("--progress-to", "stderr") if args.json else ()))

        def print_result(path: Path, shown: bool) -> None:
            if args.json and result.exists():
                print_document(what, result, path, console)

        launch = Launch(argv, trace_every=every)
        return record(lambda: observe(args, launch), console, print_result, program=True)


TRAIN = Command(
    "train",
    "train a small network by a rule (BP, FA, DFA, DFAMEM), and see where memory goes",
    _add_arguments,
    _run,
)
