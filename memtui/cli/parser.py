"""The parser of the command line: what each command takes, and its help. ``memtui.cli.main`` runs the commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from memtui.cli import types
from memtui.core import argtypes
from memtui.core.argtypes import Parser
from memtui.core.options import (
    CACHE_STATES,
    COLORS,
    DEFAULT_MAX_BYTES,
    DEFAULT_MAX_PAUSE_NS,
    DEFAULT_OVERHEAD_PPM,
    DTYPES,
    ENGINES,
    FLUSHES,
    MODES,
    PAGES,
    REARMS,
    RULES,
    SPACES,
    STEPS_APART,
    THEMES,
    TRACKERS,
    WEIGHT_SETS,
)
from memtui.placement.arguments import add_place

Command = Callable[[argparse.Namespace], int]

FORMATS = ("csv", "parquet", "json", "svg", "html", "zpp", "analysis", "mxnet", "chrome")
FIGURES = ("svg", "pdf")
SHELLS = ("bash", "zsh", "fish")
NETWORKS = ("auto", "torch", "numpy")
TAKE_PROGRAMS = ("run", "trace", "record", "study")  # behind --
_TRACE_HELP = "record allocations, too, as memtui trace does"


def build_parser(commands: Mapping[str, Command]) -> Parser:
    """``commands``: what runs each of them, by name."""
    from memtui._version import __version__

    parser = Parser(
        prog="memtui",
        description="Watch the memory, time and energy of machine-learning training, page by page. "
        "Without a command: what runs, and your sessions, to choose from.",
    )
    parser.add_argument("--version", action="version", version=f"memtui {__version__}")
    parser.set_defaults(run=None, debug=False, verb="", no_config=True)
    added = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(name: str, text: str, *parents: Parser) -> Parser:
        made = added.add_parser(name, help=text, description=text, parents=[common, *parents])
        made.set_defaults(run=commands[name], verb=name)
        return made

    common = Parser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show where an error came from")
    common.add_argument("--no-config", action="store_true", help="do not read your config file")
    redact = Parser(add_help=False)
    redact.add_argument(
        "--redact",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="take out host, user, paths, command lines and addresses",
    )
    target = Parser(add_help=False)
    target.add_argument("pid", metavar="PID|NAME", nargs="?", help="a process: its number, or what it is called")
    target.add_argument(
        "--rank", type=argtypes.rank, metavar="N", help="the one with this RANK in its environment (torchrun, MPI)"
    )
    watching, screen = _observation_options(), _screen_options()
    how = Parser(add_help=False, parents=[watching, _keeping_options()])

    tracing = Parser(add_help=False)
    tracing.add_argument(
        "--every",
        type=argtypes.steps,
        default=STEPS_APART,
        metavar="N",
        help=f"with traced programs: record the allocations of one training step in N ({STEPS_APART})",
    )

    made = command("demo", "start a small training (bundled) and watch it: the first thing to try", how, screen)
    made.add_argument("--network", choices=NETWORKS, default="auto", help="what trains: torch where it is installed")
    command("attach", "watch a running process and its children", target, how, screen)
    made = command(
        "run",
        "start a program and watch it from its first instruction: run -- CMD... (o shows its output)",
        how,
        tracing,
        screen,
    )
    made.add_argument("--trace", action="store_true", help=_TRACE_HELP)
    command(
        "trace",
        "run, and record every tensor allocation of some training steps (PyTorch): trace -- python train.py",
        how,
        tracing,
        screen,
    )
    made = command(
        "record", "the same without a screen: record PID | record -- CMD... (exits as CMD does)", target, how, tracing
    )
    made.add_argument("--trace", action="store_true", help=_TRACE_HELP)
    made.add_argument("--json", action="store_true", help="print the report at the end")
    made.add_argument(
        "--stop-when",
        type=types.condition,
        metavar="COND",
        help="end, with exit code 3, when a window says so: wss>8GiB, rss<500MB, wss>8GiB for 5s",
    )
    made = command("calibrate", "measure how much slower a process runs while it is watched", target, watching)
    made.add_argument(
        "--counter",
        type=types.counter,
        default=("auto", ""),
        metavar="WHAT",
        help="what counts its steps: steps=FILE (numbers after step or iter in a log), lines=FILE, file=FILE (the last "
        "number in it), marks (memtui.mark), rchar or wchar (bytes read, written); default: steps in its output file",
    )
    made.add_argument(
        "--blocks", type=argtypes.blocks, default=10, metavar="N", help="blocks with, and as many without (10)"
    )
    made.add_argument("--seconds", type=argtypes.duration, default=10.0, metavar="S", help="of each block (10)")
    made.add_argument("--json", action="store_true", help="as one JSON document, with every block")
    made.set_defaults(duration=None, keep_command=False)
    made = command("replay", "watch a saved session, or one that is still recorded", screen)
    made.add_argument("file", metavar="FILE", type=argtypes.path)
    made = command("list", "recordings of yours that run now")
    made.add_argument("--json", action="store_true", help="as one JSON document")
    made = command("stop", "end a recording in order, whoever looks at it")
    made.add_argument("name", metavar="ID|PID|all", help="its ID (memtui list), the PID of its target, or all of them")
    made = command("mark", "put a mark on the time axis of a recording that runs")
    made.add_argument("text", metavar="TEXT")
    made.add_argument(
        "--session",
        metavar="ID",
        help="of which recording (default: the one that observes the caller, or the only one that runs)",
    )
    made = command("report", "the numbers of a session", redact)
    made.add_argument("file", metavar="FILE", type=argtypes.path, nargs="?", help="session")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as one JSON document")
    form.add_argument(
        "--html",
        type=argtypes.path,
        nargs="?",
        const=Path("-"),
        metavar="PAGE",
        help="as a page with figures, in a file, or on standard output: report FILE --html > page.html",
    )
    made.add_argument("--force", action="store_true", help="overwrite a page that is there")
    made = command("export", "write a session in a form that other programs read", redact)
    made.add_argument("file", metavar="FILE", type=argtypes.path)
    made.add_argument("--to", choices=FORMATS, required=True, help="form")
    made.add_argument("-o", "--output", metavar="DIR", type=argtypes.path, required=True, help="folder to write into")
    made.add_argument("--force", action="store_true", help="overwrite files that are there")
    _add_import(command("import", "make sessions of memory logs and traces of other tools"))
    _add_breakdown(command("breakdown", "what memory is made of: bars by category, of sessions, logs and traces"))
    text = "train a grid of settings, run by run, and go on where it was interrupted: tune GRID.toml, tune results/TIME"
    _add_tune(command("tune", text, screen))
    text = "what an operator costs in time and energy: bench conv2d, bench resnet50, bench list"
    _add_bench(command("bench", text, screen))
    text = "a published experiment on working sets, done here: study basic, study all --quick, study NAME -- CMD..."
    _add_study(command("study", text, redact))
    _add_train(
        command(
            "train",
            "train a small network by a rule (BP, FA, DFA, DFAMEM), and see where memory goes",
            how,
            tracing,
            screen,
        )
    )
    text = (
        "sessions over each other on one axis: working set, RSS, VM, reuse; of trainings loss, accuracy, tensor memory"
    )
    made = command("compare", text, redact, screen)
    made.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=argtypes.path,
        help="sessions, at most 8; others are held against the first",
    )
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as one JSON document, with figures and curves")
    form.add_argument(
        "--html", type=argtypes.path, metavar="FILE", help="as one page with figures (needs memtui[study])"
    )
    made.add_argument("--force", action="store_true", help="overwrite a page that is there")
    made.add_argument("--no-tui", dest="tui", action="store_false", help="as text, also on a terminal")
    text = "which memory each tensor should live in: place profile mlp, compare FILE, solve FILE --ratio 1:1, show FILE"
    made = added.add_parser("place", help=text, description=text)
    made.set_defaults(run=commands["place"], verb="place")
    _tell_apart(add_place(made, common, screen))
    made = command("doctor", "what this machine can measure, what it cannot, and what would change that")
    made.add_argument("--json", action="store_true", help="as one JSON document")
    made = command("completion", "a script that lets your shell complete memtui's words")
    made.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    return parser


def misplaced_option(parser: Parser, verb: str, command: Sequence[str]) -> str:
    """What is to be said of a program's words: an option that lacks its value was perhaps meant for memtui.

    Everything behind ``--`` is the program's, so it gets that word. "" where there is nothing to say.
    """
    tables = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not command or verb not in TAKE_PROGRAMS:
        return ""
    known: Mapping[str, argparse.Action] = tables[0].choices[verb]._option_string_actions
    for word, following in pairwise([*command[1:], "-"]):
        action = known.get(word)
        if action is not None and word.startswith("--") and action.nargs != 0 and following.startswith("-"):
            return f"{word} behind -- goes to {command[0]}; for memtui: memtui {verb} {word} {action.metavar} -- ..."
    return ""


def _add_study(made: Parser) -> None:
    add = made.add_argument
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
    add("--cpus", metavar="N", type=argtypes.threads, help="programs may use so many CPUs (all that memtui may use)")
    add(
        "--seconds",
        metavar="S",
        type=argtypes.duration,
        help="end each run of your own program so long after its first step",
    )
    add("--seed", metavar="N", type=argtypes.seed, default=0, help="of data, weights and order (0)")
    add("--json", action="store_true", help="one JSON document at the end")


def _add_import(made: Parser) -> None:
    made.add_argument(
        "logs",
        metavar="LOG|DIR",
        nargs="+",
        type=argtypes.path,
        help="what it is, is told by its content: an MXNet log with [mem] lines, its *_ANALYSIS, the text of ZPP-MEM, "
        "a Chrome trace or memory timeline of PyTorch's profiler, a CUDA memory snapshot",
    )
    made.add_argument(
        "-o",
        "--output",
        metavar="FILE|DIR",
        type=argtypes.path,
        required=True,
        help="session; of several a folder of them",
    )
    made.add_argument(
        "--from",
        dest="first",
        type=argtypes.moment,
        metavar="S",
        help="only what is S seconds after its begin or later (a log without times: lines)",
    )
    made.add_argument("--until", dest="last", type=argtypes.moment, metavar="S", help="and only what is before that")
    made.add_argument("--force", action="store_true", help="overwrite sessions that are there")
    made.add_argument("--json", action="store_true", help="as one JSON document")


def _add_breakdown(made: Parser) -> None:
    made.add_argument(
        "files",
        metavar="FILE|LOG",
        nargs="+",
        type=argtypes.path,
        help="a session, or anything that memtui import takes",
    )
    made.add_argument(
        "--rules",
        choices=RULES,
        default="memtui",
        help="what is a category: memtui goes by the kind of tensor and drops nothing; compat does what the scripts of "
        "MXNet's memory profiler do, with what they get wrong (memtui)",
    )
    made.add_argument(
        "--fraction", type=argtypes.percent, default=0.0, metavar="PCT", help="leave out bars of that share or less"
    )
    made.add_argument("--title", default="", metavar="T", help="above everything")
    made.add_argument("--all", action="store_true", help="all files on one scale; of figures, in one")
    made.add_argument(
        "--subtract-padding", action="store_true", help="without the 32 bytes that MXNet's pool adds to an allocation"
    )
    made.add_argument("--to", choices=FIGURES, help="figures in place of text")
    made.add_argument("-o", "--output", metavar="DIR", type=argtypes.path, help="folder to write them into")
    made.add_argument("--force", action="store_true", help="overwrite figures that are there")
    made.add_argument("--json", action="store_true", help="as one JSON document")


def _add_tune(made: Parser) -> None:
    made.add_argument(
        "what",
        metavar="GRID.toml",
        nargs="?",
        help="TOML with [grid]; or a folder to look at; or, with --grid, NETWORK",
    )
    made.add_argument("network", metavar="NETWORK", nargs="?", help="of all runs, where no axis is called name")
    group = made.add_argument_group("what is run")
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
    group = made.add_argument_group("results")
    group.add_argument(
        "-o",
        "--output",
        type=argtypes.path,
        default=Path("results"),
        metavar="DIR",
        help="where the folder is made (results)",
    )
    group.add_argument("--json", action="store_true", help="one JSON document at the end")
    group.add_argument(
        "--tui", action=argparse.BooleanOptionalAction, default=True, help="a screen, where there is a terminal"
    )


def _add_bench(made: Parser) -> None:
    made.add_argument("what", metavar="OP", help="an operator (bench list), list, resolution, compare, predict, or db")
    made.add_argument(
        "rest",
        metavar="WORD",
        nargs="*",
        help="of resolution: OP; of compare: A.db B.db; of predict: fit [OP...], eval [OP...], run OP; "
        "of db: info, merge FILE..., export FILE.csv",
    )
    group = made.add_argument_group("what is measured, or predicted")
    group.add_argument(
        "--grid", action="append", default=[], metavar="K=V,V", help="values of a parameter; every combination is taken"
    )
    group.add_argument("--config", type=argtypes.path, metavar="FILE", help="TOML with [OP.grid] and [[OP.list]]")
    group.add_argument("--space", choices=SPACES, help="a bundled set of configurations")
    group.add_argument("--dtype", choices=DTYPES, help="type of the numbers (fp32)")
    group.add_argument("--mode", choices=MODES, help="passes (forward)")
    group.add_argument("--cache", choices=CACHE_STATES, help="where inputs come from: new memory, or the cache (cold)")
    group.add_argument("--weights", choices=WEIGHT_SETS, help="several sets of weights take turns, or one (rotate)")
    group = made.add_argument_group("how")
    group.add_argument("--device", type=argtypes.device, default="cpu", metavar="D", help="cpu or cuda:N (cpu)")
    group.add_argument("--threads", type=argtypes.threads, default=0, metavar="N", help="of a CPU (all CPUs but one)")
    group.add_argument("--windows", type=argtypes.windows, metavar="K", help="measured one after another (5)")
    group.add_argument("--seconds", type=argtypes.window_seconds, metavar="T", help="each (2)")
    group.add_argument(
        "--warm-up", type=argtypes.window_seconds, metavar="S", help="at most so long until the load has settled (10)"
    )
    group.add_argument("--quick", action="store_true", help="three windows of one second, 5 s of warm-up at most")
    group.add_argument("--seed", type=argtypes.seed, metavar="N", help="of random numbers and of the order (0)")
    group.add_argument(
        "--assume-watts", type=argtypes.watts, metavar="W", help="for an estimate, kept apart and called so"
    )
    group.add_argument("--again", action="store_true", help="measure anew what is in the database")
    group = made.add_argument_group("several machines")
    group.add_argument("--shard", type=types.shard, metavar="I/N", help="the I-th of N parts of the configurations")
    group.add_argument("--print-sbatch", action="store_true", help="print a script for Slurm, and measure nothing here")
    group.add_argument(
        "--engine", choices=ENGINES, help="measure in jobs of submitit: on Slurm, or one after another here"
    )
    group.add_argument("--jobs", type=argtypes.jobs, default=4, metavar="N", help="into so many parts, at most (4)")
    group = made.add_argument_group("results")
    group.add_argument(
        "--db", type=argtypes.path, metavar="FILE", help="database (default: bench.db in your state directory)"
    )
    group.add_argument("--json", action="store_true", help="one JSON document at the end")
    group.add_argument(
        "--tui", action=argparse.BooleanOptionalAction, default=True, help="a screen, where there is a terminal"
    )
    group.add_argument("--force", action="store_true", help="overwrite a file that is there")
    group = made.add_argument_group("which rows predictions are fitted to")
    group.add_argument(
        "--from-run", metavar="ID", help="those of its device and versions (default: of the newest run's)"
    )
    group.add_argument("--unflagged", action="store_true", help="only those without a flag")


def _add_train(made: Parser) -> None:
    made.add_argument(
        "network", metavar="NETWORK", help="of what train list shows, or of your own: --config, --definitions"
    )
    group = made.add_argument_group("what is trained, and how (the settings of ZPP-MEM; docs/train.md)")
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
        "--definitions", type=argtypes.path, metavar="FILE", help="Python with functions name(output_size) -> [layers]"
    )
    group.add_argument("--memory-only", action="store_true", help="write the memory of iteration 5 to plots/, and stop")
    group.add_argument("--save-graph", action="store_true", help="write operators and edges of that iteration to demo/")
    group.add_argument(
        "--gather-stats", action="store_true", help="write mean and spread of weights, activations, errors"
    )
    group = made.add_argument_group("results")
    group.add_argument(
        "--no-tui", dest="tui", action="store_false", help="lines, also on a terminal; -o keeps a session"
    )
    group.add_argument("--json", action="store_true", help="one JSON document at the end; lines go to stderr")


def _observation_options() -> Parser:
    parser = Parser(add_help=False)
    group = parser.add_argument_group("observation")
    group.add_argument(
        "--interval", type=argtypes.interval, default=0.2, metavar="S", help="seconds a window lasts at least (0.2)"
    )
    group.add_argument(
        "--max-overhead",
        type=argtypes.overhead,
        default=DEFAULT_OVERHEAD_PPM,
        metavar="PCT",
        help="stretch the interval until the target loses less than this share of its time, and memtui takes less than "
        "it of a CPU (1%%); none: every --interval",
    )
    group.add_argument(
        "--tracker",
        choices=TRACKERS,
        default="auto",
        metavar="T",
        help="how touches are seen: auto takes the first that works; pagetable and idle see pages, referenced "
        "ranges (no root), rss none; damon, never taken by auto, estimates ranges without holding the target",
    )
    group.add_argument(
        "--pause",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="hold the target while its pages are read (default: but for what runs under a seccomp filter)",
    )
    group.add_argument(
        "--max-pause",
        type=argtypes.max_pause,
        default=DEFAULT_MAX_PAUSE_NS / 1e9,
        metavar="S",
        help="seconds for which the target is held at most (0.1): what would take longer is read while it runs, and is "
        "approximate then",
    )
    group.add_argument(
        "--together",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="hold all processes of the tree at once, not one after the other",
    )
    group.add_argument(
        "--flush",
        choices=FLUSHES,
        default="auto",
        metavar="F",
        help="how stale TLB entries are flushed: auto, cold, soft-dirty (costs a fault a page where tracked), off",
    )
    group.add_argument(
        "--pages",
        choices=PAGES,
        default="exact",
        metavar="P",
        help="exact: every page in every window; sampled: a random part of the memory in each, a tenth or less, from "
        "which the working set is estimated, for 64 GiB and more (pagetable only)",
    )
    group.add_argument(
        "--rearm",
        choices=REARMS,
        default="auto",
        metavar="R",
        help="how marks are cleared: auto, working-set (around touched pages only), full (every page)",
    )
    group.add_argument(
        "--filter",
        type=types.expression,
        default="default",
        metavar="EXPR",
        help="pages left out of the session: default, none, or terms such as exec,pages<4,name=GLOB; ! inverts one",
    )
    group.add_argument("--children", action=argparse.BooleanOptionalAction, default=True, help="watch its children too")
    group.add_argument(
        "--sudo",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="start the sampler, and nothing else, through sudo (default: where root is of use and sudo grants it)",
    )
    return parser


def _keeping_options() -> Parser:
    parser = Parser(add_help=False)
    group = parser.add_argument_group("observation")
    group.add_argument("--duration", type=argtypes.duration, metavar="S", help="end after so many seconds")
    group.add_argument(
        "--max-size",
        type=argtypes.max_size,
        default=DEFAULT_MAX_BYTES,
        metavar="SIZE",
        help="thin the oldest page sets when the file reaches this (2GiB); none: let it grow",
    )
    group.add_argument(
        "-o",
        "--output",
        type=argtypes.path,
        metavar="FILE",
        help="session file (default: a named one under your state directory)",
    )
    group.add_argument("--force", action="store_true", help="overwrite an existing session file")
    group.add_argument(
        "--keep-command", action="store_true", help="record command lines as they are, passwords and keys included"
    )
    return parser


def observation_given(parser: Parser, words: Sequence[str], verb: str) -> dict[str, str]:
    """Options about how to observe that stand on the command line, in their long form, by argument.

    Defaults, also those of a config file, are a habit and not a request: they are left out.

    Args:
        parser: of its own for this, as its defaults are taken away.
        words: of the command line, up to ``--``; they have been parsed before without an error.
        verb: the command they are of.
    """
    about = {action.dest for made in (_observation_options(), _keeping_options()) for action in made._actions}
    tables = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    options = {action.dest: action for action in tables[0].choices[verb]._actions if action.option_strings}
    for action in options.values():
        action.default = argparse.SUPPRESS
    found = vars(parser.parse_args(words))
    flags: dict[str, str] = {}
    for dest in about & options.keys() & found.keys():
        long = [flag for flag in options[dest].option_strings if flag.startswith("--")]
        flags[dest] = next((flag for flag in long if flag.startswith("--no-") == (found[dest] is False)), long[0])
    return flags


def _tell_apart(parsers: Mapping[str, Parser]) -> None:
    """Let each of these commands know which options the others have."""
    for own in parsers.values():
        found: dict[str, list[str]] = {}
        for other in parsers.values():
            for flag in other._option_string_actions.keys() - own._option_string_actions:
                found.setdefault(flag, []).append(other.prog)
        own.elsewhere = {flag: " and ".join(names) for flag, names in found.items()}


def _screen_options() -> Parser:
    parser = Parser(add_help=False)
    group = parser.add_argument_group("screen")
    group.add_argument("--color", choices=COLORS, default="auto", help="colours (auto)")
    group.add_argument("--theme", choices=THEMES, default="dark", help="(dark)")
    group.add_argument("--ascii", action="store_true", help="no characters outside ASCII")
    group.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    return parser
