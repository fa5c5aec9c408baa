"""Windows of the whole program on memory of every kind: hugetlb, shared, forked, of many threads, in many VMAs."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from memtui.core.options import DEFAULT_MAX_PAUSE_NS
from memtui.probes.competing_observers import other_observers
from memtui.session.blobs import UNKNOWN_BYTES
from memtui.session.session import Session
from tests.support.cli import memtui
from tests.support.live import needs_tracker
from tests.support.pagetable_targets import within
from tests.support.streams import sample

pytestmark = pytest.mark.real_clock

_POOL = Path("/proc/sys/vm/nr_hugepages")
PAGE = 4096


@pytest.fixture
def run():
    """Starts a program that prints where it has touched what, and then goes on touching it."""
    children = []

    def start(code: str) -> tuple[int, list[int]]:
        words = [sys.executable, "-c", _HEAD + code]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        children.append(child)
        return child.pid, [int(word) for word in child.stdout.readline().split()]

    yield start
    for child in children:
        os.killpg(child.pid, signal.SIGKILL)  # its children hold the pipe, too
        child.communicate()


_HEAD = """
import ctypes, mmap, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
def map_(pages, flags=0x22):
    a = libc.mmap(None, pages * 4096, 3, flags, -1, 0)
    assert a != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    libc.madvise(ctypes.c_void_p(a), ctypes.c_size_t(pages * 4096), 15)
    return a
def write(a, pages):
    for page in pages: ctypes.memset(a + page * 4096, 1, 1)
def touch(a, pages):
    while True:
        write(a, pages)
        time.sleep(0.001)
"""


@pytest.fixture
def huge_pages():
    if os.geteuid() != 0:
        pytest.skip("needs root")
    before = int(_POOL.read_text())
    _POOL.write_text(str(before + 4))
    try:
        if int(_POOL.read_text()) < before + 2:
            pytest.skip("this kernel gives no hugetlb pages")
        yield
    finally:
        _POOL.write_text(str(before))


def assert_nearly(seen: list[int], touched: range, *, shared: bool = False) -> None:
    """None too many. DAMON, where it runs, may take a page's mark away before memtui knows the page.

    Of a page that processes share it leaves one note, which says somebody's touch, and not whose.
    """
    others = sorted(set(seen) - set(touched))
    assert len(others) <= (0.03 * len(touched) if shared and other_observers() else 0), others
    assert len(seen) >= 0.99 * len(touched), sorted(set(touched) - set(seen))[:20]


@needs_tracker
def test_of_hugetlb_nothing_is_known(run, huge_pages, tmp_path):
    """Nobody can clear its marks: its row is n/a in the session, the export and the report, and not 0."""
    pid, (address,) = run("a = map_(1024, 0x40022); print(a, flush=True); touch(a, range(1024))")
    path = tmp_path / "s.memtui"
    assert memtui("record", pid, "-o", path, "--duration", 1.5, "--interval", 0.2).returncode == 0
    reader = Session(path)
    (row,) = [vma.id for vma in reader.vmas.rows() if vma.start == address]
    _, ids, touched = reader.vmas.wss(0, len(reader.samples.wss_bytes))
    assert set(touched[ids == row].tolist()) == {UNKNOWN_BYTES}
    assert (touched[ids != row] > 0).all()
    windows = [reader.pages.page_set(int(sample), 1) for sample in reader.samples.sample[:]]
    stored = [pages for pages in windows if pages is not None]  # on a busy machine a window may be lost
    assert stored
    assert not any(address >> 21 in pages.huge.tolist() for pages in stored)
    reader.close()
    assert memtui("export", path, "--to", "csv", "-o", tmp_path / "csv").returncode == 0
    (line,) = [one for one in (tmp_path / "csv/vmas.csv").read_text().splitlines() if f",{address}," in one]
    assert line.endswith(f",,{4 << 20}"), "no working set, and all of it resident"


@needs_tracker
def test_what_was_given_back_with_madv_free_may_have_been_touched(run, tmp_path):
    """The kernel takes its accessed bits, and it stays resident: the window says how much it may lack."""
    run_on = "while True: write(a, range(2048)); libc.madvise(ctypes.c_void_p(a), 2048 * 4096, 8); time.sleep(0.1)"
    pid, _ = run(f"a = map_(2048); write(a, range(2048)); print(a, flush=True)\n{run_on}")
    path = tmp_path / "s.memtui"
    assert memtui("record", pid, "-o", path, "--duration", 6, "--interval", 0.5).returncode == 0
    with closing(Session(path)) as reader:
        said = Counter(reason for reason in reader.samples.reason if "MADV_FREE" in reason)
        assert said, Counter(reader.samples.reason)
        assert re.search(r"about 8\.0\d MiB more may have been touched", max(said, key=said.get))
    report = json.loads(memtui("report", path, "--json").stdout)
    assert (report["wss_bytes"]["status"], report["wss_bytes"]["lower_bound"]) == ("approximate", True)


@needs_tracker
def test_huge_pages_count_whole_and_the_report_says_so(run, tmp_path):
    """One byte of each is touched, of 4 KiB pages none."""
    pid, _ = run(
        "a = map_(16384); libc.madvise(ctypes.c_void_p(a), ctypes.c_size_t(16384 * 4096), 14); write(a, range(16384))\n"
        "print(a, flush=True); touch(a, range(0, 16384, 512))"
    )
    path = tmp_path / "s.memtui"
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    if int(re.search(r"^AnonHugePages: *(\d+) kB$", rollup, re.MULTILINE)[1]) < 32 << 10:
        pytest.skip("this kernel gave no huge pages")
    assert memtui("record", pid, "-o", path, "--duration", 2, "--interval", 0.5).returncode == 0
    report = json.loads(memtui("report", path, "--json").stdout)
    assert report["wss_bytes"]["median"] >= 32 << 20
    assert report["huge_page_share"] > 0.5
    assert "of the touched pages that are stored: each counts whole (2 MiB)" in memtui("report", path).stdout


@needs_tracker
def test_shared_memory_between_two_processes(run):
    """Each has marks of its own: what the child touches, the parent has not."""
    pid, (address,) = run(
        "a = map_(600, 0x21); write(a, range(600)); child = os.fork()\n"
        "if child == 0: touch(a, range(0, 600, 3))\n"
        "print(a, flush=True); touch(a, range(1, 600, 3))"
    )
    stream = sample(pid, 2, interval_ns=200_000_000)
    windows = {}
    for window in stream.windows[1:-1]:
        for one in window.processes:
            if one.pages is not None:  # the child came into the tree in this window
                windows.setdefault(one.process, []).append(within(one.pages, address, 600))
    firsts = {Counter(page % 3 for page in seen[0]).most_common(1)[0][0]: seen for seen in windows.values()}
    assert sorted(firsts) == [0, 1]
    for first, seen in firsts.items():
        for pages in seen:
            assert_nearly(pages, range(first, 600, 3), shared=True)


@needs_tracker
def test_memory_shared_since_a_fork(run):
    """Parent and child share the pages until one of them writes; each touch counts where it was made."""
    pid, (address,) = run(
        "a = map_(600); write(a, range(600)); child = os.fork()\n"
        "def read(pages):\n"
        "    while True:\n"
        "        for page in pages: ctypes.string_at(a + page * 4096, 1)\n"
        "        time.sleep(0.001)\n"
        "if child == 0: read(range(0, 600, 2))\n"
        "print(a, flush=True); read(range(1, 600, 2))"
    )
    stream = sample(pid, 2, interval_ns=200_000_000)
    firsts = set()
    for window in stream.windows[1:-1]:
        for one in window.processes:
            if one.pages is None:
                continue
            pages = within(one.pages, address, 600)
            first = Counter(page % 2 for page in pages).most_common(1)[0][0]
            firsts.add(first)
            assert_nearly(pages, range(first, 600, 2), shared=True)
    assert firsts == {0, 1}


_SYSCALL = {"x86_64": 323, "aarch64": 282}  # userfaultfd
_HANDLED = """
import fcntl, struct
PAGES, API, REGISTER, ZERO, MISSING = 600, 0xC018AA3F, 0xC020AA00, 0xC020AA04, 1
faults = libc.syscall({number}, os.O_CLOEXEC)
fcntl.ioctl(faults, API, bytearray(struct.pack("=QQQ", 0xAA, 0, 0)))
a = map_(PAGES)
fcntl.ioctl(faults, REGISTER, bytearray(struct.pack("=QQQQ", a, PAGES * 4096, MISSING, 0)))
def handle():
    while True:
        (address,) = struct.unpack_from("=Q", os.read(faults, 32), 16)
        fcntl.ioctl(faults, ZERO, bytearray(struct.pack("=QQQq", address & -4096, 4096, 0, 0)))
threading.Thread(target=handle, daemon=True).start()
write(a, range(0, PAGES, 3))
print(a, flush=True)
touch(a, range(0, PAGES, 3))
"""


@needs_tracker
def test_memory_whose_faults_the_program_handles_itself(run):
    """Whoever read a page of it that is not there would wait for the program, which is paused."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        pytest.skip(f"the number of userfaultfd on {platform.machine()} is not known here")
    libc = ctypes.CDLL(None, use_errno=True)
    if (faults := libc.syscall(number, os.O_CLOEXEC)) < 0:
        pytest.skip(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
    os.close(faults)
    pid, (address,) = run(_HANDLED.replace("{number}", str(number)))
    stream = sample(pid, 2, interval_ns=200_000_000)
    paused = [one for window in stream.windows[1:-1] for one in window.processes if one.status != "not paused"]
    assert len(paused) >= 2
    for one in paused:
        assert one.status == "ok", one.reason
        assert_nearly(within(one.pages, address, 600), range(0, 600, 3))
    (range_,) = [line for line in Path(f"/proc/{pid}/smaps").read_text().split("VmFlags:") if f"{address:x}-" in line]
    assert re.search(r"^Rss: +(\d+) kB", range_, re.M)[1] == str(200 * PAGE // 1024), "no other page came"


@pytest.mark.slow
@needs_tracker
def test_five_hundred_threads(run):
    """Each touches pages of its own."""
    pid, (address,) = run(
        "threading.stack_size(1 << 17); a = map_(1000); write(a, range(1000)); go = threading.Event()\n"
        "def work(page):\n"
        "    go.wait()\n"
        "    while True: write(a, [page]); time.sleep(0.05)\n"
        "for i in range(500): threading.Thread(target=work, args=(2 * i,), daemon=True).start()\n"
        "go.set(); print(a, flush=True); time.sleep(1000)"
    )
    stream = sample(pid, 8, interval_ns=1_000_000_000)
    windows = [one for window in stream.windows[1:-1] for one in window.processes]
    # Where other tests have the CPUs, stopping 500 threads may take longer than a pause may last.
    paused = [one for one in windows if one.status != "not paused"]
    assert len(paused) >= 2
    for one in paused:
        assert (one.status, one.threads) == ("ok", 501), one.reason
        assert_nearly(within(one.pages, address, 1000), range(0, 1000, 2))
        assert one.paused_ns < 1.1 * DEFAULT_MAX_PAUSE_NS


@needs_tracker
def test_two_thousand_vmas(run, tmp_path):
    """Neighbours with different rights do not merge. Rows do not multiply, and each has its own working set."""
    pid, (address,) = run(
        "a = map_(4000); write(a, range(4000))\n"
        "for i in range(0, 4000, 2): libc.mprotect(a + i * 4096, 4096, 1)\n"
        "print(a, flush=True)\n"
        "touch(a, range(1, 4000, 4))"
    )
    path = tmp_path / "s.memtui"
    assert memtui("record", pid, "-o", path, "--duration", 3, "--interval", 0.5, "--filter", "none").returncode == 0
    reader = Session(path)
    rows = {vma.start: vma.id for vma in reader.vmas.rows() if address <= vma.start < address + 4000 * PAGE}
    assert len(rows) == 4000
    wanted = sorted(rows[address + page * PAGE] for page in range(1, 4000, 4))
    numbers, ids, touched = reader.vmas.wss(1, len(reader.samples.wss_bytes) - 1)
    ours = np.isin(ids, list(rows.values()))
    for number in np.unique(numbers):
        here = ours & (numbers == number)
        assert set(ids[here].tolist()) <= set(wanted)
        assert here.sum() >= 0.99 * len(wanted)  # see assert_nearly
        assert set(touched[here].tolist()) == {PAGE}
    reader.close()


@needs_tracker
def test_what_a_child_copies_is_resident_memory_of_all_windows(run, tmp_path):
    """All of it is touched in each window, and the PSS is read before the window ends: what was touched is more."""
    pages = 10240
    pid, _ = run(f"""
a = map_({pages}); write(a, range({pages}))
if os.fork():
    print(a, flush=True)
    while True:
        for page in range({pages}): ctypes.string_at(a + page * 4096, 1)
        time.sleep(0.001)
for copied in range(64, {pages}, 64):
    write(a, range(copied))
    time.sleep(0.04)
touch(a, range({pages}))
""")
    path = tmp_path / "s.memtui"
    done = memtui("record", pid, "-o", path, "--interval", 0.5, "--max-overhead", "none", "--duration", 4)
    assert done.returncode == 0, done.stderr
    report = json.loads(memtui("report", "--json", path).stdout)
    with closing(Session(path)) as session:
        stored = session.samples.pss_bytes[np.isfinite(session.samples.pss_bytes)]
        assert report["pss_bytes"]["max"] >= stored.max() >= pages * PAGE
        assert "not known in" not in report["pss_bytes"]["reason"] or len(stored) < len(session.samples)


def test_a_peak_between_two_windows_is_in_the_resident_memory_of_the_report(run, tmp_path):
    """Windows are as far apart as a minute; the largest memory is what a job is killed for."""
    pages, more = 5120, 25600
    pid, _ = run(f"""
a = map_({pages}); write(a, range({pages}))
print(a, flush=True)
time.sleep(4)
b = map_({more}); write(b, range({more}))
time.sleep(3)
libc.munmap(ctypes.c_void_p(b), ctypes.c_size_t({more} * 4096))
while True: touch(a, range({pages})); time.sleep(0.001)
""")
    path = tmp_path / "s.memtui"
    done = memtui("record", pid, "-o", path, "--interval", 10, "--max-overhead", "none", "--duration", 10.5)
    assert done.returncode == 0, done.stderr
    report = json.loads(memtui("report", "--json", path).stdout)
    with closing(Session(path)) as session:
        ends = session.samples.rss_bytes[:]
    between = report["rss_bytes"]
    assert ends.max() < more * PAGE, "a window ended while there was more"
    assert (pages + more) * PAGE <= between["max"] <= ends.max() + more * PAGE + (4 << 20)
    # 3 of about 10 seconds, give or take a second at both ends.
    assert 0.1 < (between["mean"] - ends.min()) / (more * PAGE) < 0.5
    (process,) = report["processes"]
    assert process["rss_bytes"] == between["mean"]


def test_a_child_between_two_windows_is_in_the_resident_memory_of_the_report(run, tmp_path):
    """It maps what its parent has, and half as much of its own, and is in no window."""
    pages, own = 20480, 10240
    pid, _ = run(f"""
a = map_({pages}); write(a, range({pages}))
print(a, flush=True)
time.sleep(5)
if os.fork() == 0:
    b = map_({own}); write(b, range({own}))
    time.sleep(2.5)
    os._exit(0)
os.wait()
while True: touch(a, range({pages})); time.sleep(0.001)
""")
    path = tmp_path / "s.memtui"
    done = memtui("record", pid, "-o", path, "--interval", 10, "--max-overhead", "none", "--duration", 10.5)
    assert done.returncode == 0, done.stderr
    report = json.loads(memtui("report", "--json", path).stdout)
    pss, rss = report["pss_bytes"], report["rss_bytes"]
    assert len(report["processes"]) <= 2, "it may have been seen"
    assert (2 * pages + own) * PAGE <= rss["max"] <= (2 * pages + own) * PAGE + (40 << 20)
    assert (pages + own) * PAGE <= pss["max"] <= (pages + own) * PAGE + (24 << 20)
    assert pss["median"] < 1.02 * pages * PAGE + (20 << 20) < pss["max"]
    assert "sum over the processes" in rss["meaning"]


@needs_tracker
def test_a_child_that_begins_inside_a_window_is_in_it(run, tmp_path):
    """It touches memory of its parent, which only waits: the window's working set, and its resident memory, have it."""
    pages = 10240
    pid, _ = run(f"""
a = map_({pages}); write(a, range({pages}))
print(a, flush=True)
time.sleep(4)
if os.fork() == 0:
    while True: touch(a, range({pages})); time.sleep(0.001)
os.wait()
""")
    path = tmp_path / "s.memtui"
    done = memtui("record", pid, "-o", path, "--interval", 10, "--max-overhead", "none", "--duration", 10.5)
    assert done.returncode == 0, done.stderr
    reader = Session(path)
    assert len(reader.processes.all()) == 2
    last = reader.processes.samples(reader.samples.newest, reader.samples.newest)
    assert len(last) == 2
    parent, child = sorted(last, key=lambda row: row["process"])
    assert child["wss_bytes"] >= pages * PAGE
    assert child["start_ns"] > parent["start_ns"] + 10**9, "its part of the window begins with it"
    assert reader.samples.rss_bytes[-1] >= 2 * pages * PAGE
    reader.close()
