"""A session that was made of another tool's file opens on its allocations; goldens as in ``test_screen_goldens``."""

from __future__ import annotations

import pickle
from contextlib import asynccontextmanager

import pytest

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.formats.catalogue import import_file
from memtui.formats.session_writer import write
from memtui.session.session import Session
from memtui.tui.session_app import MemtuiApp
from tests.support.allocation_screen import title, until
from tests.support.goldens import compare
from tests.support.memory_logs import ZPP, mxnet_log, zpp_text
from tests.support.screen_text import screen_lines, screen_text


@asynccontextmanager
async def opened(tmp_path, name: str, data: bytes | str, size=(120, 36), **how):
    source = tmp_path / name
    source.write_bytes(data.encode() if isinstance(data, str) else data)
    write(import_file(source), tmp_path / "s.memtui")
    reader = Session(tmp_path / "s.memtui")
    reader.release()
    app = MemtuiApp(lambda: reader, live=False, imported=True, **how)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: name in screen_lines(app)[0])
        yield app, pilot


@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
async def test_a_log_is_the_picture(tmp_path, size):
    async with opened(tmp_path, "rnn.log", mxnet_log(), size) as (app, pilot):
        for key, name in (("2", "events"), ("4", "breakdown")):
            await pilot.press(key)
            await pilot.pause()
            compare(f"imported-{name}-{size[0]}x{size[1]}", screen_text(app))


async def test_an_order_is_shown_as_lines_and_marks_by_what_they_follow(tmp_path):
    async with opened(tmp_path, "rnn.log", mxnet_log()) as (app, pilot):
        head = screen_lines(app)[0]
        assert "rnn.log (MXNet log) on cuda   allocated from the driver 9.00 MiB" in head
        assert 'after "In InitGraph."' in head
        assert "not known: times: the log has none" in screen_lines(app)[-2]
        await pilot.press("2")
        await pilot.pause()
        rows = screen_text(app)
        assert "line 3" in rows
        assert " ms" not in rows
        assert "between" not in rows


async def test_bars_follow_the_cursor_and_the_rules(tmp_path):
    async with opened(tmp_path, "rnn.log", mxnet_log()) as (app, pilot):
        await pilot.press("b")
        await pilot.pause()
        assert "allocated up to the cursor, rules layers" in title(app)
        await pilot.press("b")
        await pilot.pause()
        assert "allocated up to the cursor, rules compat  9" in title(app)
        shown = screen_text(app)
        assert "64 B with tags that these rules do not know are left out" in shown
        assert "Attention Layer" in shown
        await pilot.press("b", "home", "right")
        await pilot.pause()
        assert "rules memtui  2" in title(app)
        assert [line.count("█") for line in screen_lines(app) if "50.00 %" in line] == [26, 26]


async def test_rows_of_no_bytes_are_hidden_until_they_are_asked_for(tmp_path):
    async with opened(tmp_path, "x.txt", ZPP) as (app, pilot):
        await pilot.press("2")
        await pilot.pause()
        assert "events  2 of 4, 2 that come to nothing hidden (f)" in title(app)
        await pilot.press("f")
        await pilot.pause()
        assert "events  4, those that come to nothing, too (f)" in title(app)
        assert sum("+0 B" in line for line in screen_lines(app)) == 2


async def test_leaving_it_ends_memtui(tmp_path):
    async with opened(tmp_path, "x.txt", ZPP) as (app, pilot):
        assert "q quit" in screen_lines(app)[-1]
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running or app._exit)
    assert app.return_code in (0, None)


async def test_a_long_one_opens_on_its_fullest_part(tmp_path, monkeypatch):
    monkeypatch.setattr("memtui.analysis.trace_segments.stretches.__defaults__", ((), 200))
    async with opened(tmp_path, "x.txt", zpp_text(1000)) as (app, pilot):
        reader = Session(tmp_path / "s.memtui")
        steps = reader.allocations.steps()
        reader.close()
        fullest = max(steps, key=lambda step: step.peak_bytes)
        assert f"allocations  {steps.index(fullest) + 1} of {len(steps)}   x.txt" in screen_lines(app)[0]
        await pilot.press("n", "n", "n", "n", "n")
        await until(pilot, lambda: f"{len(steps)} of {len(steps)}" in screen_lines(app)[0])
        assert " ms to " in screen_lines(app)[0]


async def test_kinds_that_a_file_does_not_tell_are_no_zero_of_a_layer(tmp_path):
    async with opened(tmp_path, "x.txt", zpp_text(1000)) as (app, pilot):
        await pilot.press("3")
        lists = app.screen._lists
        told = {CATEGORIES[number] for number in set(lists.index.trace.category[lists.index.born].tolist())}
        assert "weights" not in told
        assert "activations" in told
        for row in app.screen.modules.view.rows:
            assert row.cells[1] == "n/a"
            assert row.cells[4] != "n/a"


def snapshot() -> bytes:
    """Two allocations and the free of the first, each with the calls around it."""

    def calls(name: str, line: int) -> list[dict[str, object]]:
        return [
            {"name": "at::empty", "filename": "??", "line": 0},
            {"name": "_conv_forward", "filename": "/venv/torch/nn/modules/conv.py", "line": 456},
            {"name": name, "filename": "/home/me/model.py", "line": line},
        ]

    events = [
        {"action": action, "addr": address, "size": size, "time_us": 10**15 + n, "frames": calls(name, 40 + n)}
        for n, (action, address, size, name) in enumerate(
            [
                ("alloc", 4096, 1 << 20, "forward"),
                ("alloc", 1 << 30, 2 << 20, "loss"),
                ("free_completed", 4096, 1 << 20, "backward"),
            ]
        )
    ]
    return pickle.dumps({"segments": [], "device_traces": [events]})


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (210, 60)])
async def test_the_call_stack_of_a_tensor_and_of_an_event(tmp_path, size):
    async with opened(tmp_path, "snapshot.pickle", snapshot(), size) as (app, pilot):
        assert "5" in title(app)
        await pilot.press("down", "enter")  # the smaller one
        await pilot.pause()
        assert "stack of 1.00 MiB allocated at 0.000 ms  3" in title(app)
        rows = [line for line in screen_lines(app) if ":" not in line and ("forward" in line or "/home" in line)]
        assert any("_conv_forward" in row and "456" in row for row in rows)
        assert any(row.split()[1:3] == ["forward", "40"] for row in rows)
        compare(f"imported-stack-{size[0]}x{size[1]}", screen_text(app))
        await pilot.press("enter")
        await pilot.pause()
        assert "alive at the cursor  2" in title(app), "Enter goes back to the list"
        await pilot.press("end", "5")
        await pilot.pause()
        assert "stack of 2.00 MiB allocated" in title(app), "of the tensor that is chosen, not of the cursor"
        await pilot.press("2", "enter")
        await pilot.pause()
        assert "stack of 1.00 MiB freed at 0.002 ms  3" in title(app)
        assert "backward" in screen_text(app)
        await pilot.press("left")
        await pilot.pause()
        assert "stack of 2.00 MiB allocated at 0.001 ms  3" in title(app), "the cursor moves to another row"


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (210, 60)])
async def test_what_is_alive_by_stack_by_function_and_by_file(tmp_path, size):
    async with opened(tmp_path, "snapshot.pickle", snapshot(), size) as (app, pilot):

        def rows() -> list[list[str]]:
            lines = screen_lines(app)
            first = next(n for n, line in enumerate(lines) if "▸" in line and "┌" in line) + 2
            return [line.strip("│ ").split() for line in lines[first:-2] if line.strip("│ ")]

        await pilot.press("g")
        await pilot.pause()
        assert "alive at the cursor by stack  2" in title(app)
        assert [(row[0], row[2], row[5]) for row in rows()] == [
            ("2.00", "66.7", "loss"),
            ("1.00", "33.3", "forward"),
        ], "named by the innermost call outside of PyTorch"
        compare(f"imported-by-stack-{size[0]}x{size[1]}", screen_text(app))
        await pilot.press("down", "enter")
        await pilot.pause()
        assert "stack of what is alive  3" in title(app)
        assert "forward" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "alive at the cursor by stack  2" in title(app), "Esc goes back to the sums"
        await pilot.press("g")
        await pilot.pause()
        assert "alive at the cursor by function  4" in title(app)
        assert [row[0] for row in rows()] == ["3.00", "3.00", "2.00", "1.00"], "with all that it calls"
        await pilot.press("g")
        await pilot.pause()
        assert "alive at the cursor by file  3" in title(app)
        assert {row[0] for row in rows()} == {"3.00"}
        await pilot.press("end")
        await pilot.pause()
        assert {row[0] for row in rows()} == {"2.00"}, "the sums are of the cursor"
        await pilot.press("g")
        await pilot.pause()
        assert "stack of 1.00 MiB freed" in title(app)


async def test_without_call_stacks_there_is_no_list_of_them(tmp_path):
    async with opened(tmp_path, "x.txt", ZPP) as (app, pilot):
        assert "1-4 list" in screen_lines(app)[-1]
        for key in ("5", "enter", "g"):
            await pilot.press(key)
            await pilot.pause()
            assert "alive at the cursor" in title(app)
