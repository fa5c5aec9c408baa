"""Proportional set sizes: read of a tree as seldom as their cost demands, and told with the moment they are of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from memtui.probes import pss
from memtui.probes.pss import (
    CHANGED,
    EARLY_NS,
    EARLY_REST,
    EARLY_RESTS,
    LONGEST_NS,
    PssProbe,
    Rollup,
    parse_rollup,
)
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


# A child that shares 48 MiB with its parent, and writes to as many MiB of them as it is told.
_WRITER = """
import os, sys
memory = bytearray(48 << 20)
memory[::4096] = b"x" * (len(memory) // 4096)
requests, replies = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(requests[1])
    with os.fdopen(requests[0]) as lines:
        for line in lines:
            end = int(line) << 20
            memory[:end:4096] = b"y" * (end // 4096)
            os.write(replies[1], b".")
    os._exit(0)
print(child, flush=True)
for line in sys.stdin:
    os.write(requests[1], line.encode())
    os.read(replies[0], 1)
    print("written", flush=True)
"""


@pytest.fixture
def writer():
    """A parent, its child's pid and a function that has the child write to so many MiB of what both share."""
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:

        def write(mib: int) -> None:
            print(mib, file=parent.stdin, flush=True)
            assert parent.stdout.readline() == "written\n"

        yield parent.pid, int(parent.stdout.readline()), write
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
        exact = psutil.Process(pids[row["process"]]).memory_full_info()
        assert row["private_bytes"] == pytest.approx(exact.uss, abs=_MIB)
        assert row["swap_bytes"] == pytest.approx(exact.swap, abs=_MIB)
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
        assert "of the PSS then, median" in sentences(report)[0]


def test_a_process_alone_is_not_asked(tmp_path):
    probe = PssProbe()
    probe.poll([1])
    assert probe.of(1).pss_bytes is None
    assert probe.of(1).reason == ""
    assert probe.of(2) == Rollup(None)


def test_of_a_process_alone_the_swap_is_read_once_a_second(tmp_path):
    status = tmp_path / "7" / "status"
    status.parent.mkdir()
    status.write_text("Name:\tpython\nVmRSS:\t    8 kB\nVmSwap:\t    1234 kB\nThreads:\t1\n")
    probe = PssProbe(proc=tmp_path)
    probe.poll([7])
    assert probe.of(7) == Rollup(None, swap_bytes=1234 << 10)
    status.write_text("Name:\tpython\nVmSwap:\t    5 kB\n")
    probe.poll([7])
    assert probe.of(7).swap_bytes == 1234 << 10
    probe._alone_due_ns = 0
    probe.poll([7])
    assert probe.of(7).swap_bytes == 5 << 10
    status.write_text("Name:\tpython\n")  # a kernel without swap
    probe._alone_due_ns = 0
    probe.poll([7])
    assert probe.of(7) == Rollup(None)
    status.unlink()  # it ended
    probe._alone_due_ns = 0
    probe.poll([7])
    assert probe.of(7) == Rollup(None)


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


@pytest.mark.parametrize(("cpu_ns", "rest_ns"), [(30_000_000, 15 * 10**9), (1_000_000, 15 * 10**8)])
def test_waiting_for_a_cpu_counts_for_a_tenth(tree, monkeypatch, cpu_ns, rest_ns):
    """On a busy machine a reading takes long, and costs no more."""
    now_ns = [10**12]
    monkeypatch.setattr(pss.time, "monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr(pss.time, "thread_time_ns", lambda: 0 if now_ns[0] == 10**12 else cpu_ns)
    probe = PssProbe()
    probe._early = 0
    monkeypatch.setattr(PssProbe, "_read", lambda self, pid: (now_ns.__setitem__(0, now_ns[0] + 10**7), Rollup(1))[1])
    probe.poll(tree)
    assert probe._due_ns - now_ns[0] == rest_ns


def test_it_is_read_sooner_where_the_rss_has_changed(tree, monkeypatch):
    now_ns = [10**12]
    for clock in ("monotonic_ns", "thread_time_ns"):
        monkeypatch.setattr(pss.time, clock, lambda: now_ns[0])
    probe, read = PssProbe(), PssProbe._read

    def slow(self, pid):
        now_ns[0] += 10_000_000
        return read(self, pid)

    monkeypatch.setattr(PssProbe, "_read", slow)
    probe._early = 0
    probe.poll(tree)
    rss_bytes = probe._rss_bytes
    assert rss_bytes == pytest.approx(sum(psutil.Process(pid).memory_info().rss for pid in tree), rel=0.05)
    soon_ns = now_ns[0] + pss.SOON_REST * 30_000_000
    assert probe._due_ns == now_ns[0] + 500 * 30_000_000
    first = probe.of(tree[0])
    for t_ns, now_bytes, again in (
        (soon_ns - 1, 2 * rss_bytes, False),
        (soon_ns, int(1.2 * rss_bytes), False),
        (soon_ns, None, False),
        (soon_ns, int(1.3 * rss_bytes), True),
    ):
        now_ns[0] = t_ns
        probe.poll(tree, (), now_bytes)
        assert (probe.of(tree[0]) is not first) is again, (t_ns, now_bytes)


def test_it_is_read_sooner_while_processes_copy_what_they_share(monkeypatch):
    """Their RSS stays, and says nothing of it."""
    now_ns, sizes_mib = [10**12], iter([100, 100, 101, 110, 110])
    for clock in ("monotonic_ns", "thread_time_ns"):
        monkeypatch.setattr(pss.time, clock, lambda: now_ns[0])

    def slow(self, pid):
        now_ns[0] += 10_000_000
        return Rollup(next(sizes_mib) << 20 if pid == 1 else 0)

    monkeypatch.setattr(PssProbe, "_read", slow)
    probe = PssProbe()
    probe._early = 0
    rests = []
    for _ in range(5):
        probe.poll([1, 2])
        rests.append((probe._due_ns - now_ns[0]) // 20_000_000)
        now_ns[0] = probe._due_ns
    assert rests == [500, 500, 500, 250, 500]


def test_the_last_one_is_read_whenever_it_is(tree):
    probe = PssProbe()
    probe._early = 0
    probe.poll(tree)
    first = probe.of(tree[0])
    probe.poll(tree)
    assert probe.of(tree[0]) is first
    probe.expire()
    probe.poll(tree)
    assert probe.of(tree[0]) is not first


def test_others_are_read_with_them_and_may_come_and_go(tree):
    """A child between two windows does not make what is known of the watched processes unknown."""
    parent, *children = tree
    probe = PssProbe()
    probe.poll([parent], children)
    assert sum(probe.of(pid).pss_bytes for pid in tree) == pytest.approx(sum(map(truth, tree)), rel=0.02)
    probe = PssProbe()
    probe.poll(tree[:2], tree[2:])
    kept = probe.of(parent)
    probe.poll(tree[:2])
    assert probe.of(parent) is kept
    probe.poll(tree)
    assert probe.of(parent) is kept, "it was read with them, and is watched from now on"
    probe = PssProbe()
    probe.poll(tree[:2])
    probe.poll(tree)
    assert probe.of(parent).reason == CHANGED, "it was not read yet"


def test_the_first_readings_come_sooner(tree, monkeypatch):
    """Of a tree whose readings cost much: three within a minute, then as seldom as ever."""
    now_ns = [10**12]
    for clock in ("monotonic_ns", "thread_time_ns"):
        monkeypatch.setattr(pss.time, clock, lambda: now_ns[0])
    probe, read = PssProbe(), PssProbe._read

    def slow(self, pid):
        now_ns[0] += 40_000_000
        return read(self, pid)

    monkeypatch.setattr(PssProbe, "_read", slow)
    rests_ns = []
    for _ in range(6):
        probe.poll(tree)
        rests_ns.append(probe._due_ns - now_ns[0])
        now_ns[0] = probe._due_ns
    assert rests_ns == [EARLY_NS] * EARLY_RESTS + [500 * 120_000_000] * 4
    assert EARLY_RESTS * EARLY_NS < 60 * 10**9
    dear = PssProbe()
    dear._early = 1
    monkeypatch.setattr(PssProbe, "_read", lambda self, pid: (now_ns.__setitem__(0, now_ns[0] + 10**9), Rollup(1))[1])
    dear.poll(tree)
    assert dear._due_ns - now_ns[0] == EARLY_REST * 3 * 10**9


def test_private_memory_is_read_by_mapping_where_it_changed(writer, monkeypatch):
    monkeypatch.setattr(pss, "CHANGED_BYTES", 16 * _MIB)
    parent, child, write = writer
    probe = PssProbe()
    by_mapping = []
    for mib in (1, 20, 22, 40):
        write(mib)
        probe._due_ns = 0
        probe.poll([parent, child])
        by_mapping.append(probe.of(child).private_by_vma)
    none, first, same, last = by_mapping
    assert none is None
    assert same is first, "2 MiB more are not worth the time"
    by_mapping_bytes = sum(size for _, size in last)  # of a moment later
    assert by_mapping_bytes == pytest.approx(probe.of(child).private_bytes, abs=_MIB)
    start, grown = max(((start, size - dict(first).get(start, 0)) for start, size in last), key=lambda pair: pair[1])
    assert grown == pytest.approx(20 * _MIB, abs=_MIB)
    (mapped,) = (m for m in psutil.Process(child).memory_maps(grouped=False) if int(m.addr.split("-")[0], 16) == start)
    assert mapped.private_dirty + mapped.private_clean == dict(last)[start]
    monkeypatch.setattr(pss, "_MOST_TEXT_BYTES", 1000)
    monkeypatch.setattr(pss, "CHANGED_BYTES", 1)
    write(44)
    probe._due_ns = 0
    probe.poll([parent, child])
    assert probe.of(child).private_bytes
    assert probe.of(child).private_by_vma is None, "it has too many mappings"


def test_much_private_memory_is_read_by_mapping_at_once(writer):
    """Workers may have copied all that they will when they are read first."""
    parent, child, write = writer
    write(40)
    probe = PssProbe()
    probe.poll([parent, child])
    assert sum(size for _, size in probe.of(child).private_by_vma) >= 40 * _MIB


def test_sizes_of_before_a_process_grew_are_not_those_of_now(writer):
    parent, child, write = writer
    write(20)
    probe = PssProbe()
    probe.poll([parent, child])
    reading = probe.of(child)
    assert reading.rss_bytes == pytest.approx(psutil.Process(child).memory_info().rss, rel=0.05)
    more = max(reading.rss_bytes // 4, pss.CHANGED_BYTES)
    for rss_bytes in (None, reading.rss_bytes + more, reading.rss_bytes - more):
        assert reading.for_rss(rss_bytes) == reading
    for rss_bytes in (reading.rss_bytes + more + _MIB, reading.rss_bytes - more - _MIB):
        late = reading.for_rss(rss_bytes)
        assert (late.pss_bytes, late.private_bytes, late.t_ns) == (None, None, None)
        assert late.reason.startswith("read when its RSS was ")
        assert late.swap_bytes == reading.swap_bytes


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
    assert probe.of(8) == Rollup(None, None, "reading it would lock its mappings for about 960 ms")
    assert probe.of(9).reason == "it ended"
    assert LONGEST_NS < 960_000_000


def test_a_reading_that_had_to_wait_does_not_end_all_readings(tmp_path):
    """Of the time of the last one follows how long the next one takes: waiting for a CPU is not in it."""
    for pid in ("7", "8"):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "statm").write_text(f"1 {64 << 8} 0 0 0 0 0")  # 64 MiB
        os.mkfifo(tmp_path / pid / "smaps_rollup")

    def write_late() -> None:
        for pid in ("7", "8") * 2:
            with (tmp_path / pid / "smaps_rollup").open("w") as rollup:
                time.sleep(0.3)
                rollup.write("Rss: 9 kB\nPss:                 5 kB\n")

    writer = threading.Thread(target=write_late, daemon=True)
    writer.start()
    probe = PssProbe(proc=tmp_path)
    for _ in range(2):
        probe._due_ns = 0
        probe.poll([7, 8])
        assert {probe.of(pid).pss_bytes for pid in (7, 8)} == {5 << 10}
    writer.join()


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


# As Linux 6.18 wrote it of a child that had written to 20 MiB of the 48 MiB which its parent shared with it.
_RECORDED = b"""\
559d75030000-7ffdaa998000 ---p 00000000 00:00 0                          [rollup]
Rss:               55952 kB
Pss:               36893 kB
Pss_Dirty:         36546 kB
Pss_Anon:          36546 kB
Pss_File:            347 kB
Pss_Shmem:             0 kB
Shared_Clean:       3812 kB
Shared_Dirty:      31188 kB
Private_Clean:         0 kB
Private_Dirty:     20952 kB
Referenced:        25080 kB
Anonymous:         52140 kB
KSM:                   0 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
Swap:                  0 kB
SwapPss:               0 kB
Locked:                0 kB
"""


def test_sizes_of_a_recorded_rollup():
    assert parse_rollup(_RECORDED) == Rollup(36893 << 10, private_bytes=20952 << 10, swap_bytes=0, rss_bytes=57294848)


def test_private_memory_is_clean_dirty_and_huge_and_swap_is_the_whole_of_it():
    text = _RECORDED
    for name, kib in (("Private_Clean", 100), ("Private_Hugetlb", 2048), ("Swap", 7000), ("SwapPss", 3500)):
        text, count = re.subn(rf"(?m)^{name}: .*$".encode(), f"{name}: {kib:14} kB".encode(), text)
        assert count == 1
    sizes = parse_rollup(text)
    assert (sizes.private_bytes, sizes.swap_bytes) == ((20952 + 100 + 2048) << 10, 7000 << 10)
    without = re.sub(rb"Private_Hugetlb.*\n", b"", text)
    assert parse_rollup(without).private_bytes == (20952 + 100) << 10


@pytest.mark.parametrize(
    ("line", "pss", "private", "swap"),
    [("Private_Clean", 1, 0, 1), ("Private_Dirty", 1, 0, 1), ("Swap", 1, 1, 0), ("SwapPss", 1, 1, 1), ("Rss", 1, 1, 1)],
)
def test_a_line_that_is_missing_is_not_zero(line, pss, private, swap):
    lines = _RECORDED.splitlines(keepends=True)
    rest = [text for text in lines if not text.startswith(f"{line}:".encode())]
    assert len(rest) == len(lines) - 1
    rollup = parse_rollup(b"".join(rest))
    known = (rollup.pss_bytes, rollup.private_bytes, rollup.swap_bytes)
    assert [size is not None for size in known] == [bool(pss), bool(private), bool(swap)]


def test_a_text_without_pss_is_an_error():
    without = re.sub(rb"\nPss:.*", b"", _RECORDED)
    for text in (b"", without):
        with pytest.raises(ValueError, match="no line Pss"):
            parse_rollup(text)


def test_what_a_child_writes_of_shared_memory_becomes_private_and_its_rss_stays(writer):
    parent, child, write = writer
    probe, readings, rss_bytes = PssProbe(), {}, {}
    for mib in (1, 25):
        write(mib)
        probe._due_ns = 0
        probe.poll([parent, child])
        readings[mib] = probe.of(parent), probe.of(child)
        rss_bytes[mib] = psutil.Process(child).memory_info().rss
    for first, then in zip(readings[1], readings[25], strict=True):  # what the child left is the parent's alone
        assert then.private_bytes - first.private_bytes == pytest.approx(24 * _MIB, abs=_MIB)
        assert then.pss_bytes - first.pss_bytes == pytest.approx(12 * _MIB, abs=_MIB)
        assert then.private_bytes < then.pss_bytes
    assert rss_bytes[25] - rss_bytes[1] == pytest.approx(0, abs=_MIB)
    assert readings[25][0].t_ns == readings[25][1].t_ns > readings[1][0].t_ns
