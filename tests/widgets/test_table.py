"""Tables on screens and in a terminal: what differs between their rows is in sight, and columns share by need."""

from __future__ import annotations

import re

import pytest

from memtui.recording.status import RecordingStatus, format_table
from memtui.tui.screens.allocation_lists import EVENTS, LAYERS, TENSORS
from memtui.tui.screens.home import _SESSIONS, _session_row
from memtui.widgets.placement_matrix import PlacementMatrix
from memtui.widgets.process_table import ProcessTable
from memtui.widgets.table import Column, Listing, ListingView, Row
from memtui.widgets.tensor_table import TensorTable
from memtui.widgets.views.home import SessionRow
from memtui.widgets.views.memory import ProcessesView, ProcessRow, RangeRow, TableView, TensorRow, TensorsView
from memtui.widgets.views.placement import MatrixCell, MatrixRow, MatrixView
from memtui.widgets.vma_table import VmaTable
from tests.support.screen_text import Stage, drawn, screen_lines

MIB = 1 << 20
LAYERS_OF_GPT = [f"transformer.h.{block}.mlp.c_proj" for block in range(12)]


def blocks(text: str) -> list[int]:
    """Numbers of the blocks that are in a text whole."""
    return [block for block in range(12) if f".{block}.mlp" in text or f"…{block}.mlp" in text]


def listing(columns, cells) -> Listing:
    return Listing(ListingView("rows", columns, tuple(Row(n, row) for n, row in enumerate(cells))))


@pytest.mark.parametrize("width", [210, 120, 100, 80])
async def test_lists_of_a_step_keep_the_number_of_the_block(width):
    tensors = [("4.00 MiB", "weights", layer, "before", "before this step") for layer in LAYERS_OF_GPT]
    cases = {
        1: (TENSORS, tensors),
        2: (
            EVENTS,
            [("1.2 ms", "+4 MiB", "8 MiB", "activations", "forward", row[2], "aten::addmm") for row in tensors],
        ),
    }
    for columns, rows in cases.values():
        text = await drawn(listing(columns, rows), width, 15)
        if width >= 100:  # with less there is no column for it
            assert blocks(text) == list(range(12))
        if width == 210:
            assert all(layer in text for layer in LAYERS_OF_GPT)


async def test_layers_of_a_tree_keep_what_differs_and_how_deep_they_lie():
    names = ["model", *(f"  ▶ decoder_layer_with_a_long_name_{n}_of_this_model" for n in range(8))]
    text = await drawn(listing(LAYERS, [(name, *["1.00 MiB"] * 8) for name in names]), 60, 12)
    lines = [line[2:] for line in text.splitlines()[3:11]]
    assert all(line.startswith("  ▶ ") and f"_{n}_" in line for n, line in enumerate(lines))


async def test_a_column_gives_what_its_words_do_not_need_to_one_that_does():
    columns = (Column("kind", 30), Column("name", 20), Column("size", 10, right=True), Column("op", 0))
    long = "a name of forty cells that is shown whole"
    text = await drawn(listing(columns, [("w", long, "1 MiB", "add"), ("g", "short", "2 MiB", "mul")]), 80, 6)
    assert long in text
    assert "1 MiB" in text
    assert "add" in text


async def test_columns_do_not_become_narrower_when_long_words_leave_sight():
    widget = listing((Column("name", 4), Column("op", 0)), [("a long name", "one"), ("b", "two")])
    app = Stage(widget)
    async with app.run_test(size=(60, 8)) as pilot:
        await pilot.pause()
        before = screen_lines(app)[3].index("two")
        widget.show(ListingView("rows", widget.view.columns, (Row(1, ("b", "two")),)))
        await pilot.pause()
        assert screen_lines(app)[2].index("two") == before


@pytest.mark.parametrize("width", [210, 120, 80])
async def test_how_a_session_ended_is_not_cut(width):
    rows = [
        SessionRow(f"/s/{n}.memtui", 1_790_000_000.0 + n, 9.0, 40, MIB, f"python train.py --lr 0.{n}", state)
        for n, state in enumerate(("target exited", "target was killed", "interrupted"))
    ]
    text = await drawn(Listing(ListingView("sessions", _SESSIONS, tuple(map(_session_row, rows)))), width, 8)
    assert all(f"--lr 0.{n}" in text for n in range(3))
    if width > 80:
        assert "target exited" in text
        assert "target was killed" in text


async def test_ranges_tensors_processes_and_ops_that_differ_inside_of_their_names():
    names = [f"/opt/models/checkpoints/shard-{n:02}-of-12.safetensors" for n in range(12)]
    ranges = tuple(RangeRow(n, n << 20, (n + 1) << 20, "r--s", name, MIB, MIB) for n, name in enumerate(names))
    hidden = tuple(RangeRow(n, 0, MIB, "r-xp", name, MIB, MIB, left_out="exec") for n, name in enumerate(names))
    tensors = tuple(TensorRow(n, name, 0, MIB, MIB) for n, name in enumerate(LAYERS_OF_GPT))
    commands = [f"python train.py --data /scratch/imagenet --rank {n} --epochs 90 --seed 1" for n in range(12)]
    processes = tuple(ProcessRow(n, "child", command=command) for n, command in enumerate(commands))
    ops = tuple(
        MatrixRow(f"blocks.{n}.attention.projection", "matmul", (MatrixCell("fast", 10, 1.0),)) for n in range(12)
    )
    for height, width, widget in ((15, 64, VmaTable(TableView(ranges))), (15, 64, VmaTable(TableView(hidden)))):
        text = await drawn(widget, width, height)
        assert all(f"{n:02}" in text.splitlines()[2 + n] for n in range(12)), text
    text = await drawn(TensorTable(TensorsView(tensors, "tensor", 12)), 80, 15)
    assert blocks(text) == list(range(12))
    text = await drawn(ProcessTable(ProcessesView(processes)), 100, 15)
    assert all(re.search(rf"\b{n}(?!\d)", text.splitlines()[2 + n][-20:]) for n in range(12)), text
    text = await drawn(PlacementMatrix(MatrixView(ops, "isolated", "cpu", 12, 12)), 60, 15)
    assert all(f"{n}.a" in text.splitlines()[2 + n] for n in range(12)), text


def test_recordings_in_a_terminal_keep_what_differs():
    cases = [
        RecordingStatus(
            id="abcd", pid=4242 + n, command=f"/usr/bin/python train.py --data /scratch/images --lr 0.{n} -v",
            since="", duration_s=9.0, samples=None, wss_bytes=None, rss_bytes=None, file_bytes=None, interval_s=None,
            paused=n == 1, session=f"/root/{n}.memtui", memtui_pid=1, reason="",
        )
        for n in range(3)
    ]  # fmt: skip
    whole = format_table(cases).splitlines()
    assert all(
        f"python train.py --data /scratch/images --lr 0.{n} -v  /root/{n}.memtui" in whole[1 + n] for n in range(3)
    )
    narrow = format_table(cases, 90).splitlines()
    assert max(map(len, narrow)) <= 90
    for n, (line, below) in enumerate(zip(narrow[1::2], narrow[2::2], strict=True)):
        assert f"0.{n}" in line
        assert f"/root/{n}.memtui" in below
    assert "(sampling is paused)" in narrow[4]


def test_a_session_with_a_long_path_has_a_line_of_its_own():
    path = "/home/strang1/.local/state/memtui/sessions/python-20261126-181034-25829.memtui"
    case = RecordingStatus(
        id="abcd", pid=4242, command="python train.py --lr 0.1", since="", duration_s=9.0, samples=None,
        wss_bytes=None, rss_bytes=None, file_bytes=None, interval_s=None, paused=False, session=path, memtui_pid=1,
        reason="",
    )  # fmt: skip
    head, row, below = format_table([case], 80).splitlines()
    assert head.split() == ["ID", "PID", "for", "samples", "WSS", "command"]
    assert row.endswith("python train.py --lr 0.1")
    assert below.strip() == path
    assert max(map(len, (head, row, below))) <= 80
    assert len(format_table([case], 150).splitlines()) == 2


@pytest.mark.parametrize("width", [80, 100, 120, 210])
@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("typed", [0, 303])
async def test_what_rows_do_not_show_is_named_with_every_size(width, chosen, typed):
    """Rows, what is hidden, and what several processes touched add up to the working set: no size is ever cut."""
    rows = (RangeRow(7, 0x7F987877D000, 0x7F987F82A000, "rw-p", "anon 7f987877d000", 38 << 20, pid=14148),)
    sizes = {"ranges_bytes": 153 << 20, "wss_bytes": 106 << 20, "left_out_bytes": 13 << 20}
    view = TableView(rows, 697, typed, not_matching_bytes=(102 << 20) * bool(typed), **sizes)
    table = VmaTable(view)
    table.selected = 7 if chosen else None
    last = (await drawn(table, width, 6)).splitlines()[-1]
    assert "…" not in last
    for figure in ("13.0 MiB", "47.0 MiB", "106 MiB", *(["102 MiB"] if typed else [])):
        assert figure in last
    assert "hidden" in last
    if chosen and not typed and width < 150:
        assert "7f987877d000" in last
