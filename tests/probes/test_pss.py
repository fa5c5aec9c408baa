"""Proportional set sizes: read of a tree as seldom as their cost demands, and told with the moment they are of."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from memtui.probes.pss import CHANGED, LONGEST_NS, PssProbe, parse_pss
from memtui.reports.report import build_report
from memtui.reports.sentences import sentences
from memtui.reports.text import format_report
from tests.support.live import TRACKER, start, wait_for_samples

pytestmark = pytest.mark.real_clock

_MIB = 1 << 20
# A parent that touched 300 MiB, and two children that share them and touch 20 MiB of their own.
_TREE = """
import os, sys, time
memory = bytearray(300 << 20)
memory[::4096] = b"x" * (len(memory) // 4096)
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        own = bytearray(20 << 20)
        while True:
            own[::4096] = b"y" * (len(own) // 4096)
            time.sleep(0.02)
    children.append(child)
print(*children, flush=True)
sys.stdin.read()
for child in children:
    os.kill(child, 9)
"""


@pytest.fixture
def tree():
    with subprocess.Popen(
        [sys.executable, "-c", _TREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [parent.pid, *map(int, parent.stdout.readline().split())]
        time.sleep(0.3)  # the children touch their memory
        yield pids
        parent.communicate()


def truth(pid: int) -> int:
    return psutil.Process(pid).memory_full_info().pss


def test_a_recorded_tree_has_the_pss_of_its_processes_and_shares_of_it(tree, tmp_path):
    path = tmp_path / "tree.memtui"
    recording = start("record", tree[0], "-o", path, "--interval", 0.3, "--duration", 3, *TRACKER)
    reader = wait_for_samples(path, 3)
    expected = {pid: truth(pid) for pid in tree}
    _, errors = recording.communicate(timeout=60)
    assert recording.returncode == 0, errors
    reader.refresh()
    samples, pids = reader.samples, {p.key: p.pid for p in reader.processes.all()}
    assert set(samples.processes.tolist()) == {3.0}
    assert samples.pss_bytes[-1] == pytest.approx(sum(expected.values()), rel=0.02)
    assert samples.rss_bytes[-1] > 2.5 * samples.pss_bytes[-1]
    rows = reader.processes.samples(samples.newest, samples.newest)
    assert sum(row["pss_bytes"] for row in rows) == samples.pss_bytes[-1]
    for row in rows:
        assert row["pss_bytes"] == pytest.approx(expected[pids[row["process"]]], rel=0.02)
        assert row["pss_ns"] == samples.pss_ns[-1]  # of one moment
    read = sorted(set(samples.pss_ns.tolist()))
    assert all(b - a >= 1e9 for a, b in pairwise(read))
    reader.close()
    report = build_report(path)
    assert report.pss_bytes.median == pytest.approx(sum(expected.values()), rel=0.02)
    assert report.rss_bytes.meaning == "sum over the processes, shared pages counted several times"
    held = report.touched_fraction
    assert held.of == "PSS"
    text = format_report(report)
    assert "resident     PSS: mean 3" in text
    assert "sum of RSS   mean 9" in text
    if report.wss_bytes.median is not None:
        assert held.fraction == pytest.approx(report.wss_bytes.median / report.pss_bytes.median, rel=0.02)
        assert "are resident (PSS), and" in sentences(report)[0]


def test_a_process_alone_is_not_asked(tmp_path):
    probe = PssProbe()
    probe.poll([1])
    assert probe.of(1).pss_bytes is None
    assert probe.of(1).reason == ""


def test_reading_rests_for_500_times_what_it_took_and_at_least_a_second(tree):
    probe = PssProbe()
    began_ns = time.monotonic_ns()
    probe.poll(tree)
    took_ns = time.monotonic_ns() - began_ns
    first = probe.of(tree[0])
    assert first.pss_bytes == pytest.approx(truth(tree[0]), rel=0.02)
    probe.poll(tree)
    assert probe.of(tree[0]) is first
    assert 1e9 <= probe._due_ns - began_ns <= max(1e9, 500 * took_ns) + took_ns
    assert PssProbe(max_overhead_ppm=1000)._rest == pytest.approx(5000)  # a fifth of a budget of 0.1 %


def test_a_tree_that_changed_has_no_pss_until_it_is_read_again(tree):
    """Pages of one that ended count for more in the others: what was read is not theirs any more."""
    probe = PssProbe()
    probe.poll(tree)
    probe.poll(tree[:2])
    assert {(probe.of(pid).pss_bytes, probe.of(pid).reason) for pid in tree[:2]} == {(None, CHANGED)}
    probe._due_ns = 0
    probe.poll(tree[:2])
    assert probe.of(tree[1]).pss_bytes == pytest.approx(truth(tree[1]), rel=0.02)


def test_what_would_lock_mappings_for_long_is_not_read(tmp_path):
    for pid in ("7", "8"):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "smaps_rollup").write_text("Rss: 9 kB\nPss:                 5 kB\n")
    (tmp_path / "7" / "statm").write_text("1 2 0 0 0 0 0")
    (tmp_path / "8" / "statm").write_text(f"1 {64 << 18} 0 0 0 0 0")  # 64 GiB
    probe = PssProbe(proc=tmp_path)
    probe.poll([7, 8, 9])
    assert probe.of(7).pss_bytes == 5 << 10
    assert probe.of(8).pss_bytes is None
    assert probe.of(8).reason == "reading it would lock its mappings for about 960 ms"
    assert probe.of(9).reason == "it ended"
    assert LONGEST_NS < 960_000_000


def test_without_rights_it_says_so(tmp_path, monkeypatch):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "statm").write_text("1 2 0 0 0 0 0")

    def denied(path: Path) -> bytes:
        if path.name == "smaps_rollup":
            raise PermissionError(13, "Permission denied")
        return b"1 2 0"

    monkeypatch.setattr(Path, "read_bytes", denied)
    probe = PssProbe(proc=tmp_path)
    probe.poll([7, 8])
    assert probe.of(7).pss_bytes is None
    assert "may not be read" in probe.of(7).reason


def test_a_text_without_pss_is_no_zero():
    assert parse_pss(b"00400000-7ffe ---p [rollup]\nRss: 100 kB\nPss:     12 kB\nPss_Dirty: 3 kB\n") == 12 << 10
    with pytest.raises(ValueError, match="no line Pss"):
        parse_pss(b"")
