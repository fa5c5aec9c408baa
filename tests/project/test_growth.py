"""What the hour of short-lived children makes of its lines: steady or sudden growth is found, and noise is none."""

from __future__ import annotations

import random
import re

import psutil
import pytest

from benchmarks import growth
from benchmarks.growth import Line, judge

MIB = 1 << 20


def lines(mib, viewer_cpu=lambda _share: 0.045, seconds: int = 3300, part: str = "sampler") -> list[Line]:
    """Lines after the first five minutes: memory of one part and the viewer's CPU by the share of the time."""
    chance = random.Random(1)

    def row(share: float) -> dict[str, tuple[int, float]]:
        memory = dict.fromkeys(("viewer", "sampler", "recorder"), 60.0) | {part: 60 + mib(share)}
        cpu = {"viewer": viewer_cpu(share), "sampler": 0.125, "recorder": 0.05}
        return {
            name: (round((resident + chance.gauss(0, 0.5)) * MIB), cpu[name] * chance.uniform(0.85, 1.15))
            for name, resident in memory.items()
        }

    return [(300.0 + second, row(second / seconds)) for second in range(0, seconds + 1, 10)]


def verdict(part: str, output: str) -> str:
    (line,) = [line for line in output.splitlines() if line.startswith(part)]
    return line


@pytest.mark.parametrize("seconds", [3300, 1200, 300])
@pytest.mark.parametrize("part", ["viewer", "sampler", "recorder"])
def test_memory_that_grows_all_the_time_fails(part, seconds, capsys):
    assert judge(lines(lambda share: 6 * share, seconds=seconds, part=part)) == 1
    output = capsys.readouterr().out
    assert output.count(": grows") == 1
    assert verdict(part, output).endswith(": grows")


def test_memory_that_grows_at_once_fails(capsys):
    assert judge(lines(lambda share: 6 * (share > 0.9))) == 1
    assert verdict("sampler", capsys.readouterr().out).endswith(": grows")


@pytest.mark.parametrize(
    "mib",
    [
        lambda _share: 0,
        lambda share: 4 * share,
        lambda share: -8 * share,
        lambda share: 40 * (0.5 < share < 0.51),  # given back
        lambda share: 4 * (100 * share % 1),
    ],
    ids=["steady", "a little", "less", "a peak", "saw"],
)
@pytest.mark.parametrize("seconds", [3300, 1200])
def test_noise_and_a_little_growth_pass(mib, seconds, capsys):
    assert judge(lines(mib, seconds=seconds)) == 0
    assert ": grows" not in capsys.readouterr().out


def test_cpu_time_of_the_viewer_may_grow_by_a_tenth(capsys):
    assert judge(lines(lambda _share: 0, lambda share: 0.045 * (1 + 0.15 * share))) == 1
    assert verdict("viewer", capsys.readouterr().out).endswith(": grows")
    assert judge(lines(lambda _share: 0, lambda share: 0.045 * (1 + 0.03 * share))) == 0


def test_lines_too_few_to_judge_by_fail(capsys):
    assert judge(lines(lambda _share: 0, seconds=20)) == 1
    assert "too short" in capsys.readouterr().err


def test_a_line_has_the_load_average_by_which_its_cpu_figure_is_read(capsys, monkeypatch):
    monkeypatch.setattr(growth, "EVERY_S", 0.01)
    monkeypatch.setattr("os.getloadavg", lambda: (1.234, 9.0, 9.0))
    growth._measure({"viewer": psutil.Process()}, 0.005)
    assert re.fullmatch(r" +0 s  load 1\.23  viewer \d+\.\d MiB \d+\.\d %\n", capsys.readouterr().out)
