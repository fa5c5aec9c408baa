"""Accesses pages in a known order, a step at a time, and prints its steps.

``python -m memtui.study.workloads.known_accesses cyclic|zipf ...`` maps anonymous memory of its own, writes every page
once and then, for ever, writes to the pages of one step after the other (``memtui.study.workloads.access_orders``),
sleeps, and prints ``step N``. A step accesses the same pages however long it takes, so runs with little and with much
memory do the same work.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import sys
import time
from collections.abc import Sequence

import numpy as np

from memtui.study.workloads.access_orders import ORDERS, touch_order
from memtui.study.workloads.options import add_exit_with_parent, at_least, run_pages
from memtui.study.workloads.system import PAGE_BYTES, map_pages


def run(given: argparse.Namespace) -> None:
    """Run until the steps are done."""
    size = given.pages * PAGE_BYTES
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(map_pages(given.pages)))
    memory[::PAGE_BYTES] = 1
    steps = touch_order(given.order, given.pages, given.per_step, given.seed)
    for number, pages in enumerate(steps if not given.steps else itertools.islice(steps, given.steps), 1):
        memory[pages * PAGE_BYTES] = number % 251 + 1  # never 0: the kernel does not swap out pages of zeros
        print("step", number, flush=True)
        time.sleep(given.pause_seconds)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    top = argparse.ArgumentParser(
        prog="python -m memtui.study.workloads.known_accesses", description="Touches pages in a known order."
    )
    top.add_argument("order", choices=ORDERS)
    top.add_argument("--pages", type=at_least(1), default=16384, metavar="N", help="pages mapped (%(default)s)")
    top.add_argument("--per-step", type=at_least(1), default=1024, metavar="K", help="touches a step (%(default)s)")
    top.add_argument("--steps", type=at_least(0), default=0, metavar="N", help="then end; 0: never (%(default)s)")
    top.add_argument("--pause-seconds", type=float, default=0.05, metavar="S", help="after each step (%(default)s)")
    top.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="of zipf (%(default)s)")
    add_exit_with_parent(top)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    line = parser()
    given = line.parse_args(arguments)
    if given.per_step > given.pages and given.order == "cyclic":
        line.error(f"cannot touch {given.per_step} pages of a ring of {given.pages}: give --per-step less")
    if not 0 <= given.pause_seconds < 3600:
        line.error(f"--pause-seconds {given.pause_seconds}: 0 to 3600")
    return run_pages(run, given)


if __name__ == "__main__":
    sys.exit(main())
