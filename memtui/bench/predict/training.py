"""The rows of a database that a model is fitted to, all of one device and environment."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memtui.bench.configuration import Configuration, from_text
from memtui.bench.operators import NETWORK
from memtui.bench.predict.estimator import LEAST_GROUPS, LEAST_ROWS, Samples
from memtui.bench.predict.features import describe, group_of
from memtui.bench.result import INTEGRATED, MEASURED
from memtui.bench.store import Database, Environment, StoredRow
from memtui.core.errors import UserError

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
    """

    configuration: Configuration
    call_ns: float
    energy_j: float | None
    energy_source: str
    flags: tuple[str, ...]


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
    """

    place: DeviceEnvironment
    others: tuple[DeviceEnvironment, ...]
    rows: tuple[Measured, ...]
    energy_source: str
    energy_reason: str
    left_out: dict[str, int]
    networks: tuple[Measured, ...] = ()

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
        rows = _with_energy(self.rows, self.energy_source)
        return _samples(rows, [row.energy_j or 0.0 for row in rows])

    def power(self) -> Samples | None:
        """Return samples of the watts during a call: its joules by its time; None with ``energy_reason``."""
        if self.energy_reason:
            return None
        rows = _with_energy(self.rows, self.energy_source)
        return _samples(rows, [(row.energy_j or 0.0) / row.call_ns * 1e9 for row in rows])


def load(
    database: Database, *, operators: Collection[str] = (), run: str | None = None, unflagged: bool = False
) -> Training:
    """Return the rows of the newest run's device and environment, of all runs there.

    A configuration that was measured several times counts once: with its longest measurement, the newest of these.

    Args:
        database: database with the rows.
        operators: only rows of these operators; of all operators if empty.
        run: prefix of a run's name; its device and environment count instead of the newest run's.
        unflagged: leave out rows with a flag.

    Raises:
        UserError: the run does not exist, or there are too few rows or shapes.
    """
    finished = (row for row in database.finished() if not operators or row.op in operators)
    places = _places(finished)
    if not places:
        what = f" of {', '.join(operators)}" if operators else ""
        raise UserError(f"{database.path} has no finished row{what}; memtui bench conv2d --space predict measures some")
    chosen = next(reversed(places)) if run is None else _of_run(places, run, database.path)
    every, left_out = _usable(places[chosen], unflagged)
    rows, networks = (
        tuple(r for r in every if (r.configuration.op == NETWORK.name) == whole) for whole in (False, True)
    )
    place = _place(places[chosen])
    if why := _too_few(rows):
        more = f" ({left_out[FLAGGED]} more are flagged)" if left_out.get(FLAGGED) else ""
        what = f"{database.path}: {place.text}: {why}{more}"
        raise UserError(f"{what}; measure more, or name a run on another device with --from-run")
    source, reason = _energy_of(places[chosen], rows)
    others = tuple(_place(some) for key, some in reversed(places.items()) if key != chosen)
    return Training(place, others, rows, source, reason, left_out, networks)


def _places(rows: Iterable[StoredRow]) -> dict[tuple[int, int], list[StoredRow]]:
    """Return the rows by (device, environment), the place of the newest row last. ``rows``: oldest first."""
    places: dict[tuple[int, int], list[StoredRow]] = {}
    for row in rows:
        key = row.device, row.environment
        places[key] = places.pop(key, [])
        places[key].append(row)
    return places


def _of_run(places: Mapping[tuple[int, int], list[StoredRow]], run: str, path: Path) -> tuple[int, int]:
    keys = [key for key, rows in places.items() if any(row.run.startswith(run) for row in rows)]
    if len(keys) != 1:
        runs = ", ".join(_place(rows).run for rows in places.values())
        what = "several runs whose names begin" if keys else "no run whose name begins"
        raise UserError(f"{path} has {what} with {run}; the newest of each device and versions: {runs}")
    return keys[0]


def _place(rows: Sequence[StoredRow]) -> DeviceEnvironment:
    """Describe the place of rows of one place, oldest first."""
    newest, configurations = rows[-1], {row.configuration for row in rows}
    environment = json.loads(newest.environment_text)
    return DeviceEnvironment(newest.device_name, newest.device_kind, environment, newest.run, len(configurations))


def _usable(rows: Iterable[StoredRow], unflagged: bool) -> tuple[tuple[Measured, ...], dict[str, int]]:
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
            usable.append(Measured(configuration, row.call_ns, energy_j, _source(row), row.flags))
    return tuple(usable), dict(left_out)


def _measured_s(row: StoredRow) -> float:
    return row.windows * row.seconds


def _is_energy(row: StoredRow) -> bool:
    return row.energy_status in (MEASURED, INTEGRATED) and (row.energy_j or 0) > 0


def _source(row: StoredRow) -> str:
    return f"{row.energy_source} {row.energy_scope}".strip()


def _with_energy(rows: Iterable[Measured], source: str) -> list[Measured]:
    """Return the rows that one source measured: counters of a package and of a board have different scopes."""
    return [r for r in rows if r.energy_j is not None and r.energy_source == source and DOUBTFUL not in r.flags]


def _energy_of(measured: Sequence[StoredRow], rows: Iterable[Measured]) -> tuple[str, str]:
    """Return (source of the energy, why it cannot be modelled). ``measured``: rows of the database, oldest first."""
    newest = next((row for row in reversed(measured) if _is_energy(row)), None)
    if newest is None:
        return "", f"it was not measured: {measured[-1].energy_reason or 'no reason was kept'}"
    return _source(newest), _too_few(_with_energy(rows, _source(newest)))


def _too_few(rows: Sequence[Measured]) -> str:
    """Return why a model cannot be fitted to the rows; "" if it can."""
    groups = len({group_of(row.configuration) for row in rows})
    if len(rows) < LEAST_ROWS:
        return f"{len(rows)} usable rows are too few for a model, which needs {LEAST_ROWS}"
    if groups < LEAST_GROUPS:
        return f"rows of {groups} shapes are too few for a model, which needs {LEAST_GROUPS}"
    return ""


def _samples(rows: Sequence[Measured], costs: Sequence[float]) -> Samples:
    return Samples(
        tuple(describe(row.configuration) for row in rows),
        np.log(np.array(costs, np.float64)),
        tuple(group_of(row.configuration) for row in rows),
        np.array([bool(row.flags) for row in rows]),
    )
