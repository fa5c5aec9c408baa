"""``fast-memory``: its numbers from recorded trees, its sentences either way, and a real limit that leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

import memtui as memtui_package
from memtui.analysis.reuse_distance import ReuseTracker
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.statistics import MedianInterval
from memtui.core.errors import UserError
from memtui.core.json_fields import from_json, to_json
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_BYTES
from memtui.session.vma_row import VmaRow
from memtui.study import command
from memtui.study.plan import Run
from memtui.study.recorded_run import Trace
from memtui.study.runs import cgroup_limit, memory_limit, runner, swap_file
from memtui.study.runs.cgroup_limit import LimitGroup, counts_of
from memtui.study.runs.limit_messages import (
    HolderFailed,
    HolderGone,
    HolderReady,
    JoinRequest,
    LimitOrder,
    LimitReached,
    LimitRequest,
    ProcessJoined,
    reply_of,
    request_of,
)
from memtui.study.runs.messages import (
    MemoryOrder,
    MemoryResult,
    RunFailed,
    RunProgress,
    RunResult,
    worker_message_of,
)
from memtui.study.studies.base import Setting
from memtui.study.studies.catalogue import STUDIES
from memtui.study.studies.fast_memory.conclusions import conclude, factor, verdict
from memtui.study.studies.fast_memory.miss_curve import MissCurve, swappable
from memtui.study.studies.fast_memory.numbers import FastMemoryNumbers, LimitPoint, ProgramNumbers
from memtui.study.studies.fast_memory.runs import step_counts
from memtui.study.workloads.access_orders import lru_misses, touch_order
from tests.support.cli import memtui
from tests.support.limited_runs import MIB, perform_limited, touches
from tests.support.live import needs_root, needs_tracker
from tests.support.sessions import MS, messages, write_session
from tests.support.study_reports import SAMPLES, result_of, under_a_limit
from tests.support.study_runs import STEPS, await_none, needs_figures
from tests.support.users import temporary_user

ROOT = Path(memtui_package.__file__).parents[1]
WHY_NOT = memory_limit.why_not(["/var/tmp", "/tmp"]) if os.geteuid() == 0 else "needs root"
needs_limit = pytest.mark.skipif(bool(WHY_NOT), reason=f"no limited memory here: {WHY_NOT}")

V1_STAT = """cache 9641984
rss 40130560
rss_huge 0
shmem 9068544
swap 31322112
swapcached 4096
pgpgin 458007
pgpgout 453668
pgfault 41090
pgmajfault 2480
hierarchical_memory_limit 50331648
total_pgmajfault 63109
"""
V2_STAT = """anon 40130560
file 9641984
kernel 1048576
kernel_stack 16384
pagetables 524288
shmem 9068544
swapcached 8192
pgfault 41090
pgmajfault 2480
pswpin 17650
pswpout 20000
"""


def tree(folder: Path, version: int, stat: str) -> tuple[Path, Path]:
    """A cgroup with one process, and /proc, as files."""
    group, proc = folder / "group", folder / "proc"
    for each in (group, proc / "77"):
        each.mkdir(parents=True)
    (group / "memory.stat").write_text(stat)
    (group / "cgroup.procs").write_text("77\n")
    (group / ("memory.usage_in_bytes" if version == 1 else "memory.current")).write_text("50262016\n")
    if version == 1:
        (group / "memory.kmem.usage_in_bytes").write_text("344064\n")
    else:
        (group / "memory.swap.current").write_text("31322112\n")
    (proc / "77/stat").write_text("77 (a (b) c) R 1 77 77 0 -1 4194304 41090 5 2481 0 9 9 0 0 20 0 1 0 5 1 1\n")
    (proc / "vmstat").write_text("nr_free_pages 1\npswpin 99999\npswpout 1\n")
    return group, proc


def test_both_versions_of_the_interface_are_read(tmp_path):
    first, second = (counts_of(v, *tree(tmp_path / str(v), v, stat)) for v, stat in ((1, V1_STAT), (2, V2_STAT)))
    for counts in (first, second):
        assert counts.major_faults == 2480
        assert counts.process_major_faults == 2481
        assert counts.faults == 41090
        assert counts.used_bytes == 50262016
        assert counts.pages_bytes == 40130560 + 9068544
        assert counts.swap_bytes == 31322112
    assert first.other_bytes == 9641984 - 9068544 + 344064
    assert second.other_bytes == 9641984 - 9068544 + 1048576
    # Version 1 does not count pages from swap: the machine does.
    assert (first.swapped_in, second.swapped_in) == (99999, 17650)


def test_an_older_version_2_has_parts_of_the_kernels_memory_and_counts_swap_for_the_machine(tmp_path):
    stat = "".join(line + "\n" for line in V2_STAT.splitlines() if line.split()[0] not in ("kernel", "pswpin"))
    counts = counts_of(2, *tree(tmp_path, 2, stat))
    assert counts.other_bytes == 9641984 - 9068544 + 16384 + 524288
    assert counts.swapped_in == 99999


def test_a_limit_is_written_to_the_files_of_its_version(tmp_path):
    for version, limit, swap in (
        (1, "memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", 30 * MIB)),
        (2, "memory.max", ("memory.swap.max", 20 * MIB)),
    ):
        group, _ = tree(tmp_path / str(version), version, V1_STAT)
        LimitGroup(version, group).limit(60 * MIB, 20 * MIB, 1.0)
        assert (group / limit).read_text() == str(60 * MIB)
        assert (group / swap[0]).read_text() == str(swap[1] if version == 2 else 80 * MIB)


def test_whether_swap_was_full_is_read_from_both_versions(tmp_path):
    first, _ = tree(tmp_path / "1", 1, V1_STAT)
    second, _ = tree(tmp_path / "2", 2, V2_STAT)
    assert LimitGroup(1, first).swap_was_full() is LimitGroup(2, second).swap_was_full() is None, "nothing tells it"
    for failures, full in (("0", False), ("3", True)):
        (first / "memory.memsw.failcnt").write_text(f"{failures}\n")
        assert LimitGroup(1, first).swap_was_full() is full
        for name in ("max", "fail"):
            (second / "memory.swap.events").write_text(f"high 9\n{name} {failures}\n")
            assert LimitGroup(2, second).swap_was_full() is full


@pytest.mark.parametrize(
    ("kills", "swap_was_full", "starts", "says"),
    [
        ([1, 0], False, 2, None),
        ([1, 1, 0], False, 3, None),
        ([1, 1, 1], False, 3, "found nothing to put out, though 2.00 MiB of swap had room"),
        ([1], True, 1, "1.00 MiB of memory and 2.00 MiB of swap were full"),
        ([1], None, 1, "1.00 MiB of memory and 2.00 MiB of swap were full"),
    ],
)
def test_a_program_that_was_killed_though_swap_had_room_is_tried_again(
    tmp_path, monkeypatch, kills, swap_was_full, starts, says
):
    """The kernel sometimes gives up where all pages are accessed again and again."""
    memory = {"limit_bytes": MIB, "swap_bytes": 2 * MIB, "swap_was_full": swap_was_full}
    kills_left = iter(kills)
    ended = {"limited": False, "exit": 0, "seconds": 9.0, "windows": 9, "ending": ""}
    monkeypatch.setattr(runner, "_worker", lambda order, log: contextlib.nullcontext(0))
    monkeypatch.setattr(
        runner,
        "_listen",
        lambda fd, show: from_json(RunResult, ended | {"memory": memory | {"kills": next(kills_left)}}),
    )
    run = Run("x", ("python", "train.py"), 5.0)
    if says is None:
        done = runner.perform(run, tmp_path / "run", [0], (), lambda word: None)
        assert done.attempts == starts
    else:
        with pytest.raises(UserError, match=says):
            runner.perform(run, tmp_path / "run", [0], (), lambda word: None)
    assert next(kills_left, "all asked") == "all asked"


def test_a_limit_that_does_not_come_down_is_told(tmp_path):
    group, _ = tree(tmp_path, 2, V2_STAT)  # files: nothing is ever freed
    (group / "memory.current").write_text(str(900 * MIB))
    with pytest.raises(UserError, match="came down to"):
        LimitGroup(2, group).limit(60 * MIB, 20 * MIB, 0.05)


def sent(message: object) -> dict:
    return json.loads(json.dumps(to_json(message)))


def test_messages_of_a_limit_arrive_as_they_were_sent():
    order = LimitOrder(4096, ("/var/tmp", "/tmp"), 1000)
    assert from_json(LimitOrder, sent(order)) == order
    for request in (JoinRequest(42), LimitRequest(1 << 30)):
        assert request_of(sent(request)) == request
    ready = HolderReady(2, "/sys/fs/cgroup/memtui-limit-1-2", "a file on ext4", 4096)
    for reply in (
        ready,
        ProcessJoined(42),
        LimitReached(1 << 30),
        HolderFailed("no", 2),
        HolderGone("/dev/loop3: busy"),
    ):
        assert reply_of(sent(reply)) == reply


def test_messages_of_a_worker_arrive_as_they_were_sent():
    for message in (RunProgress(1.5, 3.0, None), RunFailed("no", 1)):
        assert worker_message_of(sent(message)) == message
    result = RunResult(seconds=2.0, step_times_ns=(1, 2), memory=limit(0.5))
    assert worker_message_of({"done": sent(result)}) == result


def limit(share: float) -> MemoryResult:
    return from_json(MemoryResult, under_a_limit(share))


def test_steps_are_counted_after_the_limit_and_some_time_to_settle():
    counted = step_counts(limit(0.5))
    assert counted is not None
    assert (counted.major_faults, counted.swapped_in, counted.minor_faults) == (100, 700, 800)
    assert counted.steps <= 9  # of twelve
    assert counted.step_s == pytest.approx(0.2)
    assert counted.room_bytes == 28 * MIB  # 32 MiB less page cache and kernel memory
    assert step_counts(limit(0.0)).room_bytes is None
    half = limit(0.5)
    assert step_counts(replace(half, reached_ns=None)) is None
    assert step_counts(replace(half, samples=half.samples[:2])) is None
    last = half.samples[-1]
    ended = replace(last, counts=replace(last.counts, process_major_faults=3))  # one of its processes ended
    assert step_counts(replace(half, samples=(*half.samples[:-1], ended))).process_major_faults is None


def pages_of(numbers) -> PageSet:
    return PageSet.from_pages(np.unique(np.asarray(numbers, np.uint64)))


@pytest.mark.parametrize("order", ["cyclic", "zipf"])
def test_the_known_orders_miss_what_exact_reuse_distances_say(order):
    """One page a window: then the bounds meet, and both ways of counting are the same."""
    steps = list(islice(touch_order(order, 60, 15, 3), 12))
    tracker, exact = ReuseTracker(), ExactReuse()
    for touched in steps:
        for page in touched.tolist():
            exact.add(tracker.touch(pages_of([page])))
    distances, counts = exact.entries("upper")
    for capacity in (1, 7, 30, 59, 60, 61):
        beyond = int(counts[distances > capacity * PAGE_BYTES].sum())
        assert lru_misses(steps, capacity).sum() == exact.first_touches + beyond
    again = list(islice(touch_order(order, 60, 15, 3), 12))
    assert all((a == b).all() for a, b in zip(steps, again, strict=True))


def test_a_ring_misses_all_or_nothing_and_popular_pages_are_held_first():
    ring = list(islice(touch_order("cyclic", 64, 16, 0), 12))
    assert lru_misses(ring, 63)[4:].tolist() == [16] * 8
    assert lru_misses(ring, 64)[4:].tolist() == [0] * 8
    drawn = list(islice(touch_order("zipf", 1024, 256, 0), 40))
    few, many = (lru_misses(drawn, capacity)[20:].mean() for capacity in (256, 768))
    assert 0 < many < few < 256
    with pytest.raises(ValueError, match="none of"):
        touch_order("stairs", 1, 1, 0)


def test_the_curve_counts_returning_touches_by_step():
    tracker, exact = ReuseTracker(), ExactReuse()
    for window in range(12):
        exact.add(tracker.touch(pages_of(range(window % 4 * 16, window % 4 * 16 + 16))))
    curve = MissCurve(exact, steps=12.0, touches=exact.touches)
    low, high = curve.misses([0, 32 * PAGE_BYTES, 80 * PAGE_BYTES])
    returning = 8 * 16 / 12
    assert low.tolist() == [returning, returning, 0.0]
    assert high.tolist() == [returning, returning, 0.0]
    assert np.isnan(MissCurve(exact, steps=0.0, touches=0).misses([1])[0]).all()


@pytest.mark.parametrize(
    ("name", "perms", "can"),
    [
        ("", "rw-p", True),
        ("[heap]", "rw-p", True),
        ("[vdso]", "r-xp", False),
        ("/usr/lib/libtorch.so", "r-xp", False),
        ("/usr/lib/libtorch.so", "rw-p", True),
        ("/home/ann/data.bin", "rw-s", False),
        ("/dev/zero (deleted)", "rw-s", True),
        ("/memfd:x (deleted)", "rw-s", True),
    ],
)
def test_which_pages_can_go_to_swap(name, perms, can):
    assert swappable(VmaRow(1, 1, 1, 0, 4096, perms, name, 0, 1, "")) is can


@pytest.mark.parametrize(
    ("value", "bounds", "is_"),
    [(5, (4, 6), 1.0), (12, (4, 6), 2.0), (2, (4, 6), 0.5), (3, (0, 0), None), (0, (0, 0), 1.0), (None, (1, 2), None)],
)
def test_a_factor_is_to_the_nearer_bound(value, bounds, is_):
    assert factor(value, bounds) == is_


def interval(value, low=None, high=None):
    return MedianInterval(value, low, high, 0.0, 2)


def point(faults, pages, predicted, **changes):
    default = LimitPoint(
        share=0.5,
        runs=2,
        limit_bytes=40 * MIB,
        room_bytes=38 * MIB,
        steps=9.0,
        major_faults=interval(faults),
        swapped_in=None if pages is None else interval(pages),
        process_major_faults=None,
        minor_faults=interval(5.0),
        step_s=interval(0.3),
        predicted=predicted,
        predicted_merged=predicted,
        faults_factor=interval(1.5),
    )
    return replace(default, **changes)


def numbers_of(*points, **changes):
    free = point(0.0, 0.0, None, share=0.0, step_s=interval(0.1))
    program = ProgramNumbers(
        working_set_bytes=80 * MIB,
        steps_per_window=0.5,
        touches_per_step=1000.0,
        known_order=False,
        points=[free, *points],
    )
    return FastMemoryNumbers(0.1, 0.2, {"training": replace(program, **changes)}, page_cluster=3)


@pytest.mark.parametrize(
    ("faults", "pages", "predicted", "word", "says"),
    [
        (120, 900, [500, 700], "within", "that is within the bounds."),
        (120, None, [100, 700], "within", "within the bounds"),
        (1400, 3000, [500, 700], "more", "more than the upper bound, by a factor of 2.0"),
        (20, 100, [500, 700], "fewer", "less than the lower bound, by a factor of 5.0"),
        (730, 760, [500, 700], "within", "within the bounds"),
        (1, 2, [0, 3], "none", "neither is notable"),
        (100, 400, [0, 0], "more", "by a factor of inf"),
    ],
)
def test_the_verdict_on_a_limit_comes_out_each_way(faults, pages, predicted, word, says):
    limit_point = point(faults, pages, predicted)
    assert verdict(limit_point, 1000.0) == word
    text = " ".join(conclude(numbers_of(limit_point)))
    assert says in text
    assert f"At {int(word in ('within', 'none'))} of 1 limits" in text
    assert "windows of 0.1 s predict" in text


def test_the_factor_of_major_faults_has_its_interval_where_there_is_one():
    limit_point = point(300, 300, [90, 110])
    assert "1.50 of the nearer one (no interval: 2 repeats" in " ".join(conclude(numbers_of(limit_point)))
    sure = " ".join(conclude(numbers_of(replace(limit_point, faults_factor=interval(1.5, 1.4, 1.7)))))
    assert "for training at 50%: 1.50 of the nearer one (95 % interval 1.40 to 1.70)" in sure
    same = replace(limit_point, faults_factor=interval(1.0))
    assert "lie within the bounds at each of these limits, too" in " ".join(conclude(numbers_of(same)))


def test_what_less_memory_costs_is_said_for_the_least_of_it():
    points = [point(5, 5, [1, 9], share=share, step_s=interval(s)) for share, s in ((0.75, 0.15), (0.5, 0.4))]
    assert "over that without a limit: training at 50%: 4.0." in " ".join(conclude(numbers_of(*points)))
    unknown = numbers_of(point(5, 5, [1, 9], step_s=None))
    assert "over that without a limit" not in " ".join(conclude(unknown))


def test_what_is_not_known_is_said():
    assert "not known" in " ".join(conclude(numbers_of(point(5, 5, None))))
    assert "fewer than 2 steps" in " ".join(conclude(numbers_of(point(5, 5, None, runs=0, major_faults=None))))


def test_reasons_are_given_where_the_numbers_show_them():
    ahead = numbers_of(point(100, 700, [500, 700]))
    assert "brought in 7.0 to 7.0 pages" in " ".join(conclude(ahead))
    assert "page-cluster 3: up to 8" in " ".join(conclude(ahead))
    assert "readahead" not in " ".join(conclude(numbers_of(point(100, 101, [90, 110]))))
    often = numbers_of(point(300, 300, [90, 110]), steps_per_window=2.5)
    assert "holds 2.5 steps" in " ".join(conclude(often))
    assert "keeps lists of pages" in " ".join(conclude(often))
    few = " ".join(conclude(numbers_of(point(100, 100, [90, 110]), steps_per_window=2.5)))
    assert "holds 2.5 steps" not in few
    assert "no difference that these bounds show" in few
    assert "given back" not in " ".join(conclude(often))
    free = point(0.0, 0.0, None, share=0.0, step_s=interval(0.1), minor_faults=interval(400.0))
    anew = numbers_of(points=[free, point(100, 100, [90, 110])])
    assert "400 minor faults a step" in " ".join(conclude(anew))


@pytest.mark.parametrize(
    ("value", "says"),
    [(1.0, "the curve is right"), (1.4, "a factor of 1.40 outside"), (0.5, "a factor of 2.00 outside")],
)
def test_where_the_truth_is_known_the_curve_is_judged_by_it(value, says):
    numbers = numbers_of(point(5, 5, [1, 9], exact_factor=interval(value)), known_order=True)
    assert says in " ".join(conclude(numbers))
    assert says not in " ".join(conclude(numbers_of(point(5, 5, [1, 9], exact_factor=interval(value)))))


def test_without_root_or_room_or_cgroups_it_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert memory_limit.why_not([]) == "a limit on memory is root's to set: start it with sudo"
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"a swap file of 1\.00 EiB needs 512 MiB more") as error:
        swap_file.folder_for(1 << 60, [str(tmp_path), "/proc"])
    assert "free" in str(error.value)
    assert "/proc is on proc" in str(error.value)
    assert "\n" not in str(error.value)
    monkeypatch.setattr(cgroup_limit, "memory_mounts", dict)
    with pytest.raises(UserError, match="no memory cgroup can be made: none is mounted"):
        LimitGroup.make()
    (tmp_path / "top").mkdir()
    monkeypatch.setattr(cgroup_limit, "memory_mounts", lambda: {2: (tmp_path / "top", "/")})
    with pytest.raises(UserError, match=r"does not hand on the memory controller \(echo \+memory"):
        LimitGroup.make()
    assert not list((tmp_path / "top").iterdir())


def test_of_all_studies_it_is_left_out_with_the_reason_and_alone_it_is_refused():
    setting = Setting(True, 1, no_limit="there is no swap")
    messages: list[str] = []
    console = SimpleNamespace(notify=messages.append)
    plans, left_out = command._plans(["filters", "fast-memory"], setting, console, alone=False)
    assert [plan.study.name for plan in plans] == ["filters"]
    assert [(study.name, why) for study, why in left_out] == [
        ("fast-memory", "fast-memory needs a memory cgroup and swap: there is no swap")
    ]
    assert "fast-memory is left out" in messages[0]
    with pytest.raises(UserError, match="needs a memory cgroup and swap: there is no swap"):
        command._plans(["fast-memory"], setting, console, alone=True)


@needs_figures
def test_the_report_of_a_study_that_was_left_out_says_why_and_spares_an_earlier_one(tmp_path):
    from memtui.core.privilege import invoker
    from tests.support.study_reports import MACHINE

    arguments = (invoker(), STUDIES["fast-memory"], "there is no swap", Setting(True, 1), MACHINE, tmp_path, False)
    document = command._report_none(*arguments)
    assert document["conclusion"] == ["Not done here: there is no swap."]
    assert "Not done here: there is no swap." in (tmp_path / "fast-memory.html").read_text()
    (tmp_path / "fast-memory.html").write_text("earlier")
    command._report_none(*arguments)
    assert (tmp_path / "fast-memory.html").read_text() == "earlier"


def test_a_recording_comes_before_the_limits_that_are_shares_of_it():
    for setting in (Setting(True, 1), Setting(False, 2), Setting(True, 1, ("python", "x.py"))):
        plan = command._plans(["fast-memory"], setting, SimpleNamespace(notify=print), alone=True)[0][0].runs
        recorded = set()
        for run in plan:
            if run.memory_share is None:
                recorded.add(run.group)
            else:
                assert run.memory_of in recorded
                assert run.tracker == "rss"  # a tracker of pages would disturb what is measured


@needs_root
def test_another_user_is_told_what_is_missing():
    with temporary_user(None) as user:
        done = user.memtui("study", "fast-memory", "--quick", "-o", user.home / "out", PYTHONPATH=str(ROOT))
        assert done.returncode == 2
        assert done.stderr.strip().count("\n") == 0, done.stderr
        assert "root's to set: start it with sudo" in done.stderr


def traces_left() -> list[str]:
    """Of limits, on this machine."""
    groups = [
        str(folder)
        for top, _ in cgroup_limit.memory_mounts().values()
        for folder in Path(top).glob("memtui-limit-*")
        if not cgroup_limit.owner_lives(folder.name.removeprefix("memtui-limit-"))
    ]
    owners = {device: swap_file._owner(device) for device in swap_file._active()}
    swaps = [device for device, owner in owners.items() if owner is not None and not swap_file.owner_lives(owner)]
    holders = [
        str(process.pid)
        for process in psutil.process_iter(["cmdline"])
        if "memtui.study.runs.limit_holder" in (process.info["cmdline"] or ())
    ]
    return groups + swaps + holders


def await_nothing_left() -> None:
    deadline = time.monotonic() + 30
    while (left := traces_left()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert not [name for name in backing if name.startswith(("/tmp/#", "/var/tmp/#"))]


@pytest.mark.real_clock(alone=False)
@needs_limit
def test_a_ring_under_a_limit_brings_in_what_an_exact_lru_memory_misses(tmp_path):
    """8192 pages, 512 a step, in room for about half: every touch misses, whatever readahead makes of it."""
    program = touches("cyclic", "--pages", "8192", "--per-step", "512")
    result = perform_limited(tmp_path, program, 20 * MIB, 6.0)
    counted = step_counts(result.memory)
    assert counted is not None
    assert counted.room_bytes < 20 * MIB
    assert 0.5 * 512 < counted.swapped_in < 2 * 512
    assert 0 < counted.major_faults <= counted.swapped_in * 1.1
    assert counted.process_major_faults == pytest.approx(counted.major_faults, rel=0.2)
    last = result.memory.samples[-1]
    assert last.counts.used_bytes <= 20 * MIB
    assert last.counts.swap_bytes > 8 * MIB
    await_nothing_left()


@needs_limit
@pytest.mark.slow
def test_without_a_limit_it_is_counted_all_the_same_and_no_swap_is_made(tmp_path):
    result = perform_limited(tmp_path, touches("zipf", "--pages", "2048", "--per-step", "128"), None, 2.0)
    counted = step_counts(result.memory)
    assert counted is not None
    assert counted.major_faults < 1
    assert result.memory.swap == ""
    assert result.memory.samples[-1].counts.pages_bytes > 8 * MIB  # the program joined before it mapped anything
    await_nothing_left()


@needs_limit
@pytest.mark.slow
def test_a_program_that_outgrows_limit_and_swap_is_one_line(tmp_path):
    grow = "held = []\nfor at in range(1, 10**6):\n held.append(b'x' * (4 << 20))\n print('step', at, flush=True)\n"
    grow += " import time; time.sleep(0.02)"
    with pytest.raises(UserError, match=r"by the kernel: 16\.0 MiB of memory and 128 MiB of swap were full") as error:
        perform_limited(tmp_path, (sys.executable, "-c", grow), 16 * MIB, 60.0)
    assert "\n" not in str(error.value)
    await_nothing_left()


START = """
import sys
from pathlib import Path
from tests.support.limited_runs import perform_limited, touches
perform_limited(Path(sys.argv[1]), touches("cyclic", "--pages", "4096", "--per-step", "256", "--seed", sys.argv[2]),
                12 << 20, 120.0)
"""


def await_swapping(seed: str) -> psutil.Process:
    """The program, once some of it is in swap."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for process in psutil.process_iter(["cmdline"]):
            argv = process.info["cmdline"] or []
            if (
                argv[-1:] == [seed]
                and "memtui.study.workloads.known_accesses" in argv
                and "memtui.study.runs.program_launcher" not in argv
            ):
                with contextlib.suppress(psutil.Error):
                    if process.memory_full_info().swap > MIB:
                        return process
        time.sleep(0.1)
    raise AssertionError("it never swapped")


@pytest.mark.real_clock(alone=False)
@needs_limit
@pytest.mark.parametrize("who", ["study", "worker", "holder", "study and worker"])
def test_a_kill_leaves_neither_swap_nor_cgroup_nor_process(tmp_path, who):
    seed = str(10**6 + os.getpid())
    study = subprocess.Popen([sys.executable, "-c", START, str(tmp_path), seed], stderr=subprocess.PIPE)
    program = await_swapping(seed)
    of_study = psutil.Process(study.pid).children(recursive=True)
    by_name = {
        name: next(process for process in of_study if name in process.cmdline())
        for name in ("memtui.study.runs.worker", "memtui.study.runs.limit_holder")
    }
    assert any(swap_file._owner(device) for device in swap_file._active()) or swap_file.free_bytes()[0]
    if "study" in who:
        study.send_signal(signal.SIGKILL)
    if "worker" in who:
        by_name["memtui.study.runs.worker"].send_signal(signal.SIGKILL)
    if who == "holder":
        # Only the holder: the worker takes down cgroup and swap when the program ends.
        by_name["memtui.study.runs.limit_holder"].send_signal(signal.SIGKILL)
        program.terminate()
    study.communicate(timeout=60)
    await_none(seed)
    await_nothing_left()


@needs_limit
@pytest.mark.slow
def test_what_was_left_behind_all_the_same_is_swept_by_the_next_one():
    """Its owner is gone: the name is that of a process that never existed."""
    gone = f"{Path('/proc/self/ns/pid').stat().st_ino}-{(1 << 22) + 1}"
    script = f"""
from memtui.study.runs import cgroup_limit, swap_file
cgroup_limit.owner_id = swap_file.owner_id = lambda: {gone!r}
swap, _ = swap_file.switch_on(4 << 20, ["/var/tmp", "/tmp"])
print(cgroup_limit.LimitGroup.make().folder, swap.device, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    folder, device = done.stdout.split()
    assert Path(folder).exists()
    assert device in swap_file._active()
    assert memory_limit.why_not(["/var/tmp", "/tmp"]) == ""
    assert not Path(folder).exists()
    assert device not in swap_file._active()
    await_nothing_left()


@needs_limit
@needs_tracker
@needs_figures
@pytest.mark.slow
def test_the_whole_study_on_a_program_of_ones_own(tmp_path):
    """A ring in too little memory: the curve predicts a miss for every access, and every page is swapped in."""
    program = touches("cyclic", "--pages", "8192", "--per-step", "512")
    arguments = ["study", "fast-memory", "--quick", "--cpus", 1, "--seconds", 5, "-o", tmp_path / "out", "--json"]
    done = memtui(*arguments, "--", *program, timeout=300)
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)["numbers"]
    measured = numbers["programs"]["the program"]
    assert measured["working_set_bytes"] >= 8192 * PAGE_BYTES
    free, *limited_points = measured["points"]
    assert free["major_faults"]["median"] < 1
    for each in limited_points:
        assert each["runs"] == 1
        low, high = each["predicted"]
        assert 0.3 * 512 < low <= high < 1.5 * 512
        assert each["swapped_in"]["median"] > 0.3 * 512
    again = memtui(*arguments, "--", *program, timeout=60)
    assert "0 runs" in again.stderr
    assert json.loads(again.stdout)["numbers"] == numbers
    await_nothing_left()


@needs_limit
@needs_tracker
@needs_figures
@pytest.mark.slow
def test_under_sudo_the_program_is_the_users_and_has_its_limit():
    with temporary_user("ALL=(ALL:ALL) NOPASSWD: ALL") as user:
        script = user.home / "steps.py"
        script.write_text(f"import os; print('uid', os.geteuid(), flush=True)\n{STEPS.replace('4 << 20', '16 << 20')}")
        arguments = ["study", "fast-memory", "--quick", "--cpus", 1, "--seconds", 2, "-o", user.home / "out", "--"]
        command = ["sudo", f"PYTHONPATH={ROOT}", sys.executable, "-m", "memtui", *arguments, sys.executable, script]
        with user.start(*command) as study:
            _, output = study.communicate(timeout=180)
        assert study.returncode == 0, output
        files = list((user.home / "out").iterdir())
        assert {path.stat().st_uid for path in files} == {user.uid}
        assert all(path.read_text().startswith(f"uid {user.uid}\n") for path in files if path.suffix == ".log")
        points = json.loads((user.home / "out/fast-memory.json").read_text())["numbers"]["programs"]["the program"]
        assert all(point["swapped_in"]["median"] > 10 for point in points["points"] if point["share"])
    await_nothing_left()


@needs_limit
def test_who_holds_a_limit_takes_no_process_of_another_user():
    with temporary_user(None) as user, user.start("sleep", 60) as other:
        order = MemoryOrder(None, 0, ())
        with (
            pytest.raises(UserError, match=r"cannot join .*: Operation not permitted"),
            memory_limit.limited_run(order) as limit,
        ):
            limit.join(other.pid)
        other.kill()
    await_nothing_left()


@needs_limit
@needs_tracker
@needs_figures
def test_a_program_without_steps_is_one_line(tmp_path):
    spin = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
    arguments = ["study", "fast-memory", "--quick", "--cpus", 1, "-o", tmp_path, "--", sys.executable, "-c", spin]
    done = memtui(*arguments, timeout=60)
    assert done.returncode == 1
    assert "have the program print its steps (step 120)" in done.stderr.splitlines()[-1]


def test_a_step_is_counted_between_windows_too(tmp_path):
    """The same time has the same steps, for any number of merged windows and any time between them."""
    run = Run("x", ("x",), 1.0, interval_s=0.2)
    session = write_session(tmp_path / "s.memtui", messages(SAMPLES, interval_ns=200 * MS))
    trace = Trace(session, result_of(run))
    single, merged = (MissCurve.of(trace, count) for count in (1, 2))
    inside = np.flatnonzero(trace.training)
    whole_s = float(trace.samples.end_ns[inside[-1]] - trace.samples.end_ns[inside[0] - 1]) / 1e9
    assert trace.samples.start_ns[1] > trace.samples.end_ns[0]  # or the test would say nothing
    assert single.steps == pytest.approx(1.5 * whole_s)
    assert merged.steps == pytest.approx(single.steps * (len(inside) // 2 * 2) / len(inside))
    trace.close()
