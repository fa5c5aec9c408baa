"""What the bench screen shows, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchRow:
    """A finished configuration.

    Attributes:
        cells: of the columns of figures.
        label: the configuration.
        name: the label without the parts that all rows share.
        sentences: flags, reasons and intervals, one sentence each.
        ok: neither failed nor flagged.
        reference: repeated to see drift.
    """

    cells: tuple[str, ...]
    label: str
    sentences: tuple[str, ...] = ()
    ok: bool = True
    reference: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class PowerSample:
    """The power of the device at a moment.

    Attributes:
        t_ns: time of the reading.
        power_w: mean of the second before; None: not known.
        sensor_w: reading of the power sensor; None: there is no sensor.
        measured: the moment was inside a measured window.
    """

    t_ns: int
    power_w: float | None = None
    sensor_w: float | None = None
    measured: bool = False


@dataclass(frozen=True, slots=True)
class BenchView:
    """The sweep as it is now.

    Attributes:
        phase: ``start``, ``idle``, ``data``, ``warm-up``, ``window``, ``done``; ``over`` at the end.
        number: finished rows.
        of: rows at the end.
        window: under way, from 1; 0: none.
        visit: of a configuration that is visited more than once, from 1; 0 for others.
        left_s: until the end; None: not known yet.
        power_w: mean of the last second; None: not known.
        source: the source of the power; without one, why there is no power.
        sensor: ``instant`` or ``average``: what the power sensor measures; empty: there is no sensor.
        drawn: samples of the last minutes, the newest last.
        notices: the newest last.
    """

    phase: str = "start"
    number: int = 0
    of: int = 0
    skipped: int = 0
    window: int = 0
    windows: int = 0
    visit: int = 0
    visits: int = 0
    left_s: float | None = None
    power_w: float | None = None
    source: str = ""
    sensor: str = ""
    drawn: tuple[PowerSample, ...] = ()
    configuration: str = ""
    rows: tuple[BenchRow, ...] = ()
    notices: tuple[str, ...] = ()
