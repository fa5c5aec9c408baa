"""Pages that come back from swap."""

from __future__ import annotations

import pytest

from memtui.core.readings import MemoryLimit
from memtui.reports.verdict.recent import Check
from tests.support.growing_sessions import GIB, MIB, START_S, S, session_of, steady
from tests.support.verdicts import checks_of, full, rules_found


def test_what_comes_back_from_swap_is_no_leak(tmp_path):
    """It was there before, and the working set may stay as it is."""
    grows = session_of(tmp_path / "a.memtui", lambda n: (20, 300 + n, 30), swapped=lambda n: 800 * MIB)
    assert checks_of(grows)["leak"].finding is not None
    returns = session_of(tmp_path / "b.memtui", lambda n: (20, 300 + n, 30), swapped=lambda n: 800 * MIB - n * MIB)
    check = checks_of(returns)["leak"]
    assert check.finding is None
    assert check.looked_at.endswith("as memory comes back from swap")


def half_full(n: int) -> MemoryLimit:
    return MemoryLimit((START_S + n) * S, "/job", 2 * GIB, GIB, 100 * MIB, 0)


def test_pages_that_come_back_from_swap_with_memory_left(tmp_path):
    def swapped(n: int) -> int:
        return 800 * MIB - n * 4 * MIB  # 1,024 pages a second

    path = session_of(tmp_path / "s.memtui", steady, faults=lambda n: 200 * n, swapped=swapped, limit=half_full)
    assert rules_found(path) == ["swap"]
    finding = checks_of(path)["swap"].finding
    assert finding.sentence == (
        "It waits for 200 pages a second to come back from swap, with memory left: 444 MiB of it are still swapped "
        "out, and 1.10 GiB are free."
    )
    assert finding.evidence[0] == "in swap: 684 MiB, and 444 MiB 60 s later"
    assert len(finding.short) < 80
    full_one = session_of(tmp_path / "f.memtui", steady, faults=lambda n: 200 * n, swapped=swapped, limit=full)
    assert rules_found(full_one) == ["thrashing"], "more memory is what helps there"
    assert "while memory is full" in checks_of(full_one)["swap"].looked_at


@pytest.mark.parametrize(
    ("swapped", "faults", "text"),
    [
        (
            lambda n: 800 * MIB,
            lambda n: 200 * n,
            "what it reads does not come from there",
        ),  # a file, for the first time
        (lambda n: 800 * MIB, lambda n: 0, "memory in swap: 800 MiB"),  # nobody wants it back
        (lambda n: 800 * MIB - n * MIB, lambda n: 10 * n, "memory in swap: 711 MiB"),  # seldom
        (lambda n: 0, lambda n: 0, "memory in swap: 0 B"),
    ],
)
def test_memory_in_swap_that_nobody_waits_for(tmp_path, swapped, faults, text):
    path = session_of(tmp_path / "s.memtui", steady, faults=faults, swapped=swapped, limit=half_full)
    check = checks_of(path)["swap"]
    assert check.measured
    assert check.finding is None
    assert check.looked_at.endswith(text)


def test_swap_that_was_not_read_and_a_limit_that_is_not_known(tmp_path):
    assert checks_of(session_of(tmp_path / "a.memtui", steady))["swap"] == Check(
        "swap", "memory in swap: not read", measured=False
    )
    back = session_of(
        tmp_path / "b.memtui", steady, faults=lambda n: 200 * n, swapped=lambda n: 800 * MIB - n * 4 * MIB
    )
    check = checks_of(back)["swap"]
    assert (check.measured, check.finding) == (False, None)
