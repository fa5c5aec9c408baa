"""Energies, powers and times as text: three digits, in order, of one width, and never zero for what is not."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core import units

PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
AMOUNTS = st.floats(1e-9, 9.99e11)
SECONDS = st.floats(1e-9, 3.59e6)  # up to 997 h
QUANTITIES = [(units.energy, "J"), (units.power, "W")]


def value(text: str, unit: str) -> float:
    """What a text says, in the unit without a prefix."""
    number, prefix = re.fullmatch(rf"(\S+) ([num kMG]?){unit}", text).groups()
    return float(number) * PREFIXES[prefix.strip()]


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * TIMES[unit]


def digits(text: str) -> int:
    return len(text.split()[0].replace(".", "").replace("-", ""))


@pytest.mark.parametrize(("form", "unit"), QUANTITIES)
@given(amount=AMOUNTS)
def test_three_digits_of_what_it_is(form, unit, amount):
    text = form(amount)
    assert digits(text) == 3
    assert value(text, unit) == pytest.approx(amount, rel=5.1e-3)


@pytest.mark.parametrize(("form", "unit"), QUANTITIES)
@given(some=st.tuples(AMOUNTS, AMOUNTS))
def test_more_is_never_shown_as_less(form, unit, some):
    low, high = (value(form(amount), unit) for amount in sorted(some))
    assert low <= high * (1 + 1e-12)


@pytest.mark.parametrize("form", [units.energy_column, units.power_column])
@given(amount=st.one_of(st.none(), st.just(0.0), st.just(math.nan), st.floats(0, 9.99e14)))
def test_a_column_is_of_one_width_with_its_units_in_one_place(form, amount):
    text = form(amount)
    assert len(text) == 7
    if amount is not None and amount == amount:
        assert text[4] == " "
        assert text.strip() == (units.energy if "J" in text else units.power)(amount)


@given(amount=st.floats(-1e15, 1e15).filter(bool))
def test_what_is_not_zero_never_looks_like_it(amount):
    for text in (units.energy(amount), units.power(amount), units.duration(amount), units.duration_ns(amount)):
        number = text.split()[0]
        assert "<" in number or float(number) != 0, text
        assert number.startswith("-") == (amount < 0)
    assert float(re.sub("[<a-zA-Z]", "", units.short_power(abs(amount)))) != 0


@given(length=SECONDS)
def test_times_from_nanoseconds_to_hours(length):
    assert seconds(units.duration(length)) == pytest.approx(length, rel=0.06)
    assert seconds(units.duration_ns(length * 1e9)) == pytest.approx(length, rel=5.1e-3)
    assert digits(units.duration_ns(length * 1e9)) in (3, 4)  # 4: 16.7 min would be less than 1000 s say


@pytest.mark.parametrize(("form", "factor"), [(units.duration, 1.0), (units.duration_ns, 1e9)])
@given(some=st.tuples(SECONDS, SECONDS))
def test_a_longer_time_is_never_shown_as_a_shorter_one(form, factor, some):
    low, high = (seconds(form(length * factor)) for length in sorted(some))
    assert low <= high * (1 + 1e-12)


@given(amount=st.floats(0, 9.99e14))
def test_a_short_power_has_four_cells(amount):
    assert len(units.short_power(amount)) <= 4


@pytest.mark.parametrize(
    ("joules", "text"),
    [
        (0.0386, "38.6 mJ"),
        (0.0, "0 J"),
        (1.5e-9, "1.50 nJ"),
        (1e-12, "<.01 nJ"),
        (0.9996, "1.00 J"),
        (18_400, "18.4 kJ"),
        (3.6e6, "3.60 MJ"),
        (-0.002, "-2.00 mJ"),
        (None, "n/a"),
        (math.nan, "n/a"),
    ],
)
def test_energies(joules, text):
    assert units.energy(joules) == text


@pytest.mark.parametrize(
    ("watts", "text", "short"),
    [(0.64, "640 mW", "640m"), (251.26, "251 W", "251"), (1210, "1.21 kW", "1.2k"), (12_100, "12.1 kW", "12k")],
)
def test_powers(watts, text, short):
    assert (units.power(watts), units.short_power(watts)) == (text, short)


@pytest.mark.parametrize(
    ("length", "text"),
    [(0, "0 s"), (4e-8, "40.0 ns"), (2.1e-4, "210 us"), (0.0031, "3.1 ms"), (1.2, "1.2 s"), (9000, "2.5 h")],
)
def test_durations(length, text):
    assert units.duration(length) == text


def test_a_span_that_is_not_zero_is_told():
    assert (units.span(0.012), units.span(0.4), units.span(0)) == ("12.0 ms", "0.4 s", "0 s")


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0, "less than 0.1 %"),
        (0.0004, "less than 0.1 %"),
        (0.0084, "about 0.8 %"),
        (0.0096, "about 1 %"),
        (0.0275, "about 3 %"),
        (0.1364, "about 14 %"),
        (1.2, "about 120 %"),
        (None, "n/a"),
        (math.nan, "n/a"),
    ],
)
def test_an_estimated_share_has_no_digits_that_nobody_knows(fraction, text):
    assert units.about_percent(fraction) == text
