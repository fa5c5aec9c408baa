"""How busy the parts of a GPU were, and its traffic: its own counters (NVML's "GPM", which Hopper brought).

The driver gives the difference of two samples, so a figure is a mean since the reading before. The plain call for PCIe
traffic (``nvmlDeviceGetPcieThroughput``) is left alone: it measures for 20 ms while its caller waits.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from memtui.core.readings import GPU_COUNTERS

_PER_MIB = 1 / (1 << 20)
# By field of ``PowerReading``: number of the metric, and how much of its unit (percent, MiB/s) is one of the field.
_METRICS: dict[str, tuple[int, float]] = {
    "sm_active": (2, 100),
    "sm_occupancy": (3, 100),
    "tensor_active": (5, 100),
    "dram_active": (10, 100),
    "pcie_tx_bytes_per_s": (20, _PER_MIB),
    "pcie_rx_bytes_per_s": (21, _PER_MIB),
    "nvlink_tx_bytes_per_s": (61, _PER_MIB),
    "nvlink_rx_bytes_per_s": (60, _PER_MIB),
}
_NAMES = {name: name.removesuffix("_bytes_per_s").replace("_", " ") for name in GPU_COUNTERS}
UNSUPPORTED = "this GPU has no counters that the driver reads (Hopper and later have)"
IN_SLICES = "cut into slices (MIG): there are no counters of the whole board"
FIRST = "first reading of the counters: known from the next one on"
_NOT_SUPPORTED = 3
_PERMANENT = {_NOT_SUPPORTED, 13}  # 13: not known to this driver


class Counters(NamedTuple):
    """The figures of one reading by field of ``PowerReading``, and why others are missing."""

    values: dict[str, float]
    reason: str = ""


class CounterReader:
    """Reads the counters of one board with two samples that it keeps and fills in turn."""

    def __init__(self, nvml: Any, handle: Any, explain: Callable[[Any], str], *, sliced: bool = False) -> None:
        """Ask whether the board has counters; never raises.

        Args:
            nvml: the bindings, initialised.
            handle: the board's.
            explain: turns an error of NVML into words.
            sliced: MIG is on.
        """
        self._nvml, self._handle, self._explain = nvml, handle, explain
        self._samples: list[Any] = []  # the last one, and one to fill
        self._has_last = False
        self._never = IN_SLICES if sliced else ""  # why there will be no figure
        self._request: Any = None
        if sliced:
            return
        try:
            if nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                self._samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
                self._request = self._new_request()
            else:
                self._never = UNSUPPORTED
        except nvml.NVMLError as error:
            self._never = UNSUPPORTED if error.value == _NOT_SUPPORTED else explain(error)

    def _new_request(self) -> Any:
        request = self._nvml.c_nvmlGpmMetricsGet_t()  # 20 kB: made once
        request.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        for index, (number, _) in enumerate(_METRICS.values()):
            request.metrics[index].metricId = number
        return request

    def read(self) -> Counters:
        """Return the means since the last call."""
        if self._never:
            return Counters({}, self._never)
        nvml, (last, new) = self._nvml, self._samples
        try:
            nvml.nvmlGpmSampleGet(self._handle, new)
        except nvml.NVMLError as error:
            if error.value in _PERMANENT:
                self._never = self._explain(error)
            return Counters({}, self._explain(error))  # the last sample stays: the next mean covers this time too
        self._samples = [new, last]
        if not self._has_last:
            self._has_last = True
            return Counters({}, FIRST)
        self._request.sample1, self._request.sample2 = last, new
        try:
            nvml.nvmlGpmMetricsGet(self._request)
        except nvml.NVMLError as error:
            return Counters({}, self._explain(error))
        return self._answer()

    def _answer(self) -> Counters:
        values, missing = {}, []
        for index, (name, (_, unit)) in enumerate(_METRICS.items()):
            metric = self._request.metrics[index]
            if metric.nvmlReturn != 0:
                missing.append(f"{_NAMES[name]}: {self._explain(self._nvml.NVMLError(metric.nvmlReturn))}")
            elif not math.isfinite(metric.value) or metric.value < 0:
                missing.append(f"{_NAMES[name]}: the driver reads {metric.value:g}, which cannot be")
            else:
                values[name] = metric.value / unit
        return Counters(values, "; ".join(missing))

    def close(self) -> None:
        """Give the samples back to the driver; nothing is read any more."""
        samples, self._samples = self._samples, []
        self._never = self._never or "the probe is closed"
        for sample in samples:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlGpmSampleFree(sample)
