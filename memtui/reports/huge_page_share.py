"""How much of the working set lies in huge pages: the processor marks each of them as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from memtui.analysis.working_set import NOTABLE_HUGE_SHARE
from memtui.analysis.working_set import huge_page_share as touched_share
from memtui.core.units import percent
from memtui.reports.source import ReportSource
from memtui.reports.window_means import spread

MOST_WINDOWS = 8  # whose pages are read


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
    shares = [
        touched_share(reader.page_set(sample, process) for process in processes[sample])
        for sample in (every[n] for n in spread(len(every), MOST_WINDOWS).tolist())
    ]
    measured = [share for share in shares if share is not None]
    return float(np.median(measured)) if measured else None


def huge_page_lines(share: float | None) -> list[str]:
    """Return the line about huge pages, where they are a notable part of the working set."""
    if share is None or share < NOTABLE_HUGE_SHARE:
        return []
    return [
        f"huge pages   {percent(share)} of the touched pages that are stored: each counts whole (2 MiB) when any byte "
        "of it is touched"
    ]
