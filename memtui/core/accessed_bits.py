"""The cost of cleared accessed bits for a program: its processors have to set them again."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class SetCost:
    """CPU time for setting the accessed bit of a page again, by the count of accessed pages.

    The processor writes an entry of a page table. The entries of few pages are in its caches; those of many are not,
    and writing them takes several times as long. In between the cost rises with the logarithm of the count. What
    evicts the entries is above all the memory of the pages themselves, so a program that uses one line of each page
    pays less than this says.

    Attributes:
        near_ns: of a page among ``FEW_PAGES``.
        far_ns: of a page among ``MANY_PAGES``.
    """

    near_ns: float
    far_ns: float

    FEW_PAGES: ClassVar[int] = 1 << 12
    MANY_PAGES: ClassVar[int] = 1 << 14  # 64 MiB, twice what a large cache holds

    def of_ns(self, pages: int) -> float:
        """Return the time for all pages that a process accesses again."""
        if pages <= self.FEW_PAGES:
            return pages * self.near_ns
        far = min(log(pages / self.FEW_PAGES) / log(self.MANY_PAGES / self.FEW_PAGES), 1.0)
        return pages * (self.near_ns + far * (self.far_ns - self.near_ns))
