"""The page-table tracker sees exactly the pages that were touched."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memtui.analysis.working_set import bytes_by_range
from memtui.core import procfs
from memtui.core.samples import Status
from memtui.probes.competing_observers import other_observers
from memtui.probes.pages import select_tracker
from memtui.probes.pages.pagetable import build_skeleton, walk, walk_memory
from memtui.probes.pages.pagetable.bpf_loader import SHIPPED_SKELETON, SKELETON_VARIABLE, Skeleton, _bpf
from memtui.probes.pages.pagetable.proof import prove
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.pagetable.walk import Walker
from memtui.probes.pages.tracker import PageTracker, TrackerError
from memtui.probes.pause.pauser import Pauser
from tests.support.folders import names_in
from tests.support.pagetable_targets import (
    PAGE,
    Observer,
    Target,
    assert_exactly,
    assert_touched,
    drawn,
    need_pagetable,
    vmas_of,
    within,
)

pytestmark = pytest.mark.real_clock

SOURCE = Path(build_skeleton.__file__).with_name("pagetable.bpf.c")
HUGE = 1 << 21
MOST_WINDOWS = 40  # where another observer may spoil some


@pytest.fixture(scope="session")
def fresh_skeleton(tmp_path_factory) -> Path:
    """Built from the source now, unless a path is given."""
    if given := os.environ.get(SKELETON_VARIABLE):
        return Path(given)
    if not (build_skeleton.tool("clang") and build_skeleton.tool("bpftool")):
        pytest.skip("a fresh build of the BPF program needs clang and bpftool (Debian: clang bpftool libbpf-dev)")
    output = tmp_path_factory.mktemp("skeleton") / "fresh.json"
    script = [sys.executable, build_skeleton.__file__, "--source", str(SOURCE), "--output", str(output)]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="module", params=["shipped", "fresh"])
def skeleton(request) -> Skeleton:
    need_pagetable()
    return Skeleton.read(SHIPPED_SKELETON if request.param == "shipped" else request.getfixturevalue("fresh_skeleton"))


@pytest.fixture(scope="module")
def observer(skeleton):
    with PageTableTracker(skeleton=skeleton) as tracker:
        observer = Observer(tracker)
        yield observer
        observer.close()


@pytest.fixture
def target():
    with Target() as target:
        yield target


@pytest.fixture
def shipped():
    """An observer with the shipped program, for what the build does not change."""
    need_pagetable()
    with PageTableTracker("soft-dirty") as tracker:
        observer = Observer(tracker)
        yield observer
        observer.close()


def assert_resident(pages, address, count, expected) -> None:
    assert within(pages, address, count) == list(expected)


@pytest.mark.parametrize("name", ["pagetable.lskel.json", "pagetable.arm64.lskel.json"])
def test_the_shipped_skeletons_were_built_from_the_source(name):
    raw = json.loads(SHIPPED_SKELETON.with_name(name).read_text())
    assert raw["source_sha256"] == hashlib.sha256(SOURCE.read_bytes()).hexdigest(), "run make skeleton"


def test_it_is_a_page_tracker(shipped):
    tracker: PageTracker = shipped.tracker
    assert tracker.name == "pagetable"
    assert tracker.wss.ok
    assert tracker.flush == "soft-dirty"


def test_it_proves_itself(skeleton):
    capability = prove(skeleton)
    assert capability.ok, capability
    assert capability.reason == ""


def test_the_programs_are_loaded_once(target, monkeypatch):
    """Each load takes the kernel's verifier 0.1 s, and a recording waits for it."""
    loads, load = [], walk_memory.Program
    monkeypatch.setattr(walk_memory, "Program", lambda *words: loads.append(1) or load(*words))
    target.do("a = anonymous(4000); v = view(a, 4000); v[:] = 1")
    tracker, rejected = select_tracker.choose("pagetable", "auto")
    with tracker:
        tracker.notice()  # DAMON, where it runs, makes windows query it
        for processes in (1, 1, 2):
            tracker.start_round(processes)
            tracker.window(target.pid, (), want_resident=True)
    assert (loads, rejected) == ([1], ())


def test_the_verifier_looks_at_few_instructions(skeleton):
    """It gives up at a million, and older ones need more than newer ones: 66,000 here were too many for Linux 6.12."""
    walker = Walker(skeleton)
    try:
        assert {name: verified_instructions(fd) < 50_000 for name, fd in walker._memory.program.programs.items()} == {
            "walk": True,
            "ask": True,
            "ask_locked": True,
            "count_users": True,
            "walk_extents": True,
        }
    finally:
        walker.close()


def verified_instructions(program_fd: int) -> int:
    """``bpf_prog_info.verified_insns`` (include/uapi/linux/bpf.h, since Linux 5.16)."""
    info = ctypes.create_string_buffer(232)
    question = struct.pack("<IIQ", program_fd, len(info), ctypes.addressof(info))
    _bpf(15, question, "describe a program")  # BPF_OBJ_GET_INFO_BY_FD
    (verified,) = struct.unpack_from("<I", info, 216)
    assert verified > 0
    return verified


@pytest.mark.parametrize("write", [False, True], ids=["reads", "writes"])
@pytest.mark.parametrize(("pages", "touched"), [(2000, 16), (4096, 1000), (120_000, 100_000)])
def test_every_window_is_exactly_the_touched_set(observer, target, pages, touched, write):
    address = target.touch_for_ever(pages, touched, seed=touched, write=write)
    expected = drawn(pages, touched, touched)
    observer.start(target.pid)
    exact = 0
    for _ in range(MOST_WINDOWS):
        target.let_run(0.03)
        window = observer.window(target.pid)
        # Where DAMON runs, it may have taken bits meanwhile: then the window says so, and is read all the same.
        assert window.status == Status.OK or (other_observers() and "DAMON" in window.reason), window.reason
        assert_exactly(window.pages, address, pages, expected)
        exact += window.status == Status.OK
        if exact == 4:
            break
    assert exact == 4


def test_a_small_loop_in_windows_of_five_milliseconds(observer, target):
    """Stale translations would hide most of it from every window after the first."""
    address = target.touch_for_ever(256, 256, seed=1)
    observer.start(target.pid)
    for _ in range(15):
        target.let_run(0.005)
        window = observer.window(target.pid)
        assert window.flush != "off"
        assert_exactly(window.pages, address, 256, range(256))


def test_the_first_window_reports_touches_and_not_residency(observer, target):
    address = target.do("a = anonymous(5000); v = view(a, 5000); v[:] = 1; answer = a")
    observer.start(target.pid)
    target.do("v[[7, 600, 4999]] = 2")
    window = observer.window(target.pid, want_resident=True)
    assert_touched(target.pid, window.pages, address, 5000, [7, 600, 4999])
    assert_resident(window.resident, address, 5000, range(5000))
    assert_touched(target.pid, observer.window(target.pid).pages, address, 5000, [])


def test_resident_pages_are_those_that_the_kernel_counts(shipped, target):
    address = target.do("a = anonymous(3000); v = view(a, 3000); v[::3] = 1; answer = a")
    shipped.start(target.pid)
    resident = shipped.window(target.pid, want_resident=True).resident
    assert_resident(resident, address, 3000, range(0, 3000, 3))
    anonymous = [v for v in vmas_of(target.pid) if v.name in ("", "[heap]", "[stack]")]
    ours = bytes_by_range(resident, [v.start for v in anonymous], [v.end for v in anonymous]).sum() // PAGE
    kernels = 0
    smaps = Path(f"/proc/{target.pid}/smaps").read_text()
    for v in anonymous:
        kernels += int(re.search(rf"^{v.start:08x}-.*?^Rss:\s+(\d+) kB", smaps, re.M | re.S)[1]) // 4
    assert ours == kernels


def test_a_huge_page_is_one_touch_of_two_mebibytes(observer, target):
    address = target.do(f"a = anonymous(2048, 14, align={HUGE}); v = view(a, 2048); v[:] = 1; answer = a")
    smaps = Path(f"/proc/{target.pid}/smaps").read_text()
    if not re.search(r"^AnonHugePages:\s+8192 kB", smaps, re.M):
        pytest.skip("this kernel gave no huge pages (transparent_hugepage is never, or memory is fragmented)")
    observer.start(target.pid)
    target.do("v[700] = 2")
    window = observer.window(target.pid, want_resident=True)
    mine = [int(n) - address // HUGE for n in window.pages.huge]
    assert [n for n in mine if 0 <= n < 4] == [1]
    assert {address // HUGE + n for n in range(4)} <= set(window.resident.huge.tolist())
    assert_touched(target.pid, window.pages, address, 2048, [])
    again = observer.window(target.pid)
    assert not set(again.pages.huge.tolist()) & {address // HUGE + n for n in range(4)}


def test_memory_made_inaccessible_after_the_touch(observer, target):
    """As NUMA balancing leaves it: resident, but not marked present in the way of other pages."""
    address = target.do("a = anonymous(1000); v = view(a, 1000); v[:] = 1; answer = a")
    observer.start(target.pid)
    target.do("v[100:200] = 2; libc.mprotect(a, 1000 * 4096, 0)")
    window = observer.window(target.pid, want_resident=True)
    assert_touched(target.pid, window.pages, address, 1000, range(100, 200))
    assert_resident(window.resident, address, 1000, range(1000))
    assert_touched(target.pid, observer.window(target.pid).pages, address, 1000, [])


def test_the_zero_page_is_neither_touched_nor_resident(shipped, target):
    """Memory that was read and never written: nobody can clear its marks, so counting them would count for ever."""
    address = target.do("a = anonymous(600); v = view(a, 600); v[300] = 1; answer = a")
    shipped.start(target.pid)
    target.do("v.sum()")
    window = shipped.window(target.pid, want_resident=True)
    assert_touched(target.pid, window.pages, address, 600, [300])
    assert_resident(window.resident, address, 600, [300])


def test_pages_of_files_are_seen(shipped, target, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(500 * PAGE))  # less than 2 MiB, so that no file system maps it by a huge page
    address = target.do(
        f"f = open({str(path)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0); "
        "a = ctypes.addressof(ctypes.c_char.from_buffer(m)); v = view(a, 500); v.sum(); answer = a"
    )
    shipped.start(target.pid)
    target.do("v[200] = 1")
    assert_touched(target.pid, shipped.window(target.pid).pages, address, 500, [200])


def test_two_thousand_mappings(observer, target):
    """Neighbours with different rights do not merge; many share one page-table page, and each page counts once."""
    address = target.do(
        "a = anonymous(4000); v = view(a, 4000); v[:] = 1; "
        "[libc.mprotect(a + i * 4096, 4096, 1) for i in range(0, 4000, 2)]; answer = a"
    )
    assert len(vmas_of(target.pid)) > 2000
    observer.start(target.pid)
    target.do("x = v[::5].sum()")
    window = observer.window(target.pid)
    assert_touched(target.pid, window.pages, address, 4000, range(0, 4000, 5))
    assert len(np.unique(window.pages.blocks)) == len(window.pages.blocks)


def test_children_have_page_tables_of_their_own(observer, target):
    address = target.do("a = anonymous(2000); v = view(a, 2000); v[:] = 1; answer = a")
    child = target.do(
        "r, w = os.pipe(); r2, w2 = os.pipe()\nanswer = os.fork()\n"
        "while not answer: os.read(r, 1); v[10:20] = 3; os.write(w2, b'x')"
    )
    try:
        observer.start(target.pid)
        observer.start(child)
        target.do("os.write(w, b'x'); v[500] = 1; os.read(r2, 1)")
        assert_touched(child, observer.window(child).pages, address, 2000, range(10, 20))
        assert_touched(target.pid, observer.window(target.pid).pages, address, 2000, [500])
    finally:
        observer.tracker.forget(child)
        os.kill(child, 9)


def test_exec_begins_a_new_generation(observer, target):
    observer.start(target.pid)
    assert observer.window(target.pid).generation == 0
    target.do(f"os.execv(sys.executable, [sys.executable, '-c', {'print(None, flush=True); input(); input()'!r}])")
    window = observer.window(target.pid)
    assert window.pages is not None, "a new address space begins without marks: all of them are touches"
    assert window.pages.page_count > 100
    assert (window.status, window.generation) == (Status.OK, 1)
    after = observer.window(target.pid)
    assert (after.status, after.generation) == (Status.OK, 1)
    # A sleeping program: touches, and not the whole of what it loaded. The notes of a DAMON at libraries count, too.
    assert after.pages.page_count < window.pages.page_count / 3


def test_a_process_that_was_not_begun_has_no_first_window(shipped, target):
    window = shipped.window(target.pid)
    assert window.pages is None
    assert window.status == Status.FAILED
    assert shipped.window(target.pid).pages is not None


def test_a_process_that_ended(shipped, target):
    shipped.start(target.pid)
    target.close()
    with pytest.raises(ProcessLookupError):
        shipped.tracker.window(target.pid, (), want_resident=False)
    shipped.tracker.forget(target.pid)
    with pytest.raises(ProcessLookupError):
        shipped.tracker.start(target.pid, ())


def test_a_zombie_has_ended(shipped):
    child = os.fork()
    if not child:
        os._exit(0)
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProcessLookupError):
            shipped.tracker.start(child, ())
    finally:
        os.waitpid(child, 0)


def test_a_kernel_thread_has_no_mappings_and_no_working_set(shipped):
    kthread = next((int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and p.name != "1"
                    and not (p / "maps").read_text()), None)  # fmt: skip
    if kthread is None:
        pytest.skip("no kernel thread is visible here (a container)")
    with pytest.raises(TrackerError, match="no memory mapping"):
        shipped.tracker.start(kthread, ())


def test_memory_that_the_first_thread_left_behind(shipped, target):
    """Rare, and nothing can be cleared then: an error, and not everything touched in every window."""
    shipped.start(target.pid)
    target.send("threading.Thread(target=time.sleep, args=(100,)).start(); libc.pthread_exit(None)")
    while " Z " not in Path(f"/proc/{target.pid}/stat").read_text():
        time.sleep(0.01)
    with pytest.raises(TrackerError, match="first thread"):
        shipped.window(target.pid)


def test_growth_loses_nothing(skeleton, target, monkeypatch):
    """And is done at once: loading the program takes a tenth of a second, while the target may stand still."""
    address = target.do("a = anonymous(60000); v = view(a, 60000); v[:] = 1; answer = a")
    walker = Walker(skeleton, slots=16)
    try:
        assert walker.slots == 16
        loads, load = [], walker._reload
        monkeypatch.setattr(walker, "_reload", lambda *sizes: (loads.append(sizes), load(*sizes)))
        seen = walker.walk(target.pid, want_resident=True)
        assert_touched(target.pid, seen.pages, address, 60000, range(60000))
        assert_resident(seen.resident, address, 60000, range(60000))
        assert walker.slots >= 60000 // 512
        assert len(loads) == 1
    finally:
        walker.close()


def test_growth_before_it_is_needed(skeleton, target):
    target.do("a = anonymous(60000); v = view(a, 60000); v[:] = 1")
    with PageTableTracker("soft-dirty", skeleton=skeleton, slots=16) as tracker:
        tracker.start(target.pid, ())
        assert tracker._walker.slots > 60000 // 512
        assert tracker.window(target.pid, (), want_resident=True).pages is not None


def test_a_part_of_the_address_space(skeleton, target):
    address = target.do(f"a = anonymous(5120, align={HUGE}); v = view(a, 5120); v[:] = 1; answer = a")
    walker = Walker(skeleton)
    try:
        part = walker.walk(target.pid, low=address + HUGE, high=address + 3 * HUGE)
        assert_touched(target.pid, part.pages, address, 5120, range(512, 1536))
        assert part.pages.page_count <= 1024
    finally:
        walker.close()


def test_other_processes_cost_nothing(skeleton, target):
    crowd = [subprocess.Popen(["sleep", "100"]) for _ in range(100)]
    walker = Walker(skeleton)
    try:
        mappings = len([v for v in vmas_of(target.pid) if v.name != "[vsyscall]"])
        met = walker.walk(target.pid).vmas
        assert met == mappings
        assert walker._memory.get("foreign") == 0
    finally:
        walker.close()
        for process in crowd:
            process.kill()
            process.wait()


def test_the_way_of_older_kernels(skeleton, target):
    """Without restriction to one task, the program finds the process among all others."""
    if not procfs.in_initial_pid_namespace():
        pytest.skip("kernels before 6.1 need the initial PID namespace, and this is a container")
    with PageTableTracker("soft-dirty", skeleton=skeleton, restrict=False) as tracker:
        observer = Observer(tracker)
        address = target.do("a = anonymous(2000); v = view(a, 2000); v[:] = 1; answer = a")
        observer.start(target.pid)
        target.do("v[[3, 1000]] = 2")
        assert_touched(target.pid, observer.window(target.pid).pages, address, 2000, [3, 1000])
        observer.close()


def test_older_kernels_in_a_container_are_refused(shipped, target, monkeypatch):
    monkeypatch.setattr(procfs, "in_initial_pid_namespace", lambda: False)
    walker = shipped.tracker._walker
    monkeypatch.setattr(walker, "_restrict", False)
    with pytest.raises(TrackerError, match="PID namespace"):
        walker.walk(target.pid)


def test_a_link_that_the_kernel_ignores_is_noticed(shipped, target, monkeypatch):
    """As before Linux 6.1, where naming a task is accepted and means nothing."""
    address = target.do("a = anonymous(600); v = view(a, 600); v[:] = 1; answer = a")
    walker = Walker()
    attach = walker._memory.program.attach
    monkeypatch.setattr(walker._memory.program, "attach", lambda name, _tid, **_: attach(name, 0))
    try:
        with Pauser().paused(target.pid):
            users = walker.users(target.pid)
        assert (users.users, users.traced, users.running) == (1, 1, 0)
        assert not walker._restrict
        walker._restrict = True
        assert_touched(target.pid, walker.walk(target.pid).pages, address, 600, range(600))
        assert not walker._restrict
    finally:
        walker.close()


def test_unreadable_page_tables_fail_the_window(shipped, target):
    shipped.start(target.pid)
    walker = shipped.tracker._walker
    direct_map = walker._memory.get("direct_map")
    walker._memory.set("direct_map", 0xFFFF_0000_0000_0000)  # nothing is there, so reads fail
    window = shipped.window(target.pid, want_resident=True)
    assert (window.status, window.pages, window.resident) == (Status.FAILED, None, None)
    assert "could not be read" in window.reason
    walker._memory.set("direct_map", direct_map)
    assert shipped.window(target.pid).status == Status.OK


def test_blocks_that_changed_while_they_were_read_make_a_window_approximate(shipped, target, monkeypatch):
    """Nothing exchanges a page table while the target stands still, so the walk's count of them is raised here."""
    address = target.do("a = anonymous(600); v = view(a, 600); v[:] = 1; answer = a")
    shipped.start(target.pid)
    assert shipped.window(target.pid).status == Status.OK
    whole = Walker.walk
    for changed, status, reason in (
        (3, Status.APPROXIMATE, "blocks of 2 MiB that changed while they were read: 3"),
        (0, Status.OK, ""),
    ):
        monkeypatch.setattr(
            Walker, "walk", lambda *args, changed=changed, **options: replace(whole(*args, **options), changed=changed)
        )
        target.do("v[5] = 2")
        window = shipped.window(target.pid)
        assert (window.status, window.reason) == (status, reason)
        assert_touched(target.pid, window.pages, address, 600, [5])


def test_mappings_that_do_not_fit_are_not_taken_for_all(target, monkeypatch):
    """Where vm.max_map_count was raised: no table is put together of a part of them, the kernel's own is read."""
    need_pagetable()
    target.do("a = anonymous(800); [libc.mprotect(a + i * 4096, 4096, 1) for i in range(0, 800, 2)]")
    monkeypatch.setattr(walk_memory, "_MAPPINGS", 500)
    with closing(Walker()) as walker:
        met = walker.walk(target.pid)
        assert met.vmas == len([v for v in vmas_of(target.pid) if v.name != "[vsyscall]"]) > 800
        assert met.mappings is None
        assert walker._memory.get("mappings") == 500
    with PageTableTracker("soft-dirty") as tracker:
        tracker.start(target.pid, ())
        text = tracker.window(target.pid, (), want_resident=False).maps()
        assert text == Path(f"/proc/{target.pid}/maps").read_bytes()
    monkeypatch.undo()
    with closing(Walker()) as walker:
        assert len(walker.walk(target.pid).mappings) == met.vmas


def test_there_is_room_for_page_tables_after_growth(target):
    """Of memory that a forked child maps too. Growth for more blocks must not take the room of a round away."""
    child = target.do(
        "a = anonymous(60000); v = view(a, 60000); v[:] = 1\nanswer = os.fork()\nif not answer: time.sleep(600)"
    )
    try:
        target.do("v.sum()")
        for grow in (lambda walker: walker.walk(target.pid), lambda walker: walker.reserve(200)):
            with closing(Walker(slots=16)) as walker:
                walker.start_round(2)
                assert len(walker._memory.tables) == walk.MANY_TABLES
                grow(walker)
                assert walker.slots > 60000 // 512
                met = walker.walk(target.pid, want_tables=True)
                assert met.tables is not None
                assert len(met.tables.frames_behind(met.pages).pages) >= 59000, "DAMON, where it runs, takes some marks"
        with closing(Walker(slots=16)) as walker:
            walker.start_round(2)
            met = walker.walk(target.pid, want_tables=True)  # and where it grows on the way
            assert met.tables is not None
            assert len(met.tables.blocks) >= 60000 // 512
    finally:
        os.kill(child, 9)


def test_it_holds_no_descriptor_afterwards(skeleton, target):
    before = set(names_in("/proc/self/fd"))
    with PageTableTracker(skeleton=skeleton, slots=16) as tracker:
        tracker.start(target.pid, vmas_of(target.pid))
        tracker.window(target.pid, vmas_of(target.pid), want_resident=True)
        tracker.forget(target.pid)
        tracker.start(target.pid, vmas_of(target.pid))
    assert set(names_in("/proc/self/fd")) <= before
