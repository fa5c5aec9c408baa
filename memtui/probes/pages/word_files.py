"""Files of 64-bit words, such as pagemap, of which many short and long runs are wanted at once."""

from __future__ import annotations

import errno
import itertools
import os
from bisect import bisect
from collections.abc import Callable
from functools import partial

from memtui.probes.pages.hands import Hands

Run = tuple[int, int, int]  # a word of a file, and where the words from it on lie in a row of all runs: begin, end


def by_all(
    hands: Hands | None, files: list[int], runs: list[Run], least: int, work: Callable[[int, list[Run]], None]
) -> None:
    """Have all runs worked through.

    Args:
        hands: that share it.
        files: descriptors, one for each of them.
        runs: rising.
        least: words that are worth another one's while.
        work: on some of the runs, with one of the files.
    """
    size = runs[-1][2] if runs else 0
    parts = min(len(files), size // least)
    if hands is None or parts < 2:
        return work(files[0], runs)
    ends = [end for *_, end in runs]
    edges = [0, *(bisect(ends, size * part // parts) for part in range(1, parts)), len(runs)]
    each = zip(files, itertools.pairwise(edges), strict=False)
    hands.together([partial(work, file, runs[first:last]) for file, (first, last) in each])


def read(room: memoryview, file: int, runs: list[Run]) -> None:
    """Into the bytes of the row; they stay as they are beyond the end of the file."""
    for word, begin, end in runs:
        os.preadv(file, [room[begin * 8 : end * 8]], word * 8)


def write(given: memoryview, file: int, runs: list[Run]) -> None:
    """The bytes of the row, but for what lies beyond the end of the file."""
    for word, begin, end in runs:
        try:
            os.pwrite(file, given[begin * 8 : end * 8], word * 8)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
