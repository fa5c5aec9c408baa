"""Arguments of ``memtui place``; ``command`` runs it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from memtui.core import argtypes
from memtui.core.argtypes import Parser, add_common, add_json
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.invoking_user import drop_root
from memtui.core.options import FORMULATIONS, TIMINGS
from memtui.core.options import PLACE as VERBS
from memtui.placement.builtin_models import MODELS
from memtui.tui.arguments import add_screen

if TYPE_CHECKING:
    from fractions import Fraction

TEXTS = {
    "profile": "time a training step: every op with each of its tensors in each memory",
    "compare": "whether ways of timing agree, and what slow memory does to an op",
    "solve": "what may live in slow memory, and what that costs",
    "show": "a profile on the screen; it may still grow",
}


def _add_arguments(parser: Parser) -> None:
    verbs = parser.add_subparsers(title="what it does", metavar="WHAT", dest="what", required=True)
    parsers: dict[str, Parser] = {}
    for name in VERBS:
        subparser = parsers[name] = verbs.add_parser(name, help=TEXTS[name], description=TEXTS[name])
        add_common(subparser)
        if name in ("profile", "show"):
            add_screen(subparser)
        _ADD[name](subparser)
    _set_elsewhere(parsers)


def _set_elsewhere(parsers: Mapping[str, Parser]) -> None:
    """Set for each of these commands which options the other commands have."""
    for own in parsers.values():
        owners: dict[str, list[str]] = {}
        for other in parsers.values():
            for flag in other._option_string_actions.keys() - own._option_string_actions:
                owners.setdefault(flag, []).append(other.prog)
        own.elsewhere = {flag: " and ".join(names) for flag, names in owners.items()}


def _run(args: argparse.Namespace, console: Console) -> int:
    from memtui.placement.command import place

    drop_root()
    return place(args, console)


def _add_profile(parser: Parser) -> None:
    parser.add_argument(
        "file",
        metavar="MODEL",
        help=f"{', '.join(MODELS)}, or FILE.py:function (returns model, inputs, loss)",
    )
    parser.add_argument(
        "-o", "--output", type=argtypes.path, metavar="FILE", help="profile; one that was broken off goes on"
    )
    parser.add_argument("--force", action="store_true", help="overwrite a profile that is there")
    parser.add_argument(
        "--pools",
        default="dram,emulated:29,12",
        metavar="LIST",
        help="of dram, numa:NODE, file:FOLDER, huge, emulated:READ,WRITE (GB/s), cuda, pinned, pageable, the fast one "
        "first (dram,emulated:29,12)",
    )
    parser.add_argument(
        "--mode", type=argtypes.timings, metavar="LIST", help=f"ways of timing, of {', '.join(TIMINGS)} (all)"
    )
    parser.add_argument(
        "--tui", action=argparse.BooleanOptionalAction, default=True, help="a screen, where there is a terminal"
    )
    parser.add_argument(
        "--seconds", type=argtypes.duration, default=0.1, metavar="T", help="for each configuration or run (0.1)"
    )
    parser.add_argument(
        "--batch",
        type=argtypes.batch,
        metavar="N",
        help=f"of a bundled model ({MODELS['mlp']}, of images of the published networks {MODELS['vgg16']})",
    )
    parser.add_argument("--threads", type=argtypes.threads, default=0, metavar="N", help="of an op (all CPUs but one)")
    parser.add_argument(
        "--seed", type=argtypes.seed, default=0, metavar="N", help="of parameters, inputs and the order (0)"
    )
    parser.add_argument(
        "--cache", type=argtypes.path, metavar="FILE", help="of times (default: place-cache.db in your state directory)"
    )
    parser.add_argument(
        "--again", action="store_true", help="measure everything now: take no times from the cache or the profile"
    )
    add_json(parser)


def _add_compare(parser: Parser) -> None:
    _add_file(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--table", action="store_true", help="also every op in every configuration, in both ways")
    add_json(form)


def _add_solve(parser: Parser) -> None:
    _add_file(parser)
    room = parser.add_mutually_exclusive_group()
    room.add_argument(
        "--limit", type=argtypes.size, metavar="SIZE", help="of fast memory for intermediate tensors: 8GiB"
    )
    room.add_argument(
        "--ratio", type=_ratio, metavar="P:D", help="slow to fast: 1:1 is half of the most that is alive at once"
    )
    parser.add_argument(
        "--formulation",
        choices=FORMULATIONS,
        default="static",
        help="tensors stay where they are made (static), are moved between ops (sync) or during them, too (async), or "
        "go where there is room when they are made (first-touch)",
    )
    parser.add_argument("--slow", metavar="POOL", help="the slow pool (default: the first one of the profile)")
    parser.add_argument(
        "--mode",
        type=argtypes.timings,
        metavar="MODE",
        help=f"way of timing to rest upon, of {', '.join(TIMINGS)} (the one with most configurations)",
    )
    parser.add_argument("--pareto", action="store_true", help="the time of a step by fast memory, from none to all")
    parser.add_argument(
        "--time-limit", type=argtypes.duration, default=60.0, metavar="S", help="then the best that was found (60)"
    )
    parser.add_argument("--run", dest="execute", action="store_true", help="execute the plan and check its results")
    parser.add_argument("--model", metavar="FILE.py:function", help="that was profiled, to let its code be run")
    add_json(parser)
    # -1:2 is a wrong ratio, not an option: argparse can tell only for whole numbers, and has no public setting for it.
    parser._negative_number_matcher = re.compile(r"-\d")


def _add_file(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", type=argtypes.path, help="a placement profile")


def _ratio(text: str) -> Fraction:
    """Return ``--ratio`` (slow to fast memory) as the fraction that is fast."""
    from memtui.placement.solvers.limit import parse_ratio

    ratio: Fraction = argtypes.checked(parse_ratio, text)
    return ratio


_ADD = {"profile": _add_profile, "compare": _add_compare, "solve": _add_solve, "show": _add_file}


PLACE = Command(
    "place",
    "which memory each tensor should live in: place profile mlp, compare FILE, solve FILE --ratio 1:1, show FILE",
    _add_arguments,
    _run,
    has_commands=True,
)
