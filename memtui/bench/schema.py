"""Declares the tables of a database of measurements: each once, as a record whose fields are its columns.

``schema.sql`` says what the columns mean. Devices, environments and measurements have an ``id`` as well, which the file
assigns.
"""

from __future__ import annotations

from dataclasses import dataclass

from memtui.session.schema import MetaRecord


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A CPU or GPU."""

    kind: str
    name: str
    uuid: str


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """Versions, threads and limits, as JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class ConfigurationRecord:
    """A configuration; ``key``: hash of ``text``."""

    key: str
    op: str
    text: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run of the bench; ``plan``: JSON."""

    id: str
    t_wall_ns: int
    host: str
    plan: str
    idle_w: float | None
    idle_reason: str


@dataclass(frozen=True, slots=True)
class MeasurementRecord:
    """What a configuration costs, or why that could not be measured."""

    run: str
    configuration: str
    device: int
    environment: int
    t_wall_ns: int
    reference: int
    windows: int
    seconds: float
    status: str
    reason: str
    call_ns: float | None
    iqr_ns: float | None
    mean_ns: float | None
    low_ns: float | None
    high_ns: float | None
    energy_status: str
    energy_reason: str
    energy_source: str
    energy_scope: str
    energy_j: float | None
    energy_low_j: float | None
    energy_high_j: float | None
    above_idle_j: float | None
    power_w: float | None
    power_3s_w: float | None
    power_median_w: float | None
    power_verdict: str
    estimate_j: float | None
    estimate_model: str
    flops: int
    moved_bytes: int | None
    walked_bytes: int | None
    copies: int | None
    flags: str
    quiet: float | None
    yard_limit_ns: float | None
    measured_ns: float | None
    speed: float | None
    follows: float | None
    reference_ns: float | None


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """A window of a measurement; its blobs are arrays of 8-byte floats."""

    measurement: int
    number: int
    calls: int
    wall_ns: int
    busy_ns: float | None
    cpu_ns: int
    block_ns: bytes
    counter_j: float | None
    counter_ns: int | None
    integral_j: float | None
    reason: str
    state: str
    yard_ns: bytes


TABLES: dict[type, str] = {
    MetaRecord: "meta",
    DeviceRecord: "device",
    EnvironmentRecord: "environment",
    ConfigurationRecord: "configuration",
    RunRecord: "run",
    MeasurementRecord: "measurement",
    WindowRecord: "window",
}
"""The name of the table of each record."""
