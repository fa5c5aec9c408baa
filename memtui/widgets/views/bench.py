"""What the bench screen shows, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchRow:
    """A finished configuration.

    Attributes:
        cells: of the columns of figures.
        label: the configuration.
        name: the same without what all have in common.
        words: flags, reasons and intervals, spelled out; a sentence each.
        ok: neither failed nor flagged.
        reference: repeated to see drift.
    """

    cells: tuple[str, ...]
    label: str
    words: tuple[str, ...] = ()
    ok: bool = True
    reference: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class PowerSample:
    """What the device drew at a moment.

    Attributes:
        t_ns: when it was asked.
        power_w: mean of the second before; None: not known.
        sensor_w: what the power sensor said; None: there is none.
        measured: it was inside a window that is measured.
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
        of: so many will be.
        window: under way, from 1; 0: none.
        visit: of a configuration that is visited more than once, from 1; 0 for others.
        left_s: until the end; None: not known yet.
        power_w: mean of the last second; None: not known.
        source: what says so; without one, why nothing does.
        sensor: ``instant`` or ``average``: what the power sensor says; empty: there is none.
        drawn: of the last minutes, the newest last.
        said: notices, the newest last.
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
    said: tuple[str, ...] = ()
