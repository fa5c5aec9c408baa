"""Memory access patterns with a known ground truth, to test trackers with.

``python -m memtui.study.workloads.access_patterns PATTERN ...`` maps anonymous memory of its own, writes every page
once, prints one line of JSON that names exactly the pages of the pattern, and then accesses them at full speed, or with
rests (``--rest-seconds``), until it is ended:

* ``loop``: every page (or every ``--stride``-th) over and over;
* ``random``: a fixed random subset over and over;
* ``stairs``: one region after the other, each for some time (as masim's ``stairs``), a line of JSON at each change;
* ``cycle``: a few pages at a time, moving round a ring; a page is accessed again after all other pages.

``truth_pages`` turns a printed line into page numbers. Pages of the interpreter itself lie outside the mapping.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.study.workloads.options import add_exit_with_parent, at_least, run_pages
from memtui.study.workloads.system import PAGE_BYTES, map_pages

Pages = NDArray[np.int64]
_FOREVER = float("inf")
_WORK_S = 0.001  # between two rests, if any: at least that long, and at least one pass


def random_subset(pages: int, touched: int, seed: int) -> Pages:
    """Return the ``touched`` of ``pages`` page indices that ``random`` uses, rising. The same on every machine."""
    chosen = np.random.default_rng(seed).choice(pages, touched, replace=False, shuffle=False)
    return np.sort(chosen).astype(np.int64)


def truth_pages(truth: dict[str, Any]) -> Pages:
    """Return the absolute page numbers (``address // page_bytes``) that a printed line says are touched, rising."""
    first = truth["start"] // truth["page_bytes"]
    touched = truth["touched"]
    if "seed" in touched:
        pages = (truth["end"] - truth["start"]) // truth["page_bytes"]
        return first + random_subset(pages, touched["count"], touched["seed"])
    return np.concatenate([np.arange(start, end, touched["step"], dtype=np.int64) for start, end in touched["ranges"]])


class _Memory:
    """The mapping, and fast passes over chosen pages of it: one byte in each."""

    def __init__(self, pages: int, *, huge: bool) -> None:
        self.start = map_pages(pages, huge=huge)
        self.end = self.start + pages * PAGE_BYTES
        size = pages * PAGE_BYTES
        self._bytes: NDArray[np.uint8] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self.start))
        self._bytes[::PAGE_BYTES] = 1  # all pages present: pages that are not accessed later are resident, too

    def strided(self, first: int, last: int, step: int, mode: str) -> Callable[[], object]:
        """Return a function that touches each ``step``-th page from ``first`` up to, not including, ``last``."""
        column = self._bytes[first * PAGE_BYTES : last * PAGE_BYTES : step * PAGE_BYTES]
        if mode == "r":
            return lambda: np.add.reduce(column)
        if mode == "w":
            return lambda: column.fill(1)
        return lambda: np.add(column, 1, out=column)

    def scattered(self, pages: Pages, mode: str) -> Callable[[], object]:
        """Return a function that touches exactly the given pages."""
        flat, offsets = self._bytes, pages * PAGE_BYTES
        seen = np.empty(len(pages), np.uint8)

        def read() -> None:
            flat.take(offsets, out=seen, mode="clip")  # any other mode takes a second copy

        def write() -> None:
            flat[offsets] = 1

        def read_write() -> None:
            read()
            np.add(seen, 1, out=seen)
            flat[offsets] = seen

        return {"r": read, "w": write, "rw": read_write}[mode]


def _print_truth(memory: _Memory, given: argparse.Namespace, touched: dict[str, Any], **more: Any) -> None:
    line = {
        "pattern": given.pattern,
        "pid": os.getpid(),
        "page_bytes": PAGE_BYTES,
        "start": memory.start,
        "end": memory.end,
        "mode": given.mode,
        "huge": given.thp,
        "touched": touched,
        "t_ns": time.clock_gettime_ns(time.CLOCK_MONOTONIC),
        **more,
    }
    print(json.dumps(line), flush=True)


def _ranges(memory: _Memory, *ranges: tuple[int, int], step: int = 1) -> dict[str, Any]:
    first = memory.start // PAGE_BYTES
    return {"ranges": [[first + start, first + end] for start, end in ranges], "step": step}


def _repeat(touch: Callable[[], object], seconds: float, rest_s: float) -> None:
    """Call ``touch`` until the time is over, at least once; sleep for ``rest_s`` after each ms (0: never)."""
    if seconds == _FOREVER and not rest_s:
        while True:
            touch()
    rested = time.monotonic()
    end = rested + seconds
    touch()
    while (now := time.monotonic()) < end:
        if rest_s and now - rested >= _WORK_S:
            time.sleep(min(rest_s, end - now))
            rested = time.monotonic()
        touch()


def _moving(memory: _Memory, given: argparse.Namespace, parts: list[tuple[int, int]]) -> Iterator[float]:
    """Access one part after the other, round and round; yield the seconds used so far after each."""
    used, step = 0.0, 0
    while True:
        first, last = parts[step % len(parts)]
        _print_truth(memory, given, _ranges(memory, (first, last)), step=step)
        _repeat(memory.strided(first, last, 1, given.mode), given.step_seconds, given.rest_seconds)
        used, step = used + given.step_seconds, step + 1
        yield used


def run(given: argparse.Namespace) -> None:
    """Run the parsed pattern until its duration is over."""
    seconds = given.duration or _FOREVER
    if given.pattern in ("loop", "random"):
        memory = _Memory(given.pages, huge=given.thp)
        if given.pattern == "loop":
            _print_truth(memory, given, _ranges(memory, (0, given.pages), step=given.stride))
            _repeat(memory.strided(0, given.pages, given.stride, given.mode), seconds, given.rest_seconds)
        else:
            chosen = random_subset(given.pages, given.touched, given.seed)
            _print_truth(memory, given, {"seed": given.seed, "count": given.touched})
            _repeat(memory.scattered(chosen, given.mode), seconds, given.rest_seconds)
        return
    if given.pattern == "stairs":
        size, pages = given.pages, given.pages * given.regions
    else:
        size, pages = given.touched, given.pages
    memory = _Memory(pages, huge=given.thp)
    parts = [(first, min(first + size, pages)) for first in range(0, pages, size)]
    for used in _moving(memory, given, parts):
        if used >= seconds:
            return


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < value < _FOREVER:
        raise argparse.ArgumentTypeError(f"{text} is not a length of time: it must be above 0")
    return value


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--mode", choices=("r", "w", "rw"), default="rw", help="read, write or both (%(default)s)")
    common.add_argument("--thp", action="store_true", help="ask for 2 MiB pages instead of refusing them")
    common.add_argument("--duration", type=_seconds, metavar="S", help="end after S seconds (default: never)")
    rests = "sleep S seconds after each ms of accesses (default: full speed)"
    common.add_argument("--rest-seconds", type=_seconds, default=0.0, metavar="S", help=rests)
    add_exit_with_parent(common)
    about = "Memory access patterns with a known truth."
    top = argparse.ArgumentParser(prog="python -m memtui.study.workloads.access_patterns", description=about)
    kinds = top.add_subparsers(dest="pattern", required=True)

    loop = kinds.add_parser("loop", parents=[common], help="touch N pages over and over")
    loop.add_argument("--pages", type=at_least(1), default=256, metavar="N", help="pages mapped (%(default)s)")
    loop.add_argument("--stride", type=at_least(1), default=1, metavar="N", help="touch each N-th (%(default)s)")

    random = kinds.add_parser("random", parents=[common], help="touch a fixed random subset over and over")
    random.add_argument("--pages", type=at_least(1), default=512, metavar="N", help="pages mapped (%(default)s)")
    random.add_argument("--touched", type=at_least(1), metavar="K", help="pages touched (half)")
    random.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="of the choice (%(default)s)")

    stairs = kinds.add_parser("stairs", parents=[common], help="one region after the other")
    stairs.add_argument("--regions", type=at_least(1), default=10, metavar="N", help="how many (%(default)s)")
    stairs.add_argument("--pages", type=at_least(1), default=2442, metavar="N", help="pages in each (%(default)s)")
    stairs.add_argument("--step-seconds", type=_seconds, default=5.0, metavar="S", help="time in each (%(default)s)")

    cycle = kinds.add_parser("cycle", parents=[common], help="a few pages at a time, round a ring")
    cycle.add_argument("--pages", type=at_least(1), default=1024, metavar="N", help="pages in the ring (%(default)s)")
    cycle.add_argument("--touched", type=at_least(1), default=64, metavar="K", help="pages at a time (%(default)s)")
    cycle.add_argument("--step-seconds", type=_seconds, default=0.2, metavar="S", help="time at each (%(default)s)")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    line = parser()
    given = line.parse_args(arguments)
    if given.pattern == "random" and given.touched is None:
        given.touched = max(1, given.pages // 2)
    if given.pattern in ("random", "cycle") and given.touched > given.pages:
        line.error(f"cannot touch {given.touched} of {given.pages} pages: give --touched {given.pages} at most")
    return run_pages(run, given)


if __name__ == "__main__":
    sys.exit(main())
