"""The words of ``memtui place``."""

from __future__ import annotations

import argparse
from pathlib import Path

from memtui import values
from memtui.choices import FORMULATIONS, PLACE, TIMINGS


def add_place(made: argparse.ArgumentParser) -> None:
    """Everything behind ``memtui place``."""
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
        help=f"which times, of {', '.join(TIMINGS)}: those to measure, with commas (all), or the one to solve "
        "with (those of most configurations)",
    )
    _add_profile(made.add_argument_group("profile"))
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


def _add_profile(group: argparse._ArgumentGroup) -> None:
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
    group.add_argument(
        "--again", action="store_true", help="measure everything now: take no times from the cache or the profile"
    )
