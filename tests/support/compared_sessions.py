"""Sessions to compare."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memtui.core.page_set import PageSet
from memtui.core.samples import End, Process, ProcessWindow, VmaTable, Window
from tests.support.sessions import DATA, MS, VMAS, hello

COUNT = 5  # short windows in a long one


def touched(number: int) -> PageSet:
    """128 pages that move on by 32 with each short window, over 2048 of them."""
    return PageSet.from_pages((DATA >> 12) + (np.arange(128) + 32 * number) % 2048)


def stream(numbers: list[list[int]], interval_ms: int, *, lost: int = -1, **changes):
    """Windows without a pause between them; each touches what the short windows of its numbers do."""
    of_hello = hello(**changes)
    yield replace(of_hello, options=replace(of_hello.options, interval_ns=interval_ms * MS))
    yield Process(1, 4242, 1, 777, 0, "python train.py", "target")
    yield VmaTable(1, 0, VMAS)
    length = interval_ms * MS
    for sample, of_window in enumerate(numbers):
        if sample == lost:
            continue
        pages = touched(of_window[0])
        for number in of_window[1:]:
            pages = pages.union(touched(number))
        part = ProcessWindow(1, sample * length, (sample + 1) * length, pages=pages, rss_bytes=64 << 20, paused_ns=0)
        yield Window(sample, sample * length, (sample + 1) * length, length, 0, (part,))
    yield End(len(numbers) * length, "target exited")


def short(count: int = 60, **how):
    return stream([[number] for number in range(count)], 200, **how)


def long(count: int = 12, **how):
    return stream([list(range(COUNT * at, COUNT * (at + 1))) for at in range(count)], 200 * COUNT, **how)
