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
from memtui.bench.table import duration
from memtui.units import energy_column


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
    """Time and energy of the network and of its parts. None where something was not measured, with ``reason``.

    Attributes:
        network: as one operator.
        rounds: in each of which everything was measured once.
        calls: of operators in one pass of the network, ``conv2d`` and ``all``; so are ``time`` and ``energy``.
        network_ns: mean over rounds.
        network_j: mean over rounds.
        drift: of the network's time, last round by first.
        time: sums of the operators.
        energy: sums of the operators.
        reason: why there is no comparison.
        energy_reason: why there is none of energies.
    """

    network: Configuration
    rounds: int
    calls: Mapping[str, int]
    network_ns: float | None = None
    network_j: float | None = None
    drift: float | None = None
    time: Mapping[str, Share] | None = None
    energy: Mapping[str, Share] | None = None
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
    calls = {name: sum(some.values()) for name, some in _groups(counts).items()}
    wanted = (network, *counts)
    if lost := [row for row in rows if row.status != "ok"]:
        return Composition(network, rounds, calls, reason=f"{lost[0].configuration.op}: {lost[0].reason}")
    if not rounds or any(len(found.get(c, [])) != rounds for c in wanted):
        return Composition(network, rounds, calls, reason="not everything was measured equally often")
    # A pass of the network is longer than a quiet moment; so of its parts all blocks count, too.
    times = {c: [row.median_ns or 0.0 for row in found[c]] for c in wanted}
    energies = {c: [row.energy_j for row in found[c] if row.energy_j is not None] for c in wanted}
    without = [row.energy_reason for row in rows if row.energy_j is None]
    return Composition(
        network,
        rounds,
        calls,
        network_ns=sum(times[network]) / rounds,
        network_j=sum(energies[network]) / rounds if len(energies[network]) == rounds else None,
        drift=times[network][-1] / times[network][0] - 1,
        time=_shares(network, counts, times),
        energy=None if without else _shares(network, counts, energies),
        energy_reason=without[0] if without else "",
    )


def _groups(counts: Mapping[Configuration, int]) -> dict[str, dict[Configuration, int]]:
    """The operators that are summed up together."""
    return {"conv2d": {c: n for c, n in counts.items() if c.op == "conv2d"}, "all": dict(counts)}


def _shares(
    network: Configuration, counts: Mapping[Configuration, int], values: Mapping[Configuration, list[float]]
) -> dict[str, Share]:
    found = {}
    for name, chosen in _groups(counts).items():
        sums = [sum(values[c][n] * calls for c, calls in chosen.items()) for n in range(len(values[network]))]
        ratios = [part / whole for part, whole in zip(sums, values[network], strict=True)]
        interval = mean_interval(ratios) or (ratios[0], None, None)
        found[name] = Share(sum(sums) / len(sums), interval)
    return found


def to_plain(found: Composition) -> dict[str, Any]:
    """JSON-ready."""

    def shares(some: Mapping[str, Share] | None, unit: str) -> dict[str, Any] | None:
        if some is None:
            return None
        return {
            name: {
                f"sum_{unit}": share.value,
                **dict(zip(("ratio", "ratio_low", "ratio_high"), share.ratio, strict=True)),
            }
            for name, share in some.items()
        }

    return {
        "network": dict(found.network.parameters),
        "conditions": dict(found.network.conditions),
        "rounds": found.rounds,
        "calls": found.calls,
        "network_ns": found.network_ns,
        "network_j": found.network_j,
        "drift": found.drift,
        "time": shares(found.time, "ns"),
        "energy": shares(found.energy, "j"),
        "reason": found.reason,
        "energy_reason": found.energy_reason,
    }


def lines(found: Composition) -> list[str]:
    """For people."""
    if found.time is None:
        return [f"no comparison: {found.reason}"]
    said = [f"{'network, one pass':24} {duration(found.network_ns):>10} {energy_column(found.network_j):>10}"]
    for name, what in (("conv2d", "convolutions"), ("all", "operators")):
        time, joules = found.time[name], found.energy[name] if found.energy else None
        sums = f"{duration(time.value):>10} {energy_column(joules.value if joules else None):>10}"
        ratios = f"time {_ratio(time)}" + (f", energy {_ratio(joules)}" if joules else "")
        said.append(f"{f'sum of {found.calls[name]} {what}':24} {sums}   by the network: {ratios}")
    if found.drift is not None and found.rounds > 1:
        said.append(
            f"the network's own time changed by {found.drift:+.1%} from the first of {found.rounds} rounds to the last"
        )
    if found.energy_reason:
        said.append(f"energy is unavailable: {found.energy_reason}")
    return said


def _ratio(share: Share) -> str:
    ratio, low, high = share.ratio
    return f"{ratio:.2f}" if low is None else f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
