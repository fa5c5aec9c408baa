"""Sessions of a program whose memory does what a test says, second by second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from memtui.core.page_set import PageSet
from memtui.core.readings import MemoryLimit, MemoryUse, Power
from memtui.core.samples import Capability, End, Options, Process, ProcessWindow, Target, Vma, VmaTable, Window
from tests.support.sessions import CODE, DATA, HEAP, hello, write_session

MIB, GIB, S = 1 << 20, 1 << 30, 10**9
PAGES = 256  # of a MiB
START_S = 1000  # of the recording, after the machine
VMAS = (
    Vma(HEAP, HEAP + 512 * MIB, "rw-p", "[heap]"),
    Vma(DATA, DATA + 2 * GIB, "rw-p", ""),
    Vma(CODE, CODE + GIB, "r--p", "/data/set of numbers.bin"),
)
Sizes = tuple[int, int, int]
"""MiB of heap, of other memory without a file, and of the mapped file."""


@lru_cache(1000)
def pages(sizes: Sizes, skipped: Sizes = (0, 0, 0)) -> PageSet:
    """So many MiB of each mapping, after those that are skipped."""
    parts = [
        np.arange(skip * PAGES, (skip + size) * PAGES) + (vma.start >> 12)
        for skip, size, vma in zip(skipped, sizes, VMAS, strict=True)
    ]
    return PageSet.from_pages(np.concatenate(parts))


def session_of(
    path: Path,
    resident: Callable[[int], Sizes],
    touched: Callable[[int], PageSet | None] = lambda n: pages((10, 10, 0)),
    *,
    windows: int = 90,
    apart_s: float = 1.0,
    faults: Callable[[int], int | None] = lambda n: 0,
    swapped: Callable[[int], int | None] = lambda n: None,
    lost_share: float | None = 0.005,
    limit: Callable[[int], MemoryLimit] | None = None,
    age_s: int = 600,
    max_overhead_ppm: int | None = 10_000,
    tracked: bool = True,
    huge_page_mode: str = "madvise",
    how_it_ended: str | None = None,
    file: str = VMAS[2].name,
    left_out: str = "default",
    busy_cpus: float | None = None,
    command: str = "python train.py",
) -> Path:
    """Record a program by windows; ``age_s``: how old it is at the start; ``swapped``: bytes.

    ``how_it_ended``: the text of its end; None: the recording is stopped.
    """
    host = replace(hello().host, huge_pages=huge_page_mode, numa_nodes=1)

    def stream():
        options = Options(round(apart_s * S), max_overhead_ppm=max_overhead_ppm, filter=left_out)
        target = Target(4242, (START_S - age_s) * 100, command, "alice")
        no_pages = Capability("pages", False, "it counts by range")
        yield (
            hello(host=host, options=options, target=target)
            if tracked
            else hello(host=host, options=options, target=target, tracker="referenced", pages=no_pages)
        )
        yield Process(1, 4242, 1, target.start_ticks, 0, "python train.py", "target")
        yield VmaTable(1, 0, (*VMAS[:2], replace(VMAS[2], name=file)))
        for n in range(windows):
            begin_ns = round((START_S + n * apart_s) * S)
            end_ns = begin_ns + round(apart_s * S)
            if limit is not None:
                yield Power(limits=(limit(n),))
            there = resident(n)
            window = ProcessWindow(
                1,
                begin_ns,
                end_ns,
                pages=touched(n),
                resident=pages(there) if n % 10 == 0 or n == windows - 1 else None,
                rss_bytes=sum(there) * MIB,
                cpu_ns=None if busy_cpus is None else round(busy_cpus * (end_ns - START_S * S)),
                major_faults=faults(n),
                swap_bytes=swapped(n),
            )
            lost_ns = None if lost_share is None else round(lost_share * apart_s * S)
            yield Window(n, begin_ns, end_ns, round(apart_s * S), 0, (window,), lost_ns=lost_ns)
        kind = "stopped" if how_it_ended is None else "target exited"
        yield End(round((START_S + windows * apart_s) * S), kind, how_it_ended or "")

    return write_session(path, stream())


def appending(mib: int) -> Callable[[int], PageSet]:
    """Touch some memory again and again, and so many new MiB in each window, from 300 on."""
    return lambda n: pages((10, 10, 0)).union(pages((0, mib, 0), (0, 300 + mib * (n - 1), 0)))


def steady(_n: int) -> Sizes:
    return 20, 100, 30


def filling(n: int) -> MemoryLimit:
    return MemoryLimit((START_S + n) * S, "/job", 2 * GIB, GIB + n * 5 * MIB, 100 * MIB, 0)


def tree_of(
    path: Path,
    private: Callable[[int], int],
    *,
    shared: int = 600,
    workers: Callable[[int], int] = lambda n: 3,
    windows: int = 90,
    read_every: int | None = 5,
    own: Callable[[int], int] = lambda n: 20,
    use_every: int | None = None,
    window_every: int = 1,
    role: str = "child",
    ended: bool = False,
    last_read: int = 10**9,
    touched: int = 20,
    left: Callable[[int], int] = lambda n: 0,
) -> Path:
    """Record a parent and forked workers, each of which copied so many MiB of what they share by a window.

    ``left``: MiB of these that all workers copied, so that only the parent has them; ``own``: MiB that each has
    besides; ``touched``: MiB in each window. PSS and private memory are read every few seconds, until the second
    ``last_read``; ``use_every``: seconds between readings of memory without a window; ``window_every``: from window to
    window; ``ended``: the program ended, and was not left running.
    """

    def stream():
        yield hello(target=Target(4242, (START_S - 600) * 100, "python train.py", "alice"), options=Options(S))
        begun = 0
        readings: dict[int, dict[str, int]] = {}
        for n in range(windows):
            begin_ns = (START_S + n) * S
            while begun <= workers(n):
                begun += 1
                parent, its_role = (1, "target") if begun == 1 else (4242, role)
                yield Process(begun, 4241 + begun, parent, 777, 0, "python train.py", its_role)
                yield VmaTable(begun, n, VMAS)
            keys = range(1, workers(n) + 2)
            copied = private(n) * MIB
            if read_every is not None and n % read_every == 0 and n <= last_read:
                mine = {key: own(n) * MIB + (copied if key > 1 else left(n) * MIB) for key in keys}
                shares = {1: (shared - left(n)) * MIB} | {key: shared * MIB - copied for key in keys if key > 1}
                readings = {
                    key: {
                        "pss_bytes": mine[key] + shares[key] // len(keys),
                        "private_bytes": mine[key],
                        "pss_ns": begin_ns + S // 2,
                    }
                    for key in keys
                }
            if use_every is not None and n % use_every == 0:
                new = read_every is not None and n % read_every == 0 and n <= last_read
                sums = (shared + own(n)) * len(keys) * MIB, sum(reading["pss_bytes"] for reading in readings.values())
                yield Power(memory_use=(MemoryUse(begin_ns + S // 2, len(keys), sums[0], sums[1] if new else None),))
            if n % window_every:
                continue
            pieces = (
                ProcessWindow(
                    key,
                    begin_ns,
                    begin_ns + S,
                    pages=pages((0, touched, 0)),
                    resident=pages((0, shared + own(n), 0)) if n % 10 == 0 or n == windows - 1 else None,
                    rss_bytes=(shared + own(n)) * MIB,
                    **readings.get(key, {}),
                    vma_private_bytes=(
                        ((VMAS[0].start, readings[key]["private_bytes"]),) if key in readings and n % 15 == 0 else None
                    ),
                )
                for key in keys
            )
            yield Window(n, begin_ns, begin_ns + S, S, 0, tuple(pieces), shared_excess_bytes=0)
        yield End((START_S + windows) * S, "target exited" if ended else "stopped")

    return write_session(path, stream())
