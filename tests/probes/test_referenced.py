"""The referenced tracker: what it counts against known truths, for a user without root, and what it says it cannot."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from memtui.core.samples import Capability, ProcessWindow, Status, Window
from memtui.probes.pages import referenced, select_tracker, soft_dirty
from memtui.probes.pages.referenced import ReferencedTracker, prove, prove_flush, sizes_by_vma
from memtui.probes.pages.tracker import TrackerError
from memtui.session.blobs import UNKNOWN_BYTES
from memtui.session.session import Session
from memtui.tui.presenters.presenter import Presenter, Room
from tests.support.cli import memtui
from tests.support.live import needs_root, needs_tracker, pattern, pattern_argv
from tests.support.pagetable_targets import Observer, Target, vmas_of
from tests.support.sessions import CODE, DATA, HEAP, STACK, hello, messages, write_session
from tests.support.users import as_other

PAGE = 4096
WORKS = prove()
pytestmark = [
    pytest.mark.real_clock,
    pytest.mark.skipif(not WORKS.ok, reason=f"no referenced tracker here: {WORKS.reason}"),
]

SMAPS = b"""\
5550000000-5550100000 rw-p 00000000 00:00 0                              [heap]
Size:               1024 kB
KernelPageSize:        4 kB
Rss:                 800 kB
Referenced:          400 kB
AnonHugePages:         0 kB
Private_Hugetlb:       0 kB
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000400000 rw-p 00000000 00:0f 7                          /anon_hugepage (deleted)
Size:               4096 kB
KernelPageSize:     2048 kB
Rss:                   0 kB
Referenced:            0 kB
Private_Hugetlb:    4096 kB
VmFlags: rd wr mr mw me ht sd
7f0000800000-7f0000801000 r--p 00000000 fe:00 9                          /tmp/Referenced:       8 kB
Rss:                   4 kB
Referenced:            0 kB
VmFlags: rd mr mw me sd
7ffc00000000-7ffc00004000 r--p 00000000 00:00 0                          [vvar]
Rss:                   0 kB
Referenced:            0 kB
VmFlags: rd mr pf io de dd sd
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
Rss:                   0 kB
Referenced:            0 kB
VmFlags: ex
"""


def test_sizes_by_vma_of_a_recorded_smaps():
    sizes = sizes_by_vma(SMAPS, referenced._REFERENCED)
    assert sizes == ((0x5550000000, 400 << 10), (0x7F0000000000, None), (0x7FFC00000000, None))
    assert sizes_by_vma(SMAPS, referenced._RSS, uncounted=()) == ((0x5550000000, 800 << 10), (0x7F0000800000, 4 << 10))


# -- the proof


def test_the_proof_of_a_tracker_that_does_not_clear_fails(monkeypatch):
    write = os.write
    monkeypatch.setattr(referenced.os, "write", lambda fd, data: len(data) if data == b"1" else write(fd, data))
    assert prove().reason == "the self-test touched 32 pages of its own and saw 64: not to be trusted here"
    assert "and saw" in prove_flush().reason


def test_the_flush_is_proved():
    assert prove_flush() == Capability("soft-dirty", True)


def test_the_proof_of_a_flush_that_does_nothing_fails(monkeypatch):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("on one CPU the switch to this process flushes")
    write = os.write
    monkeypatch.setattr(referenced.os, "write", lambda fd, data: len(data) if data == b"4" else write(fd, data))
    reasons = [prove_flush().reason for _ in range(5)]
    if not any(reasons):
        pytest.skip("this machine is so busy that its switching between processes flushes")
    assert "the self-test touched 32 pages of its own and saw" in "".join(reasons)


def test_a_flush_that_fails_its_proof_is_not_used_and_that_is_told(monkeypatch):
    monkeypatch.setattr(referenced, "prove_flush", lambda: Capability("soft-dirty", False, "no"))
    tracker = ReferencedTracker()
    assert tracker.flush == "off"
    assert tracker.notice() == soft_dirty.UNFLUSHED
    assert tracker.notice() == ""
    me = os.getpid()
    tracker.start(me, ())
    window = tracker.window(me, (), want_resident=False)
    assert (window.status, window.reason) == ("approximate", soft_dirty.UNFLUSHED)
    tracker.close()
    with pytest.raises(TrackerError, match="no; auto and off would"):
        ReferencedTracker("soft-dirty")


@pytest.mark.parametrize(("tracked", "said"), [(True, soft_dirty.costly("referenced")), (False, "")])
def test_the_cost_of_the_flush_is_told_where_it_has_one(tracked, said, monkeypatch):
    monkeypatch.setattr(soft_dirty, "soft_dirty_is_tracked", lambda: tracked)
    assert ReferencedTracker().notice() == said


def test_auto_takes_it_when_the_page_tables_are_out_of_reach(monkeypatch):
    out = Capability("pagetable", False, "it needs root", "run with sudo")
    no_idle = Capability("idle", False, "no idle page tracking", "another kernel")
    monkeypatch.setattr("memtui.probes.pages.pagetable.proof.prove_walker", lambda: (out, None))
    monkeypatch.setattr("memtui.probes.pages.idle.tracker.prove", lambda: no_idle)
    tracker, rejected = select_tracker.choose("auto", "auto")
    assert (tracker.name, rejected) == ("referenced", (out, no_idle))
    why = select_tracker.page_views(tracker, rejected)
    assert why == Capability("pages", False, f"{referenced.NO_PAGES}; pagetable is out: it needs root", "run with sudo")
    tracker.close()
    with pytest.raises(select_tracker.NoTracker, match="flush cold does not work with the referenced tracker"):
        select_tracker.choose("auto", "cold")


# -- windows of one process


@pytest.fixture
def observer():
    made = Observer(ReferencedTracker())
    yield made
    made.close()
    made.tracker.close()


def touched_in(window, address: int) -> int | None:
    assert window.pages is None
    return dict(window.vma_wss()).get(address, 0)


@pytest.mark.parametrize("write", [False, True])
def test_every_window_counts_exactly_what_was_touched(write, observer):
    with Target() as target:
        # A guard on both sides keeps the mapping by itself.
        address = target.do("a = anonymous(4002); libc.mprotect(a, 4096, 0); answer = a + 4096")
        target.do(f"libc.mprotect({address} + 4000 * 4096, 4096, 0)")
        target.send(f"v = view({address}, 4000); v[:] = 1; loop(v, drawn(4000, 1500, 5), {write})")
        target.let_run(0.02)
        observer.start(target.pid)
        for _ in range(5):
            target.let_run(0.01)
            window = observer.window(target.pid, want_resident=True)
            assert touched_in(window, address) == 1500 * PAGE
            assert dict(window.vma_rss())[address] == 4000 * PAGE
            assert (window.flush, window.rearm, window.status) == ("soft-dirty", "full", Status.OK)


def test_exec_is_a_new_generation_and_its_touches_count(observer):
    with Target() as target:
        observer.start(target.pid)
        assert observer.window(target.pid).generation == 0
        target.send(
            "os.execv(sys.executable, [sys.executable, '-c', 'print(1, flush=True); import time; time.sleep(60)'])"
        )
        target.receive()
        window = observer.window(target.pid)
        assert window.generation == 1
        assert sum(size or 0 for _, size in window.vma_wss()) > 1 << 20
        assert observer.window(target.pid).generation == 1


def test_a_process_that_ended(observer):
    with Target() as target:
        observer.start(target.pid)
        vmas = vmas_of(target.pid)
    with pytest.raises(ProcessLookupError):
        observer.tracker.window(target.pid, vmas, want_resident=False)
    with pytest.raises(ProcessLookupError):
        observer.tracker.start(target.pid, vmas)


@contextmanager
def huge_pages(count: int):
    """That many more pages of 2 MiB in the kernel's pool."""
    knob = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    try:
        before = int(knob.read_text())
        knob.write_text(str(before + count))
    except OSError as error:
        pytest.skip(f"no pool of huge pages here: {error}")
    try:
        if int(knob.read_text()) < before + count:
            pytest.skip("memory is too fragmented for huge pages")
        yield
    finally:
        knob.write_text(str(before))


@needs_root
def test_hugetlb_is_not_known_and_not_zero(observer):
    with huge_pages(2), Target() as target:
        address = target.do("a = libc.mmap(None, 2 << 20, 3, 0x40022, -1, 0); v = view(a, 512); v[:] = 1; answer = a")
        observer.start(target.pid)
        target.do("v[:] = 2")
        assert touched_in(observer.window(target.pid), address) is None


# -- whole recordings


def wss_of_pattern(path: Path, truth: dict) -> list[int]:
    """The working set of the range in which the pattern lies, of every window but the last."""
    reader = Session(path)
    (row,) = [v for v in reader.vmas.rows() if v.start <= truth["start"] < v.end]
    samples, ids, values = reader.vmas.wss(0, int(reader.samples.sample[-1]) - 1)
    found = [int(values[(samples == s) & (ids == row.id)].sum()) for s in reader.samples.sample[:-1]]
    reader.close()
    return found


@contextmanager
def pattern_of(other: dict, *words: object):
    """A running access pattern of another user."""
    with subprocess.Popen(pattern_argv(*words, safe_path=True), stdout=subprocess.PIPE, **other) as child:
        assert child.stdout is not None
        try:
            yield json.loads(child.stdout.readline())
        finally:
            child.kill()


@needs_root
@pytest.mark.parametrize(("pages", "touched"), [(100, 40), (20_000, 5_000)])
def test_a_user_without_root_gets_the_working_set_of_his_own_process(pages, touched):
    with as_other() as (home, other):
        path = home / "s.memtui"
        with pattern_of(other, "random", "--pages", pages, "--touched", touched) as truth:
            options = ("--interval", 0.3, "--duration", 3, "--json", "--filter", "none")
            done = memtui("record", truth["pid"], "-o", path, *options, **other)
            assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["tracker"], report["flush"]) == ("referenced", "soft-dirty")
        assert report["wss_bytes"]["status"] == "ok"
        assert touched * PAGE < report["wss_bytes"]["median"]
        assert report["reuse"]["status"] == "unsupported"
        assert "knows no single pages; pagetable is out: it needs root" in report["reuse"]["reason"]
        found = wss_of_pattern(path, truth)
        assert len(found) >= 5
        assert set(found) == {touched * PAGE}
        reader = Session(path)
        (process,) = reader.processes.all()
        rows = reader.processes.samples(0, 5)
        assert all(row["wss_bytes"] > touched * PAGE and row["paused_ns"] > 0 for row in rows)
        # Not of files: the touches of every other Python that ends count there, too.
        of_files = [row.id for row in reader.vmas.rows() if row.name.startswith("/")]
        samples, ids, values = reader.vmas.wss(0, 5)
        own = [int(values[(samples == sample) & ~np.isin(ids, of_files) & (values > 0)].sum()) for sample in range(6)]
        assert all(touched * PAGE < wss < touched * PAGE + (5 << 20) for wss in own), "the interpreter is small"
        assert [row["stored_bytes"] for row in rows] == [None] * 6
        assert reader.pages.page_set(1, process.key) is None
        assert reader.reuse.between(0, 100) == []
        assert (
            reader.vmas.rss(5)[next(v.id for v in reader.vmas.rows() if v.start <= truth["start"] < v.end)]
            >= pages * PAGE
        )
        reader.close()


@needs_tracker
def test_both_trackers_say_the_same_of_anonymous_memory(tmp_path):
    with pattern("random", "--pages", 8_000, "--touched", 3_000, "--seed", 2) as truth:
        found = {}
        for tracker in ("pagetable", "referenced"):
            path = tmp_path / f"{tracker}.memtui"
            options = ("--tracker", tracker, "--interval", 0.3, "--duration", 2, "--filter", "none")
            done = memtui("record", truth["pid"], "-o", path, *options)
            assert done.returncode == 0, done.stderr
            found[tracker] = set(wss_of_pattern(path, truth))
    assert found == {"pagetable": {3_000 * PAGE}, "referenced": {3_000 * PAGE}}


def test_where_a_pause_is_refused_it_reads_the_running_process_and_says_so(tmp_path):
    """As under yama's ptrace_scope 1, or with a debugger on the target: here this process is the debugger."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    with pattern("random", "--pages", 2_000, "--touched", 1_000) as truth:
        assert libc.ptrace(0x4206, truth["pid"], None, None) == 0, "PTRACE_SEIZE"
        path = tmp_path / "s.memtui"
        options = ("--tracker", "referenced", "--interval", 0.3, "--duration", 2, "--filter", "none")
        done = memtui("record", truth["pid"], "-o", path, *options)
        assert done.returncode == 0, done.stderr
    reader = Session(path)
    assert set(reader.samples.status) == {"approximate"}
    assert {r.split(" (")[0] for r in reader.samples.reason} == {"the target ran on while its pages were read"}
    assert "traces it already" in reader.samples.reason[0]
    rows = reader.processes.samples(0, 3)
    assert all(row["clear_gap_ns"] > 0 and row["paused_ns"] == 0 for row in rows)
    reader.close()
    wss = wss_of_pattern(path, truth)
    assert max(wss) <= 1_000 * PAGE
    assert sorted(wss)[len(wss) // 2] == 1_000 * PAGE


def test_a_flush_it_does_not_have_is_refused_in_one_line(tmp_path):
    with pattern("loop", "--pages", 100) as truth:
        argv = ("record", truth["pid"], "-o", tmp_path / "s.memtui", "--tracker", "referenced", "--flush", "cold")
        done = memtui(*argv)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "flush cold does not work with the referenced tracker" in done.stderr


# -- the session and the screen


@pytest.fixture
def by_range(tmp_path) -> Path:
    """A session of the referenced tracker, in which one range cannot be known."""

    def stream():
        why = Capability("pages", False, referenced.NO_PAGES, "run with sudo")
        for message in messages(12, tracked=False):
            if isinstance(message, Window):
                old = message.processes[0]
                fields = {name: getattr(old, name) for name in ProcessWindow.__dataclass_fields__}
                sizes = ((HEAP, 1 << 20), (DATA, None), (CODE, 8 << 10))
                fields |= {
                    "status": Status.OK,
                    "reason": "",
                    "vma_wss_bytes": sizes,
                    "vma_rss_bytes": ((DATA, 64 << 20),),
                }
                message = Window(
                    *(getattr(message, n) for n in ("sample", "start_ns", "end_ns", "asked_ns", "sampler_cpu_ns")),
                    (ProcessWindow(**fields),),
                )
            elif type(message).__name__ == "Hello":
                message = hello(tracker="referenced", flush="soft-dirty", pages=why)
            yield message

    return write_session(tmp_path / "s.memtui", stream())


def test_working_sets_are_stored_without_pages(by_range):
    reader = Session(by_range)
    assert set(reader.samples.wss_bytes.tolist()) == {(1 << 20) + (8 << 10)}
    rows = {row.start: row.id for row in reader.vmas.rows()}
    _, ids, values = reader.vmas.wss(3, 3)
    assert dict(zip(ids.tolist(), values.tolist(), strict=True)) == {
        rows[HEAP]: 1 << 20,
        rows[DATA]: UNKNOWN_BYTES,
        rows[CODE]: 8 << 10,
    }
    assert reader.vmas.rss(3) == {rows[DATA]: 64 << 20}
    reader.close()
    text = memtui("report", by_range).stdout
    assert f"reuse        n/a: {referenced.NO_PAGES} (run with sudo)" in text
    assert "working set  mean 1.01 MiB" in text


def test_the_screen_says_why_page_views_are_off_and_shows_the_rest(by_range):
    presenter = Presenter(Session(by_range), follow=False)
    presenter.room = Room(60, 10)
    view = presenter.view(1.0)
    assert view.heat.note == view.reuse.note == f"no pages are tracked: {referenced.NO_PAGES} (run with sudo)"
    assert view.graph.note == ""
    assert view.graph.now_bytes == (1 << 20) + (8 << 10)
    rows = {row.start: row for row in view.table.rows}
    assert rows[HEAP].wss_bytes == 1 << 20
    assert rows[HEAP].share == pytest.approx(1024 / 1032)
    assert (rows[DATA].wss_bytes, rows[DATA].share, rows[DATA].rss_bytes) == (None, None, 64 << 20)
    assert rows[STACK].wss_bytes == 0
