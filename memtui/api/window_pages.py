"""The pages that were touched, as a table of all windows and as an array of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memtui.api.table import Column, Part, Table
from memtui.core.errors import UserError
from memtui.core.page_set import PageSet, union
from memtui.reports.source import ReportSource


@dataclass(frozen=True, slots=True, eq=False)
class WindowPages:
    """The pages of any size that a process touched in a window; ``len`` counts them.

    Attributes:
        sample: the number of the window.
        pid: the process.
        size_bytes: of all these pages.
    """

    sample: int
    pid: int
    size_bytes: int
    _pages: PageSet = field(repr=False)

    def __len__(self) -> int:
        return self._pages.touch_count

    def as_array(self) -> NDArray[np.uint64]:
        """Return where they lie: u8[n, 2], the first address of each run of pages, and the first one after it.

        >>> with memtui.open("run.memtui") as session:
        ...     ranges = session.pages(0, 4242).as_array()
        >>> (ranges[:, 1] - ranges[:, 0]).tolist()  # bytes of each run
        [32768, 262144]
        """
        runs = [(start, end) for start, end, _ in self._pages.runs()]
        return np.array(sorted(runs), np.uint64).reshape(-1, 2)


class Pages(Table):
    """The runs of touched pages of each window; called with the number of a window, the pages of that one."""

    def __init__(
        self, columns: Sequence[Column], parts: Sequence[Part], of_window: Callable[[int, int | None], WindowPages]
    ) -> None:
        super().__init__("pages", columns, parts)
        self._of_window = of_window

    def __call__(self, window: int, pid: int | None = None) -> WindowPages:
        """Return the pages that a process touched in a window.

        >>> with memtui.open("run.memtui") as session:
        ...     pages = session.pages(0)
        >>> pages.pid, len(pages), pages.size_bytes
        (4242, 72, 294912)

        Args:
            window: its number, the column ``sample`` of other tables.
            pid: the process; the one that touched most in this window unless given.

        Raises:
            UserError: there are none, addresses are hidden (``redact``), or these are the sessions of a folder.
        """
        return self._of_window(int(window), pid)


def pages_of_window(source: ReportSource, window: int, pid: int | None) -> WindowPages:
    """Return the pages of a process, or of the one that touched most. Raises UserError where there are none."""
    if not source.shows_distances:
        raise UserError(f"{source.short_title}: addresses are hidden")
    by_pid: dict[int, list[PageSet]] = {}
    for process in source.processes():
        if pid in (None, process.pid) and (pages := source.page_set(window, process.key)) is not None:
            by_pid.setdefault(process.pid, []).append(pages)
    if not by_pid:
        whose = "" if pid is None else f" of process {pid}"
        why = source.hello.pages.reason
        raise UserError(f"{source.title}: no pages{whose} are stored in window {window}{f': {why}' if why else ''}")
    each = [(union(sets), number) for number, sets in by_pid.items()]
    most, number = max(each, key=lambda pair: pair[0].size_bytes)
    return WindowPages(window, number, most.size_bytes, most)
