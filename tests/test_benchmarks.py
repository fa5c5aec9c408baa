"""The benchmarks' own arithmetic, and that each still runs against today's program. No figure is judged here."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import machine, sample, seek, synthetic, table, viewer
from benchmarks.run import Run
from benchmarks.startup import painted
from benchmarks.targets import Training, pattern
from benchmarks.timed_sampler import PARTS, Stopwatch
from memtui.session.reader import SessionReader
from tests.live import needs_root, needs_tracker

ROOT = Path(__file__).parent.parent


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("values", "limit", "verdict"),
    [
        ([1.0] * 10, 2, "within"),
        ([1.0] * 6 + [3.0] * 5, 2, "within, but the interval is not"),
        ([3.0] * 10, 2, "over by 1 ms (50 %)"),
        ([3.0] * 6 + [1.0] * 5, 2, "over by 1 ms (50 %), but the interval is not wholly"),
        ([3.0] * 10, None, ""),
        ([], 2, "not measured: no values"),
        ([3.0, 3.0], 2, "over by 1 ms (50 %)"),
    ],
)
def test_verdict(values, limit, verdict):
    assert table.row("x", values, "ms", limit).verdict == verdict


def test_slower_is_the_median_of_the_ratios():
    found = table.slower("x", [1.1, 2.2, 3.3, 4.4, 5.5, 6.6], [1, 2, 3, 4, 5, 6], 2)
    assert found.value == pytest.approx(10)
    assert (found.low, found.high) == (pytest.approx(10), pytest.approx(10))
    assert found.verdict == "over by 8 %"


def test_slower_leaves_out_pairs_without_a_value():
    found = table.slower("x", [1.1, None], [1.0, 1.0], 2)
    assert found.count == 1
    assert found.low is None


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1234.5, "1,234"), (99.96, "100"), (0.123456, "0.123"), (-2.0, "-2")]
)
def test_number(value, text):
    assert table.number(value) == text


def test_markdown_has_a_line_for_each_row_and_as_many_cells():
    rows = [table.once("a | b", 1, "kB", 2), table.Row("c", failed="needs root")]
    lines = table.markdown(rows).splitlines()
    assert len(lines) == 4
    assert {line.replace("\\|", "").count("|") for line in lines} == {6}
    assert "not measured: needs root" in lines[3]


def test_a_busy_machine_is_told():
    assert machine.warning(0.0) == ""
    assert "load average 99.00" in machine.warning(99.0)
    assert "load average 0.10 before, 0.20 after" in machine.describe(0.1, 0.2)


def test_bursts_of_output_are_refreshes():
    assert viewer.refreshes([(0.0, 1), (0.1, 2), (1.0, 4), (2.0, 8), (2.2, 16), (2.4, 32)]) == [3, 4, 56]
    assert viewer.refreshes([]) == []


def test_painted_needs_the_table_and_a_size():
    assert painted("┌ working set ── now 33.7 MiB · median\n┌ address ranges  93 shown")
    assert not painted("┌ working set ── \n┌ address ranges")


def test_a_part_inside_a_part_counts_to_the_outer_one():
    class Work:
        def window(self):
            self.outer()
            self.inner()

        def outer(self):
            self.inner()

        def inner(self):
            time.sleep(0.01)

    watch = Stopwatch()
    watch.whole(Work, "window")
    watch.part(Work, "outer", "outer")
    watch.part(Work, "inner", "inner")
    Work().window()
    (found,) = watch.windows
    assert found["outer"] == pytest.approx(found["inner"], rel=0.9)
    assert found["whole"] >= found["outer"] + found["inner"]


def test_seconds_per_step_takes_whole_steps_only():
    training = Training.__new__(Training)
    training._times, training._steps = [0.0, 1.0, 2.0, 4.0, 9.0], [1, 2, 3, 4, 5]
    assert training.seconds_per_step(0.5, 5.0) == pytest.approx(1.5)
    assert training.seconds_per_step(5.0, 9.5) is None


def test_the_synthetic_session_is_like_a_training(tmp_path):
    synthetic.write_session(tmp_path / "s.memtui", 40)
    reader = SessionReader(tmp_path / "s.memtui")
    assert len(reader.samples) == 40
    assert 0.8 < reader.samples.wss_bytes.mean() / (synthetic.TOUCHED << 12) < 1.2
    assert len(reader.vma_rows()) > 200
    reader.close()


def test_seek_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(seek, "QUICK_SAMPLES", 300)
    run = Run(True, tmp_path, cache=tmp_path / "cache")
    rows = list(seek.measure(run))
    assert [r for r in rows if r.limit == seek.LIMIT_MS]
    assert all(r.value is not None and r.value > 0 for r in rows)
    made = list((tmp_path / "cache").iterdir())
    assert seek.long_session(run) == made[0]
    assert len(made) == 1


def test_an_unknown_name_is_one_word_and_exit_2():
    done = bench("nonsense")
    assert done.returncode == 2
    assert "no benchmark 'nonsense'" in done.stderr


@needs_root
@needs_tracker
def test_a_quick_run_prints_and_writes_the_table(tmp_path):
    done = bench("walk", "--quick", "-o", str(tmp_path / "table.md"))
    assert done.returncode == 0, done.stderr
    assert "| walk and extract" in done.stdout
    assert "load average" in done.stdout
    assert (tmp_path / "table.md").read_text() == done.stdout


@needs_root
@needs_tracker
def test_the_stopwatch_sees_every_part_of_the_sampler(tmp_path, monkeypatch):
    """The parts are named by functions of the product: this fails when one was renamed."""
    monkeypatch.setattr(sample, "INTERVAL_NS", 300_000_000)
    with pattern("loop", "--pages", 2000) as pid:
        found = sample._windows(pid, 5, tmp_path / "windows.json")
    assert {"whole", "paused", *PARTS} == set().union(*found), "mappings are read once a second, at least"
    for window in found:
        assert {"whole", "paused", *PARTS} - {"maps"} <= set(window)
        assert sum(window.get(part, 0) for part in PARTS) <= window["whole"]
