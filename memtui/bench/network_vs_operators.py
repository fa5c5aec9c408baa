"""A network against the sum of its operators: the cost of each operator by itself, times its number of calls.

Both are measured in the same rounds, one window each, because a machine drifts: an hour between them would be the
largest part of the difference. In a network an operator's input was just written by the one before, so the parts are
measured with warm inputs by default.

A quick run measures the heaviest operators first, and may end before it has measured all. Operators that it did not
measure are in no sum, and are reported with their share of the multiplications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memtui.analysis.robust_mean import mean_interval
from memtui.bench.configuration import Configuration
from memtui.bench.decomposition.result import Decomposition, flops
from memtui.bench.result import BenchRow
from memtui.core.json_fields import fields_to_json, to_json
from memtui.core.units import duration_ns as duration
from memtui.core.units import energy_column, percent

BYTE = 5  # operations of a CPU in the time in which it moves a byte, for the order of a quick run only


@dataclass(frozen=True)
class Share:
    """Sum over some of the operators, and its ratio to the network.

    Attributes:
        value: sum over the operators, nanoseconds or joules; mean over rounds.
        ratio: by the network, (mean, low, high) over rounds; low and high are None for one round.
    """

    value: float
    ratio: tuple[float, float | None, float | None]


@dataclass(frozen=True)
class KindCost:
    """The cost of all operators of one name in a pass of the network.

    Attributes:
        op: name of the operators.
        calls: number of their calls.
        ns: time of these calls, mean over rounds.
        joules: energy of these calls, mean over rounds; None where it is not known of all.
    """

    op: str
    calls: int
    ns: float
    joules: float | None


@dataclass(frozen=True)
class Covered:
    """Coverage of a sum.

    Attributes:
        operators: number of different operators that were measured.
        of_operators: number of all different operators.
        calls: calls of the measured operators in a pass of the network.
        of_calls: calls of all operators.
        macs: multiplications with an addition, of the measured operators in a pass.
        of_macs: multiplications with an addition, of all operators.
    """

    operators: int
    of_operators: int
    calls: int
    of_calls: int
    macs: int
    of_macs: int

    @property
    def whole(self) -> bool:
        return self.operators == self.of_operators

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready object, with the share of the multiplications."""
        return {**fields_to_json(self), "macs_share": self.macs / self.of_macs if self.of_macs else None}


@dataclass(frozen=True)
class Composition:
    """Time and energy of the network and of its parts. None where a part was not measured, with ``reason``.

    Attributes:
        network: the network as one operator.
        rounds: number of rounds, in each of which everything was measured once.
        calls: of operators in one pass of the network, ``conv2d`` and ``all``; so are ``time`` and ``energy``.
        network_ns: mean over rounds.
        network_j: mean over rounds.
        drift: change of the network's time from the first round to the last; None with one round.
        time: sums of the operators.
        energy: sums of the operators.
        reason: why there is no comparison.
        energy_reason: why energies are not compared.
        covered: coverage of the sums.
        decomposition: how the network was taken apart; None for one whose operators are known.
        kinds: measured operators by name, the most expensive first.
    """

    network: Configuration
    rounds: int
    calls: Mapping[str, int]
    covered: Mapping[str, Covered]
    network_ns: float | None = None
    network_j: float | None = None
    drift: float | None = None
    time: Mapping[str, Share] | None = None
    energy: Mapping[str, Share] | None = None
    reason: str = ""
    energy_reason: str = ""
    decomposition: Decomposition | None = None
    kinds: Sequence[KindCost] = ()


def macs(counts: Mapping[Configuration, int]) -> int:
    """Return the multiply-accumulates in a pass, of its convolutions and products of matrices, as commonly counted."""
    return flops(counts) // 2


def by_weight(counts: Mapping[Configuration, int]) -> list[Configuration]:
    """Return the operators by their likely share of a pass, largest first: calls times the work of a call."""

    def weight(configuration: Configuration) -> int:
        return counts[configuration] * (configuration.flops + BYTE * (configuration.moved_bytes or 0))

    return sorted(counts, key=weight, reverse=True)


def compose(
    network: Configuration,
    counts: Mapping[Configuration, int],
    rows: Sequence[BenchRow],
    *,
    partial: bool = False,
    decomposition: Decomposition | None = None,
) -> Composition:
    """Compare the network with its operators.

    Args:
        network: the network as one operator.
        counts: its operators, and how often one pass calls each.
        rows: rows of all configurations, in the order of time; as many of each as there were rounds.
        partial: operators may be missing, but not the network.
        decomposition: how the network was taken apart.
    """
    composition = _composed(network, counts, rows, partial)
    return replace(composition, decomposition=decomposition)


def _composed(
    network: Configuration, counts: Mapping[Configuration, int], rows: Sequence[BenchRow], partial: bool
) -> Composition:
    by_configuration: dict[Configuration, list[BenchRow]] = {}
    for row in rows:
        by_configuration.setdefault(row.configuration, []).append(row)
    rounds = len(by_configuration.get(network, []))
    calls = {name: sum(some.values()) for name, some in _groups(counts).items()}
    measured = {c: n for c, n in counts.items() if rounds and len(by_configuration.get(c, [])) == rounds}
    covered = _covered(measured, counts)
    if lost := [row for row in rows if row.status != "ok"]:
        return Composition(network, rounds, calls, covered, reason=f"{lost[0].configuration.op}: {lost[0].reason}")
    if not measured or (len(measured) < len(counts) and not partial):
        return Composition(network, rounds, calls, covered, reason="not everything was measured equally often")
    wanted, counts = (network, *measured), measured
    rows = [row for c in wanted for row in by_configuration[c]]
    # A pass of the network is longer than a quiet moment; so all blocks of its parts count, too.
    times = {c: [row.median_ns or 0.0 for row in by_configuration[c]] for c in wanted}
    energies = {c: [row.energy_j for row in by_configuration[c] if row.energy_j is not None] for c in wanted}
    without = [row.energy_reason for row in rows if row.energy_j is None]
    return Composition(
        network,
        rounds,
        calls,
        covered,
        network_ns=sum(times[network]) / rounds,
        network_j=sum(energies[network]) / rounds if len(energies[network]) == rounds else None,
        drift=times[network][-1] / times[network][0] - 1 if rounds > 1 else None,
        time=_shares(network, counts, times),
        energy=None if without else _shares(network, counts, energies),
        energy_reason=without[0] if without else "",
        kinds=_kinds(counts, times, None if without else energies, rounds),
    )


def _kinds(
    counts: Mapping[Configuration, int],
    times: Mapping[Configuration, list[float]],
    energies: Mapping[Configuration, list[float]] | None,
    rounds: int,
) -> list[KindCost]:
    by_op: dict[str, list[Configuration]] = {}
    for configuration in counts:
        by_op.setdefault(configuration.op, []).append(configuration)

    def total(values: Mapping[Configuration, list[float]], some: Sequence[Configuration]) -> float:
        return sum(sum(values[c]) * counts[c] for c in some) / rounds

    kinds = [
        KindCost(
            op,
            sum(counts[c] for c in some),
            total(times, some),
            None if energies is None else total(energies, some),
        )
        for op, some in by_op.items()
    ]
    return sorted(kinds, key=lambda kind: kind.ns, reverse=True)


def _groups(counts: Mapping[Configuration, int]) -> dict[str, dict[Configuration, int]]:
    """Return the operators that are summed up together."""
    return {"conv2d": {c: n for c, n in counts.items() if c.op == "conv2d"}, "all": dict(counts)}


def _covered(measured: Mapping[Configuration, int], counts: Mapping[Configuration, int]) -> dict[str, Covered]:
    some, every = _groups(measured), _groups(counts)
    return {
        name: Covered(
            len(some[name]),
            len(every[name]),
            sum(some[name].values()),
            sum(every[name].values()),
            macs(some[name]),
            macs(every[name]),
        )
        for name in every
    }


def _shares(
    network: Configuration, counts: Mapping[Configuration, int], values: Mapping[Configuration, list[float]]
) -> dict[str, Share]:
    shares = {}
    for name, chosen in _groups(counts).items():
        if not chosen:
            continue
        sums = [sum(values[c][n] * calls for c, calls in chosen.items()) for n in range(len(values[network]))]
        ratios = [part / whole for part, whole in zip(sums, values[network], strict=True)]
        interval = mean_interval(ratios) or (ratios[0], None, None)
        shares[name] = Share(sum(sums) / len(sums), interval)
    return shares


def to_dict(composition: Composition) -> dict[str, Any]:
    """Return a JSON-ready object."""

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
        "network": dict(composition.network.parameters),
        "parameters": composition.network.operator.weight_count(composition.network.parameters),
        "convolutions": composition.calls["conv2d"],
        "macs": composition.covered["all"].of_macs,
        "conditions": dict(composition.network.conditions),
        "rounds": composition.rounds,
        "calls": composition.calls,
        "covered": to_json(composition.covered),
        "network_ns": composition.network_ns,
        "network_j": composition.network_j,
        "drift": composition.drift,
        "time": shares(composition.time, "ns"),
        "energy": shares(composition.energy, "j"),
        "reason": composition.reason,
        "energy_reason": composition.energy_reason,
        **({"coverage": composition.decomposition.coverage()} if composition.decomposition else {}),
    }


def lines(composition: Composition) -> list[str]:
    """Return the lines for people."""
    apart = composition.decomposition.lines() if composition.decomposition else []
    if composition.time is None:
        return [*apart, f"no comparison: {composition.reason}"]
    calls, all_macs = composition.calls["conv2d"], composition.covered["all"].of_macs
    weights = composition.network.operator.weight_count(composition.network.parameters)
    text = [
        *apart,
        f"{composition.network.title}: {weights:,} parameters, {calls} convolutions, "
        f"{all_macs / 1e9:.2f} G MACs a pass",
        f"{'network, one pass':34} {duration(composition.network_ns):>10} {energy_column(composition.network_j):>10}",
    ]
    for name, what in (("conv2d", "convolutions"), ("all", "operators")):
        if name not in composition.time:
            if composition.calls[name]:
                text.append(f"no {what} were measured")
            continue
        covered = composition.covered[name]
        time, joules = composition.time[name], composition.energy[name] if composition.energy else None
        sums = f"{duration(time.value):>10} {energy_column(joules.value if joules else None):>10}"
        ratios = f"time {_ratio(time)}" + (f", energy {_ratio(joules)}" if joules else "")
        some = f"{covered.calls} of {covered.of_calls}" if not covered.whole else f"{covered.calls}"
        text.append(f"{f'sum of {some} {what}':34} {sums}   by the network: {ratios}")
    text += _missing(composition.covered["all"])
    if composition.drift is not None and composition.rounds > 1:
        text.append(
            f"the network's own time changed by {composition.drift:+.1%} "
            f"from the first of {composition.rounds} rounds to the last"
        )
    if composition.energy_reason:
        text.append(f"energy is unavailable: {composition.energy_reason}")
    return text


def _missing(covered: Covered) -> list[str]:
    """Return the line about operators that are in no sum; nothing if there are none."""
    if covered.whole:
        return []
    share = f" with {percent(1 - covered.macs / covered.of_macs)} of the MACs" if covered.of_macs else ""
    return [
        f"not measured: {covered.of_operators - covered.operators} of {covered.of_operators} operators "
        f"({covered.of_calls - covered.calls} calls){share}; the sums are without them (all: without --quick)"
    ]


def _ratio(share: Share) -> str:
    ratio, low, high = share.ratio
    return f"{ratio:.2f}" if low is None else f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
