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
        help="compare (do two ways of timing agree), solve (what may live in slow memory), show (a screen)",
    )
    made.add_argument("file", metavar="FILE", type=Path, help="a placement profile")
    made.add_argument("--json", action="store_true", help="as one JSON document")
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
    group.add_argument("--mode", choices=TIMINGS, help="which times (default: those of most configurations)")
    group.add_argument("--pareto", action="store_true", help="the time of a step by fast memory, from none to all")
    group.add_argument(
        "--time-limit", type=values.duration, default=60.0, metavar="S", help="then the best that was found (60)"
    )
