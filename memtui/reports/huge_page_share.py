"""How much of the working set lies in huge pages: the processor marks each of them as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.units import percent
from memtui.reports.source import ReportSource
from memtui.reports.window_means import spread

MOST_WINDOWS = 8  # whose pages are read
NOTABLE = 0.1


def huge_page_share(reader: ReportSource, rows: Iterable[Mapping[str, Any]], samples: Collection[int]) -> float | None:
    """Return the share of huge pages in what was touched, as the median of some windows; None: no pages are stored.

    Args:
        reader: the session.
        rows: of all processes in all windows.
        samples: the windows that count. Of these a few are read, from the first to the last one.
    """
    processes: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        if row["sample"] in samples:
            processes[row["sample"]].append(row["process"])
    every = sorted(processes)
    shares = []
    for sample in (every[n] for n in spread(len(every), MOST_WINDOWS).tolist()):
        sets = [pages for process in processes[sample] if (pages := reader.page_set(sample, process)) is not None]
        if touched_bytes := sum(pages.size_bytes for pages in sets):
            shares.append(1 - sum(pages.page_count for pages in sets) * PAGE_BYTES / touched_bytes)
    return float(np.median(shares)) if shares else None


def huge_page_lines(share: float | None) -> list[str]:
    """Return the line about huge pages, where they are a notable part of the working set."""
    if share is None or share < NOTABLE:
        return []
    return [
        f"huge pages   {percent(share)} of the working set: each counts whole (2 MiB) when any byte of it is touched"
    ]
