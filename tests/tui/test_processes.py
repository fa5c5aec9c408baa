"""The list of processes: who they are, what they use, and all panels about one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from memtui.core.procfs import ranks_of
from memtui.probes.process_tree import ProcessTree
from memtui.tui.presenters import Presenter, Room
from memtui.tui.presenters.processes import GpuPart, process_rows, pss_note, tree_row
from memtui.widgets.process_table import ProcessTable
from memtui.widgets.views.memory import ProcessesView, ProcessRow
from tests.support.screen_driver import running
from tests.support.screen_fakes import MIB, PSS_BYTES, FakeSession
from tests.support.screen_text import drawn


def family(count: int = 60, **how) -> FakeSession:
    return FakeSession(count, children=2, growing=False, **how)


async def test_processes_in_place_of_ranges_and_back():
    async with running(family()) as d:
        assert "p: processes" in d.text
        await d.press("p")
        await d.until(lambda: len(d.view.processes.rows) == 3)
        assert "processes  3" in d.text
        assert "address ranges  " not in d.text
        ranks = [(row.key, row.role, row.rank, row.local_rank) for row in d.view.processes.rows]
        assert ranks == [(4242, "target", None, None), (4243, "child", 0, 0), (4244, "child", 1, 1)]
        assert [row.wss_bytes for row in d.view.processes.rows[1:]] == [5 * MIB, 6 * MIB]
        tree = d.view.processes.tree  # what several touched is in the share of each, and counts once in the whole
        assert [row.share for row in d.view.processes.rows] == [
            pytest.approx(row.wss_bytes / tree.wss_bytes) for row in d.view.processes.rows
        ]
        assert d.view.processes.rows[1].cpu == pytest.approx(0.5)
        assert [row.gpu_bytes for row in d.view.processes.rows] == [0, 512 * MIB, None]
        assert "GPU memory n/a of pid 4244: GPU 1: the driver refuses it to this user" in d.text
        await d.press("p")
        await d.until(lambda: "address ranges  " in d.text)


@pytest.mark.parametrize("key", ["slash", "s", "S", "f"])
async def test_keys_about_ranges_bring_them_back(key):
    async with running(family()) as d:
        await d.press("p")
        await d.until(lambda: "processes  3" in d.text)
        await d.press(key)
        await d.until(lambda: "address ranges  " in d.text)


async def test_all_panels_are_about_the_chosen_process():
    async with running(family()) as d:
        await d.press("p", "down", "down")
        await d.until(lambda: d.view.processes.only == 4243)
        await d.until(lambda: d.view.graph.now_bytes == 5 * MIB and np.isfinite(d.view.graph.wss_bytes).all())
        assert set(d.view.graph.wss_bytes) == {5.0 * MIB}
        assert d.view.graph.rss_now_bytes == 200 * MIB
        assert {row.pid for row in d.view.table.rows} == {4243}
        assert [b.label for b in d.view.heat.bands] == ["rank 0 [heap]"]
        assert "working set of pid 4243" in d.text
        assert "of pid 4243" in d.view.reuse.whose
        await d.press("p", "down")  # its ranges: one of them is looked at as well
        await d.until(lambda: d.view.graph.focus == "[heap]")
        assert "address ranges of pid 4243" in d.text
        assert d.view.graph.now_bytes == 5 * MIB
        await d.press("escape")
        await d.until(lambda: not d.view.graph.focus)
        assert d.view.table.only == 4243
        await d.press("escape")
        await d.until(lambda: d.view.table.only is None and len(d.view.heat.bands) > 5)
        assert not d.view.reuse.whose


async def test_processes_on_a_small_screen():
    async with running(family(), size=(80, 24)) as d:
        await d.press("p")
        await d.until(lambda: len(d.view.processes.rows) == 3)
        assert "processes  3" in d.text
        assert "RSS" in d.text
        assert {len(line) for line in d.text.splitlines()} <= set(range(81))
        await d.press("1")
        assert "where and when" in d.text


@pytest.mark.parametrize(
    ("width", "ranks", "columns"),
    [
        (80, True, "pid rank WSS private shared RSS GPU mem command"),
        (80, False, "pid role WSS private shared RSS GPU mem command"),
        (120, True, "pid role rank local WSS private shared RSS GPU mem of WSS CPU command"),
        (54, True, "pid WSS shared RSS command"),
    ],
)
async def test_what_they_share_counts_once_for_the_tree(width, ranks, columns):
    rows = tuple(
        ProcessRow(7 + n, "child", n if ranks else None, None, 5 * MIB, 9 * MIB, 0.5, shared_bytes=2 * MIB, gpu_bytes=0)
        for n in range(2)
    )
    text = await drawn(ProcessTable(ProcessesView(rows, tree=tree_row(rows, 8 * MIB, 2 * MIB))), width, 7)
    lines = [line[1:-1].split() for line in text.splitlines()]
    assert lines[1] == columns.split()
    tree = " ".join(lines[4])
    assert tree.startswith("all 8.00 MiB")
    assert ("6.00 MiB" in tree) == ("private" in columns)
    assert "2.00 MiB 18.0 MiB" in tree
    assert "3.00 MiB 2.00 MiB 9.00 MiB" in " ".join(lines[2]) or "private" not in columns


@pytest.mark.parametrize(("width", "shown"), [(80, False), (118, False), (119, True), (160, True)])
async def test_use_of_gpus_takes_no_room_of_anything_else(width, shown):
    rows = tuple(
        ProcessRow(
            7 + n, "child", None, None, MIB, MIB, 0.5, 0.5, gpu_bytes=MIB, gpus_used=used, command="python3 train.py"
        )
        for n, used in enumerate((1.9, 0.0))
    )
    lines = (await drawn(ProcessTable(ProcessesView(rows, tree=tree_row(rows, 2 * MIB, 0))), width, 7)).splitlines()
    assert ("GPU %" in lines[1]) == shown
    used = [("190.0 %" in line, " 0.0 %" in line) for line in lines[2:5]]
    assert used == [(shown, False), (False, shown), (shown, False)]
    without = tuple(replace(row, gpus_used=None) for row in rows)
    (_, heading, *_) = (await drawn(ProcessTable(ProcessesView(without)), width, 7)).splitlines()
    assert lines[1].replace("GPU %", "").split() == heading.split()


def test_a_column_stays_once_something_was_in_it():
    """Children come and go, and with them what is known of PSS: no other column moves for that."""
    row = ProcessRow(7, "target", wss_bytes=MIB, rss_bytes=2 * MIB, gpu_bytes=MIB)
    table, seen = ProcessTable(ProcessesView((row,))), []
    known = replace(row, rank=0, pss_bytes=MIB, uss_bytes=MIB, swap_bytes=MIB, gpus_used=0.5)
    for rows in ((row,), (known, row), (row,), (row, row)):
        table.view = ProcessesView(rows)
        seen.append([name for name, _ in table._columns(200)])
    assert not {"rank", "local", "PSS", "USS", "swap", "GPU %"} & set(seen[0])
    assert {"rank", "local", "PSS", "USS", "swap", "GPU %"} <= set(seen[1])
    assert seen[1] == seen[2] == seen[3]


async def test_use_that_is_not_known_says_why():
    row = ProcessRow(7, "target", wss_bytes=MIB, rss_bytes=MIB, gpu_bytes=MIB, gpus_used=0.48, command="python3")
    other = replace(row, key=8, gpus_used=None, gpus_used_reason="GPU 0: not supported by this GPU")
    text = await drawn(ProcessTable(ProcessesView((row, other))), 120, 7)
    assert "GPU use n/a of pid 8: GPU 0: not supported by this GPU" in text
    assert text.splitlines()[3].split()[-2:] != ["0.0", "%"]


async def test_a_tree_whose_shared_pages_are_not_known_says_so():
    rows = tuple(ProcessRow(7 + n, "child", wss_bytes=5 * MIB, rss_bytes=9 * MIB) for n in range(2))
    text = await drawn(ProcessTable(ProcessesView(rows, tree=tree_row(rows, 10 * MIB, None))), 100, 7)
    assert text.splitlines()[4].split()[1:6] == ["all", "10.0", "MiB", "n/a", "n/a"]
    assert "all: pages that several processes share count once for each of them" in text
    assert tree_row(rows[:1], 5 * MIB, 0) is None


async def test_who_began_or_ended_in_the_window_is_no_row_and_is_told():
    """Of the workers of a DataLoader, which live for an epoch, few have a whole window."""
    row = ProcessRow(7, "target", wss_bytes=5 * MIB, rss_bytes=9 * MIB)
    lines = (await drawn(ProcessTable(ProcessesView((row,), gaps=4)), 80, 6)).splitlines()
    assert "processes  1 at its end, at least 4 births or ends " in lines[0]
    assert "p: address ranges" in lines[0]
    lines = (await drawn(ProcessTable(ProcessesView((row,), only=7, gaps=4)), 80, 6)).splitlines()
    assert "processes  1  all panels show pid 7 (Esc all)" in lines[0]


async def test_pss_of_a_tree_stands_beside_its_sum_of_rss():
    rows = tuple(
        ProcessRow(7 + n, "child", wss_bytes=5 * MIB, rss_bytes=9 * MIB, pss_bytes=4 * MIB + n, shared_bytes=0)
        for n in range(2)
    )
    view = ProcessesView(rows, tree=tree_row(rows, 10 * MIB, 0), pss_note="PSS read 12.0 s before")
    text = await drawn(ProcessTable(view), 100, 7)
    assert "RSS PSS" in " ".join(text.splitlines()[1].split())
    assert "18.0 MiB 8.00 MiB" in " ".join(text.splitlines()[4].split())
    assert "all: PSS read 12.0 s before" in text
    unread = tuple(replace(row, pss_bytes=None) for row in rows)
    view = ProcessesView(unread, tree=tree_row(unread, 10 * MIB, 0), pss_note="sum of RSS: shared pages counted")
    text = await drawn(ProcessTable(view), 100, 7)
    assert "PSS" not in text
    assert "all: sum of RSS: shared pages counted" in text


@pytest.mark.parametrize(("width", "uss"), [(120, False), (160, True)])
async def test_what_is_swapped_out_is_shown_where_something_is(width, uss):
    rows = tuple(
        ProcessRow(
            7 + n, "child", wss_bytes=5 * MIB, rss_bytes=9 * MIB, pss_bytes=4 * MIB, shared_bytes=0, uss_bytes=3 * MIB,
            swap_bytes=n * 6 * MIB,
        )
        for n in range(2)
    )  # fmt: skip
    lines = (await drawn(ProcessTable(ProcessesView(rows, tree=tree_row(rows, 10 * MIB, 0))), width, 7)).splitlines()
    assert ("RSS PSS USS swap" if uss else "RSS PSS swap") in " ".join(lines[1].split())
    between = "8.00 MiB 6.00 MiB 6.00 MiB" if uss else "8.00 MiB 6.00 MiB"
    assert f"18.0 MiB {between}" in " ".join(lines[4].split())
    nothing = tuple(replace(row, swap_bytes=0) for row in rows)
    assert "swap" not in await drawn(ProcessTable(ProcessesView(nothing)), width, 7)


def test_the_note_of_a_tree_says_when_its_pss_was_read_or_why_not():
    row = {"status": "ok", "end_ns": 20 * 10**9, "pss_bytes": 5, "pss_ns": 19 * 10**9, "pss_reason": ""}
    assert pss_note([row]) == ""  # alone: its RSS says it
    assert pss_note([row, row]) == ""
    assert pss_note([row, row | {"pss_ns": 8 * 10**9}]) == "PSS read 12.0 s before"
    why = pss_note([row, row | {"pss_bytes": None, "pss_ns": None, "pss_reason": "it ended"}])
    assert why == "PSS n/a: it ended; sum of RSS: shared pages counted several times"
    old = row | {"pss_bytes": None, "pss_ns": None}
    assert pss_note([old, old]) == "sum of RSS: shared pages counted several times"
    assert pss_note([old, old | {"status": "gone"}]) == ""


async def test_the_graph_of_a_tree_shows_pss_and_that_of_one_process_its_rss():
    async with running(family()) as d:
        await d.until(lambda: d.view.graph.resident == "PSS")
        assert d.view.graph.rss_now_bytes == 3 * PSS_BYTES
        await d.press("p")
        await d.until(lambda: len(d.view.processes.rows) == 3)
        await d.press("down", "enter")
        await d.until(lambda: d.view.processes.only is not None)
        await d.until(lambda: d.view.graph.resident == "RSS")


async def test_the_row_of_all_is_not_one_to_choose():
    async with running(family()) as d:
        await d.press("p")
        await d.until(lambda: len(d.view.processes.rows) == 3)
        tree = d.view.processes.tree
        assert tree.wss_bytes == sum(row.wss_bytes for row in d.view.processes.rows) - 3 * MIB
        assert (tree.shared_bytes, tree.rss_bytes) == (3 * MIB, (1030 + 200 + 300) * MIB)
        assert tree.pss_bytes == 3 * PSS_BYTES
        await d.press(*["down"] * 6)
        await d.until(lambda: d.view.processes.only == 4244)


def test_a_working_set_that_is_not_known_leaves_no_shares(monkeypatch):
    session = family()
    (first, *_), last = session.processes.all(), int(session.samples.sample[-1])
    rows = session.processes.samples(last, last)
    assert len(rows) == 3
    gpu = GpuPart({}, {})
    known = process_rows(session, [last], session.processes.all(), gpu, None)
    assert sum(row.share for row in known) == pytest.approx(1)
    lost = [{**row, "wss_bytes": None} if row["process"] == first.key else row for row in rows]
    monkeypatch.setattr(session.processes, "samples", lambda *_: lost)
    shown = process_rows(session, [last], session.processes.all(), gpu, None)
    assert [row.wss_bytes is None for row in shown].count(True) == 1
    assert [row.share for row in shown] == [None] * 3


async def test_a_process_that_could_not_be_read_says_why():
    why, gpu_why = "its page tables may not be read", "no NVIDIA driver"
    row = ProcessRow(7, "child", 3, 1, None, 5 * MIB, command="python x.py", reason=why, gpu_reason=gpu_why)
    text = await drawn(ProcessTable(ProcessesView((row,))), 180, 6)
    line = text.splitlines()[2]
    assert line.split()[1:5] == ["7", "child", "3", "1"]
    assert line.split()[5] == "n/a"
    assert "(its page tables may not be read)" in line
    assert "GPU memory n/a: no NVIDIA driver" in text


def test_the_sums_of_one_process_are_its_own(tmp_path):
    """Reuse distances of a process are added up window by window, within the time there is."""
    session = family(200)
    counted = []
    session.reuse.between = lambda first, last: counted.append((first, last)) or []
    presenter = Presenter(session, follow=False)
    presenter.room = Room(40, 10)
    presenter.view(5.0)
    presenter.focus_process(4243)
    counted.clear()
    presenter.view(0.0)
    assert counted == [(0, 63)]
    assert not presenter.complete
    while not (presenter.view(5.0) and presenter.complete):
        pass
    assert counted[-1][1] == 199
    assert [first for first, _ in counted] == [0, 64, 128, 192]


def child(**environ: str) -> subprocess.Popen:
    code = "import time; print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ | environ, start_new_session=True
    )
    process.stdout.readline()
    return process


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1", "SECRET_RANK": "9", "RANKS": "8"}, {"RANK": 3, "LOCAL_RANK": 1}),
        ({"LOCAL_RANK": "0"}, {"LOCAL_RANK": 0}),
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, {"RANK": 5, "LOCAL_RANK": 1}),
        ({"RANK": "2", "PMI_RANK": "7"}, {"RANK": 2}),
        ({"RANK": "\x1b]0;x"}, {}),
        ({}, {}),
    ],
)
def test_ranks_and_nothing_else_of_the_environment(environ, expected, monkeypatch):
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    process = child(**environ)
    try:
        assert ranks_of(process.pid) == expected
        tree = ProcessTree(process.pid)
        tree.refresh()
        assert tree.processes[0].role == " ".join(
            ("target", *(f"{name}={number}" for name, number in expected.items()))
        )
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert ranks_of(process.pid) == {}


@pytest.mark.parametrize(("gpu_bytes", "shown"), [(None, False), (5 * MIB, True)])
async def test_a_column_without_a_figure_gives_way_to_the_command(gpu_bytes, shown):
    command = "/root/.pyenv/versions/3.11/bin/python3 train.py"
    row = ProcessRow(7, "target", wss_bytes=MIB, rss_bytes=MIB, command=command, shared_bytes=0)
    row = replace(row, gpu_bytes=gpu_bytes, gpu_reason="" if shown else "no NVIDIA driver")
    text = await drawn(ProcessTable(ProcessesView((row,))), 80, 6)
    assert ("GPU mem" in text.splitlines()[1]) == shown
    assert ("python3 train.py" in text) != shown
    assert "/root" not in text
    assert ("GPU memory n/a: no NVIDIA driver" in text) != shown


@pytest.mark.parametrize(("width", "beside"), [(210, True), (120, False), (80, False)])
async def test_a_reason_stands_beside_its_process_or_below_never_in_part(width, beside):
    why = "DAMON (kdamond 0) took accessed bits: about 46.0 MiB more may have been touched"
    row = ProcessRow(7, "child", None, None, MIB, MIB, command="python t_tree.py", reason=why, gpu_reason="no driver")
    others = tuple(replace(row, key=pid, reason="") for pid in (8, 9))
    lines = (await drawn(ProcessTable(ProcessesView((row, *others))), width, 7)).splitlines()
    assert (f"({why})" in lines[2]) == beside
    assert "python t_tree.py" in lines[2]
    assert ("pid 7: DAMON (kdamond 0) took accessed bits: about 46.0 MiB more may have" in lines[-1]) != beside
    assert ("GPU memory n/a: no driver" in lines[-1]) == (width > 80)


@pytest.mark.parametrize("width", [80, 120])
async def test_the_reason_of_a_figure_has_the_whole_edge(width):
    why = "no NVIDIA driver (libnvidia-ml.so.1 not found)"
    rows = tuple(ProcessRow(pid, "child", None, None, MIB, MIB, gpu_reason=why) for pid in (7, 8))
    for view in (
        ProcessesView(rows),
        ProcessesView(rows * 5),  # more rows than are in sight: their number stays
        ProcessesView(rows, tree=tree_row(rows, MIB, 0), pss_note="PSS read 24.9 s before"),
    ):
        last = (await drawn(ProcessTable(view), width, 7)).splitlines()[-1]
        assert ("all: PSS read 24.9 s before" in last) == bool(view.pss_note)
        assert (f"GPU memory n/a: {why}" in last) == (not view.pss_note or width > 100)
        assert (" of 10 " in last) == (len(view.rows) == 10)
