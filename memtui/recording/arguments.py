"""Options of commands that record: the target, how it is observed, and what is stored; and their values."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from memtui.core import argtypes
from memtui.core.argtypes import Parser, group_of
from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.core.options import (
    DEFAULT_MAX_BYTES,
    DEFAULT_MAX_PAUSE_NS,
    DEFAULT_OVERHEAD_PPM,
    FLUSHES,
    PAGES,
    REARMS,
    STEPS_APART,
    TRACKERS,
)

if TYPE_CHECKING:
    from memtui.core.metrics_listener import ListenAddress, MetricsListener
    from memtui.core.samples import Options
    from memtui.recording.supervisor.launch import Observation
    from memtui.recording.supervisor.program import Launch

_GROUP = "observation"
TRACE_HELP = "record allocations, too, as memtui trace does"


def add_target(parser: Parser) -> None:
    """Add the arguments that name a process: PID, name or rank."""
    parser.add_argument("pid", metavar="PID|NAME", nargs="?", help="a process: its number, or what it is called")
    parser.add_argument(
        "--rank", type=argtypes.rank, metavar="N", help="the one with this RANK in its environment (torchrun, MPI)"
    )


def add_tracing(parser: Parser) -> None:
    """Add how often a training step is recorded with all allocations."""
    parser.add_argument(
        "--every",
        type=argtypes.steps,
        default=STEPS_APART,
        metavar="N",
        help=f"with traced programs: record the allocations of one training step in N ({STEPS_APART})",
    )


def add_observation(parser: Parser) -> None:
    """Add how a target is observed."""
    group = group_of(parser, _GROUP)
    group.add_argument(
        "--interval", type=argtypes.interval, default=0.2, metavar="S", help="seconds a window lasts at least (0.2)"
    )
    group.add_argument(
        "--max-overhead",
        type=argtypes.overhead,
        default=DEFAULT_OVERHEAD_PPM,
        metavar="PCT",
        help="stretch the interval until the target loses less than this share of its time, and memtui takes less than "
        "three times it of a CPU (1%%); none: every --interval",
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
        type=_expression,
        default="default",
        metavar="EXPR",
        help="pages left out of the session: default, none, or terms such as exec,pages<4,name=GLOB; ! inverts one",
    )
    group.add_argument(
        "--chassis-power",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="also read the power of the whole machine from its management controller, every 2 s (root, ipmitool)",
    )
    group.add_argument("--children", action=argparse.BooleanOptionalAction, default=True, help="watch its children too")
    group.add_argument(
        "--sudo",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="start the sampler, and nothing else, through sudo (default: where root is of use and sudo grants it)",
    )


def add_keeping(parser: Parser) -> None:
    """Add how long a recording goes on, and what is stored of it."""
    group = group_of(parser, _GROUP)
    group.add_argument("--duration", type=argtypes.duration, metavar="S", help="end after S seconds (or 10min)")
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
    group.add_argument(
        "--redfish",
        type=_redfish,
        metavar="URL",
        help="also read the power of the whole machine, every 2 s, from its management controller over the network: "
        "https://bmc.example (name and password: ~/.netrc), in place of --chassis-power",
    )
    add_metrics(group)
    group.add_argument("--force", action="store_true", help="overwrite an existing session file")
    group.add_argument(
        "--keep-resident",
        action="store_true",
        help="record which pages are resident, about once a second, too: for resident bytes by call stack (memtui "
        "import --join)",
    )
    group.add_argument(
        "--keep-command", action="store_true", help="record command lines as they are, passwords and keys included"
    )


def add_metrics(to: argparse._ActionsContainer) -> None:
    """Add where metrics are served, and who may read them."""
    to.add_argument(
        "--metrics",
        type=_metrics,
        metavar="[ADDR:]PORT",
        help="serve the newest figures to Prometheus, at http://127.0.0.1:PORT/metrics or on a Unix socket (unix:PATH)",
    )
    to.add_argument(
        "--metrics-token-file",
        type=_token_file,
        metavar="FILE",
        help="a token that readers of --metrics have to send (needed for addresses of other machines)",
    )


def metrics_of(args: argparse.Namespace) -> MetricsListener | None:
    """Return where metrics are to be served; None: nowhere. Raises UserError."""
    from memtui.core.metrics_listener import MetricsListener, check_library

    if args.metrics is None:
        if args.metrics_token_file is not None:
            raise UserError("--metrics-token-file is for --metrics [ADDR:]PORT")
        return None
    check_library()
    return MetricsListener(args.metrics, args.metrics_token_file)


def add_stop_when(parser: Parser) -> None:
    """Add ``--stop-when``."""
    parser.add_argument(
        "--stop-when",
        type=_condition,
        metavar="COND",
        help="end, with exit code 3, when it is so: wss>8GiB, rss<500MB, wss>8GiB for 5s, or verdict:oom: memory will "
        "be full if its use goes on growing",
    )


def options_of(args: argparse.Namespace) -> Options:
    """Return the options of a recording."""
    from memtui.core.samples import Options

    return Options(
        interval_ns=round(args.interval * 1e9),
        tracker=args.tracker,
        pause=args.pause is not False,
        together=args.together,
        flush=args.flush,
        rearm=args.rearm,
        filter=args.filter,
        pages=args.pages,
        children=args.children,
        duration_ns=round(args.duration * 1e9) if args.duration else None,
        keep_command=args.keep_command,
        keep_resident=args.keep_resident,
        max_overhead_ppm=args.max_overhead,
        chassis_power=args.chassis_power and getattr(args, "redfish", None) is None,
    )


def observe(args: argparse.Namespace, what: int | Launch) -> Observation:
    """Start a recording of a process, or of a program that is started for it. Raises UserError."""
    from memtui.core.progress_line import ProgressLine
    from memtui.recording.supervisor.launch import Observation

    return Observation(
        what,
        options_of(args),
        args.output,
        force=args.force,
        verb=args.verb,
        sudo=args.sudo,
        max_bytes=args.max_size,
        stop_when=getattr(args, "stop_when", None),
        hold_filtered=args.pause is True,
        max_pause_ns=round(args.max_pause * 1e9),
        redfish=args.redfish,
        metrics=metrics_of(args),
        waiting=lambda doing, since_s: ProgressLine(args.verb, doing, silent_since_s=since_s),
    )


def find_pid(args: argparse.Namespace, console: Console) -> int:
    """Return the PID that the arguments name, of a process that can be observed. Raises UserError."""
    from memtui.recording.target_search import find
    from memtui.recording.targets import check_target

    pid, notice = find(args.pid, args.rank)
    check_target(pid)
    console.notify(notice)
    return pid


def given(args: argparse.Namespace) -> dict[str, str]:
    """Return the options of this module that stand on the command line, in their long form, by argument.

    Defaults, also those of a config file, are left out: they were not requested for this call.
    """
    about = Parser(add_help=False)
    add_observation(about)
    add_keeping(about)
    mine = {action.dest for action in about._actions}
    return {argument: flag for argument, flag in args.given().items() if argument in mine}


def _condition(text: str) -> str:
    """Parse ``--stop-when``, as it was typed."""
    from memtui.recording.recorder.stop_condition import StopCondition

    argtypes.checked(StopCondition.parse, text)
    return text


def _redfish(text: str) -> str:
    """Parse ``--redfish``; return the URL."""
    from memtui.recording.network_power.address import parse_address

    return str(argtypes.checked(parse_address, text).url)


def _metrics(text: str) -> ListenAddress:
    """Parse ``--metrics``."""
    from memtui.core.metrics_listener import ListenAddress

    address: ListenAddress = argtypes.checked(ListenAddress.parse, text)
    return address


def _token_file(text: str) -> Path:
    """Parse ``--metrics-token-file``: what it names is a token, and the user may read it."""
    from memtui.core.metrics_listener import read_token
    from memtui.core.privilege import as_invoker

    path = argtypes.path(text)
    try:
        as_invoker(lambda: read_token(path))
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def _expression(text: str) -> str:
    """Parse ``--filter``, as it was typed."""
    from memtui.analysis.vma_filter import parse_filter

    argtypes.checked(parse_filter, text)
    return text
