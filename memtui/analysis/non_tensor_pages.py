"""The working set outside of tensors: touched pages by the kind of mapping they lie in.

From outside a process nobody can say what its anonymous memory is used for: a temporary tensor, an object of the
interpreter and a hole in the allocator's memory look alike. So that part has one name, and a list of possible contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.address_ranges import owned
from memtui.analysis.heat_layout import intersect
from memtui.analysis.tensor_pages import TensorMap
from memtui.analysis.vma_filter import AddressRange, is_anonymous
from memtui.analysis.working_set import bytes_by_range
from memtui.core.page_set import PageSet

REST = ("other anonymous memory", "libraries and files", "stack", "no known range", "page rounding")
REST_CONTENTS = {
    REST[0]: "activations, temporaries, interpreter, allocator slack",
    REST[3]: "mapped for less than a look at the mappings",
    REST[4]: "other bytes of pages in which a tensor begins or ends",
}
_OTHER, _FILES, _STACK, _NOWHERE, _ROUNDING = range(len(REST))


@dataclass(frozen=True, slots=True, eq=False)
class Mapped:
    """Mappings of a process at one moment: disjoint ranges, rising, and the part of ``REST`` each counts for."""

    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    part: NDArray[np.intp]

    @classmethod
    def of(cls, ranges: Sequence[AddressRange]) -> Mapped:
        """Take VMA rows; where rows are nested the shortest row counts."""
        first = np.array([mapping.start for mapping in ranges], np.uint64)
        last = np.array([mapping.end for mapping in ranges], np.uint64)
        starts, ends, number = owned(first, last)
        return cls(starts, ends, np.array([_part_of(mapping.name) for mapping in ranges], np.intp)[number])


def _part_of(name: str) -> int:
    if name.startswith("[stack"):
        return _STACK
    return _OTHER if is_anonymous(name) or name == "[heap]" else _FILES


def rest_bytes(pages: PageSet, tensors: TensorMap, mapped: Mapped) -> NDArray[np.int64]:
    """Return i8[len(REST)]: touched bytes outside of tensors, by the part they lie in.

    Together with ``tensors.touched_each`` these bytes sum up to the size of ``pages``.
    """
    totals = np.zeros(len(REST), np.int64)
    touched = bytes_by_range(pages, mapped.starts, mapped.ends)
    np.add.at(totals, mapped.part, touched)
    starts, ends, which = intersect(mapped.starts, mapped.ends, *_filled(tensors))
    in_tensors = bytes_by_range(pages, starts, ends)
    np.subtract.at(totals, mapped.part[which], in_tensors)
    of_tensors = tensors.page_bytes(pages)
    # Tensors may lie where no mapping is known either.
    totals[_NOWHERE] = pages.size_bytes - int(touched.sum()) - (of_tensors - int(in_tensors.sum()))
    totals[_ROUNDING] = of_tensors - int(tensors.touched_each(pages).sum())
    return totals


def _filled(tensors: TensorMap) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return their pages, without those that have none of their own."""
    starts, ends = tensors.page_ranges()
    some = starts < ends
    return starts[some], ends[some]
