"""A network against the sum of its operators: what its parts cost by themselves, times how often it calls them.

Both are measured in the same rounds, one window each, because a machine drifts: an hour between them would be the
largest part of the difference. In a network an operator's input was just written by the one before, so the parts are
measured with warm inputs unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memtui.analysis.averages import mean_interval
from memtui.bench.configuration import Configuration
from memtui.bench.result import Row
from memtui.bench.table import NONE, duration
from memtui.units import energy

CONVOLUTIONS = ("conv2d",)


@dataclass(frozen=True)
class Share:
    """What some of the operators come to, by what the network does.

    Attributes:
        value: sum over the operators, nanoseconds or joules; mean over rounds.
        ratio: by the network, (mean, low, high) over rounds; low and high are None for one round.
    """

    value: float
    ratio: tuple[float, float | None, float | None]


@dataclass(frozen=True)
class Composition:
    """Time and energy of the network and of its parts. None where something was not measured, with ``reason``."""

    network: Configuration
    rounds: int
    network_ns: float | None = None
    network_j: float | None = None
    drift: float | None = None  # of the network's time, last round by first
    time: Mapping[str, Share | None] | None = None
    energy: Mapping[str, Share | None] | None = None
    reason: str = ""
    energy_reason: str = ""


def compose(network: Configuration, counts: Mapping[Configuration, int], rows: Sequence[Row]) -> Composition:
    """Hold them against each other.

    Args:
        network: as one operator.
        counts: its operators, and how often one pass calls each.
        rows: of all of them, in the order of time; as many of each as there were rounds.
    """
    found: dict[Configuration, list[Row]] = {}
    for row in rows:
        found.setdefault(row.configuration, []).append(row)
    rounds = len(found.get(network, []))
    wanted = (network, *counts)
    if lost := [row for row in rows if row.status != "ok"]:
        return Composition(network, rounds, reason=f"{lost[0].configuration.op}: {lost[0].reason}")
    if not rounds or any(len(found.get(c, [])) != rounds for c in wanted):
        return Composition(network, rounds, reason="not everything was measured equally often")
    times = {c: [row.call_ns or 0.0 for row in found[c]] for c in wanted}
    joules = {c: [row.energy_j for row in found[c]] for c in wanted}
    without = [row.energy_reason for row in rows if row.energy_j is None]
    known: dict[Configuration, list[float]] = {c: [j for j in some if j is not None] for c, some in joules.items()}
    mean_j = sum(known[network]) / rounds if len(known[network]) == rounds else None
    return Composition(
        network,
        rounds,
        network_ns=sum(times[network]) / rounds,
        network_j=mean_j,
        drift=times[network][-1] / times[network][0] - 1,
        time=_shares(network, counts, times),
        energy=None if without else _shares(network, counts, known),
        energy_reason=without[0] if without else "",
    )


def _shares(
    network: Configuration, counts: Mapping[Configuration, int], values: Mapping[Configuration, list[float]]
) -> dict[str, Share]:
    found = {}
    for name, chosen in (("conv2d", [c for c in counts if c.op in CONVOLUTIONS]), ("all", list(counts))):
        sums = [sum(values[c][n] * counts[c] for c in chosen) for n in range(len(values[network]))]
        ratios = [part / whole for part, whole in zip(sums, values[network], strict=True)]
        interval = mean_interval(ratios) or (ratios[0], None, None)
        found[name] = Share(sum(sums) / len(sums), interval)
    return found


def to_plain(found: Composition, counts: Mapping[Configuration, int]) -> dict[str, Any]:
    """JSON-ready."""

    def shares(some: Mapping[str, Share | None] | None, unit: str) -> dict[str, Any] | None:
        if some is None:
            return None
        return {
            name: None if share is None else {
                f"sum_{unit}": share.value,
                **dict(zip(("ratio", "ratio_low", "ratio_high"), share.ratio, strict=True)),
            }
            for name, share in some.items()
        }  # fmt: skip

    return {
        "network": dict(found.network.parameters),
        "conditions": dict(found.network.conditions),
        "rounds": found.rounds,
        "calls": {"conv2d": sum(n for c, n in counts.items() if c.op in CONVOLUTIONS), "all": sum(counts.values())},
        "network_ns": found.network_ns,
        "network_j": found.network_j,
        "drift": found.drift,
        "time": shares(found.time, "ns"),
        "energy": shares(found.energy, "j"),
        "reason": found.reason,
        "energy_reason": found.energy_reason,
    }


def lines(found: Composition, counts: Mapping[Configuration, int]) -> list[str]:
    """For people."""
    if found.reason:
        return [f"no comparison: {found.reason}"]
    calls = {"conv2d": sum(n for c, n in counts.items() if c.op in CONVOLUTIONS), "all": sum(counts.values())}
    joules = NONE if found.network_j is None else energy(found.network_j)
    said = [f"{'network, one pass':24} {duration(found.network_ns):>10} {joules:>10}"]
    for name, what in (("conv2d", "convolutions"), ("all", "operators")):
        time = (found.time or {}).get(name)
        power = (found.energy or {}).get(name)
        text = NONE if time is None else duration(time.value)
        joules = NONE if power is None else energy(power.value)
        ratios = [f"time {_ratio(time)}"] + ([] if power is None else [f"energy {_ratio(power)}"])
        said.append(
            f"{f'sum of {calls[name]} {what}':24} {text:>10} {joules:>10}   by the network: {', '.join(ratios)}"
        )
    if found.drift is not None and found.rounds > 1:
        said.append(
            f"the network's own time changed by {found.drift:+.1%} from the first of {found.rounds} rounds to the last"
        )
    if found.energy_reason:
        said.append(f"energy is unavailable: {found.energy_reason}")
    return said


def _ratio(share: Share | None) -> str:
    if share is None:
        return NONE
    ratio, low, high = share.ratio
    return f"{ratio:.2f}" if low is None else f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
