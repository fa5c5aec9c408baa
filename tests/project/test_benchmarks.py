"""The benchmarks' own arithmetic, and that each still runs against today's program. No figure is judged here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import (
    cost_figure,
    documents,
    file_table,
    machine,
    peers,
    programs,
    reuse_truth,
    sample,
    seek,
    strangers,
    synthetic,
    table,
    twins,
    verdicts,
    viewer,
)
from benchmarks.cost import Cost
from benchmarks.run import Run
from benchmarks.startup import painted
from benchmarks.targets import Training, pattern
from benchmarks.timed_sampler import PARTS, Stopwatch
from memtui.probes.pages.pagetable.rearm import FULL, WORKING_SET
from memtui.reports.source import Source
from memtui.reports.verdict.verdict import last_verdict
from memtui.session.session import Session
from tests.support.live import needs_root, needs_tracker
from tests.support.repository import ROOT
from tests.support.sessions import messages, write_session


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def test_a_loss_is_measured_against_a_twin_whatever_the_machine_does():
    """The recorded one makes 2 % fewer steps; the second CPU is slower, and all of the machine is in later blocks."""
    measured = []
    for number, recorded in enumerate((0, 1, 1, 0, 0, 1)):
        speed = 100 * 0.7**number
        rates = [speed, 0.8 * speed]
        rates[recorded] *= 0.98
        measured.append(twins.Block(recorded, (rates[0], rates[1]), 1, None))
    assert twins.losses_percent(measured) == pytest.approx([2.0] * 3)
    swapped = [twins.Block(1 - block.recorded, block.per_second, 1, None) for block in measured]
    assert twins.losses_percent(swapped) == pytest.approx([100 * (1 - 1 / 0.98)] * 3)


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


@pytest.mark.parametrize(
    ("above", "below", "value", "verdict"),
    [
        ([10.0] * 9, [9.0, *[10.0] * 8, 11.0], 1, "within"),
        ([5.0] * 9, [9.0, *[10.0] * 8, 11.0], 0.5, "under 0.67"),
        ([20.0] * 9, [9.0, *[10.0] * 8, 11.0], 2, "over 1.33"),
        ([10.0] * 9, [2.0] * 4 + [10.0] * 5, 1, "undecided"),
        ([10.0] * 9, [-1.0] * 4 + [10.0] * 5, 1, "undecided"),  # a cost that the noise hides
        ([10.0] * 9, [-1.0] * 9, None, "over 1.33"),  # of a window that costs nothing
        ([10.0] * 9, [10.0] * 2, 1, "undecided"),
        ([], [10.0] * 9, None, "not measured: no values"),
    ],
)
def test_a_ratio_lies_between_two_limits_or_its_interval_does_not_tell(above, below, value, verdict):
    found = table.ratio("x", above, below, 0.67, 1.33)
    assert found.value == value
    assert found.verdict == verdict
    assert found.cells()[1] == "0.67 to 1.33"


def test_slow_steps_do_not_tell_what_a_window_costs():
    """A pause of 40 ms in a step of a second spreads over all of the step."""
    found = list(strangers.compared(np.arange(0.0, 40.0, 1.0), np.arange(5.0, 30.0, 1.8), None, strangers.NEAR))
    assert [row.verdict for row in found] == [
        "not measured: a step takes 1 s: too long to see in it what a window costs"
    ]


def test_an_estimate_is_laid_beside_what_windows_cost():
    """A program of 1 ms steps that is held for 20 ms at each window, where 30 were estimated."""
    ends_s = np.arange(30.0, 50.0, 1.8)
    steps_s = np.arange(0.0, 60.0, 0.001)
    steps_s = steps_s + 0.02 * np.searchsorted(ends_s - 0.02 * np.arange(len(ends_s)), steps_s)
    lost = np.full(len(ends_s), 30e6)
    samples = SimpleNamespace(end_ns=ends_s * 1e9, lost_ns=lost, paused_ns=lost / 2)
    found = {row.what: row for row in strangers.compared(steps_s, ends_s - 25, samples, strangers.NEAR)}
    assert found["... a moment without a window costs"].value == pytest.approx(0, abs=0.1)
    assert found["... a window costs"].value == pytest.approx(20, abs=0.5)
    assert found["... estimate / measured"].value == pytest.approx(1.5, abs=0.05)
    assert found["... estimate / measured"].verdict == "over 1.33"


def test_slower_is_the_median_of_the_ratios():
    found = table.slower("x", [1.1, 2.2, 3.3, 4.4, 5.5, 6.6], [1, 2, 3, 4, 5, 6], 2)
    assert found.value == pytest.approx(10)
    assert (found.low, found.high) == (pytest.approx(10), pytest.approx(10))
    assert found.verdict == "over by 8 %"


def test_a_file_of_another_tool_is_a_line_of_its_table(tmp_path, monkeypatch):
    monkeypatch.setenv(file_table.BEFORE, str(ROOT))
    good, bad = tmp_path / "good.log", tmp_path / "bad.txt"
    good.write_bytes(b"[mem] Allocate 64 bytes GPU memory (x).\n[mem] Allocate 32 bytes GPU memory (y).\n")
    bad.write_bytes(b"a text\n")
    name, how_large, before, after, seconds, peak_mib = file_table.line(good, "a log", tmp_path)
    assert (name, how_large, after) == ("a log", "80 B", "2 rows")
    assert re.fullmatch(r"\d+\.\d s, \d+ MiB", before)
    assert 0.05 < float(seconds) < 30
    assert 10 < float(peak_mib) < 200
    refused = file_table.line(bad, "a text", tmp_path)
    assert refused[2] == refused[3]
    assert refused[3].startswith("is text, but of no format that is known")


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


def test_a_part_inside_a_part_counts_to_the_outer_one(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    class Work:
        def window(self):
            self.outer()
            self.inner()

        def outer(self):
            self.inner()

        def inner(self):
            now[0] += 0.01

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
    reader = Session(tmp_path / "s.memtui")
    assert len(reader.samples) == 40
    assert 0.8 < reader.samples.wss_bytes[:].mean() / (synthetic.TOUCHED << 12) < 1.2
    assert len(reader.vmas.rows()) > 200
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


def test_a_table_goes_into_its_place_in_a_document(tmp_path):
    path = tmp_path / "doc.md"
    path.write_text("before\n<!-- measured: walk -->\nold\n<!-- end of walk -->\nafter\n")
    documents.put(path, "walk", "| new |")
    assert path.read_text() == "before\n<!-- measured: walk -->\n\n| new |\n\n<!-- end of walk -->\nafter\n"
    documents.put(path, "walk", "| newer |")
    assert path.read_text().count("new") == 1
    assert not documents.has_place(path, "cost")
    with pytest.raises(ValueError, match="no place for cost"):
        documents.put(path, "cost", "")


@pytest.mark.parametrize("name", ["trackers", "known_truth", "reuse_truth", "many_mappings", "peers", "strangers"])
def test_the_documents_have_a_place_for_what_make_writes(name):
    assert documents.has_place(ROOT / "docs/internals/measurements.md", name)
    assert documents.has_place(ROOT / "docs/internals/cost.md", "cost")


def test_a_table_needs_one_name_and_a_place(tmp_path):
    done = bench("--into", str(ROOT / "docs/internals/measurements.md"))
    assert (done.returncode, "name it" in done.stderr) == (2, True)
    (tmp_path / "doc.md").write_text("")
    done = bench("walk", "--into", str(tmp_path / "doc.md"))
    assert (done.returncode, "has no place for walk" in done.stderr) == (2, True)


def test_programs_of_others_are_found_where_the_user_says(tmp_path, monkeypatch):
    monkeypatch.setenv(programs.VARIABLE, f"{tmp_path / 'none'}:{tmp_path}")
    with pytest.raises(table.Skip, match=r"masim is neither in .* nor on PATH \(https://github.com/sjp38/masim\)"):
        programs.find("masim")
    (tmp_path / "masim").mkdir()
    program = tmp_path / "masim" / "masim"
    program.write_text("")
    program.chmod(0o755)
    assert programs.find("masim") == program


def test_peers_are_told_as_multiples_of_ours():
    costs = [
        peers.Cost(peers.MEMSNOOP, 100, 60, 40, 100, 990, 1000),
        peers.Cost("idle", 20, 12, 8, 19, 1000, 1000),
        peers.Cost("wss-v2", 400, 390, 10, None, 1024, 1000),
    ]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in peers.table(costs).splitlines()]
    assert [line[-1] for line in lines[2:]] == ["1.0", "5.0", "0.2"]
    assert lines[4][:5] == ["wss-v2", "400", "390", "10", ""]
    assert lines[2][5] == "990 of 1,000"


def test_the_figure_of_costs_has_a_panel_for_each_kind_of_page():
    costs = [
        Cost(gib, page_bytes, 1000, 3.0, 60.0, 0.5, 2.0, 200.0, 10.0, 4.0)
        for page_bytes in (4096, 2 << 20)
        for gib in (1, 2, 4)
    ]
    text = cost_figure.draw(costs, 0.7, "a machine").document()
    for words in ("4 KiB pages", "2 MiB pages", "floor", "re-arm 1 %", "4 GiB", "a machine"):
        assert words in text


@pytest.mark.parametrize(
    ("low", "high", "first", "last"), [(0.6, 130, "0.1", "1000"), (1, 10, "1", "10"), (2, 3, "1", "10")]
)
def test_decades(low, high, first, last):
    scale = cost_figure.decades(low, high)
    assert (scale.ticks[0][1], scale.ticks[-1][1]) == (first, last)
    assert scale.low <= low <= high <= scale.high


@pytest.fixture
def one_cpu():
    """For what this thread starts: two CPUs clear what is scattered at a lower cost than ``clear_refs``."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


@needs_root
@needs_tracker
@pytest.mark.real_clock(alone=False)
def test_every_full_clear_has_a_reason(tmp_path, one_cpu):
    with pattern("random", "--pages", 20_000, "--touched", 9_000) as pid:
        found = sample.windows_of(pid, 12, tmp_path / "all.json", "benchmarks.counting_sampler", interval_s=0.1)
    with pattern("stairs", "--pages", 400, "--regions", 100, "--step-seconds", 1000) as pid:
        found += sample.windows_of(pid, 12, tmp_path / "few.json", "benchmarks.counting_sampler", interval_s=0.1)
    found = [window for window in found if window["wss_bytes"] is not None]
    assert {window["rearm"] for window in found} == {FULL, WORKING_SET}
    assert all(bool(window["why"]) == (window["rearm"] == FULL) for window in found)
    # A busy machine may not stop the program in time: such a window is read while it runs, and is approximate.
    paused = [window for window in found if window["status"] == "ok"]
    assert len(paused) >= len(found) / 2
    assert all(window["paused_ns"] > 0 for window in paused)


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
        found = sample._windows(pid, 8, tmp_path / "windows.json")
    assert {"whole", "paused", *PARTS} == set().union(*found), "mappings are read once a second, at least"
    for window in found:
        assert {"whole", "paused", *PARTS} - {"maps"} <= set(window)
        assert sum(window.get(part, 0) for part in PARTS) <= window["whole"]


@pytest.mark.parametrize("window_s", [0.01, 0.1, 0.5])
def test_the_distances_of_known_orders(window_s):
    """Of 512 pages, touched once around in 0.1 s."""
    ring, zigzag, uniform, zipf = (
        reuse_truth.truth(reuse_truth.Case(order, 0.1), window_s, 1 / 16) / 4096
        for order in ("ring", "zigzag", "uniform", "zipf")
    )
    assert ring == 512
    assert 0 < zigzag <= 512
    if window_s == 0.01:  # nearly all touches are the first of their page in the window: any distance is as likely
        assert zigzag == pytest.approx(256, rel=0.1)
        assert uniform == pytest.approx(256, rel=0.15)
        assert zipf < 0.75 * uniform
    else:
        assert 256 < uniform < 512


def test_the_order_of_the_network_is_that_of_its_layers():
    """Weights and gradients are as large as those of the program that ``memtui demo`` runs."""
    case = reuse_truth.Case("cnn", 0.5)
    ranges = reuse_truth.cnn_ranges()
    assert reuse_truth.pages_of(case) == max(first + count for first, count in ranges) == 9_832
    assert set(np.concatenate([np.arange(first, first + count) for first, count in ranges])) == set(range(9_832))
    weights = sum(count for _, count in reuse_truth.LAYERS)
    assert weights * 4096 == pytest.approx(4 * 1_250_858, rel=0.01)  # parameters of small_model, 4 bytes each
    assert reuse_truth.stream(case)(0.0, 0.001).tolist() == list(range(19))  # the images come first


def test_the_program_replays_ranges(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("it needs a C compiler")
    with reuse_truth.target(reuse_truth.Case("cnn", 0.02), tmp_path) as child:
        child.terminate()
        assert child.wait(10) in (0, 1)  # 1: it ended before the first page
    for ranges in (["5000+4"], ["5+0"], ["5"], ["-1+3"]):
        argv = [tmp_path / "paced_touches", "cnn", "5000", "20", *ranges]
        assert subprocess.run(argv, capture_output=True, check=False).returncode == 2


def test_programs_with_and_without_a_fault(tmp_path):
    programs = (*verdicts.HEALTHY, *verdicts.FAULTY)
    assert len({program.name for program in programs}) == len(programs)
    assert min(len(verdicts.HEALTHY), len(verdicts.FAULTY)) >= 12
    for program in programs:
        compile(program.begin + program.code, program.name, "exec")
        assert bool(program.code) != bool(program.stranger)
    session = write_session(tmp_path / "s.memtui", messages(3))
    rules = {check.rule for check in last_verdict(Source(session)).checks}
    assert {program.rule for program in verdicts.FAULTY} <= rules


@pytest.mark.parametrize(("rule", "right"), [("", True), ("leak", False)])
def test_what_was_said_of_a_program_is_judged(rule, right, tmp_path):
    session = write_session(tmp_path / "s.memtui", messages(3))
    outcome = verdicts._judged(verdicts.Program("a", rule), session, 0)
    assert (outcome.right, outcome.text) == (right, "nothing; 3 windows")
