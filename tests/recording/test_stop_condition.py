"""Sizes and conditions as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.readings import MemoryLimit
from memtui.core.units import parse_size
from memtui.recording.recorder.stop_condition import OOM, StopCondition, Watch


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("0", 0), ("4096", 4096), ("4096B", 4096), ("1k", 1000), ("1kB", 1000), ("1KiB", 1024), ("1ki", 1024)),
        *(("500MB", 500_000_000), ("500M", 500_000_000), ("2GiB", 2 << 30), ("2Gi", 2 << 30), ("2 GiB", 2 << 30)),
        *(("1.5G", 1_500_000_000), ("0.5GiB", 1 << 29), ("1TiB", 1 << 40), (" 7 ", 7), ("2gib", 2 << 30)),
    ],
)
def test_sizes(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "GiB", "-1", "1e9", "1,5G", "1GB2", "nan", "inf", "1XB", "٣", "9" * 30, "1PiBB"]
)
def test_no_sizes(text):
    with pytest.raises(ValueError, match=r"is not a size|is more than"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wss>8GiB", StopCondition("wss", True, 8 << 30)),
        (" rss < 500 MB ", StopCondition("rss", False, 500_000_000)),
        ("wss>8G for 5s", StopCondition("wss", True, 8 * 10**9, 5 * 10**9)),
        ("wss>8G for 5", StopCondition("wss", True, 8 * 10**9, 5 * 10**9)),
        ("wss>8000 for 250ms", StopCondition("wss", True, 8000, 250 * 10**6)),
        (" verdict:oom ", StopCondition(OOM)),
        ("wss>1k for 1.5 min", StopCondition("wss", True, 1000, 90 * 10**9)),
    ],
)
def test_conditions(text, expected):
    assert StopCondition.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "wss",
        "wss>",
        "wss>=8G",
        "wss=8G",
        "8G<wss",
        "pss>8G",
        "wss>8G for",
        "wss>8G for ever",
        "wss>8X",
        "wss>8Gfor5s",
        "wss>8G and rss>8G",
        "wss>1..5G",
        "wss>8G for 1e9h",
        "wss>8G for 99999999h",
        "wss>-8G",
        "verdict:leak",
        "verdict:oom for 5s",
    ],
)
def test_no_conditions(text):
    with pytest.raises(ValueError, match=r"."):
        StopCondition.parse(text)


@given(st.text(max_size=30))
def test_whatever_is_typed_is_a_condition_or_a_valueerror(text):
    try:
        StopCondition.parse(text)
    except ValueError:
        pass


def windows(watch: Watch, *values: int | None) -> list[str]:
    """A window each second."""
    return [watch.update(n * 10**9, (n + 1) * 10**9, value, 5) for n, value in enumerate(values)]


def test_once_is_enough_without_a_time():
    reached = windows(Watch(StopCondition.parse("wss>1KiB")), 1024, None, 1025)
    assert reached == ["", "", "wss 1.00 KiB > 1.00 KiB"]
    assert windows(Watch(StopCondition.parse("rss<6")), None) == ["rss 5 B < 6 B"]


def test_it_must_hold_all_the_time():
    watch = Watch(StopCondition.parse("wss>10 for 3s"))
    # What is not known neither counts nor breaks the row.
    reached = windows(watch, 11, 11, 9, 11, None, 11)
    assert reached == ["", "", "", "", "", "wss 11 B > 10 B for 3.0 s"]


def readings(count: int, mib_a_second: int) -> list[MemoryLimit]:
    """Two seconds apart, of a limit of 8 GiB."""
    return [
        MemoryLimit(n * 2 * 10**9, "/job", 8 << 30, (1 << 30) + n * 2 * mib_a_second * (1 << 20), 0, 0)
        for n in range(count)
    ]


def test_memory_that_will_be_full():
    watch = Watch(StopCondition.parse("verdict:oom"))
    reached = [watch.add_limits([reading]) for reading in readings(400, 4)]
    first = next(n for n, text in enumerate(reached) if text)
    assert 45 <= 2 * first <= 60, "seconds that growth has to last"
    assert reached[first].startswith("verdict:oom: Cgroup /job will be out of memory in about 28.9 min")
    assert watch.add_limits([]) == "", "it was said of the reading before"
    assert len(watch._limits) <= 302, "of ten minutes"
    assert windows(watch, 1, 2) == ["", ""]


def test_memory_that_does_not_grow_or_another_condition():
    steady = Watch(StopCondition.parse("verdict:oom"))
    assert not any(steady.add_limits([reading]) for reading in readings(60, 0))
    other = Watch(StopCondition.parse("wss>8G"))
    assert not any(other.add_limits([reading]) for reading in readings(60, 4))
    assert not other._limits
