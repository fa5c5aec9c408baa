"""What watching costs, against its budget."""

from __future__ import annotations

import pytest

from tests.support.growing_sessions import session_of, steady
from tests.support.verdicts import checks_of


@pytest.mark.parametrize(
    ("lost", "ppm", "finds", "text"),
    [
        (0.03, 10_000, True, "cost of watching: about 3 % of its time"),
        (0.012, 10_000, False, "cost of watching: about 1 % of its time in the last 60 s, with a budget of 1 %"),
        (0.03, None, False, "cost of watching: about 3 % of its time, without a budget"),
        (None, 10_000, False, "cost of watching: not known"),
    ],
)
def test_the_cost_of_watching(tmp_path, lost, ppm, finds, text):
    check = checks_of(session_of(tmp_path / "s.memtui", steady, lost_share=lost, max_overhead_ppm=ppm))["cost"]
    assert check.looked_at == text
    assert (check.finding is not None) is finds
    if finds:
        assert "--interval 3.0s" in check.finding.action
