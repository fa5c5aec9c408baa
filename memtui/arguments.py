"""The words of the command line: what each command takes, and what is said of it. What they do is ``memtui.cli``'s."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from memtui import values
from memtui.choices import (
    CACHE_STATES,
    COLORS,
    DEFAULT_MAX_BYTES,
    DTYPES,
    ENGINES,
    FLUSHES,
    FORMULATIONS,
    MODES,
    PLACE,
    REARMS,
    SPACES,
    STEPS_APART,
    THEMES,
    TIMINGS,
    TRACKERS,
    WEIGHT_SETS,
)
from memtui.errors import BAD_INPUT
from memtui.foreign import visible

Command = Callable[[argparse.Namespace], int]

FORMATS = ("csv", "parquet", "json", "svg", "html")
SHELLS = ("bash", "zsh", "fish")
NETWORKS = ("auto", "torch", "numpy")
_STARTS_PROGRAMS = ("run", "trace")
_TRACE_HELP = "record allocations, too, as memtui trace does"


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        print(visible(f"{self.prog}: {message}; see {self.prog} --help"), file=sys.stderr)
        sys.exit(BAD_INPUT)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As always, but an option that is nearly one of ours is told from a word too many."""
        options, unknown = super().parse_known_args(args, namespace)
        for word in (word.partition("=")[0] for word in unknown if word.startswith("--")):
            from difflib import get_close_matches

            if near := get_close_matches(word, self._option_string_actions, 1, 0.75):
                self.error(f"there is no {word}; did you mean {near[0]}?")
        verb = getattr(options, "verb", "")
        if verb in _STARTS_PROGRAMS and any(not word.startswith("-") for word in unknown):
            self.error(f"a program comes after --, as in memtui {verb} -- {' '.join(unknown)}")
        return options, unknown


def build_parser(commands: Mapping[str, Command]) -> Parser:
    """``commands``: what runs each of them, by name."""
    from memtui import __version__

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
        "--rank", type=values.rank, metavar="N", help="the one with this RANK in its environment (torchrun, MPI)"
    )
    watching, screen = _observation_options(), _screen_options()
    how = Parser(add_help=False, parents=[watching, _keeping_options()])

    tracing = Parser(add_help=False)
    tracing.add_argument(
        "--every",
        type=values.steps,
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
        type=values.condition,
        metavar="COND",
        help="end, with exit code 3, when a window says so: wss>8GiB, rss<500MB, wss>8GiB for 5s",
    )
    made = command("calibrate", "measure how much slower a process runs while it is watched", target, watching)
    made.add_argument(
        "--counter",
        type=values.counter,
        default=("auto", ""),
        metavar="WHAT",
        help="what counts its steps: steps=FILE (numbers after step or iter in a log), lines=FILE, file=FILE (the last "
        "number in it), marks (memtui.mark), rchar or wchar (bytes read, written); default: steps in its output file",
    )
    made.add_argument(
        "--blocks", type=values.blocks, default=10, metavar="N", help="blocks with, and as many without (10)"
    )
    made.add_argument("--seconds", type=values.duration, default=10.0, metavar="S", help="of each block (10)")
    made.add_argument("--json", action="store_true", help="as one JSON document, with every block")
    made.set_defaults(duration=None, keep_command=False)
    made = command("replay", "watch a saved session, or one that is still recorded", screen)
    made.add_argument("file", metavar="FILE", type=Path)
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
    made.add_argument("file", metavar="FILE", type=Path)
    made.add_argument("--json", action="store_true", help="as one JSON document")
    made = command("export", "write a session in a form that other programs read", redact)
    made.add_argument("file", metavar="FILE", type=Path)
    made.add_argument("--to", choices=FORMATS, required=True, help="form")
    made.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="folder to write into")
    made.add_argument("--force", action="store_true", help="overwrite files that are there")
    text = "what an operator costs in time and energy: bench conv2d, bench resnet50, bench list"
    _add_bench(command("bench", text, screen))
    text = "which memory each tensor should live in: place profile mlp, compare FILE, solve FILE --ratio 1:1, show FILE"
    _add_place(command("place", text, screen))
    made = command("doctor", "what this machine can measure, what it cannot, and what would change that")
    made.add_argument("--json", action="store_true", help="as one JSON document")
    made = command("completion", "a script that lets your shell complete memtui's words")
    made.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    return parser


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
    group.add_argument("--config", type=Path, metavar="FILE", help="TOML with [OP.grid] and [[OP.list]]")
    group.add_argument("--space", choices=SPACES, help="a bundled set of configurations")
    group.add_argument("--dtype", choices=DTYPES, help="type of the numbers (fp32)")
    group.add_argument("--mode", choices=MODES, help="passes (forward)")
    group.add_argument("--cache", choices=CACHE_STATES, help="where inputs come from: new memory, or the cache (cold)")
    group.add_argument("--weights", choices=WEIGHT_SETS, help="several sets of weights take turns, or one (rotate)")
    group = made.add_argument_group("how")
    group.add_argument("--device", type=values.device, default="cpu", metavar="D", help="cpu or cuda:N (cpu)")
    group.add_argument("--threads", type=values.threads, default=0, metavar="N", help="of a CPU (all CPUs but one)")
    group.add_argument("--windows", type=values.windows, metavar="K", help="measured one after another (5)")
    group.add_argument("--seconds", type=values.window_seconds, metavar="T", help="each (2)")
    group.add_argument(
        "--warm-up", type=values.window_seconds, metavar="S", help="at most so long until the load has settled (10)"
    )
    group.add_argument("--quick", action="store_true", help="three windows of one second, 5 s of warm-up at most")
    group.add_argument("--seed", type=int, metavar="N", help="of random numbers and of the order (0)")
    group.add_argument(
        "--assume-watts", type=values.watts, metavar="W", help="for an estimate, kept apart and called so"
    )
    group.add_argument("--again", action="store_true", help="measure anew what is in the database")
    group = made.add_argument_group("several machines")
    group.add_argument("--shard", type=values.shard, metavar="I/N", help="the I-th of N parts of the configurations")
    group.add_argument("--print-sbatch", action="store_true", help="print a script for Slurm, and measure nothing here")
    group.add_argument(
        "--engine", choices=ENGINES, help="measure in jobs of submitit: on Slurm, or one after another here"
    )
    group.add_argument("--jobs", type=values.jobs, default=4, metavar="N", help="into so many parts, at most (4)")
    group = made.add_argument_group("results")
    group.add_argument("--db", type=Path, metavar="FILE", help="database (default: bench.db in your state directory)")
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


def _add_place(made: Parser) -> None:
    made.add_argument(
        "what",
        metavar="WHAT",
        choices=PLACE,
        help="profile (time a training step), compare (do two ways of timing agree), solve (what may live in slow "
        "memory), show (a screen)",
    )
    made.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help="a placement profile; what to profile: mlp, conv, transformer, or FILE.py:function (returns model, "
        "inputs, loss)",
    )
    made.add_argument("--json", action="store_true", help="as one JSON document")
    made.add_argument(
        "--mode",
        type=values.timings,
        metavar="MODE",
        help=f"which times, of {', '.join(TIMINGS)}: those to measure, with commas (isolated), or the one to solve "
        "with (the first of these that has every op)",
    )
    group = made.add_argument_group("profile")
    group.add_argument(
        "--pools",
        default="dram,emulated:29,12",
        metavar="LIST",
        help="of dram, numa:NODE, file:FOLDER, huge, emulated:READ,WRITE (GB/s), cuda, pinned, pageable, the fast one "
        "first (dram,emulated:29,12)",
    )
    group.add_argument("-o", "--output", type=Path, metavar="FILE", help="profile; one that was broken off goes on")
    group.add_argument("--force", action="store_true", help="overwrite a profile that is there")
    group.add_argument(
        "--tui", action=argparse.BooleanOptionalAction, default=True, help="a screen, where there is a terminal"
    )
    group.add_argument(
        "--seconds", type=values.duration, default=0.1, metavar="T", help="for each configuration or run (0.1)"
    )
    group.add_argument(
        "--batch", type=values.batch, default=256, metavar="N", help="of mlp, conv and transformer (256)"
    )
    group.add_argument("--threads", type=values.threads, default=0, metavar="N", help="of an op (all CPUs but one)")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of parameters, inputs and the order (0)")
    group.add_argument(
        "--cache", type=Path, metavar="FILE", help="of times (default: place-cache.db in your state directory)"
    )
    group = made.add_argument_group("solve")
    room = group.add_mutually_exclusive_group()
    room.add_argument("--limit", type=values.size, metavar="SIZE", help="of fast memory for intermediate tensors: 8GiB")
    room.add_argument(
        "--ratio", type=values.ratio, metavar="P:D", help="slow to fast: 1:1 is half of the most that is alive at once"
    )
    group.add_argument(
        "--formulation",
        choices=FORMULATIONS,
        default="static",
        help="tensors stay where they are made (static), are moved between ops (sync) or during them, too (async), or "
        "go where there is room when they are made (first-touch)",
    )
    group.add_argument("--slow", metavar="POOL", help="the slow pool (default: the first one of the profile)")
    group.add_argument("--pareto", action="store_true", help="the time of a step by fast memory, from none to all")
    group.add_argument(
        "--time-limit", type=values.duration, default=60.0, metavar="S", help="then the best that was found (60)"
    )
    group.add_argument("--run", dest="execute", action="store_true", help="execute the plan and check its results")
    group.add_argument("--model", metavar="FILE.py:function", help="that was profiled, to let its code be run")


def _observation_options() -> Parser:
    parser = Parser(add_help=False)
    group = parser.add_argument_group("observation")
    group.add_argument(
        "--interval", type=values.interval, default=0.2, metavar="S", help="seconds a window lasts (0.2)"
    )
    group.add_argument(
        "--max-overhead",
        type=values.overhead,
        metavar="PCT",
        help="stretch the interval until paused time + CPU of sampler and recorder stay below a share of the time: 1%%",
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
        "--pause", action=argparse.BooleanOptionalAction, default=True, help="hold the target while its pages are read"
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
        "--rearm",
        choices=REARMS,
        default="auto",
        metavar="R",
        help="how marks are cleared: auto, working-set (around touched pages only), full (every page)",
    )
    group.add_argument(
        "--filter",
        type=values.expression,
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
    group.add_argument("--duration", type=values.duration, metavar="S", help="end after so many seconds")
    group.add_argument(
        "--max-size",
        type=values.max_size,
        default=DEFAULT_MAX_BYTES,
        metavar="SIZE",
        help="thin the oldest page sets when the file reaches this (2GiB); none: let it grow",
    )
    group.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="session file (default: a named one under your state directory)",
    )
    group.add_argument("--force", action="store_true", help="overwrite an existing session file")
    group.add_argument(
        "--keep-command", action="store_true", help="record command lines as they are, passwords and keys included"
    )
    return parser


def _screen_options() -> Parser:
    parser = Parser(add_help=False)
    group = parser.add_argument_group("screen")
    group.add_argument("--color", choices=COLORS, default="auto", help="colours (auto)")
    group.add_argument("--theme", choices=THEMES, default="dark", help="(dark)")
    group.add_argument("--ascii", action="store_true", help="no characters outside ASCII")
    group.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    return parser
