"""Numbers with units as text, in few cells and of steady width."""

from __future__ import annotations

import math
import re
from functools import lru_cache

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SHORT = ("", "K", "M", "G", "T", "P", "E")
_PREFIXES = ((1e-9, "n"), (1e-6, "u"), (1e-3, "m"), (1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))
_LONG_S = 999.5  # from here on in minutes and hours


def _scaled(value: float) -> tuple[float, int]:
    unit = 0
    # 999.5 and not 1024: four digits would make the number wider than its neighbours.
    while abs(value) >= 999.5 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    return value, unit


def three_digits(value: float) -> str:
    """Return ``1.23``, ``12.3``, ``123``; all of them from 1000 on."""
    if abs(value) < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"


def _digits(value: float, unit: int) -> str:
    return three_digits(value) if unit else f"{value:.0f}"


@lru_cache(512)  # a table of ranges shows the same sizes every second
def size(value: float | None) -> str:
    """Return bytes in at most 8 cells: ``61.2 MiB``. None is ``n/a``."""
    if value is None or value != value:
        return "n/a"
    scaled, unit = _scaled(value)
    return f"{_digits(scaled, unit)} {_UNITS[unit]}"


def change(bytes_: int) -> str:
    """Return ``+61.2 MiB``, ``-4 B``."""
    return f"{'-' if bytes_ < 0 else '+'}{size(abs(bytes_))}"


@lru_cache(512)
def size_column(value: float | None, width: int = 8) -> str:
    """Return bytes right-aligned with the unit in one column: ``61.2 MiB``, ``   0 B  ``."""
    if value is None or value != value:
        return "–".rjust(width - 4) + "    "
    scaled, unit = _scaled(value)
    return f"{_digits(scaled, unit):>{width - 4}} {_UNITS[unit]:<3}"


def short_size(value: float) -> str:
    """Return bytes for an axis: ``128M``, ``1.5G``, ``0``."""
    if not value:
        return "0"
    scaled, unit = _scaled(value)
    digits = f"{scaled:.0f}" if abs(scaled - round(scaled)) < 0.05 or scaled >= 100 else f"{scaled:.1f}"
    return digits + _SHORT[unit]


def clock(seconds: float, *, tenths: bool = False, digits: int = 0) -> str:
    """Return ``00:12:41``, with ``tenths``, which is one of ``digits``, ``00:12:41.4``."""
    sign, digits = "-" if seconds < 0 else "", digits or int(tenths)
    ticks = int(abs(seconds) * 10**digits + 1e-6)
    whole, part = divmod(ticks, 10**digits)
    text = f"{sign}{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{text}.{part:0{digits}d}" if digits else text


def span(seconds: float) -> str:
    """Return a length of time in few cells: ``60 s``, ``5 min``, ``2 h``.

    What is too short for them is as of ``duration``.
    """
    if seconds and abs(seconds) < 0.05:
        return duration(seconds)
    if seconds < 10 and abs(seconds - round(seconds)) > 0.05:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        minutes = seconds / 60
        return f"{minutes:.0f} min" if abs(minutes - round(minutes)) < 0.05 else f"{minutes:.1f} min"
    hours = seconds / 3600
    return f"{hours:.0f} h" if abs(hours - round(hours)) < 0.05 else f"{hours:.1f} h"


def duration(seconds: float | None) -> str:
    """Return a time from nanoseconds to hours in two or three digits: ``3.1 ms``, ``210 us``, ``1.2 s``, ``2.5 h``."""
    if seconds is None or seconds != seconds:
        return "n/a"
    if not seconds:
        return "0 s"
    if abs(seconds) >= _LONG_S:
        return span(seconds)
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")):
        value = seconds * factor
        if abs(value) >= 0.9995 or unit == "ns":
            text = f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.1f}"
            return f"{text} {unit}" if float(text) else f"{'-' * (value < 0)}<0.1 ns"
    raise AssertionError("unreachable")


def duration_ns(ns: float | None) -> str:
    """Return a time from nanoseconds to hours in three digits: ``12.3 us``."""
    if ns is None or ns != ns:
        return "n/a"
    if not ns:
        return "0 ns"
    for unit, scale in (("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)):
        # Minutes begin at 1000 s, so that three digits of a second are never lost to them.
        if abs(ns) < (_LONG_S * 1e9 if unit == "s" else 5999.5e9 if unit == "min" else 999.5 * scale) or unit == "h":
            return f"{_nonzero(ns / scale)} {unit}"
    raise AssertionError("unreachable")


def _nonzero(value: float) -> str:
    """Return three digits of what is not zero and must not look like it, in 4 cells: ``1.23``, ``<.01``."""
    return three_digits(value) if abs(value) >= 0.005 else f"{'-' * (value < 0)}<.01"


def _scale(value: float) -> tuple[float, str]:
    """Return the factor and name of the SI prefix that leaves at most three digits before the point."""
    return (
        next((prefix for prefix in _PREFIXES if abs(value) / prefix[0] < 999.5), _PREFIXES[-1]) if value else (1.0, "")
    )


def _prefixed(value: float) -> tuple[str, str]:
    """Return three digits in at most 4 cells, and the SI prefix of their unit."""
    if not value:
        return "0", ""
    factor, prefix = _scale(value)
    return _nonzero(value / factor), prefix


def energy(joules: float | None) -> str:
    """Return joules from nJ on in three digits: ``38.6 mJ``, ``18.4 kJ``. None is ``n/a``."""
    return _with_unit(joules, "J")


def power(watts: float | None) -> str:
    """Return watts in three digits: ``640 mW``, ``251 W``, ``1.21 kW``. None is ``n/a``."""
    return _with_unit(watts, "W")


def mass(grams: float | None) -> str:
    """Return grams in three digits: ``3.40 mg``, ``12.3 g``, ``1.21 kg``. None is ``n/a``."""
    return _with_unit(grams, "g")


def _with_unit(value: float | None, unit: str) -> str:
    if value is None or value != value:
        return "n/a"
    digits, prefix = _prefixed(value)
    return f"{digits} {prefix}{unit}"


def energy_column(joules: float | None) -> str:
    """Return ``energy`` in exactly 7 cells, with the unit in one column: ``38.6 mJ``, `` 120 J ``."""
    return _in_column(joules, "J")


def power_column(watts: float | None) -> str:
    """Return ``power`` in exactly 7 cells, with the unit in one column: `` 640 mW``, `` 251 W ``."""
    return _in_column(watts, "W")


def _in_column(value: float | None, unit: str) -> str:
    if value is None or value != value:
        return "    n/a"
    digits, prefix = _prefixed(value)
    return f"{digits:>4} {prefix + unit:<2}"


def short_power(watts: float | None) -> str:
    """Return watts without their unit in at most 4 cells: ``251``, ``38.6``, ``1.2k``, ``640m``. None is ``n/a``."""
    if watts is None or watts != watts:
        return "n/a"
    factor, prefix = _scale(watts)
    scaled = watts / factor
    if not prefix:
        return _nonzero(scaled) if watts else "0"
    if abs(scaled) < 0.05:
        return f"<.1{prefix}"
    return f"{scaled:.1f}{prefix}" if abs(scaled) < 9.95 else f"{scaled:.0f}{prefix}"


def births_text(gaps: int) -> str:
    """Return how often processes were seen to begin or end: ``at least 1 birth or end``."""
    return f"at least {gaps} birth{'s' * (gaps != 1)} or end{'s' * (gaps != 1)}"


def processes_text(count: int) -> str:
    """Return ``1 process``, ``3 processes``."""
    return f"{count} process{'es' * (count != 1)}"


def percent(fraction: float | None) -> str:
    """Return ``63.8 %``, always one decimal."""
    return "n/a" if fraction is None or fraction != fraction else f"{fraction * 100:.1f} %"


def about_percent(fraction: float | None) -> str:
    """Return an estimated share with one digit, or two from 10 % on: ``about 0.8 %``, ``about 3 %``, ``about 14 %``."""
    if fraction is None or fraction != fraction:
        return "n/a"
    per_cent = fraction * 100
    if round(per_cent, 1) < 0.1:
        return "less than 0.1 %"
    return f"about {per_cent:.1f} %" if round(per_cent, 1) < 1 else f"about {per_cent:.0f} %"


_SIZE = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*(?:([kmgtp])(i?))?b?", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return the bytes of ``2GiB``, ``500MB``, ``1.5G``, ``4096``: with an i powers of 1024, without powers of 1000.

    Raises ValueError.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size: say 2GiB (1024 MiB), 500MB (1000 kB) or a number of bytes")
    factor = (1024 if match[3] else 1000) ** (" kmgtp".index((match[2] or " ").lower()))
    value = float(match[1]) * factor
    if value >= 1 << 62:
        raise ValueError(f"{text!r} is more than a machine can have")
    return round(value)


def parse_interval_ns(text: str, limits_ns: tuple[int, int]) -> int:
    """Parse ``0.5``, ``2s`` or ``50ms``. Raises ValueError with what is allowed."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9}) ?(ms|s|)", text.strip(), re.ASCII)
    interval_ns = round(float(match[1]) * (10**6 if match[2] == "ms" else 10**9)) if match else 0
    if not limits_ns[0] <= interval_ns <= limits_ns[1]:
        low, high = (f"{limit / 1e9:g}" for limit in limits_ns)
        raise ValueError(f"{low} to {high} s, such as 0.5 or 50ms")
    return interval_ns


def parse_budget_ppm(text: str, limits_ppm: tuple[int, int]) -> int | None:
    """Read ``5%``, ``0.5 %`` or ``0.5``, per cent of the time, in parts per million; None for ``none``.

    Raises:
        ValueError: with what is allowed.
    """
    if text.strip() == "none":
        return None
    low, high = limits_ppm
    try:
        ppm = float(text.strip().removesuffix("%")) * 10_000
    except ValueError:
        ppm = math.nan
    if not low <= ppm <= high:
        raise ValueError(f"a budget of {low / 10_000:g}% to {high / 10_000:g}%, or none")
    return round(ppm)


def between(low: str, high: str) -> str:
    """Return ``0.2 s``, or ``0.2 s to 1 s``."""
    return low if low == high else f"{low} to {high}"
