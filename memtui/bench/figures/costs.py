"""Time, power and energy of a call by configuration, as charts and as a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from memtui.bench.configuration import Configuration, Titles, from_text
from memtui.bench.store import Database
from memtui.bench.text import FLAGS, NONE
from memtui.core.units import duration_ns, energy, power
from memtui.reports.charts.model import Bar, BarAxis, BarChart, BarRow
from memtui.reports.html import Cell
from memtui.session.validation import parse_json

Row = TypeVar("Row")
ROWS = 60  # of a figure: more are divided
TIME, POWER, ENERGY = BarAxis("time of a call", "s"), BarAxis("power", "W"), BarAxis("energy of a call", "J")


@dataclass(frozen=True, slots=True)
class Cost:
    """The newest measurement of a configuration on a device. Names and units are those of the table ``measurement``.

    Attributes:
        configuration: the measured configuration.
        columns: columns of its row.
        measured_on: the device, and what the calls ran in.
    """

    configuration: Configuration
    columns: Mapping[str, Any]
    measured_on: str

    @property
    def flags(self) -> list[str]:
        return str(self.columns["flags"]).split()

    @property
    def reason(self) -> str:
        """Why there is no time; empty where there is one."""
        failed = self.columns["status"] != "ok" or self.columns["call_ns"] is None
        return str(self.columns["reason"] or "it was not measured") if failed else ""


def read(
    database: Database, *, ops: Collection[str] = (), wanted: Collection[Configuration] | None = None
) -> tuple[list[Cost], int]:
    """Return the newest row of each configuration, and the number of rows that another version of memtui wrote.

    Args:
        database: the measurements.
        ops: operators; () for all.
        wanted: configurations, all on the device of the newest row among them; None for all, on every device.
    """
    newest: dict[tuple[str, str], Cost] = {}
    keys = None if wanted is None else {configuration.key for configuration in wanted}
    unknown = 0
    for row in database.rows():
        if (ops and row["op"] not in ops) or (keys is not None and row["configuration"] not in keys):
            continue
        try:
            configuration = from_text(row["text"])
        except ValueError:
            unknown += 1
            continue
        measured_on = _environment_of(row)
        key = measured_on, row["configuration"]
        if key in newest and not newest[key].reason and row["status"] != "ok":
            continue  # a failure does not undo what was measured
        newest.pop(key, None)
        newest[key] = Cost(configuration, row, measured_on)
    costs = sorted(newest.values(), key=_order) if wanted is None else list(newest.values())
    if wanted is not None and costs:
        of_environment = {cost.configuration: cost for cost in costs if cost.measured_on == costs[-1].measured_on}
        costs = [of_environment[configuration] for configuration in wanted if configuration in of_environment]
    return costs, unknown


def _order(cost: Cost) -> tuple[Any, ...]:
    """Return the position of a measurement: by device, operator, and the values of its configuration."""
    configuration = cost.configuration
    values = [*configuration.parameters.items(), *configuration.conditions.items()]
    return cost.measured_on, configuration.op, [(key, isinstance(value, str), value) for key, value in values]


def _environment_of(row: Mapping[str, Any]) -> str:
    environment = parse_json(row["environment_text"])
    named = ", ".join(f"{key} {environment[key]}" for key in ("torch", "threads") if key in environment)
    return f"{row['device_kind']} {row['device_name']}" + (f" ({named})" if named else "")


def charts(costs: Sequence[Cost]) -> list[BarChart]:
    """Return the charts of each device and operator, at most ``ROWS`` configurations in each."""
    groups: dict[tuple[str, str], list[Cost]] = {}
    for cost in costs:
        groups.setdefault((cost.measured_on, cost.configuration.op), []).append(cost)
    places = list(dict.fromkeys(measured_on for measured_on, _ in groups))
    result = []
    for (measured_on, op), some in groups.items():
        name = f"costs-{op}" if len(places) == 1 else f"costs-{op}-device-{places.index(measured_on) + 1}"
        titles = Titles([cost.configuration for cost in some])
        result += [
            _chart(part_name, title, measured_on, rows, titles)
            for part_name, title, rows in divided(name, f"What {op} costs", some)
        ]
    return result


def divided(name: str, title: str, rows: Sequence[Row]) -> Iterator[tuple[str, str, Sequence[Row]]]:
    """Yield name, title and rows of each of the charts that rows are divided into, at most ``ROWS`` in each."""
    parts = math.ceil(len(rows) / ROWS)
    if parts <= 1:
        yield name, title, rows
        return
    size = math.ceil(len(rows) / parts)
    for part in range(parts):
        of_part = rows[part * size : (part + 1) * size]
        yield f"{name}-{part + 1}-of-{parts}", f"{title}, part {part + 1} of {parts}", of_part


def _chart(name: str, title: str, measured_on: str, costs: Sequence[Cost], titles: Titles) -> BarChart:
    measured = [cost for cost in costs if not cost.reason]
    axes = [TIME]
    if any(cost.columns["power_w"] is not None for cost in measured):
        axes.append(POWER)
    if any(_joules(cost.columns) is not None for cost in measured):
        axes.append(ENERGY)
    op = costs[0].configuration.op
    rows = []
    for cost in costs:
        label = titles.of(cost.configuration).removeprefix(op).strip() or cost.configuration.label() or op
        flagged = " *" if cost.flags and not cost.reason else ""
        rows.append(BarRow(label + flagged, () if cost.reason else _bars(cost.columns, axes), cost.reason))
    subtitle = [f"measured on {measured_on}"] + ([f"all: {titles.common}"] if titles.common else [])
    return BarChart(name, title, subtitle, "configuration", axes, rows, _notes(measured, axes))


def _bars(columns: Mapping[str, Any], axes: Sequence[BarAxis]) -> tuple[Bar, ...]:
    bars = {
        TIME: Bar(
            columns["call_ns"] / 1e9,
            duration_ns(columns["call_ns"]),
            _seconds(columns["low_ns"]),
            _seconds(columns["high_ns"]),
        ),
        POWER: Bar(columns["power_w"], power(columns["power_w"])),
        ENERGY: _energy_bar(columns),
    }
    return tuple(bars[axis] for axis in axes)


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9


def _energy_bar(columns: Mapping[str, Any]) -> Bar:
    if columns["energy_j"] is None and columns["estimate_j"] is not None:
        return Bar(columns["estimate_j"], f"~{energy(columns['estimate_j'])}")
    return Bar(columns["energy_j"], energy(columns["energy_j"]), columns["energy_low_j"], columns["energy_high_j"])


def _joules(columns: Mapping[str, Any]) -> float | None:
    joules: float | None = columns["estimate_j"] if columns["energy_j"] is None else columns["energy_j"]
    return joules


def _notes(costs: Sequence[Cost], axes: Sequence[BarAxis]) -> list[str]:
    """Return what the bars are, and why others are absent."""
    notes = []
    if costs:
        notes.append("time: median of the quiet blocks of calls; the thin line is its 95 % interval over windows")
    sources = {
        f"{cost.columns['energy_source']} ({cost.columns['energy_scope']})"
        for cost in costs
        if cost.columns["energy_j"] is not None
    }
    if sources:
        notes.append(f"energy and power: of {', '.join(sorted(sources))}")
    reasons = Counter(
        str(cost.columns["energy_reason"] or "no reason was given")
        for cost in costs
        if cost.columns["energy_j"] is None
    )
    for reason, count in reasons.most_common():
        of_all = "" if count == len(costs) else f" in {count} of {len(costs)} rows"
        what = "energy" if POWER in axes else "power and energy"
        notes.append(f"{what}: {NONE}{of_all}: {reason}")
    if any(cost.columns["energy_j"] is None and cost.columns["estimate_j"] is not None for cost in costs):
        notes.append("~ is an estimate: the watts that were assumed, times the time; it is not a measurement")
    flags = Counter(flag for cost in costs for flag in cost.flags)
    notes += [f"* {flag} ({count}): {FLAGS.get(flag, 'of another version')}" for flag, count in flags.most_common()]
    return notes


def table(costs: Sequence[Cost]) -> tuple[tuple[str, ...], list[list[Cell]]]:
    """Return heads and rows of all measurements."""
    heads = ("configuration", "time#", "from#", "to#", "power#", "energy of a call#", "flags", "reason", "measured on")
    return heads, [_cells(cost) for cost in costs]


def _cells(cost: Cost) -> list[Cell]:
    columns = cost.columns
    joules = NONE if cost.reason else _energy_bar(columns).text
    return [
        cost.configuration.title,
        *((duration_ns(columns[key]), columns[key]) for key in ("call_ns", "low_ns", "high_ns")),
        (power(columns["power_w"]), columns["power_w"]),
        (joules, _joules(columns)),
        ", ".join(cost.flags),
        cost.reason or ("" if columns["energy_j"] is not None else str(columns["energy_reason"])),
        cost.measured_on,
    ]
