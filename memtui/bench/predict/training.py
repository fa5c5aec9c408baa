"""The rows of a database that a model is fitted to, all of one device and environment."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from memtui.bench.configuration import Configuration, from_text
from memtui.bench.operators import NETWORK
from memtui.bench.predict.estimator import LEAST_GROUPS, LEAST_ROWS, Samples
from memtui.bench.predict.features import Described, describe, group_of
from memtui.bench.result import INTEGRATED, MEASURED
from memtui.bench.store import Database, Environment, StoredRow
from memtui.core.errors import UserError

ALL = "all"  # in place of runs: all of them
FLAGGED = "flagged"
DOUBTFUL = "sensor_disagreement"  # the flag of a row whose energy is known twice, with two values


@dataclass(frozen=True)
class Measured:
    """One measured row.

    Attributes:
        configuration: the measured configuration.
        call_ns: median time of a call.
        energy_j: energy of a call; None if it was not measured.
        energy_source: source and scope of the energy.
        flags: flags of the row.
        device: name of the device, where several are fitted together.
        clock_mhz: clock of a GPU in its windows; None: not known.
        energy_counts: whether models of energy are fitted to it: the source is that of the device's newest row.
    """

    configuration: Configuration
    call_ns: float
    energy_j: float | None
    energy_source: str
    flags: tuple[str, ...]
    device: str = ""
    clock_mhz: float | None = None
    energy_counts: bool = False


@dataclass(frozen=True)
class DeviceEnvironment:
    """Place of measurement: a device and an environment (versions, threads, power limit).

    Attributes:
        device: name of the device.
        kind: ``cpu`` or ``cuda``.
        environment: values by name.
        run: the newest run there.
        configurations: number of configurations measured there, in all runs.
    """

    device: str
    kind: str
    environment: Environment
    run: str
    configurations: int

    @property
    def text(self) -> str:
        environment = ", ".join(f"{key} {value}" for key, value in sorted(self.environment.items()))
        return f"{self.kind} {self.device} ({environment})"


@dataclass(frozen=True)
class Training:
    """Rows that models can be fitted to.

    Attributes:
        place: place of measurement.
        others: other places in the database, newest first.
        rows: one for each configuration.
        energy_source: source and scope of the rows with energy; "" without such rows.
        energy_reason: why energy cannot be modelled; "" where it can.
        left_out: number of left-out rows of the place, by reason.
        networks: rows of whole networks, to which no model is fitted: they are many operators.
        together: further places whose rows are among them.
        device: name of the place, where there are several.
        clock_mhz: clock that predictions are for; None: not known.
    """

    measured_on: DeviceEnvironment
    others: tuple[DeviceEnvironment, ...]
    rows: tuple[Measured, ...]
    energy_source: str
    energy_reason: str
    left_out: dict[str, int]
    networks: tuple[Measured, ...] = ()
    together: tuple[DeviceEnvironment, ...] = ()
    device: str = ""
    clock_mhz: float | None = None

    def describe(self, configuration: Configuration) -> Described:
        """Return a configuration as it would be measured in the place."""
        return describe(configuration, self.device, self.clock_mhz)

    @property
    def flagged(self) -> int:
        """Rows that have a flag."""
        return sum(bool(row.flags) for row in self.rows)

    def time(self) -> Samples:
        """Return samples of the nanoseconds of a call."""
        return _samples(self.rows, [row.call_ns for row in self.rows])

    def energy(self) -> Samples | None:
        """Return samples of the joules of a call, as one source measured them; None with ``energy_reason``."""
        if self.energy_reason:
            return None
        rows = [row for row in self.rows if row.energy_counts]
        return _samples(rows, [row.energy_j or 0.0 for row in rows])

    def power(self) -> Samples | None:
        """Return samples of the watts during a call: its joules by its time; None with ``energy_reason``."""
        if self.energy_reason:
            return None
        rows = [row for row in self.rows if row.energy_counts]
        return _samples(rows, [(row.energy_j or 0.0) / row.call_ns * 1e9 for row in rows])


def load(
    database: Database,
    *,
    operators: Collection[str] = (),
    runs: Sequence[str] = (),
    unflagged: bool = False,
    clock_mhz: float | None = None,
) -> Training:
    """Return the rows of the newest run's device and environment, of all runs there.

    A configuration that was measured several times counts once: with its longest measurement, the newest of these.

    Args:
        database: database with the rows.
        operators: only rows of these operators; of all operators if empty.
        runs: beginnings of runs' names, or ``ALL``: their devices and environments count instead of the newest run's,
            several together. Predictions are for the first one; the newest is first of ``ALL``.
        unflagged: leave out rows with a flag.
        clock_mhz: the clock that predictions are for.

    Raises:
        UserError: the run does not exist, or there are too few rows or shapes.
    """
    finished = (row for row in database.finished() if not operators or row.op in operators)
    environments = _places(finished)
    if not environments:
        what = f" of {', '.join(operators)}" if operators else ""
        raise UserError(f"{database.path} has no finished row{what}; memtui bench conv2d --space predict measures some")
    newest_first = list(reversed(environments))
    named = [_of_run(environments, run, database.path) for run in runs if run != ALL]
    chosen = list(dict.fromkeys([*named, *newest_first] if ALL in runs else named or newest_first[:1]))
    names, clocks = _names([_environment_of(environments[key]) for key in chosen]), database.clocks_mhz()
    rows: list[Measured] = []
    networks: list[Measured] = []
    left_out: Counter[str] = Counter()
    sources: list[tuple[str, str]] = []
    for key, name in zip(chosen, names, strict=True):
        usable, without = _usable(environments[key], unflagged, clocks)
        source, reason = _energy_of(environments[key])
        left_out.update(without)
        sources.append((source, reason))
        for row in usable:
            counts = row.energy_j is not None and row.energy_source == source and DOUBTFUL not in row.flags
            whole = row.configuration.op == NETWORK.name
            (networks if whole else rows).append(replace(row, device=name, energy_counts=counts))
    measured_on = _environment_of(environments[chosen[0]])
    if why := _too_few(rows):
        more = f" ({left_out[FLAGGED]} more are flagged)" if left_out.get(FLAGGED) else ""
        what = f"{database.path}: {measured_on.text}: {why}{more}"
        raise UserError(f"{what}; measure more, or name a run on another device with --from-run")
    source, reason = sources[0]
    return Training(
        measured_on,
        tuple(_environment_of(environments[key]) for key in newest_first if key not in chosen),
        tuple(rows),
        source,
        reason or _too_few([row for row in rows if row.energy_counts]),
        dict(left_out),
        tuple(networks),
        tuple(_environment_of(environments[key]) for key in chosen[1:]),
        names[0],
        clock_mhz or _usual_clock_mhz(row for row in rows if row.device == names[0]),
    )


def _names(environments: Sequence[DeviceEnvironment]) -> list[str]:
    """Return names that tell the places from each other; "" for a single one."""
    if len(environments) == 1:
        return [""]
    names = [measured_on.device for measured_on in environments]
    return names if len(set(names)) == len(names) else [measured_on.text for measured_on in environments]


def _usual_clock_mhz(rows: Iterable[Measured]) -> float | None:
    """Return the median clock of the rows; None where none is known."""
    clocks = [row.clock_mhz for row in rows if row.clock_mhz is not None]
    return float(np.median(clocks)) if clocks else None


def _places(rows: Iterable[StoredRow]) -> dict[tuple[int, int], list[StoredRow]]:
    """Return the rows by (device, environment), the place of the newest row last. ``rows``: oldest first."""
    environments: dict[tuple[int, int], list[StoredRow]] = {}
    for row in rows:
        key = row.device, row.environment
        environments[key] = environments.pop(key, [])
        environments[key].append(row)
    return environments


def _of_run(environments: Mapping[tuple[int, int], list[StoredRow]], run: str, path: Path) -> tuple[int, int]:
    keys = [key for key, rows in environments.items() if any(row.run.startswith(run) for row in rows)]
    if len(keys) != 1:
        runs = ", ".join(_environment_of(rows).run for rows in environments.values())
        what = "several runs whose names begin" if keys else "no run whose name begins"
        raise UserError(f"{path} has {what} with {run}; the newest of each device and versions: {runs}")
    return keys[0]


def _environment_of(rows: Sequence[StoredRow]) -> DeviceEnvironment:
    """Describe the place of rows of one place, oldest first."""
    newest, configurations = rows[-1], {row.configuration for row in rows}
    environment = json.loads(newest.environment_text)
    return DeviceEnvironment(newest.device_name, newest.device_kind, environment, newest.run, len(configurations))


def _usable(
    rows: Iterable[StoredRow], unflagged: bool, clocks_mhz: Mapping[int, float]
) -> tuple[tuple[Measured, ...], dict[str, int]]:
    """Return one row of each configuration, and how many rows were left out, by reason."""
    longest: dict[str, StoredRow] = {}
    left_out: Counter[str] = Counter()
    for row in rows:  # oldest first
        before = longest.get(row.configuration)
        if before is not None:
            left_out["measured again"] += 1
        if before is None or _measured_s(row) >= _measured_s(before):
            longest[row.configuration] = row
    usable = []
    for row in longest.values():
        try:
            configuration = from_text(row.text)
        except ValueError:
            left_out["of a configuration that this memtui does not know"] += 1
            continue
        if row.call_ns is None or not row.call_ns > 0:
            left_out["without a time"] += 1
        elif row.flags and unflagged:
            left_out[FLAGGED] += 1
        else:
            energy_j = row.energy_j if _is_energy(row) else None
            clock_mhz = clocks_mhz.get(row.id)
            usable.append(Measured(configuration, row.call_ns, energy_j, _source(row), row.flags, clock_mhz=clock_mhz))
    usual_mhz = _usual_clock_mhz(usable)  # rows without a clock are taken to have it
    return tuple(replace(row, clock_mhz=row.clock_mhz or usual_mhz) for row in usable), dict(left_out)


def _measured_s(row: StoredRow) -> float:
    return row.windows * row.seconds


def _is_energy(row: StoredRow) -> bool:
    return row.energy_status in (MEASURED, INTEGRATED) and (row.energy_j or 0) > 0


def _source(row: StoredRow) -> str:
    return f"{row.energy_source} {row.energy_scope}".strip()


def _energy_of(measured: Sequence[StoredRow]) -> tuple[str, str]:
    """Return (source of the energy, why there is none). ``measured``: rows of the database, oldest first.

    Counters of a package and of a board have different scopes: one source of a device counts.
    """
    newest = next((row for row in reversed(measured) if _is_energy(row)), None)
    if newest is None:
        return "", f"it was not measured: {measured[-1].energy_reason or 'no reason was kept'}"
    return _source(newest), ""


def _too_few(rows: Sequence[Measured]) -> str:
    """Return why a model cannot be fitted to the rows; "" if it can."""
    groups = len({group_of(row.configuration) for row in rows})
    if len(rows) < LEAST_ROWS:
        return f"{len(rows)} usable rows are too few for a model, which needs {LEAST_ROWS}"
    if groups < LEAST_GROUPS:
        return f"rows of {groups} shapes are too few for a model, which needs {LEAST_GROUPS}"
    return ""


def described(row: Measured) -> Described:
    """Return a measured row as a model sees it."""
    return describe(row.configuration, row.device, row.clock_mhz)


def _samples(rows: Sequence[Measured], costs: Sequence[float]) -> Samples:
    return Samples(
        tuple(described(row) for row in rows),
        np.log(np.array(costs, np.float64)),
        tuple(group_of(row.configuration) for row in rows),
        np.array([bool(row.flags) for row in rows]),
    )
