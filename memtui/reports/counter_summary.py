"""The part of a report on how busy the parts of each GPU were, and on its traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memtui.analysis.energy_parts import by_source
from memtui.core.readings import GPU_COUNTERS, PowerReading
from memtui.core.units import percent, size


@dataclass(frozen=True, slots=True)
class CounterSummary:
    """Means of the counters of one GPU over its readings; None where there is none.

    Attributes:
        device, scope: what was measured.
        reason: why figures are missing, as the last reading says it; empty where it had all.
        sm_active, sm_occupancy, tensor_active, dram_active: 0 to 1.
        pcie_tx_bytes_per_s, pcie_rx_bytes_per_s, nvlink_tx_bytes_per_s, nvlink_rx_bytes_per_s: from the GPU, and to it.
    """

    device: str
    scope: str
    reason: str
    sm_active: float | None
    sm_occupancy: float | None
    tensor_active: float | None
    dram_active: float | None
    pcie_tx_bytes_per_s: float | None
    pcie_rx_bytes_per_s: float | None
    nvlink_tx_bytes_per_s: float | None
    nvlink_rx_bytes_per_s: float | None


def counter_summaries(readings: Sequence[PowerReading]) -> tuple[CounterSummary, ...]:
    """Return the means of each GPU; other devices, and readings of old sessions, say nothing of counters."""
    counted = (r for r in readings if r.counters_reason or any(getattr(r, name) is not None for name in GPU_COUNTERS))
    return tuple(
        CounterSummary(*device, rows[-1].counters_reason, *(_mean(rows, name) for name in GPU_COUNTERS))
        for device, rows in by_source(counted).items()
    )


def _mean(rows: Sequence[PowerReading], name: str) -> float | None:
    values = [value for row in rows if (value := getattr(row, name)) is not None]
    return sum(values) / len(values) if values else None


def counter_line(counters: CounterSummary) -> str:
    """Return the line of the report."""
    head = f"counters     {counters.device} {counters.scope}: "
    if all(getattr(counters, name) is None for name in GPU_COUNTERS):
        return f"{head}n/a: {counters.reason}"
    parts = [
        f"SM {percent(counters.sm_active)}",
        f"occupancy {percent(counters.sm_occupancy)}",
        f"tensor cores {percent(counters.tensor_active)}",
        f"memory {percent(counters.dram_active)}",
        f"PCIe {_traffic(counters.pcie_rx_bytes_per_s, counters.pcie_tx_bytes_per_s)}",
        f"NVLink {_traffic(counters.nvlink_rx_bytes_per_s, counters.nvlink_tx_bytes_per_s)}",
    ]
    since = f" ({counters.reason})" if counters.reason else ""
    return f"{head}{', '.join(parts)}{since}"


def _traffic(to_gpu: float | None, from_gpu: float | None) -> str:
    if to_gpu is None and from_gpu is None:
        return "n/a"
    if to_gpu == from_gpu == 0:
        return "0 B/s"
    return f"{per_second(to_gpu)} in {per_second(from_gpu)} out"


def per_second(bytes_per_s: float | None) -> str:
    """Return ``2.50 MiB/s``; None is ``n/a``."""
    return "n/a" if bytes_per_s is None else f"{size(bytes_per_s)}/s"
