"""One line per figure: what, its limit, the median with its interval, how many values, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from memtui.analysis.statistics import MedianInterval, Series, median_interval, quantile, ratio_of_pairs

HEAD = ("what", "limit", "median [95 % interval]", "n", "verdict")


class Skip(Exception):
    """A benchmark cannot run here; the text says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure. Smaller is better, unless it has to lie between two limits.

    Attributes:
        limit: the figure promised, in the same unit; None where nothing is promised.
        least: the other limit of a figure that has two.
        count: how many values the figure is made of.
        failed: why there is no figure.
    """

    what: str
    unit: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 0
    limit: float | None = None
    failed: str = ""
    least: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the median keeps the limit, and whether the interval is of the same opinion."""
        if self.failed:
            return f"not measured: {self.failed}"
        if self.least is not None and self.limit is not None:
            return self._between(self.least, self.limit)
        if self.value is None:
            return "not measured"
        if self.limit is None:
            return ""
        unsure = self.low is not None and self.high is not None and self.low <= self.limit < self.high
        if self.value <= self.limit:
            return "within, but the interval is not" if unsure else "within"
        share = f" ({100 * (self.value / self.limit - 1):.0f} %)" if self.unit != "%" and self.limit else ""
        over = f"over by {number(self.value - self.limit)} {self.unit}{share}"
        return f"{over}, but the interval is not wholly" if unsure else over

    def _between(self, least: float, limit: float) -> str:
        """Whether the whole interval lies between two limits, or wholly outside."""
        if self.low is None or self.high is None:
            return "undecided"
        if self.high < least:
            return f"under {number(least)}"
        if self.low > limit:
            return f"over {number(limit)}"
        return "within" if least <= self.low and self.high <= limit else "undecided"

    def cells(self) -> tuple[str, ...]:
        """The cells of its line."""
        limit = "" if self.limit is None else f"{number(self.limit)} {self.unit}".rstrip()
        if self.least is not None:
            limit = f"{number(self.least)} to {limit}"
        figure = "" if self.value is None else f"{number(self.value)} {self.unit}".rstrip()
        if self.low is not None and self.high is not None:
            figure += f" [{number(self.low)}, {number(self.high)}]"
        return self.what, limit, figure, str(self.count or ""), self.verdict

    def __str__(self) -> str:
        return "  ".join(cell for cell in self.cells() if cell)


def row(what: str, values: Series, unit: str, limit: float | None = None) -> Row:
    """The median of some values with its interval."""
    return _of(what, median_interval(values), unit, limit)


def slower(what: str, on: Series, off: Series, limit: float | None = None) -> Row:
    """By how many per cent ``on[i]`` is more than ``off[i]``, from interleaved pairs."""
    ratio = ratio_of_pairs(on, off)
    if ratio is None:
        return _of(what, None, "%", limit)
    bounds = [None if r is None else 100 * (r - 1) for r in (ratio.median, ratio.low, ratio.high)]
    return Row(what, "%", *bounds, ratio.count, limit)


def ratio(what: str, values: Series, to: Series, least: float, limit: float) -> Row:
    """The median of some values by that of others; the interval is what the intervals of both allow."""
    above, below = median_interval(values), median_interval(to)
    if above is None or below is None:
        return Row(what, limit=limit, least=least, failed="no values")
    value = above.median / below.median if below.median > 0 else None
    low = high = None
    if None not in (above.low, above.high, below.low, below.high):
        low = above.low / below.high if below.high > 0 else inf
        high = above.high / below.low if below.low > 0 else inf
    return Row(what, "", value, low, high, below.count, limit, least=least)


def tail(what: str, values: Series, unit: str, limit: float | None = None, q: float = 0.95) -> Row:
    """A quantile; it has no interval."""
    kept = list(values)
    return Row(what, unit, quantile(kept, q), count=len(kept), limit=limit)


def once(what: str, value: float, unit: str, limit: float | None = None) -> Row:
    """A figure that was taken once, such as a peak."""
    return Row(what, unit, value, count=1, limit=limit)


def _of(what: str, found: MedianInterval | None, unit: str, limit: float | None) -> Row:
    if found is None:
        return Row(what, unit, limit=limit, failed="no values")
    return Row(what, unit, found.median, found.low, found.high, found.count, limit)


def number(value: float) -> str:
    """Three significant digits, and no exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return f"{value:.5f}" if "e" in text else text


def markdown(rows: Iterable[Row]) -> str:
    """The table of some figures."""
    return columns([HEAD, *(r.cells() for r in rows)])


def columns(lines: Iterable[Sequence[str]]) -> str:
    """Head and lines as a table, in columns that also read well as plain text."""
    lines = [tuple(cell.replace("|", "\\|") for cell in line) for line in lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rule = tuple("-" * width for width in widths)
    padded = [
        [cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in (lines[0], rule, *lines[1:])
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in padded)
