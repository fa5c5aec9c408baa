"""The heat map of a session as an array with axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.core.errors import UserError
from memtui.reports.process_heat import busiest, process_heat
from memtui.reports.source import ReportSource


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """What share of the pages of a place was touched, by address (down) and time (across).

    Attributes:
        pid: the process.
        share: f4[rows, columns], 0 to 1: the mean of the windows in a column; nan in gaps between ranges, and where
            nothing is known.
        times: datetime64[ns][columns + 1], UTC: the edges of the columns.
        addresses: the lowest address that each row shows; None in a gap, and where addresses are hidden.
        ranges: the name of the range of each row: a file, ``[heap]``, a use that its layout gives away; "" in a gap.
    """

    pid: int
    share: NDArray[np.float32]
    times: NDArray[np.datetime64]
    addresses: tuple[int | None, ...]
    ranges: tuple[str, ...]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return ``share``, wherever an array is taken (``plt.imshow(heat)``)."""
        return np.array(self.share, dtype, copy=copy)


def heat_map(reader: ReportSource, bins: tuple[int, int], pid: int | None) -> Heat:
    """Return the heat map of a process, or of the one that touched most. Raises UserError where there is none.

    ``bins``: columns and rows.
    """
    columns, rows = bins
    if columns < 1 or rows < 1:
        raise UserError(f"a heat map has one column and one row at least, and not {columns} and {rows}")
    processes = [process for process in busiest(reader) if pid in (None, process.pid)]
    heat = process_heat(reader, processes[0], rows=rows, subrows=1, columns=columns) if processes else None
    if heat is None:
        whose = "" if pid is None else f" of process {pid}"
        why = reader.hello.pages.reason or "none was touched"
        raise UserError(f"{reader.title}: no pages{whose} are stored: {why}")
    layout = heat.layout
    pieces = [layout.addresses_of(row) for row in range(len(heat.share))]
    shown = reader.shows_distances
    bands = [layout.band_at(row) for row in range(len(heat.share))]
    return Heat(
        processes[0].pid,
        heat.share,
        (np.round(heat.edges_ns).astype(np.int64) + reader.hello.clock.wall_offset_ns).astype("M8[ns]"),
        tuple(piece[0][0] if piece and shown else None for piece in pieces),
        tuple("" if band is None or band.kind == "gap" else band.label or f"{band.ranges} others" for band in bands),
    )
