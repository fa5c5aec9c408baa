"""Measure a list of configurations on one device, and store one row after another in the database."""

from __future__ import annotations

import os
import platform
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memtui.bench.configuration import Configuration
from memtui.bench.cpu_speed import References
from memtui.bench.messages import Done, Failed, Ready
from memtui.bench.plan import MS, BenchPlan
from memtui.bench.poller import Poller
from memtui.bench.result import DISTURBED, BenchRow, Conditions, DeviceState, Series, Visit, evaluate, failed, joined
from memtui.bench.store import Database, Environment
from memtui.bench.worker_client import WorkerProcess
from memtui.core.errors import FAILURE, UserError
from memtui.core.file_lock import exclusively
from memtui.core.processes import WorkerEnded
from memtui.probes.power.energy_source import SPOILING, EnergySource, NoSource, lock_path, open_source

IDLE_S = 3.0  # of idle time, to measure the idle power
REFERENCE_EVERY = 20  # rows
VISITED_IN_TURN = 8  # configurations; a killed sweep loses the visits of at most this many unfinished rows
POWER_EVERY_S = 0.5
DRIFT = 0.02  # of the reference: a larger drift is reported
SILENT_S = 60.0  # beyond the longest time of a phase: the worker hangs


@dataclass(frozen=True)
class SweepProgress:
    """Progress of a sweep, for a printer or a screen.

    Attributes:
        phase: ``start``, ``idle``, ``data``, ``warm-up``, ``window`` or ``done``.
        number: number of the row, from 1.
        of: number of rows to measure now.
        skipped: number of configurations that were measured before.
        configuration: the configuration being measured.
        window: number of the window, from 1; 0 outside of windows.
        windows: least number of windows.
        visit: number of the visit to a configuration with several visits, from 1; 0 for others.
        visits: number of its visits.
        left_s: estimated seconds until the end.
        notice: a message for the user.
        row: the row that was just finished.
        power_w: mean of the last second; None: not known.
        source: source of the power; without a source, why there is none.
        sensor_w: last reading of the power sensor; None without a sensor.
        sensor: whether that is the present draw (``instant``) or a mean of the device (``average``).
        t_ns: time of these two readings; 0: never.
    """

    phase: str
    number: int = 0
    of: int = 0
    skipped: int = 0
    configuration: Configuration | None = None
    window: int = 0
    windows: int = 0
    visit: int = 0
    visits: int = 0
    left_s: float | None = None
    notice: str = ""
    row: BenchRow | None = None
    power_w: float | None = None
    source: str = ""
    sensor_w: float | None = None
    sensor: str = ""
    t_ns: int = 0


OnProgress = Callable[[SweepProgress], None]


@dataclass(frozen=True)
class Request:
    """The user's request."""

    configurations: Sequence[Configuration]
    plan: BenchPlan
    device: str = "cpu"
    threads: int = 0
    assumed_w: float | None = None
    again: bool = False  # also configurations that were measured before
    rounds: int = 1  # through all of them; more than one to compare them on a machine that drifts
    lengths_s: tuple[float, ...] = ()  # of windows, all of which are tried, in place of the plan's
    budget_s: float | None = None  # rows that would end later are not started, and configurations keep their order


class Sweep:
    """A sweep. Use as a context manager; the processes and threads that it starts end with it."""

    def __init__(
        self,
        request: Request,
        database: Database,
        report: OnProgress,
        source: EnergySource | NoSource | None = None,
        references: References | None = None,
    ) -> None:
        """Take the request, the database, and a receiver of the progress.

        Args:
            request: the user's request.
            database: stores the rows.
            report: called with every change of the progress.
            source: of energy, or why there is none, as opened while this process was root; None: it is opened here.
            references: reference speeds of CPUs from earlier sweeps; None: this sweep measures its own.
        """
        self._references = references or References(None)
        self._request, self._database, self._report, self._given_source = request, database, report, source
        self._stack = ExitStack()
        self._worker: WorkerProcess | None = None
        self._poller: Poller | None = None
        self._source: EnergySource | None = None
        self._no_energy = ""
        self._now = SweepProgress("start")
        self._first_reference_ns: float | None = None
        self._power_shown = self._ends_s = 0.0

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self._worker is not None:
            self._worker.close()

    def run(self) -> list[BenchRow]:
        """Measure the configurations that are not in the database yet; return the rows.

        Raises:
            UserError: the device does not exist, or another sweep measures it.
        """
        request_s = time.monotonic()
        worker = self._opened()
        device = self._database.device(self._kind, worker.device.name, worker.device.uuid)
        environment = self._database.environment(self._environment(worker.device))
        done = set() if self._request.again else self._database.done(device, environment, self._request.plan)
        wanted = [c for c in self._request.configurations if c.key not in done]
        of = len(wanted) * self._request.rounds * (len(self._request.lengths_s) or 1)
        self._show(of=of, skipped=len(self._request.configurations) - len(wanted))
        if not wanted:
            return []
        plan = self._planned()
        lengths_s, budget_s = self._request.lengths_s or (plan.seconds,), self._request.budget_s
        run = self._database.start_run(self._request.plan, *self._idle())
        rows: list[BenchRow] = []
        entries = [
            (*entry, length_s)
            for length_s in random.Random(plan.seed).sample(lengths_s, len(lengths_s))
            for entry in self._entries(wanted)
        ]
        start_s = time.monotonic()
        visits = [1 if reference else plan.visits for _, reference, _ in entries]
        seen: dict[int, list[Visit]] = {}  # of the unfinished entries
        finished: set[int] = set()
        for number, entry in enumerate(turns := _in_turn(visits), 1):
            if entry in finished:  # an earlier visit failed
                continue
            now_s = time.monotonic()
            each_s = (now_s - start_s) / (number - 1) if number > 1 else 0.0
            if budget_s is not None and number > 1 and now_s - request_s + each_s > budget_s:
                self._show(notice=f"{len(entries) - len(finished)} of {len(entries)} have no room in {budget_s:.0f} s")
                break
            configuration, reference, length_s = entries[entry]
            before = seen.setdefault(entry, [])
            measured = self._measure(configuration, replace(plan, seconds=length_s, visits=visits[entry]), before)
            left_s = (len(turns) - number) * (time.monotonic() - start_s) / number
            if budget_s is not None:
                left_s = max(0.0, min(left_s, budget_s - (time.monotonic() - request_s)))
            if measured is None:
                self._show("done", left_s=left_s)
                continue
            del seen[entry]
            finished.add(entry)
            row = replace(measured, reference=reference)
            self._database.add(row, run, device, environment)
            if reference:
                self._see_drift(row)
            else:
                rows.append(row)
            self._show("done", number=len(rows), row=row, left_s=left_s)
        return rows

    def _entries(self, wanted: list[Configuration]) -> list[tuple[Configuration, bool]]:
        if self._request.budget_s is None:
            return _entries(wanted, self._request.rounds, self._request.plan.seed)
        return [(configuration, False) for configuration in wanted] * self._request.rounds

    @property
    def _kind(self) -> str:
        return "cpu" if self._request.device == "cpu" else "cuda"

    def _started(self) -> WorkerProcess:
        try:
            self._worker = WorkerProcess(self._request.device, self._request.threads)
        except WorkerEnded as error:
            hint = "; pip install 'memtui[bench]'" if "No module named" in str(error) else ""
            raise UserError(f"{self._request.device} cannot be measured: {error}{hint}", FAILURE) from None
        return self._worker

    def _opened(self) -> WorkerProcess:
        """Open worker, energy source and lock. A sweep that is refused must not disturb the one that measures."""
        if self._request.device == "cpu":
            self._open_source("")
            self._lock()
            return self._started()
        worker = self._started()  # it knows the GPU's UUID
        self._open_source(worker.device.uuid)
        self._lock()
        return worker

    def _lock(self) -> None:
        trouble = f"{self._request.device} is being measured by {{who}}: wait for its end"
        self._stack.enter_context(exclusively(lock_path(self._source), trouble))

    def _open_source(self, uuid: str) -> None:
        source = self._given_source or find_source(self._request.device, uuid)
        if isinstance(source, NoSource):
            self._no_energy = str(source)
            self._show(notice=f"no energy: {source}", source=self._no_energy)
            return
        self._source = source
        self._show(source=source.name, sensor=source.sensor)
        self._poller = Poller(self._source)
        self._stack.callback(self._poller.close)

    def _planned(self) -> BenchPlan:
        """Return the plan, adapted to the energy source."""
        plan = self._request.plan
        if self._poller is None:
            return plan
        time.sleep(0.5)
        tick = self._poller.tick_ns() or 100 * MS
        return replace(
            plan, power=True, tail_ns=int(1.5 * tick), phase_ns=int(tick), seconds=max(plan.seconds, 20 * tick / 1e9)
        )

    def _idle(self) -> tuple[float | None, str]:
        if self._poller is None:
            return None, self._no_energy
        self._show("idle", left_s=None)
        return self._poller.measure_idle(IDLE_S)

    def _environment(self, device: Ready) -> Environment:
        limit_w = self._source.limit_w if self._source is not None else None
        limits = {} if limit_w is None else {"limit_w": limit_w}
        return {**device.environment(), **limits, "python": platform.python_version(), "kernel": platform.release()}

    def _measure(self, configuration: Configuration, whole: BenchPlan, visits: list[Visit]) -> BenchRow | None:
        """Make the next visit and append it to ``visits``.

        Return the row after the last visit, or when the worker failed; None: the configuration is visited again.
        """
        plan, several = whole.of_visit(len(visits)), whole.visits > 1
        visit, of = (len(visits) + 1, whole.visits) if several else (0, 0)
        self._show("data", configuration=configuration, visit=visit, visits=of)
        worker = self._worker or self._started()
        if self._poller is not None:
            self._poller.forget()
        before, since_wall_ns = _steal(), time.time_ns()
        states: list[DeviceState] = []
        try:
            worker.measure(configuration, plan)
            reply = self._follow(worker, plan, states)
        except WorkerEnded as error:
            worker.close()
            self._worker = None  # the next one gets a new worker
            return failed(configuration, whole, "worker ended", str(error))
        if isinstance(reply, Failed):
            return failed(configuration, whole, reply.why, reply.text)
        series = self._poller.series() if self._poller is not None else Series(reason=self._no_energy)
        conditions = Conditions(
            reply.settled,
            _stolen(before, _steal()),
            self._flags(worker, states, since_wall_ns),
            tuple(states),
            reply.yard_limit_ns,
            self._reference_ns(worker.device, reply.yard_ns),
            reply.launch_share,
        )
        visits.append(Visit(reply.windows, series, conditions, reply.walked_bytes, reply.copies))
        if len(visits) < whole.visits:
            return None
        return evaluate(configuration, whole, joined(visits), assumed_w=self._request.assumed_w)

    def _reference_ns(self, device: Ready, now_ns: float | None) -> float | None:
        """Return the yardstick's time at the reference speed of the CPU; None where it was never measured."""
        parts = (device.name, f"{device.threads} threads", f"torch {device.torch}", device.capability or "")
        return self._references.of(", ".join(parts), now_ns)

    def _follow(self, worker: WorkerProcess, plan: BenchPlan, states: list[DeviceState]) -> Done | Failed:
        """Receive messages until the measurement is done. Raises WorkerEnded, also when the worker falls silent."""
        notified = False
        limit_s = SILENT_S + plan.warm_up_s + plan.seconds * 10
        heard_s = time.monotonic()
        while True:
            reply = worker.receive(0.1)
            if reply is None:
                if (
                    self._poller is not None
                    and not notified
                    and self._now.phase == "warm-up"
                    and self._poller.settled()
                ):
                    worker.settled()
                    notified = True
                self._show_power()
                if time.monotonic() - heard_s > limit_s:
                    raise WorkerEnded(f"it said nothing for {limit_s:.0f} s")
                continue
            heard_s = time.monotonic()
            if isinstance(reply, Done | Failed):
                return reply
            if reply.at == "window" and self._source is not None:
                states.append(self._source.state())
            self._show(reply.at, window=reply.window, windows=reply.windows or plan.windows)

    def _show_power(self) -> None:
        """Show the power twice a second."""
        if self._poller is not None and time.monotonic() - self._power_shown > POWER_EVERY_S:
            self._power_shown = time.monotonic()
            self._show(
                power_w=self._poller.power_w(), sensor_w=self._poller.sensor_w(), t_ns=int(self._power_shown * 1e9)
            )

    def _flags(self, worker: WorkerProcess, states: list[DeviceState], since_wall_ns: int) -> tuple[str, ...]:
        flags = []
        if self._source is not None and self._source.computing(since_wall_ns) - {worker.pid, os.getpid()}:
            flags.append("neighbours")
        if any(SPOILING & set(state.get("held_down", ())) for state in states):
            flags.append("throttled")
        return tuple(flags)

    def _see_drift(self, row: BenchRow) -> None:
        if row.call_ns is None or DISTURBED in row.flags:
            return
        if self._first_reference_ns is None:
            self._first_reference_ns = row.call_ns
            return
        drift = row.call_ns / self._first_reference_ns - 1
        if abs(drift) > DRIFT:
            self._show(notice=f"the reference takes {drift:+.1%} of the time it took at first: the machine drifts")

    def _show(self, phase: str | None = None, **changes: Any) -> None:
        once: dict[str, Any] = {"notice": "", "row": None}
        now_s = time.monotonic()
        if changes.get("left_s") is not None:
            self._ends_s = now_s + changes["left_s"]
        elif "left_s" not in changes and self._now.left_s is not None:
            once["left_s"] = max(0.0, self._ends_s - now_s)
        self._now = replace(self._now, phase=phase or self._now.phase, **(once | changes))
        self._report(self._now)


def find_source(device: str, uuid: str) -> EnergySource | NoSource:
    """Return the energy source of a device, or why there is none."""
    try:
        return open_source(device, uuid)
    except NoSource as error:
        return error


def _entries(wanted: list[Configuration], rounds: int, seed: int) -> list[tuple[Configuration, bool]]:
    """Return the configurations in the order of measurement, and whether each is a reference.

    The order differs from that of the grid, or drift over time would look like the effect of a parameter.
    """
    chance = random.Random(seed)
    orders = [chance.sample(wanted, len(wanted)) for _ in range(rounds)]
    if rounds > 1:  # every configuration is its own reference
        return [(configuration, False) for order in orders for configuration in order]
    return _with_references(orders[0], wanted[0])


def _with_references(order: list[Configuration], reference: Configuration) -> list[tuple[Configuration, bool]]:
    """Return the configurations; in a long list also the reference, at both ends and in between."""
    if len(order) < REFERENCE_EVERY:
        return [(c, False) for c in order]
    entries = []
    for index, configuration in enumerate(order):
        if index % REFERENCE_EVERY == 0:
            entries.append((reference, True))
        entries.append((configuration, False))
    return [*entries, (reference, True)]


def _in_turn(visits: list[int]) -> list[int]:
    """Return the indices of the entries, each once for every visit; groups of neighbours take turns."""
    turns = []
    for first in range(0, len(visits), VISITED_IN_TURN):
        some = range(first, min(first + VISITED_IN_TURN, len(visits)))
        turns += [entry for visit in range(max(visits, default=1)) for entry in some if visit < visits[entry]]
    return turns


def _steal() -> tuple[int, int]:
    """Return (ticks that other guests took, all ticks) of all CPUs since the machine started; proc(5)."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().partition("\n")[0].split()[1:]]
    return (ticks[7] if len(ticks) > 7 else 0), sum(ticks[:8])


def _stolen(before: tuple[int, int], after: tuple[int, int]) -> float:
    passed = after[1] - before[1]
    return (after[0] - before[0]) / passed if passed else 0.0
