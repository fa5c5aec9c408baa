"""Cost against size: ns a page for each part of a window, from 1 to 16 GiB, beside what no walk can beat.

``python -m benchmarks.cost [--gib N ...] [--into docs/internals/cost.md]``. The floor is the time to read the page
table once, 8 bytes a page, at the speed at which this machine reads memory as a stream. A page is what the hardware
maps: 4 KiB or 2 MiB. The target is stopped. All its pages are touched before a walk, a flush and a clear; one
hundredth in one piece before a re-arm by working set.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import documents, machine
from benchmarks.cost_figure import draw
from benchmarks.readers import Cuts, make_ready, split_walker
from benchmarks.run import say
from benchmarks.table import Skip, columns, number
from benchmarks.targets import PATTERN_PAGES_PER_GIB, lacks_memory, needs_root
from benchmarks.toucher import toucher
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import BLOCK_BYTES, PAGE_BYTES
from memtui.probes.pages.pagetable.parallel_walk import SplitWalker
from memtui.probes.pages.pagetable.rearm import WORKING_SET, Rearmer
from memtui.probes.pages.pagetable.walk_result import Walk
from memtui.probes.pages.tlb_flush import Flusher, Handle, prove_flushes

SIZES_GIB = (1, 2, 4, 8, 16)
HOT_PARTS = 100
_STREAM_BYTES, _STREAM_TIMES = 1 << 30, 5
_ENTRY_BYTES = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians of one size, in ns a resident page.

    ``all_ms``: a window in which all was touched, cleared in the way that is chosen; ``hot_ms``: walk and re-arm of
    one in which one hundredth was.
    """

    gib: float
    page_bytes: int
    pages: int
    walk_ns: float
    clear_ns: float
    flush_ns: float
    rearm_ns: float
    rearm_touched_ns: float
    all_ms: float
    hot_ms: float


def stream_bytes_per_ns() -> float:
    """How fast one CPU reads memory from one end to the other, at best."""
    memory = np.ones(_STREAM_BYTES, np.uint8)
    memchr = ctypes.CDLL(None).memchr
    memchr.restype, memchr.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    best = float("inf")
    for _ in range(_STREAM_TIMES):
        begin = time.perf_counter_ns()
        memchr(memory.ctypes.data, 0, _STREAM_BYTES)  # a byte that is not there
        best = min(best, time.perf_counter_ns() - begin)
    return _STREAM_BYTES / best


def measure(sizes: Sequence[float]) -> Iterator[Cost]:
    """Both kinds of pages in each size; a size for which there is not enough memory is left out, and said."""
    needs_root()
    with split_walker() as readers:
        flusher = Flusher(readers.first, "auto", prove_flushes(readers.first))
        for page_bytes in (PAGE_BYTES, BLOCK_BYTES):
            for gib in sizes:
                if reason := lacks_memory(gib):
                    say(f"cost: {gib:g} GiB left out: {reason}")
                    continue
                found = _one(readers, flusher, gib, page_bytes)
                say(f"cost: {found}")
                yield found


def _one(readers: SplitWalker, flusher: Flusher, gib: float, page_bytes: int) -> Cost:
    pages = round(gib * PATTERN_PAGES_PER_GIB)
    times = 5 if gib > 4 else 11
    huge = page_bytes == BLOCK_BYTES
    with toucher(pages, huge=huge) as target:
        handle, rearmer = Handle.open(target.pid), Rearmer(readers, flusher, WORKING_SET)
        rearmer.refresh(())
        try:
            cuts, resident = make_ready(readers, target.pid)
            whole, windows = [], []
            for _ in range(times + 1):  # the first is not a measurement: it meets cold caches
                target.touch(pages)
                with target.still():
                    whole.append(_all_touched(readers, cuts, flusher, handle))
            automatic = Rearmer(readers, flusher)
            automatic.refresh(())
            for _ in range(times + 1):
                target.touch(pages)
                with target.still():
                    windows.append(_window(readers, cuts, automatic, handle, resident.page_count))
            automatic.close()
            hot = []
            for _ in range(times + 1):
                target.touch(pages // HOT_PARTS)
                with target.still():
                    hot.append(_some_touched(readers, cuts, rearmer, handle))
        finally:
            rearmer.close()
            readers.forget(target.pid)
            handle.close()
    walk, flush, clear, small, large = np.median(whole[1:], axis=0)
    count = int(large if huge else small)
    if count * page_bytes < 0.9 * pages * PAGE_BYTES:
        raise RuntimeError(f"of {gib:g} GiB only {count} pages of {page_bytes} bytes were seen touched")
    hot_walk, rearm, touched = np.median(hot[1:], axis=0)
    each = 1 / count
    return Cost(
        gib=gib,
        page_bytes=page_bytes,
        pages=count,
        walk_ns=walk * each,
        clear_ns=clear * each,
        flush_ns=flush * each,
        rearm_ns=rearm * each,
        rearm_touched_ns=rearm / touched,
        all_ms=float(np.median(windows[1:])) / 1e6,
        hot_ms=(hot_walk + rearm) / 1e6,
    )


def _all_touched(readers: SplitWalker, cuts: Cuts, flusher: Flusher, handle: Handle) -> tuple[float, ...]:
    """Ns of a walk, a flush and a clear, and how many small and huge pages were touched."""
    times = [time.perf_counter_ns()]
    walk = _walk(readers, cuts, handle)
    times.append(time.perf_counter_ns())
    flusher.flush(handle, walk)
    times.append(time.perf_counter_ns())
    handle.clear()
    times.append(time.perf_counter_ns())
    return *np.diff(times).tolist(), walk.pages.page_count, len(walk.pages.huge)


def _window(readers: SplitWalker, cuts: Cuts, rearmer: Rearmer, handle: Handle, resident_pages: int) -> float:
    """Ns of a walk and of clearing in the way that is chosen."""
    begin = time.perf_counter_ns()
    walk = _walk(readers, cuts, handle)
    rearmer.rearm(handle, walk, walk.pages, PageSet.empty(), resident_pages)
    return time.perf_counter_ns() - begin


def _some_touched(readers: SplitWalker, cuts: Cuts, rearmer: Rearmer, handle: Handle) -> tuple[float, ...]:
    """Ns of a walk and of a re-arm by working set, flush and second look included, and how many pages were touched."""
    begin = time.perf_counter_ns()
    walk = _walk(readers, cuts, handle)
    walked = time.perf_counter_ns()
    done = rearmer.rearm(handle, walk, walk.pages, PageSet.empty(), 0)
    end = time.perf_counter_ns()
    if done.rearm != WORKING_SET:
        raise RuntimeError("marks stayed after a re-arm by working set")
    return walked - begin, end - walked, walk.pages.touch_count


def _walk(readers: SplitWalker, cuts: Cuts, handle: Handle) -> Walk:
    return readers.walk(handle.pid, cuts, want_resident=False, want_tables=False)[0]


def table(costs: Sequence[Cost], floor_ns: float) -> str:
    """A line for each size and kind of page."""
    lines: list[Sequence[str]] = [
        (
            "pages",
            "GiB",
            "floor",
            "walk",
            "flush",
            "clear",
            "re-arm",
            "... a touched page",
            "all touched",
            "1 % touched",
        )
    ]
    lines.append(("", "", *["ns a page"] * 5, "ns", "ms a window", "ms a window"))
    for cost in costs:
        lines.append(
            (
                "4 KiB" if cost.page_bytes == PAGE_BYTES else "2 MiB",
                f"{cost.gib:g}",
                number(floor_ns),
                number(cost.walk_ns),
                number(cost.flush_ns),
                number(cost.clear_ns),
                number(cost.rearm_ns),
                number(cost.rearm_touched_ns),
                number(cost.all_ms),
                number(cost.hot_ms),
            )
        )
    return columns(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The table; 1 where it cannot be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost", description="Cost against size.")
    parser.add_argument("--gib", type=float, nargs="+", default=SIZES_GIB, help="sizes (1 2 4 8 16)")
    parser.add_argument("--into", type=Path, metavar="DOC.md", help="write the table there, and the figure beside it")
    given = parser.parse_args(arguments)
    if given.into and not documents.has_place(given.into, "cost"):
        parser.error(f"{given.into} has no place for cost: {documents.BEGIN.format('cost')}")
    load = machine.load()
    if words := machine.warning(load):
        say(words)
    try:
        speed = stream_bytes_per_ns()
        floor_ns = _ENTRY_BYTES / speed
        costs = list(measure(given.gib))
    except Skip as why:
        print(f"not measured: {why}", file=sys.stderr)
        return 1
    about = f"{machine.describe(load, machine.load())} Memory is read at {speed:.1f} GB/s as a stream."
    text = f"{about}\n\n{table(costs, floor_ns)}"
    print(text)
    if given.into:
        documents.put(given.into, "cost", text)
        given.into.with_suffix(".svg").write_text(draw(costs, floor_ns, about).document())
    return 0


if __name__ == "__main__":
    sys.exit(main())
