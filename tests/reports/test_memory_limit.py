"""How much memory is left at the end, and when none is, of limits with a known growth."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.limit_forecast import forecast_of, rates, time_left
from memtui.analysis.memory_growth import growth_of
from memtui.cli.main import main
from memtui.core.readings import MemoryLimit, Power
from memtui.core.samples import End, Process, ProcessWindow, Window
from memtui.reports.memory_limit import (
    Forecast,
    LimitSummary,
    forecast_forms,
    last_limit,
    limit_lines,
    limit_summary,
    victim_clause,
)
from memtui.reports.redact import open_source
from memtui.session.session import Session
from tests.support.sessions import hello, write_session

MIB, GIB, S = 1 << 20, 1 << 30, 10**9


def limits(count: int, mib_a_second: float = 0.0, cgroup: str = "/job", limit_bytes: int = 8 * GIB, left: int = GIB):
    """Two seconds apart; in the end so much is left."""
    use = [round(left + (count - 1 - n) * 2 * mib_a_second * MIB) for n in range(count)]
    cache = 300 * MIB
    return [MemoryLimit(n * 2 * S, cgroup, limit_bytes, limit_bytes - u + cache, cache, 0) for n, u in enumerate(use)]


def test_of_a_growth_that_goes_on_the_end_is_foretold():
    limit = limit_summary(limits(100, 2.0))
    assert limit.left_bytes == GIB
    assert limit.needed_bytes == 7 * GIB
    assert limit.forecast.full_in_s == pytest.approx(512, rel=0.01)
    assert limit.forecast.full_in_low_s <= limit.forecast.full_in_s <= limit.forecast.full_in_high_s
    assert limit.forecast.growth_bytes_per_s == pytest.approx(2 * MIB, rel=0.01)


def test_swap_is_used_up_first():
    grown = [
        MemoryLimit(n * 2 * S, "", 8 * GIB, 8 * GIB, 0, (200 - n) * 8 * MIB) for n in range(100)
    ]  # memory is full, and what is free of the swap area shrinks
    assert limit_summary(grown).forecast.full_in_s == pytest.approx(202, rel=0.01)


def of_use(use_bytes: list[int], limit_bytes: int = 8 * GIB) -> list[MemoryLimit]:
    """Two seconds apart; no page cache."""
    return [MemoryLimit(n * 2 * S, "/job", limit_bytes, use, 0, 0) for n, use in enumerate(use_bytes)]


def test_a_line_is_foretold_exactly():
    limit = forecast_of(limits(100, 2.0))
    assert (limit.full_in_s, limit.growth_bytes_per_s) == (pytest.approx(512, rel=1e-12), pytest.approx(2 * MIB))
    assert time_left(limit) == "8.5 min", "its bounds are the same, and not written"
    assert forecast_of(limits(100, 1.0, left=30 * 198 * MIB)) is not None, "30 times as far as was seen"


@pytest.mark.parametrize("before_s", [0, 2, 30, 32, 34])
def test_the_limit_is_reached_by_a_peak(before_s):
    """One of 50 MiB in the last sixth of the 192 s that were seen, or just before that."""
    use = [7 * GIB + n * 2 * MIB + (n % 3) * MIB // 4 for n in range(97)]
    use[-1 - before_s // 2] += 50 * MIB
    counts_s = before_s if before_s <= 32 else 0
    found = forecast_of(of_use(use))
    growth = growth_of(np.arange(-96, 1) * 2.0, np.array(use) - 8.0 * GIB)
    left_bytes = 8 * GIB - use[-1 - counts_s // 2] - counts_s * growth.bytes_per_s
    assert found.growth_bytes_per_s == growth.bytes_per_s
    assert found.full_in_s == pytest.approx(left_bytes / growth.bytes_per_s, rel=1e-9)
    assert found.full_in_low_s == pytest.approx(left_bytes / growth.high_bytes_per_s, rel=1e-9)
    assert found.full_in_high_s == pytest.approx(left_bytes / growth.low_bytes_per_s, rel=1e-9)


def test_a_peak_that_would_not_fit_now_leaves_nothing():
    use = [8 * GIB - (120 - n) * 2 * MIB for n in range(100)]
    use[-9] = 8 * GIB
    assert forecast_of(of_use(use)).full_in_s == 0


def test_how_little_growth_is_noise():
    limit_bytes = 500 * MIB  # two thousandths are one MiB
    for more, foretold in ((0, True), (-1, False)):
        use = [490 * MIB + n * MIB // 99 for n in range(99)] + [491 * MIB + more]
        found = forecast_of(of_use(use, limit_bytes))
        assert (found is not None) == foretold


def test_nothing_is_foretold():
    assert limit_summary([]) is None
    assert limit_summary(limits(100)).forecast is None, "no growth"
    assert limit_summary(limits(100, 0.01)).forecast is None, "too far away for what was seen"
    assert limit_summary(limits(100, 1.0, left=5800 * MIB)).forecast is not None
    assert limit_summary(limits(100, 1.0, left=6000 * MIB)).forecast is None, "more than 30 times 198 s"
    assert limit_summary(limits(100, 0.05, left=100 * MIB)).forecast is None, "it rose by less than may be noise"
    assert limit_summary(limits(100, 2.0, left=0)).forecast is None, "nothing is left already"
    others = [*limits(99, 2.0, cgroup="/other"), limits(100, 2.0)[-1]]
    assert limit_summary(others).forecast is None, "of this limit one reading is known"
    changed = [*limits(99, 2.0, limit_bytes=GIB), limits(100, 2.0)[-1]]
    assert limit_summary(changed).forecast is None


LIMIT = LimitSummary("", 8 * GIB, 5 * GIB, 2 * GIB, 0, 3 * GIB, Forecast(840.0, 480.0, 1860.0, 3.5 * MIB))


def test_the_sentence_has_what_when_and_why():
    long, short, shortest = forecast_forms(LIMIT)
    assert shortest == "The machine is out of memory in about 14 min (8 min to 31 min)."
    assert short == (
        "The machine will be out of memory in about 14 min (8 min to 31 min) if its use goes on growing by 3.50 MiB/s."
    )
    use = "5.00 GiB of 8.00 GiB are in use, and 2.00 GiB more are page cache that the kernel takes back first"
    assert long == f"{short[:-1]}: {use}."
    assert forecast_forms(None) == ()
    assert forecast_forms(LimitSummary("", 8 * GIB, 5 * GIB, 0, 0, 3 * GIB, None)) == ()


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (20 * MIB, "20.0 MiB/s"),
        (1.5 * MIB, "1.50 MiB/s"),
        (MIB, "1.00 MiB/s"),
        (MIB / 60, "1.00 MiB/min"),
        (MIB / 10, "6.00 MiB/min"),
        (MIB / 100, "36.0 MiB/h"),
    ],
)
def test_a_rate_has_the_unit_that_fits(rate, text):
    forecast = Forecast(840.0, 480.0, 1860.0, rate)
    assert text in forecast_forms(LimitSummary("/a\x1b[2J", GIB, GIB, 0, 0, 1, forecast))[0]


def test_a_hostile_name_is_made_harmless():
    assert "\x1b" not in forecast_forms(LimitSummary("/a\x1b[2J", GIB, GIB, 0, 0, 1, LIMIT.forecast))[0]


def test_lines_of_the_report():
    assert limit_lines(None) == []
    (line,) = limit_lines(LIMIT)
    assert line == (
        "limit        5.00 GiB of the 8.00 GiB of the machine were in use at the end, and 2.00 GiB more are page cache "
        "that the kernel takes back first; full in about 14 min (8 min to 31 min) if use goes on growing by 3.50 MiB/s"
    )
    (line,) = limit_lines(LimitSummary("/job", GIB, 5 * MIB, 0, 7 * MIB, 3, None))
    assert line == (
        "limit        5.00 MiB of the 1.00 GiB of cgroup /job were in use at the end; 7.00 MiB can be swapped out"
    )


@pytest.mark.parametrize(
    ("adjustment", "clause"),
    [
        (None, ""),
        (0, ""),
        (-1000, "the kernel kills others in its place (oom_score_adj -1000)"),
        (
            -999,
            "the kernel counts 99.9 % of the limit less than it has when it chooses what to kill (oom_score_adj -999)",
        ),
        (300, "the kernel counts 30 % of the limit more than it has when it chooses what to kill (oom_score_adj 300)"),
    ],
)
def test_whether_the_kernel_would_rather_kill_others(adjustment, clause):
    limit = replace(LIMIT, oom_score_adj=adjustment)
    assert victim_clause(limit) == clause
    assert limit_lines(limit)[0].endswith(f"; {clause}" if clause else "MiB/s")


def session(path, read: list[MemoryLimit]):
    def stream():
        yield hello()
        yield Process(1, 4242, 1, 777, 0, "python train.py", "target")
        for sample, limit in enumerate(read):
            yield Power(limits=(limit,))
            window = ProcessWindow(1, limit.t_ns, limit.t_ns + S, rss_bytes=MIB)
            yield Window(sample, limit.t_ns, limit.t_ns + S, S, 0, (window,))
        yield End(len(read) * 2 * S, "stopped")

    return write_session(path, stream())


def test_a_session_keeps_them_and_report_and_export_have_them(tmp_path, capsys):
    read = limits(60, 10.0)
    path = session(tmp_path / "s.memtui", read)
    with closing(Session(path)) as reader:
        assert reader.devices.memory_limits(0, 2**62) == read
        assert reader.devices.memory_limits(2 * S, 4 * S) == read[1:2]
    with closing(open_source(path)) as source:
        assert last_limit(source) == limit_summary(read)
    assert main(["report", str(path)]) == 0
    assert "\nlimit        7.00 GiB of the 8.00 GiB of cgroup /job were in use" in capsys.readouterr().out
    assert main(["report", "--json", "--redact", str(path)]) == 0
    shown = json.loads(capsys.readouterr().out)["memory_limit"]
    assert shown["cgroup"] == "cgroup"
    assert shown["forecast"]["full_in_s"] == pytest.approx(102.4, rel=0.05)
    assert main(["export", str(path), "--to", "csv", "-o", str(tmp_path / "out")]) == 0
    rows = (tmp_path / "out/memory_limit.csv").read_text().splitlines()
    stalls = "stall_cgroup,some_stall_ns,full_stall_ns,refaults,oom_score_adj"
    high = "high_cgroup,high_bytes,high_used_bytes,high_events"
    assert rows[0] == f"t_ns,cgroup,limit_bytes,used_bytes,reclaimable_bytes,swap_bytes,left_bytes,{stalls},{high}"
    assert len(rows) == 61


def test_an_interval_of_a_rate_has_one_unit():
    assert rates(2 << 20, 3 << 20) == "2.00 MiB/s to 3.00 MiB/s"
    assert rates(GIB / 1024 / 2, 2 << 20) == "30.0 MiB/min to 120 MiB/min"
    assert rates(1 << 10) == "3.52 MiB/h"
    assert rates(2 << 20, (2 << 20) + 1) == "2.00 MiB/s"
