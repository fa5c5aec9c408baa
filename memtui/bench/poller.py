"""Poll an energy source in a thread and store its readings."""

from __future__ import annotations

import math
import threading
import time
from array import array

import numpy as np

from memtui.analysis.energy import from_counter, from_power, tick_ns
from memtui.bench.plan import SETTLED_POWER, SETTLING_NS
from memtui.bench.result import Series
from memtui.probes.power.energy_source import EnergySource

EVERY_S = 0.001


class Poller:
    """A thread that polls an energy source, from its creation until ``close``."""

    def __init__(self, source: EnergySource) -> None:
        self._source = source
        self._times, self._energies, self._powers = array("q"), array("d"), array("d")
        self._lock = threading.Lock()
        self._end = threading.Event()
        self.idle_w: float | None = None
        self._thread = threading.Thread(target=self._run, name="energy", daemon=True)
        self._thread.start()

    def forget(self) -> None:
        """Drop the readings so far."""
        with self._lock:
            for some in (self._times, self._energies, self._powers):
                del some[:]

    def series(self) -> Series:
        """Return the readings since ``forget``."""
        with self._lock:
            times, energies, powers = (np.array(some) for some in (self._times, self._energies, self._powers))
        source = self._source
        return Series(
            times.astype(np.int64), energies, powers, source.name, source.scope, "", source.limit_w, self.idle_w
        )

    def tick_ns(self) -> float | None:
        """Return the median time between two steps of the counter."""
        series = self.series()
        return tick_ns(series.t_ns, series.energy_j)

    def settled(self) -> bool:
        """Whether the mean powers of the last three spans are alike."""
        series = self.series()
        if not len(series.t_ns) or series.t_ns[-1] - series.t_ns[0] < 4 * SETTLING_NS:
            return False
        last = int(series.t_ns[-1]) - SETTLING_NS // 2  # the counter's step after the end of a span must have been read
        watts = [self._mean_power_w(series, last - (n + 1) * SETTLING_NS, last - n * SETTLING_NS) for n in range(3)]
        finite = [w for w in watts if w is not None]
        return len(finite) == 3 and max(finite) - min(finite) <= SETTLED_POWER * float(np.median(finite))

    def sensor_w(self) -> float | None:
        """Return the last reading of the sensor; None without a sensor or a reading."""
        with self._lock:
            last = self._powers[-1] if self._powers else math.nan
        return last if math.isfinite(last) else None

    def power_w(self) -> float | None:
        """Return the mean power of the last second, without the counter's last step."""
        series = self.series()
        if not len(series.t_ns):
            return None
        last = int(series.t_ns[-1]) - SETTLING_NS // 2
        return self._mean_power_w(series, last - 2 * SETTLING_NS, last)

    def measure_idle(self, seconds: float) -> tuple[float | None, str]:
        """Return the watts that the device draws while idle, or why they are not known."""
        start = time.monotonic_ns()
        time.sleep(seconds + 0.3)  # and until the counter's next step
        self.idle_w = self._mean_power_w(self.series(), start, start + int(seconds * 1e9))
        return self.idle_w, "" if self.idle_w is not None else "the source said nothing while the device was idle"

    @staticmethod
    def _mean_power_w(series: Series, start_ns: int, end_ns: int) -> float | None:
        counted = from_counter(series.t_ns, series.energy_j, start_ns, end_ns).power_w
        return counted if counted is not None else from_power(series.t_ns, series.power_w, start_ns, end_ns).power_w

    def close(self) -> None:
        self._end.set()
        self._thread.join(5)
        self._source.close()

    def _run(self) -> None:
        while not self._end.wait(EVERY_S):
            energy_j, power_w = self._source.read()
            t_ns = time.monotonic_ns()
            with self._lock:
                self._times.append(t_ns)
                self._energies.append(energy_j)
                self._powers.append(power_w)
