"""A breakdown as text and for JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from memtui.core.text import printable, some_of
from memtui.core.units import size
from memtui.formats.category_rules import RuleSet
from memtui.formats.mxnet_tags import COMPAT_UNKNOWN, COMPAT_WEIGHTS
from memtui.reports.breakdown.inputs import DeviceAllocations
from memtui.reports.breakdown.rules import Bar, Breakdown, is_compat

BAR_CELLS = 32
MOST_DROPPED = 8  # tags in one line


class Panel(NamedTuple):
    """A breakdown as it is shown. ``listed``: keys of the categories that are not left out."""

    allocations: DeviceAllocations
    result: Breakdown
    listed: Collection[str]

    @property
    def bars(self) -> list[Bar]:
        """Return the bars that are not left out."""
        return [bar for bar in self.result.bars if bar.key in self.listed]


def above_share(bars: Iterable[Bar], percent: float) -> frozenset[str]:
    """Return the keys of the bars above a share of ``percent``; all of them where that is 0."""
    return frozenset(bar.key for bar in bars if not percent or bar.share * 100 > percent)


def heading(panel: Panel, rules: RuleSet) -> str:
    """Return the first line: the allocations and their sum."""
    allocations, result, _ = panel
    where = f" on {allocations.device}" if allocations.device else ""
    total = f"{result.total_bytes:,} B = {size(result.total_bytes)} {allocations.what}{where}"
    count = f"{result.allocations} allocation{'s' * (result.allocations != 1)}"
    return f"{allocations.path.name} ({allocations.format}): {total}, {count}, rules {rules.name}"


def notes(panel: Panel, rules: RuleSet, percent: float) -> list[str]:
    """Return the notes on a breakdown."""
    allocations, result, _ = panel
    lines = []
    if is_compat(rules):
        weights, unknown = result.sum_of(COMPAT_WEIGHTS), result.sum_of(COMPAT_UNKNOWN)
        rest = result.total_bytes - weights - unknown
        lines.append(f"weights and gradients {size(weights)}, forward {size(rest)}, unknown {size(unknown)}")
    if hidden := len(result.bars) - len(panel.bars):
        lines.append(f"{hidden} more of {percent:g} % or less each")
    if result.dropped:
        count, total = sum(item.allocations for item in result.dropped), sum(item.bytes for item in result.dropped)
        tags = some_of(result.dropped, MOST_DROPPED, lambda item: item.tag)
        lines.append(f"left out, as these rules know no such tag: {count} of {size(total)}: {tags}")
    if allocations.coarse:
        lines.append(f"of MB precision in the log: {', '.join(sorted(set(allocations.coarse))[:MOST_DROPPED])}")
    return lines


def text(panel: Panel, rules: RuleSet, percent: float, scale_bytes: int) -> str:
    """Return bars of at most ``BAR_CELLS`` cells; the longest would be ``scale_bytes``."""
    bars = panel.bars
    width = max(len("category"), *(len(printable(bar.name)) for bar in bars)) if bars else 0
    lines = [heading(panel, rules)]
    if bars:
        lines.append(f"  {'category':<{width}}  {'size':>9}  {'share':>8}  {'':<{BAR_CELLS}}  allocations")
    for bar in bars:
        cells = "█" * round(BAR_CELLS * bar.bytes / max(1, scale_bytes))
        percent_of = f"{bar.share * 100:.2f} %"
        lines.append(
            f"  {bar.name:<{width}}  {size(bar.bytes):>9}  {percent_of:>8}  {cells:<{BAR_CELLS}}  {bar.allocations}"
        )
    lines += [f"  {line}" for line in notes(panel, rules, percent)]
    return "\n".join(printable(line).rstrip() for line in lines)


def to_dict(panel: Panel, rules: RuleSet) -> dict[str, Any]:
    """Return a breakdown for ``--json``."""
    allocations, result, listed = panel
    totals = {"bytes": result.total_bytes, "allocations": result.allocations}
    if is_compat(rules):
        weights, unknown = result.sum_of(COMPAT_WEIGHTS), result.sum_of(COMPAT_UNKNOWN)
        totals |= {"weights_bytes": weights, "unknown_bytes": unknown}
        totals["forward_bytes"] = result.total_bytes - weights - unknown
    return {
        "file": str(allocations.path),
        "format": allocations.format,
        "device": allocations.device or None,
        "what": allocations.what,
        "totals": totals,
        "categories": [{**bar._asdict(), "shown": bar.key in listed} for bar in result.bars],
        "dropped": [{"tag": item.tag, "bytes": item.bytes, "allocations": item.allocations} for item in result.dropped],
        "mb_precision": list(allocations.coarse),
    }
