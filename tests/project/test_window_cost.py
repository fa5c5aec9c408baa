"""What the benchmark makes of steps around windows: known losses are found, and a drift is none."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.window_cost import costs_s


def steps(lost_s: dict[float, float], speed=lambda _t: 1000.0) -> np.ndarray:
    """Steps of a program that stands still at some moments for so long."""
    made, now, waiting = [], 0.0, dict(lost_s)
    while now < 20:
        now += 1 / speed(now)
        for at in [at for at in waiting if at <= now]:
            now += waiting.pop(at)
        made.append(now)
    return np.array(made)


ENDS_S = np.arange(2.0, 19.0, 2.0)


@pytest.mark.parametrize("speed", [lambda _t: 1000.0, lambda t: 1000.0 + 30 * t], ids=["steady", "faster"])
@pytest.mark.parametrize("cost_s", [0.0, 0.004, 0.2])
def test_what_is_lost_is_found(speed, cost_s):
    found = costs_s(steps(dict.fromkeys(ENDS_S.tolist(), cost_s), speed), ENDS_S, 0.4, 0.5)
    assert len(found) == len(ENDS_S)
    assert found == pytest.approx([cost_s] * len(found), abs=0.0015)


def test_windows_without_room_around_them_are_left_out():
    made_s = steps({})
    assert costs_s(made_s, np.array([0.3, 10.0, 10.5, 15.0, 19.9]), 0.4, 0.5) == [pytest.approx(0, abs=0.0015)]
    assert costs_s(made_s, np.array([]), 0.4, 0.5) == []
