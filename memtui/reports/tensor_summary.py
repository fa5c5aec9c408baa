"""The working set of a traced program by tensor: pages as seen from outside, tensors as reported from inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.non_tensor_pages import REST
from memtui.analysis.tensor_pages import UNKNOWN, tensor_name
from memtui.analysis.tensor_sums import Grouping, TensorNumbers, TensorSums, Window, grouped, groups
from memtui.core.json_fields import fields_to_json
from memtui.core.units import size
from memtui.reports.allocation_summary import LargestTensor, largest_unknown, of_it
from memtui.reports.source import ReportSource
from memtui.reports.traced_windows import TensorHistory, TracedWindows, tensor_histories
from memtui.reports.window_means import COLD_SHARE, LISTED, spread

MOST_TENSORS = 4  # in a report for people, and of layers
NO_PAGES = "no pages are stored of a window in which the places of tensors were known"
DIFFERENT = 0.05  # of the mean: more of it in one window is said
MOVED = "every tensor moved within every window; w in the replay shows where they lay when it began"


@dataclass(frozen=True, slots=True)
class CategorySum:
    """Tensors of one category, means over all windows.

    Attributes:
        category: one of ``CATEGORIES``.
        touched_bytes: touched bytes in a window.
        exists_bytes: size of the tensors.
        exists_max_bytes: the same in the window with the most of them: tensors that move within one are not counted.
        most: the largest tensor, where the category does not name its owner.
    """

    category: str
    touched_bytes: float
    exists_bytes: float
    exists_max_bytes: float
    most: LargestTensor | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the part of the document; only the category of unknown tensors has ``most``."""
        document = fields_to_json(self)
        if self.category != CATEGORIES[UNKNOWN]:
            del document["most"]
        return document


@dataclass(frozen=True, slots=True)
class RestSum:
    """Memory outside the reported tensors, by the kind of range: touched bytes in a window, a mean."""

    part: str
    touched_bytes: float


@dataclass(frozen=True, slots=True)
class LayerSum:
    """Tensors of one layer, means over all windows, as ``CategorySum``; without a name: tensors of no layer."""

    layer: str
    touched_bytes: float
    exists_bytes: float
    exists_max_bytes: float


@dataclass(frozen=True, slots=True)
class TensorUse:
    """One tensor, over the windows in which it existed.

    Attributes:
        layer, part, category: identity of the tensor.
        size_bytes: its size.
        touched_bytes: touched bytes in a window, a mean.
        touched_share: share of the windows in which any byte of it was touched.
    """

    layer: str
    part: str
    category: str
    size_bytes: int
    touched_bytes: float
    touched_share: float


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """Touched and existing bytes of tensors, means over windows.

    Of a page each tensor counts its own bytes, so that all parts and ``rest_bytes`` add up to the stored pages of those
    windows.

    Attributes:
        pid: the process.
        windows: number of counted windows.
        parts: sums by category of tensor.
        rest_bytes: touched bytes outside the reported tensors; None: no window was counted.
        reason: why no window was counted.
        rest: the same by kind of range.
        layers: sums by layer, the most touched first.
        hottest: the tensors with the most touched bytes.
        coldest: the tensors with the most untouched bytes, of those that are at most half touched.
    """

    pid: int
    windows: int
    parts: tuple[CategorySum, ...]
    rest_bytes: float | None
    reason: str
    rest: tuple[RestSum, ...] = ()
    layers: tuple[LayerSum, ...] = ()
    hottest: tuple[TensorUse, ...] = ()
    coldest: tuple[TensorUse, ...] = ()


def tensor_summary(reader: ReportSource) -> TensorSummary | None:
    """Return the summary of the process that reported tensors last; None where no process did.

    Raises:
        SessionError: the session is damaged.
    """
    histories = tensor_histories(reader)
    if not histories:
        return None
    history = histories[-1]
    traced = TracedWindows(reader, history)
    inside = traced.inside
    windows = list(traced.count(inside[spread(len(inside))]))
    if not windows:
        return TensorSummary(history.pid, 0, (), None, MOVED if traced.moved else NO_PAGES)
    return _summary_of(history, traced.numbers, windows)


def _summary_of(history: TensorHistory, numbers: TensorNumbers, windows: Sequence[Window]) -> TensorSummary:
    count = len(windows)
    sums = TensorSums.of(list(windows), len(numbers))
    rest = np.sum([window.rest_bytes for window in windows], axis=0) / count
    kinds = {part[0]: part for part in _sums_by(Grouping.KIND, numbers, sums, windows)}
    layers = _sums_by(Grouping.LAYER, numbers, sums, windows)
    hottest, coldest = _extremes(numbers, sums)
    unknown = largest_unknown(history.maps[-1])
    return TensorSummary(
        pid=history.pid,
        windows=count,
        parts=tuple(
            CategorySum(*kinds[name], unknown if name == CATEGORIES[UNKNOWN] else None)
            for name in CATEGORIES
            if name in kinds
        ),
        rest_bytes=float(rest.sum()),
        reason="",
        rest=tuple(RestSum(name, float(rest[n])) for n, name in enumerate(REST)),
        layers=tuple(LayerSum(*layer) for layer in sorted(layers, key=lambda layer: -layer[1])),
        hottest=hottest,
        coldest=coldest,
    )


def _sums_by(
    by: Grouping, numbers: TensorNumbers, sums: TensorSums, windows: Sequence[Window]
) -> list[tuple[str, float, float, float]]:
    """Return (name, touched bytes, bytes, most bytes in a window) of each group that ever existed.

    The first two are means over all windows.
    """
    if not len(numbers):
        return []
    category, layer, _, size_bytes, _ = (list(column) for column in zip(*numbers.identities, strict=True))
    group, first = groups(category, layer, by)
    sizes, count = np.array(size_bytes, np.int64), len(windows)
    touched = grouped(sums.touched_bytes, group, len(first)) / count
    exists = grouped(sizes * sums.windows, group, len(first)) / count
    most = np.max([grouped(sizes[each.number], group[each.number], len(first)) for each in windows], axis=0)
    names = [CATEGORIES[category[index]] if by is Grouping.KIND else layer[index] for index in first]
    parts = zip(names, touched.tolist(), exists.tolist(), most.astype(float).tolist(), strict=True)
    return [part for part in parts if part[2]]


def _extremes(numbers: TensorNumbers, sums: TensorSums) -> tuple[tuple[TensorUse, ...], tuple[TensorUse, ...]]:
    """Return the tensors with the most touched bytes in a window, and those with the most untouched bytes."""
    mean = sums.mean_bytes().tolist()
    tensors = [
        TensorUse(
            layer=tensor.layer,
            part=tensor.part,
            category=CATEGORIES[tensor.category],
            size_bytes=tensor.size_bytes,
            touched_bytes=mean[n],
            touched_share=float(sums.touched_windows[n] / sums.windows[n]),
        )
        for n, tensor in enumerate(numbers.identities)
        if sums.windows[n]
    ]
    hottest = sorted((t for t in tensors if t.touched_bytes), key=lambda t: -t.touched_bytes)
    cold = [t for t in tensors if t.size_bytes and t.touched_bytes <= COLD_SHARE * t.size_bytes]
    coldest = sorted(cold, key=lambda t: t.touched_bytes - t.size_bytes)
    return tuple(hottest[:LISTED]), tuple(coldest[:LISTED])


def tensor_lines(summary: TensorSummary | None) -> list[str]:
    """Return the lines of the report: categories, layers, tensors, and the rest by kind of range."""
    if summary is None:
        return []
    if summary.reason:
        return [f"by tensor    n/a: {summary.reason}"]
    parts = ", ".join(
        f"{part.category} {_touched_of(part)}{of_it(part.most, part.exists_bytes)}" for part in summary.parts
    )
    layers = [f"{tensor_name(layer.layer, '')} {_touched_of(layer)}" for layer in summary.layers if layer.layer]
    rest = [f"{part.part} {size(part.touched_bytes)}" for part in summary.rest if part.touched_bytes]
    return [
        f"by tensor    touched in a window, of what there is: {parts}, the rest (activations, temporaries, "
        f"libraries, interpreter) {size(summary.rest_bytes)}; mean of {summary.windows} windows, without tensors "
        "that moved within one",
        *_listed("by layer", layers[:MOST_TENSORS]),
        *_listed("hot tensors", list(map(_tensor, summary.hottest[:MOST_TENSORS]))),
        *_listed("cold tensors", list(map(_tensor, summary.coldest[:MOST_TENSORS]))),
        *_listed("the rest", rest),
    ]


def _touched_of(part: CategorySum | LayerSum) -> str:
    """Return ``7.01 MiB of 7.01 MiB``, and how much there is in a window where less of it moved."""
    touched = f"{size(part.touched_bytes)} of {size(part.exists_bytes)}"
    if part.exists_max_bytes <= (1 + DIFFERENT) * part.exists_bytes:
        return touched
    return f"{touched} (up to {size(part.exists_max_bytes)})"


def _listed(head: str, items: list[str]) -> list[str]:
    return [f"{head:<12} {', '.join(items)}"] if items else []


def _tensor(tensor: TensorUse) -> str:
    name = f"{tensor_name(tensor.layer, tensor.part)} {tensor.category}".strip()
    return f"{name} {size(tensor.touched_bytes)} of {size(tensor.size_bytes)}"
