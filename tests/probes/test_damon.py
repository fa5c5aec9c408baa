"""The damon tracker: what it estimates against known truths, and that it leaves the kernel's DAMON as it found it.

Most of it runs on any kernel, against a model of DAMON's files; what needs the real thing runs in the lab.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core import capabilities
from memtui.core.procfs import has_ended
from memtui.core.samples import Capability, Status, Vma
from memtui.probes.pages import select_tracker
from memtui.probes.pages.damon import sysfs
from memtui.probes.pages.damon import tracker as damon
from memtui.probes.pages.damon.regions import page_count, regions_of, shares, sizes_by_vma
from memtui.probes.pages.damon.sysfs import Interface, Refused, Taken, Target
from memtui.probes.pages.damon.tracker import DamonTracker
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.tracker import TrackerError
from memtui.probes.proc_maps import parse_maps, read_maps
from tests.support.cli import memtui
from tests.support.damon_kernel import ADMIN, Kernel, state
from tests.support.live import needs_root, pattern
from tests.support.pagetable_targets import Observer, need_pagetable
from tests.support.pagetable_targets import Target as Process

pytestmark = pytest.mark.real_clock

FOUND = damon.prove()
needs_damon = pytest.mark.skipif(not FOUND.ok, reason=f"no damon tracker here: {FOUND.reason}")
PAGE, MIB = 4096, 1 << 20


def vmas_of(pid: int) -> tuple[Vma, ...]:
    return parse_maps(read_maps(pid))


# -- where it looks, and what its finds say


def runs_of(lengths) -> np.ndarray:
    """Runs from (gap before it, pages)."""
    at, found = 16, []
    for gap, pages in lengths:
        found.append((at + gap, at + gap + pages))
        at += gap + pages
    return np.array(found, np.uint64).reshape(-1, 2)


RUNS = st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 5000)), min_size=1, max_size=40).map(runs_of)


@given(RUNS, st.integers(1, 600))
def test_regions_cover_all_that_is_resident_and_little_else(runs, count):
    regions = regions_of(runs, count)
    covered = 0
    for (start, end), after in zip(regions, [*regions[1:], (1 << 60, 0)], strict=True):
        assert start % PAGE == end % PAGE == 0
        assert start < end <= after[0]
        covered += (end - start) // PAGE
    for first, last in runs.tolist():
        inside = sum(max(0, min(e // PAGE, last) - max(s // PAGE, first)) for s, e in regions)
        assert inside == last - first
    assert covered <= page_count(runs) + 16 * (len(runs) - 1)
    assert len(regions) <= count + len(runs)


@given(RUNS, st.integers(1, 600))
def test_neighbours_are_never_small_enough_for_the_kernel_to_join(runs, count):
    """It joins two that adjoin up to the size of all divided by the minimum of regions: see Interface.start."""
    regions = regions_of(runs, count)
    limit = sum(end - start for start, end in regions) // (2 * len(regions) - 1)
    for (start, end), (after, last) in itertools.pairwise(regions):
        assert after > end or last - start > max(limit, PAGE)


def test_very_many_runs_lose_their_smallest():
    runs = runs_of([(1000, 1 + number % 7) for number in range(3000)])
    assert len(regions_of(runs, 512)) == 1024
    assert sum(end - start for start, end in regions_of(runs, 512)) >= 1024 * 5 * PAGE


def test_regions_are_shared_out_by_size():
    assert shares([900, 90, 10], 512, 16) == [460, 46, 16]
    assert shares([0], 512, 16) == [16]


@given(st.integers(0, 2**32 - 1), st.floats(0.02, 0.9))
def test_the_sizes_of_touched_regions_are_an_unbiased_estimate(seed, share):
    """Whatever the pattern: here a random part of the pages, one page of each region looked at, as DAMON does."""
    random = np.random.default_rng(seed)
    touched = random.random(20_000) < share
    regions = np.array(regions_of(np.array([[0, 20_000]], np.uint64), 512)) // PAGE
    sizes = regions[:, 1] - regions[:, 0]
    windows = 200
    looked = regions[:, 0] + (random.random((windows, len(regions))) * sizes).astype(int)
    estimates = (touched[looked] * sizes).sum(axis=1)
    true = touched.sum()
    # Standard error of one window, as docs/reference/accuracy.md has it; seven of them is no accident.
    error = true * np.sqrt((1 - true / 20_000) / (true / 20_000 * len(regions)))
    assert abs(estimates.mean() - true) <= 7 * error / np.sqrt(windows)
    assert estimates.std() <= 1.3 * error


VMAS = (Vma(0x1000, 0x3000, "rw-p"), Vma(0x3000, 0x4000, "r--p"), Vma(0x8000, 0x10000, "rw-p"))


def test_a_region_over_several_ranges_is_shared_out_and_nothing_is_lost():
    assert sizes_by_vma([(0x1000, 0x2000), (0x2000, 0x4000)], VMAS) == ((0x1000, 0x2000), (0x3000, 0x1000))
    assert sizes_by_vma([(0x3000, 0x9000)], VMAS) == ((0x3000, 0x3000), (0x8000, 0x3000)), "with the hole in between"
    assert sizes_by_vma([(0x5000, 0x6000)], VMAS) == (), "it is mapped no more"
    assert sizes_by_vma([], VMAS) == sizes_by_vma([(0, 0x1000)], ()) == ()


# -- the interface, against a model of the kernel's files


@pytest.fixture
def kernel(tmp_path) -> Kernel:
    if os.geteuid() != 0:
        pytest.skip("needs root, as the files of DAMON do")
    return Kernel(tmp_path)


def someone_configures(kernel: Kernel) -> None:
    """What a user of damo or a shell leaves behind that is no default."""
    for name, value in {
        "nr_kdamonds": 2,
        "1/contexts/nr_contexts": 1,
        "1/contexts/0/operations": "paddr",
        "1/contexts/0/monitoring_attrs/intervals/aggr_us": 400_000,
        "1/contexts/0/targets/nr_targets": 1,
        "1/contexts/0/targets/0/regions/nr_regions": 2,
        "1/contexts/0/targets/0/regions/1/end": 4096,
        "1/contexts/0/schemes/nr_schemes": 1,
        "1/contexts/0/schemes/0/action": "pageout",
        "1/contexts/0/schemes/0/filters/nr_filters": 1,
        "1/contexts/0/schemes/0/filters/0/type": "memcg",
    }.items():
        kernel.write(name, value)


def everything(kernel: Kernel) -> dict[str, str]:
    return {str(f.relative_to(kernel._admin)): f.read_text() for f in kernel._admin.rglob("*") if f.is_file()}


TARGETS = [Target(7, [(0x1000, 0x2000)]), Target(42, [(0x10000, 0x20000), (0x20000, 0x30000)])]


def test_what_is_asked_of_the_kernel(kernel):
    kernel.take()
    kernel.start(TARGETS, 200_000_000)
    assert everything(kernel).items() >= {
        "nr_kdamonds": "1\n",
        "0/state": "on\n",
        "0/contexts/0/operations": "fvaddr\n",
        "0/contexts/0/monitoring_attrs/intervals/sample_us": "200000\n",
        "0/contexts/0/monitoring_attrs/intervals/aggr_us": "200000\n",
        "0/contexts/0/monitoring_attrs/nr_regions/min": "5\n",
        "0/contexts/0/monitoring_attrs/nr_regions/max": "5\n",
        "0/contexts/0/targets/1/pid_target": "42\n",
        "0/contexts/0/targets/1/regions/1/start": f"{0x20000}\n",
        "0/contexts/0/schemes/0/access_pattern/nr_accesses/min": "0\n",
        "0/contexts/0/schemes/1/access_pattern/nr_accesses/min": "1\n",
        "0/contexts/0/schemes/1/filters/0/type": "target\n",
        "0/contexts/0/schemes/1/filters/0/matching": "N\n",
        "0/contexts/0/schemes/1/filters/0/damon_target_idx": "1\n",
    }.items()  # fmt: skip
    assert kernel.is_ours()


def test_what_the_kernel_answers(kernel):
    kernel.take()
    kernel.start(TARGETS, 200_000_000)
    assert kernel.read_out(2) is None, "its own region is not listed: it has not looked"
    schemes = "0/contexts/0/schemes"
    for scheme, name, start, end in ((0, 1, 0x1000, 0x2000), (1, 10, 0x20000, 0x30000), (1, 2, 0x10000, 0x20000)):
        kernel.put(f"{schemes}/{scheme}/tried_regions/{name}/start", start)
        kernel.put(f"{schemes}/{scheme}/tried_regions/{name}/end", end)
    assert kernel.read_out(2) == [[(0x1000, 0x2000)], [(0x10000, 0x20000), (0x20000, 0x30000)]]
    kernel.put("0/state", "off")
    with pytest.raises(OSError, match="it ended"):
        kernel.read_out(2)


@pytest.mark.parametrize("configured", [False, True])
@pytest.mark.parametrize("started", [False, True])
def test_it_leaves_what_it_found(configured, started, kernel):
    if configured:
        someone_configures(kernel)
    before = everything(kernel)
    kernel.take()
    if started:
        kernel.start(TARGETS, 10**9)
    assert everything(kernel) != before
    kernel.release()
    assert everything(kernel) == before
    kernel.take()  # the lock is free again
    kernel.release()


def test_a_start_that_fails_is_undone(kernel, monkeypatch):
    someone_configures(kernel)
    before = everything(kernel)
    kernel.take()
    store = Kernel._store

    def refuse(self, name, value):
        if name.endswith("targets/0/pid_target"):
            raise OSError(errno.EINVAL, "no such process")
        store(self, name, value)

    monkeypatch.setattr(Kernel, "_store", refuse)
    with pytest.raises(OSError, match="no such process"):
        kernel.start(TARGETS, 10**9)
    kernel.release()
    assert everything(kernel) == before


def refusal(kernel: Kernel) -> Refused:
    before = everything(kernel)
    with pytest.raises(Refused) as caught:
        kernel.take()
    assert everything(kernel) == before
    return caught.value


def test_a_kdamond_that_runs_is_left_alone_and_named(kernel):
    someone_configures(kernel)
    kernel.write("1/state", "on")
    why = refusal(kernel)
    assert why.reason == "DAMON is in use: kdamond 1 runs (paddr)"
    assert why.remedy == f"echo off > {kernel._admin}/1/state, if it is not needed"
    damo = kernel._proc / "4711"
    damo.mkdir()
    (damo / "cmdline").write_bytes(b"/usr/bin/python3\0/usr/sbin/damo\0record\0")
    why = refusal(kernel)
    assert (why.reason, why.remedy) == ("DAMON is in use: kdamond 1 runs (paddr), of damo (pid 4711)?", "end it first")


def test_one_that_is_started_in_between_is_left_alone(kernel, monkeypatch):
    someone_configures(kernel)
    snapshot = kernel.snapshot
    monkeypatch.setattr(kernel, "snapshot", lambda: (snapshot(), kernel.put("1/state", "on"))[0])
    monkeypatch.setattr(sysfs, "_BUSY_S", 0.05)
    with pytest.raises(Refused, match="kdamond 1 runs"):
        kernel.take()
    assert kernel.read("1/contexts/0/operations") == "paddr"


def test_the_kernels_own_users_of_damon_are_named(kernel):
    enabled = kernel._modules / "damon_stat/parameters/enabled"
    enabled.parent.mkdir(parents=True)
    enabled.write_text("N\n")
    kernel.take()
    kernel.release()
    enabled.write_text("Y\n")
    why = refusal(kernel)
    assert why.reason == "DAMON is in use by the kernel's damon_stat"
    assert why.remedy == f"echo N > {enabled}, if it is not needed"


def test_a_kernel_that_lacks_it_says_which_option(kernel, tmp_path):
    kernel.operations = "paddr"
    why = refusal(kernel)
    assert why.reason == "the DAMON of this kernel watches no virtual addresses (only paddr)"
    assert "CONFIG_DAMON_VADDR" in why.remedy
    someone_configures(kernel)
    kernel.write("1/state", "on")
    assert refusal(kernel).remedy == why.remedy, "an end of what runs would not help"
    nothing = Interface(tmp_path / "nothing")
    refused = nothing.objection()
    assert refused is not None
    assert "CONFIG_DAMON_SYSFS" in refused.remedy


def test_a_kernel_that_is_too_old_says_so(kernel):
    kernel.old = True
    assert "Linux 6.7" in refusal(kernel).remedy


def test_without_root_it_says_so(kernel, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert refusal(kernel).remedy == "run with sudo"


def test_one_memtui_at_a_time(kernel, monkeypatch):
    monkeypatch.setattr(sysfs, "_PATIENCE_S", 0.05)
    code = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2); print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code, kernel._admin / "nr_kdamonds"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        assert refusal(kernel).reason == f"DAMON is in use by another memtui (pid {other.pid})"
        other.communicate()
    kernel.take()
    kernel.release()


def test_what_a_memtui_left_that_was_killed_is_cleared(kernel, tmp_path):
    dead = Kernel(tmp_path)
    dead.take()
    dead.start(TARGETS, 10**9)
    dead._unlock()  # as the kernel does
    kernel.take()
    assert kernel.read("0/state") == "off"
    kernel.release()
    assert kernel.read("nr_kdamonds") == "0"


def test_another_part_of_memtui_puts_back_what_a_dead_one_found(kernel, tmp_path):
    someone_configures(kernel)
    before = everything(kernel)
    dead = Kernel(tmp_path)
    original = json.loads(json.dumps(dead.take()))
    dead.start(TARGETS, 10**9)
    dead._unlock()
    kernel.release(original)
    assert everything(kernel) == before


def test_what_somebody_else_set_meanwhile_stays(kernel):
    kernel.take()
    kernel.start(TARGETS, 10**9)
    kernel.write("0/state", "off")
    someone_configures(kernel)
    theirs = everything(kernel)
    for act in (lambda: kernel.read_out(2), kernel.stop, lambda: kernel.start(TARGETS, 10**9)):
        with pytest.raises(Taken):
            act()
    kernel.release()
    assert everything(kernel) == theirs


def test_a_command_of_somebody_else_is_waited_for(kernel, monkeypatch):
    kernel.take()
    store, tries = Kernel._store, iter([OSError(errno.EBUSY, "busy"), OSError(errno.EBUSY, "busy")])

    def busy_at_first(self, name, value):
        if error := next(tries, None):
            raise error
        store(self, name, value)

    monkeypatch.setattr(Kernel, "_store", busy_at_first)
    kernel.write("0/contexts/nr_contexts", 1)
    assert next(tries, None) is None
    kernel.release()


# -- the tracker, without a kernel

WORKER = """
import json, os, sys, time
print(json.dumps({"found": {}}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    print(line.strip(), file=sys.stderr, flush=True)
    if "watch" in order:
        touched = [[order["watch"], order["serial"] + LATE, [[start, start + 8192]]]]
        print(json.dumps({"t_ns": time.monotonic_ns(), "touched": touched}), flush=True)
"""


@pytest.fixture
def scripted(monkeypatch):
    """A tracker whose worker says what a script says."""
    trackers = []

    def make(script: str) -> DamonTracker:
        script = script.replace("start", str(vmas_of(os.getpid())[0].start)).replace("LATE", "0")
        monkeypatch.setattr(damon, "worker_command", lambda: [sys.executable, "-c", script])
        trackers.append(DamonTracker("off"))
        return trackers[-1]

    yield make
    for tracker in trackers:
        tracker.close()


def window_of(tracker: DamonTracker, status: str, *, seconds: float = 20, pid: int = 0):
    """The first window of a process, this one when not given, that has this status."""
    end = time.monotonic() + seconds
    pid = pid or os.getpid()
    while True:
        window = tracker.window(pid, vmas_of(pid), want_resident=True)
        if window.status == status or time.monotonic() > end:
            return window
        time.sleep(0.01)


def test_a_window_is_an_estimate_and_says_so(scripted):
    tracker = scripted(WORKER)
    tracker.set_interval(10**9)
    tracker.start(os.getpid(), ())
    window = window_of(tracker, Status.APPROXIMATE)
    assert (window.pages, window.status, window.reason) == (None, Status.APPROXIMATE, damon.ESTIMATE)
    assert window.reason.startswith("an estimate")
    assert sum(size or 0 for _, size in window.vma_wss()) == 8192
    assert sum(size or 0 for _, size in window.vma_rss()) > MIB
    assert not tracker.pauses
    assert not tracker.pages.ok
    notices = [tracker.notice() for _ in range(4)]
    assert "an estimate" in notices[0]
    assert notices[-1] == ""


def test_a_process_that_executed_another_program_begins_anew(scripted, monkeypatch):
    tracker = scripted(WORKER.replace('if "watch" in order', 'if order.get("serial") == 1'))
    tracker.set_interval(10**9)
    tracker.start(os.getpid(), ())
    assert window_of(tracker, Status.APPROXIMATE).generation == 0
    monkeypatch.setattr(damon.tracker, "identity", lambda pid: (b"another",))
    window = tracker.window(os.getpid(), (), want_resident=False)
    assert (window.status, window.reason, window.generation) == (Status.FAILED, damon.FIRST, 1)
    assert window.vma_wss is None


def test_an_answer_to_an_earlier_question_does_not_count(scripted):
    tracker = scripted(WORKER.replace("LATE", "-1"))
    tracker.set_interval(10**9)
    tracker.start(os.getpid(), ())
    assert window_of(tracker, Status.APPROXIMATE, seconds=0.5).reason == damon.FIRST


def test_silence_is_no_working_set(scripted, monkeypatch):
    monkeypatch.setattr(damon, "_STALE_NS", 0)
    tracker = scripted(WORKER)
    tracker.set_interval(10**7)
    tracker.start(os.getpid(), ())
    time.sleep(0.3)
    window = window_of(tracker, Status.FAILED)
    assert (window.vma_wss, window.reason) == (None, "DAMON has been silent for more than three intervals")


def test_the_end_of_the_worker_is_told(scripted):
    tracker = scripted("print('{\"found\": {}}', flush=True)")
    tracker._worker.wait()
    tracker.set_interval(10**9)
    tracker.start(os.getpid(), ())
    assert window_of(tracker, Status.FAILED).reason == damon.WORKER_ENDED


def test_a_worker_that_cannot_have_damon_says_why(scripted):
    with pytest.raises(TrackerError, match="DAMON is in use by somebody"):
        scripted("""print('{"error": "DAMON is in use by somebody"}')""")


def test_an_interval_that_is_too_short_for_damon_is_told(scripted):
    tracker = scripted(WORKER)
    tracker.set_interval(20_000_000)
    assert any("0.1 s at least" in tracker.notice() for _ in range(4))


MODEL = """
import sys
from pathlib import Path
from memtui.probes.pages.damon import worker as damon_worker
from tests.support.damon_kernel import Kernel

class AllTouched(Kernel):
    "Everything was touched in every interval."
    def command(self, name, value):
        super().command(name, value)
        if value == "update_schemes_tried_regions":
            context = self._admin / "0/contexts/0"
            for target in context.glob("targets/[0-9]*"):
                for region in target.glob("regions/[0-9]*"):
                    for end in ("start", "end"):
                        found = f"0/contexts/0/schemes/{target.name}/tried_regions/{region.name}/{end}"
                        self.put(found, (region / end).read_text().strip())

damon_worker.REGIONS = 64
damon_worker.Interface = lambda: AllTouched(Path(sys.argv[1]))
sys.exit(damon_worker.main())
"""


@pytest.fixture
def modelled(kernel, tmp_path, monkeypatch):
    """Trackers with the real worker, on the model of the kernel's files."""
    monkeypatch.setattr(damon, "worker_command", lambda: [sys.executable, "-c", MODEL, str(tmp_path)])
    monkeypatch.setattr(damon, "Interface", lambda: kernel)
    monkeypatch.setattr(damon, "_END_S", 60.0)  # folders of a file system are slower than the kernel's
    trackers = []

    def make() -> DamonTracker:
        trackers.append(DamonTracker("off"))
        return trackers[-1]

    yield make
    for tracker in trackers:
        tracker.close()


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def test_the_worker_watches_what_is_resident_and_leaves_what_it_found(kernel, modelled):
    someone_configures(kernel)
    before = everything(kernel)
    with pattern("loop", "--pages", 4000) as first, pattern("loop", "--pages", 12_000) as second:
        tracker = modelled()
        tracker.set_interval(150_000_000)
        pids = [first["pid"], second["pid"]]
        for pid in pids:
            tracker.start(pid, vmas_of(pid))
        for pid in pids:
            window = window_of(tracker, Status.APPROXIMATE, pid=pid, seconds=60)
            assert window.vma_wss, window.reason
            sizes = dict(window.vma_wss())
            assert sum(sizes.values()) == pytest.approx(resident(pid), rel=0.1)
            assert sum(dict(window.vma_rss()).values()) == pytest.approx(resident(pid), rel=0.05)
        (row,) = [vma.start for vma in vmas_of(pid) if vma.start <= second["start"] < vma.end]
        assert sizes[row] == pytest.approx(12_000 * PAGE, rel=0.05)
        pid_targets = [(kernel._admin / f"0/contexts/0/targets/{n}/pid_target").read_text() for n in (1, 2)]
        assert pid_targets == [f"{pid}\n" for pid in pids]
        tracker.forget(pids[0])
        tracker.start(pids[0], vmas_of(pids[0]))
        assert tracker.window(pids[0], (), want_resident=False).reason == damon.FIRST
        assert window_of(tracker, Status.APPROXIMATE, pid=pids[0], seconds=60).vma_wss, "joined in"
        tracker.set_interval(None)
        assert until(lambda: kernel.read("0/state") == "off", 20)
        tracker.close()
    assert everything(kernel) == before


@pytest.mark.parametrize("who", ["worker", "tracker"])
def test_whoever_is_killed_what_was_found_is_put_back(who, kernel, modelled, tmp_path):
    someone_configures(kernel)
    before = everything(kernel)
    if who == "worker":
        tracker = modelled()
        tracker.set_interval(10**8)
        tracker.start(os.getpid(), ())
        assert window_of(tracker, Status.APPROXIMATE).vma_wss
        tracker._worker.kill()
        tracker._worker.wait()
        window = window_of(tracker, Status.FAILED)
        assert (window.vma_wss, window.reason) == (None, damon.WORKER_ENDED)
        tracker.close()
    else:
        command = f"damon.worker_command = lambda: [sys.executable, '-c', {MODEL!r}, {str(tmp_path)!r}]"
        holder = HOLDER.replace("tracker = ", f"{command}\ntracker = ", 1)
        with subprocess.Popen([sys.executable, "-c", holder, str(os.getpid())], stdout=subprocess.PIPE) as child:
            assert child.stdout
            worker = int(child.stdout.readline())
            assert until(lambda: (kernel._admin / "0/state").read_text() == "on\n")
            child.kill()
        assert until(lambda: not Path(f"/proc/{worker}").exists())
    assert everything(kernel) == before


def test_auto_never_chooses_it(monkeypatch):
    out = select_tracker._Entry(lambda: Capability("x", False, "out"), lambda *_: pytest.fail("chosen"))
    for name in ("pagetable", "idle", "referenced"):
        monkeypatch.setitem(select_tracker._TRACKERS, name, lambda: out)
    here = select_tracker._Entry(lambda: pytest.fail("tried"), lambda *_: pytest.fail("chosen"))
    monkeypatch.setitem(select_tracker._TRACKERS, "damon", lambda: here)
    assert select_tracker.choose("auto", "auto")[0].name == "rss"


def test_the_best_alternative_comes_first(monkeypatch):
    yes = select_tracker._Entry(lambda: Capability("x", True), lambda *_: pytest.fail("chosen"))
    capabilities = {
        name: Capability(name, name not in ("damon", "pagetable"), "no such thing", "get one")
        for name in select_tracker.NAMES
    }
    monkeypatch.setattr(select_tracker, "_prove", lambda name, _entry: capabilities[name])
    monkeypatch.setitem(select_tracker._TRACKERS, "idle", lambda: yes)
    with pytest.raises(select_tracker.NoTracker) as caught:
        select_tracker.choose("damon", "auto")
    assert str(caught.value) == (
        "tracker damon does not work here: no such thing (get one); these would: idle, referenced, rss (best first)"
    )


def test_its_sampler_keeps_no_more_rights_than_every_sampler():
    assert capabilities.sampler_needs("damon") == capabilities.sampler_needs("rss")


@pytest.mark.skipif(FOUND.ok, reason="this kernel has what damon needs")
@needs_root
def test_asked_for_where_there_is_none(tmp_path):
    before = (ADMIN / "nr_kdamonds").read_text() if ADMIN.exists() else ""
    with pattern("random", "--pages", 64, "--touched", 8) as truth:
        done = memtui("record", truth["pid"], "--tracker", "damon", "-o", tmp_path / "s.memtui")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"tracker damon does not work here: {FOUND.reason} ({FOUND.remedy}); these would: " in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert ((ADMIN / "nr_kdamonds").read_text() if ADMIN.exists() else "") == before


def test_doctor_says_what_it_is_or_what_is_missing():
    (tracker,) = [c for c in json.loads(memtui("doctor", "--json").stdout)["trackers"] if c["name"] == "damon"]
    assert tracker["ok"] == FOUND.ok
    assert tracker["reason"].startswith("an estimate") if FOUND.ok else tracker["remedy"]


# -- the real kernel

INTERVAL_NS = 2_000_000_000  # an emulated machine is slow
NOTHING = "0\n"


@needs_damon
def test_a_proof_leaves_nothing_behind_on_the_real_kernel():
    assert damon.prove() == Capability("damon", True, damon.ONLY_ON_REQUEST)
    assert (ADMIN / "nr_kdamonds").read_text() == NOTHING


@needs_damon
@pytest.mark.parametrize("touched", [range(16384), None], ids=["one range", "scattered"])
def test_the_working_set_is_within_a_quarter_of_the_page_exact_one_on_the_real_kernel(touched):
    """64 MiB of 256 MiB, the whole process counted, against the page-table tracker on the same process."""
    need_pagetable()
    with Process() as target:
        places = f"np.arange({len(touched)})" if touched else "drawn(65536, 16384, 3)"
        target.do(f"a = anonymous(65536); v = view(a, 65536); v[:] = 1; p = {places}; answer = a")
        target.send("loop(v, p, False)")
        exact = Observer(PageTableTracker())
        exact.start(target.pid)
        target.let_run(0.5)
        truth = exact.window(target.pid).pages.size_bytes
        exact.close()
        exact.tracker.close()
        assert truth > 64 * MIB
        estimates = estimates_of(target.pid, 4)
    assert abs(np.mean(estimates) / truth - 1) < 0.25, (truth, estimates)
    assert (ADMIN / "nr_kdamonds").read_text() == NOTHING


def estimates_of(pid: int, count: int) -> list[int]:
    """So many of one process, each of another interval of DAMON's."""
    tracker = DamonTracker()
    estimates: dict[int, int] = {}
    try:
        tracker.set_interval(INTERVAL_NS)
        tracker.start(pid, vmas_of(pid))
        end = time.monotonic() + 300
        while len(estimates) < count and time.monotonic() < end:
            window = tracker.window(pid, vmas_of(pid), want_resident=False)
            if window.vma_wss:
                estimates[tracker._tracked[pid].t_ns] = sum(size or 0 for _, size in window.vma_wss())
            time.sleep(0.2)
        assert len(estimates) == count, window.reason
        return list(estimates.values())
    finally:
        tracker.close()


HOLDER = """
import sys, time
from memtui.probes.pages.damon import tracker as damon
tracker = damon.DamonTracker("off")
tracker.set_interval(500_000_000)
tracker.start(int(sys.argv[1]), ())
print(tracker._worker.pid, flush=True)
time.sleep(600)
"""


def until(condition, seconds: float = 180) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


@needs_damon
@pytest.mark.parametrize("killed", ["sampler", "both"])
def test_kill_9_on_the_real_kernel(killed):
    """Killed alone, the sampler leaves DAMON as it was; when its worker is killed, too, the next memtui clears it."""
    for name, value in (("nr_kdamonds", "1"), ("0/contexts/nr_contexts", "1"), ("0/contexts/0/operations", "paddr")):
        (ADMIN / name).write_text(value)
    command = [sys.executable, "-c", HOLDER, str(os.getpid())]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
            assert holder.stdout
            worker = int(holder.stdout.readline())
            assert until(lambda: state() == "on")
            assert "another memtui" in damon.prove().reason
            if killed == "both":
                os.kill(worker, signal.SIGKILL)
            holder.kill()
        if killed == "sampler":
            assert until(lambda: has_ended(worker))  # perhaps not reaped: its parent is dead
            assert (ADMIN / "0/contexts/0/operations").read_text() == "paddr\n"
        else:
            assert until(lambda: damon.prove().ok)
            assert (ADMIN / "nr_kdamonds").read_text() == NOTHING
    finally:
        if state() == "off":
            (ADMIN / "nr_kdamonds").write_text("0")


@needs_damon
def test_what_runs_is_left_alone_on_the_real_kernel():
    for name, value in (
        ("nr_kdamonds", "1"), ("0/contexts/nr_contexts", "1"), ("0/contexts/0/operations", "vaddr"),
        ("0/contexts/0/targets/nr_targets", "1"), ("0/contexts/0/targets/0/pid_target", str(os.getpid())),
        ("0/state", "on"),
    ):  # fmt: skip
        (ADMIN / name).write_text(value)
    try:
        assert damon.prove().reason == "DAMON is in use: kdamond 0 runs (vaddr)"
        assert until(lambda: state() == "on", 1)
    finally:
        (ADMIN / "0/state").write_text("off")
        (ADMIN / "nr_kdamonds").write_text("0")
