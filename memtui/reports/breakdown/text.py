"""A breakdown as text and as plain data."""

from __future__ import annotations

from typing import Any

from memtui.core.text import visible
from memtui.core.units import size
from memtui.formats.mxnet_tags import COMPAT_UNKNOWN, COMPAT_WEIGHTS
from memtui.reports.breakdown.inputs import Held
from memtui.reports.breakdown.rules import COMPAT_RULES, Bar, Breakdown

BAR_CELLS = 32
MOST_DROPPED = 8  # tags that are named


def shown(bars: tuple[Bar, ...], percent: float) -> list[Bar]:
    """Those above a share; all of them where that is 0."""
    return [bar for bar in bars if not percent or bar.share * 100 > percent]


def heading(held: Held, found: Breakdown, rules: str) -> str:
    """Return what is broken down, and how much it is."""
    where = f" on {held.device}" if held.device else ""
    return (
        f"{held.path.name} ({held.format}): {found.total_bytes:,} B = {size(found.total_bytes)} {held.what}{where}, "
        f"{found.allocations} allocation{'s' * (found.allocations != 1)}, rules {rules}"
    )


def notes(held: Held, found: Breakdown, rules: str, percent: float) -> list[str]:
    """Return what else has to be said."""
    lines = []
    if rules == COMPAT_RULES:
        weights, unknown = found.sum_of(COMPAT_WEIGHTS), found.sum_of(COMPAT_UNKNOWN)
        rest = found.total_bytes - weights - unknown
        lines.append(f"weights and gradients {size(weights)}, forward {size(rest)}, unknown {size(unknown)}")
    if hidden := len(found.bars) - len(shown(found.bars, percent)):
        lines.append(f"{hidden} more of {percent:g} % or less each")
    if found.dropped:
        many, total = sum(item.allocations for item in found.dropped), sum(item.bytes for item in found.dropped)
        tags = [item.tag for item in found.dropped[:MOST_DROPPED]]
        more = f" and {len(found.dropped) - len(tags)} more" if len(found.dropped) > len(tags) else ""
        lines.append(f"left out, as these rules know no such tag: {many} of {size(total)}: {', '.join(tags)}{more}")
    if held.coarse:
        lines.append(f"of MB precision in the log: {', '.join(sorted(set(held.coarse))[:MOST_DROPPED])}")
    return lines


def text(held: Held, found: Breakdown, rules: str, percent: float, scale_bytes: int) -> str:
    """Bars of at most ``BAR_CELLS`` cells; the longest would be ``scale_bytes``."""
    bars = shown(found.bars, percent)
    width = max(len("category"), *(len(visible(bar.name)) for bar in bars)) if bars else 0
    lines = [heading(held, found, rules)]
    if bars:
        lines.append(f"  {'category':<{width}}  {'size':>9}  {'share':>8}  {'':<{BAR_CELLS}}  allocations")
    for bar in bars:
        cells = "█" * round(BAR_CELLS * bar.bytes / max(1, scale_bytes))
        percent_of = f"{bar.share * 100:.2f} %"
        lines.append(
            f"  {bar.name:<{width}}  {size(bar.bytes):>9}  {percent_of:>8}  {cells:<{BAR_CELLS}}  {bar.allocations}"
        )
    lines += [f"  {line}" for line in notes(held, found, rules, percent)]
    return "\n".join(visible(line).rstrip() for line in lines)


def plain(held: Held, found: Breakdown, rules: str, percent: float) -> dict[str, Any]:
    """For JSON."""
    kept = {bar.key for bar in shown(found.bars, percent)}
    totals = {"bytes": found.total_bytes, "allocations": found.allocations}
    if rules == COMPAT_RULES:
        weights, unknown = found.sum_of(COMPAT_WEIGHTS), found.sum_of(COMPAT_UNKNOWN)
        totals |= {"weights_bytes": weights, "unknown_bytes": unknown}
        totals["forward_bytes"] = found.total_bytes - weights - unknown
    return {
        "file": str(held.path),
        "format": held.format,
        "device": held.device or None,
        "what": held.what,
        "totals": totals,
        "categories": [{**bar._asdict(), "shown": bar.key in kept} for bar in found.bars],
        "dropped": [{"tag": item.tag, "bytes": item.bytes, "allocations": item.allocations} for item in found.dropped],
        "mb_precision": list(held.coarse),
    }
