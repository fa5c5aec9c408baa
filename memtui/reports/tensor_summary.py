"""What the working set of a traced program is made of, from its session: pages from outside, tensors from inside."""

from __future__ import annotations

from typing import Any

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.non_tensor_pages import REST
from memtui.analysis.tensor_pages import UNKNOWN, TensorMap
from memtui.analysis.tensor_sums import Grouping, TensorNumbers, TensorSums, grouped, groups
from memtui.reports.source import ReportSource
from memtui.reports.traced_windows import TracedWindows, told_by_process

WINDOWS = 64  # spread over the session: a page set takes a millisecond or more to decode
COLD_SHARE = 0.5  # of a tensor touched in a window, and less: cold
LISTED = 10  # tensors; all of them are in the table of an export


def by_category(reader: ReportSource) -> dict[str, Any] | None:
    """Bytes touched in a window and bytes there are, by category of tensor, means over windows; None: not traced.

    Of a page each tensor counts its own bytes; ``rest_bytes`` is what lies in no tensor that was told
    of, so that all parts add up to the stored pages of those windows. The same by layer, of what the rest lies in, and
    of the tensors with the most touched and the most untouched bytes (of those that are at most half touched), each
    over the windows in which it existed.

    Raises:
        SessionError: the session is damaged.
    """
    told = told_by_process(reader)
    if not told:
        return None
    counted = TracedWindows(reader, told[-1])
    inside = counted.inside
    places = inside[np.unique(np.linspace(0, len(inside) - 1, WINDOWS).astype(int))] if len(inside) else inside
    found = list(counted.count(places))
    windows = len(found)
    plain: dict[str, Any] = {"pid": told[-1].pid, "windows": windows, "parts": [], "rest_bytes": None, "reason": ""}
    lists: dict[str, Any] = {"rest": [], "layers": [], "hottest": [], "coldest": []}
    if not windows:
        return plain | {"reason": "no pages are stored of a window in which the places of tensors were known"} | lists
    sums = TensorSums.of(found, len(counted.numbers))
    rest = np.sum([window.rest_bytes for window in found], axis=0) / windows
    kinds = {label: sizes for label, *sizes in _sums_by(Grouping.KIND, counted.numbers, sums, windows)}
    layers = _sums_by(Grouping.LAYER, counted.numbers, sums, windows)
    hottest, coldest = _extremes(counted.numbers, sums)
    return plain | {
        "parts": [
            {"category": name, "touched_bytes": kinds[name][0], "exists_bytes": kinds[name][1]}
            | (_of_unknown(told[-1].maps[-1]) if name == CATEGORIES[UNKNOWN] else {})
            for name in CATEGORIES
            if name in kinds
        ],
        "rest_bytes": float(rest.sum()),
        "rest": [{"part": name, "touched_bytes": float(rest[n])} for n, name in enumerate(REST)],
        "layers": [
            {"layer": label, "touched_bytes": touched, "exists_bytes": exists}
            for label, touched, exists in sorted(layers, key=lambda one: -one[1])
        ],
        "hottest": hottest,
        "coldest": coldest,
    }


def _of_unknown(tensors: TensorMap) -> dict[str, Any]:
    """Which tensor most of it is: of no model and no optimiser, but it has a type, a shape and perhaps a data set."""
    most = tensors.most_of(UNKNOWN)
    return {"most": None if most is None else {"part": most[0], "size_bytes": most[1]}}


def _sums_by(by: Grouping, numbers: TensorNumbers, sums: TensorSums, windows: int) -> list[tuple[str, float, float]]:
    """(name, bytes touched, bytes there are) of each group, means over all windows; those that never were left out."""
    if not len(numbers):
        return []
    category, layer, _, size_bytes, _ = (list(column) for column in zip(*numbers.identities, strict=True))
    group, first = groups(category, layer, by)
    touched = grouped(sums.touched_bytes, group, len(first)) / windows
    exists = grouped(np.array(size_bytes, np.int64) * sums.windows, group, len(first)) / windows
    names = [CATEGORIES[category[at]] if by is Grouping.KIND else layer[at] for at in first]
    parts = zip(names, touched.tolist(), exists.tolist(), strict=True)
    return [part for part in parts if part[2]]


def _extremes(numbers: TensorNumbers, sums: TensorSums) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the tensors with the most bytes touched in a window, and those with the most that are not."""
    mean = sums.mean_bytes().tolist()
    tensors = [
        {
            "layer": one.layer,
            "part": one.part,
            "category": CATEGORIES[one.category],
            "size_bytes": one.size_bytes,
            "touched_bytes": mean[n],
            "touched_share": float(sums.touched_windows[n] / sums.windows[n]),  # of the windows
        }
        for n, one in enumerate(numbers.identities)
        if sums.windows[n]
    ]
    hottest = sorted((t for t in tensors if t["touched_bytes"]), key=lambda t: -t["touched_bytes"])
    cold = [t for t in tensors if t["touched_bytes"] < COLD_SHARE * t["size_bytes"]]
    coldest = sorted(cold, key=lambda t: t["touched_bytes"] - t["size_bytes"])
    return hottest[:LISTED], coldest[:LISTED]
