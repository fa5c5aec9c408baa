"""The working set by tensor and the heat map by kind: on a session in which it is known what every window touched."""

from __future__ import annotations

from contextlib import asynccontextmanager

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.core.tracer_messages import TensorRanges
from memtui.core.units import size
from memtui.session.session import Session
from memtui.tui.presenters import Presenter
from memtui.tui.session_app import MemtuiApp
from memtui.widgets.style import draw_style
from memtui.widgets.tensor_kinds import number_styles
from tests.support import sessions
from tests.support.screen_driver import Driver, held, running
from tests.support.screen_text import screen_lines
from tests.support.tensor_maps import session

MIB = 1 << 20
# Of the heap the first 4 MiB are touched in every window, of the data 8 MiB that move on by 2.5 MiB a window.
TENSORS = (
    ("features.0", "weights", sessions.HEAP, 2 * MIB),
    ("features.0", "optimiser state", sessions.HEAP + 2 * MIB, MIB),
    ("classifier", "weights", sessions.HEAP + 3 * MIB, 512 << 10),
    ("classifier", "optimiser state", sessions.HEAP + 6 * MIB, MIB),  # never touched
    ("", "inputs", sessions.DATA, 64 * MIB),
)


def told(sample: int, tensors=TENSORS, pid: int = 4242, inside_ms: int = 0) -> TensorRanges:
    """From the begin of a window on, or some time after it."""
    columns = np.array([(start, size_bytes, CATEGORIES.index(kind)) for _, kind, start, size_bytes in tensors]).T
    t_ns = (sample * 203 + inside_ms) * sessions.MS
    layers = tuple(layer for layer, *_ in tensors)
    return TensorRanges(pid, t_ns, columns, layers, ("weight",) * len(layers))


@asynccontextmanager
async def opened(tmp_path, *maps, keys=("w",), size=(120, 36), samples=20, **how):
    """A replay at its end, with some keys pressed."""
    reader = Session(session(tmp_path, *((2, one) for one in maps), samples=samples))
    reader.release()
    app = MemtuiApp(lambda: reader, live=False, **how)
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot)
        await driver.until(lambda: driver.view is not None)
        await driver.press(*keys)
        if maps and keys[:1] == ("w",):
            await driver.until(lambda: driver.view.tensors.rows or driver.view.tensors.note)
        yield driver


def rows(driver: Driver) -> dict[str, list[str]]:
    """What the table says, by the last words of each row."""
    lines = screen_lines(driver.app)
    head = next(n for n, line in enumerate(lines) if "working set by" in line)
    shown = {}
    for line in lines[head + 2 :]:
        if line.startswith("└"):
            break
        cells = [part.strip() for part in line.strip("│").split("  ") if part.strip()]
        if cells:
            shown[cells[-1].removeprefix("■ ")] = cells
    return shown


async def test_kinds_and_the_rest_add_up_to_the_working_set(tmp_path):
    async with opened(tmp_path, told(2)) as d:
        view = d.view.tensors
        assert view.wss_bytes == (1024 + 2048 + 300 + 8) * 4096
        assert sum(row.touched_bytes for row in view.rows) == view.wss_bytes
        shown = rows(d)
        assert shown["weights"][:4] == ["2.50 MiB", "2.50 MiB", "100.0 %", "100.0 %"]
        assert shown["optimiser state"][:4] == ["1.00 MiB", "2.00 MiB", "50.0 %", "50.0 %"]
        assert shown["inputs"][:4] == ["8.00 MiB", "64.0 MiB", "12.5 %", "12.5 %"]
        assert shown["stack"] == ["32.0 KiB", "stack"]
        assert shown["pages that are not stored (filter default)"][0] == "1.17 MiB"
        other = next(cells for name, cells in shown.items() if name.startswith("other anonymous memory (activations"))
        assert other[0] == "512 KiB"
        assert list(shown)[:3] == ["weights", "optimiser state", "inputs"], "hot to cold"
        assert f"all: working set {size(view.wss_bytes)}" in d.text
        assert "recent: the last 18 windows" in d.text, "nothing was known before"


async def test_layers_and_tensors(tmp_path):
    async with opened(tmp_path, told(2), size=(210, 60)) as d:
        await d.press("g")
        await d.until(lambda: d.view.tensors.by == "layer")
        assert rows(d)["classifier"][:2] == ["512 KiB", "1.50 MiB"]
        assert rows(d)["(no layer)"][:2] == ["8.00 MiB", "64.0 MiB"]
        await d.press("g")
        await d.until(lambda: d.view.tensors.by == "layer and kind")
        await d.press("g")
        await d.until(lambda: d.view.tensors.by == "tensor")
        cold = next(row for row in d.view.tensors.rows if row.touched_bytes == 0)
        assert cold.name == "classifier.weight"
        assert cold.last_s is None
        assert "not lately" in d.text
        assert len(d.view.tensors.rows) == 5 + 3
        await d.press("g")
        await d.until(lambda: d.view.tensors.by == "kind")


async def test_it_follows_the_cursor_in_time(tmp_path):
    """Until the fifth window the data set is not known; half of it lies elsewhere in the twelfth."""
    later = (*TENSORS[:-1], ("", "inputs", sessions.DATA, 32 * MIB))
    async with opened(tmp_path, told(2, TENSORS[:-1]), told(5), told(12, later, inside_ms=100)) as d:
        assert next(row for row in d.view.tensors.rows if row.name == "inputs").size_bytes == 32 * MIB
        while d.view.header.position_s > 12 * 0.203 + 0.21:
            await d.press("T")
        await d.until(lambda: d.view.tensors.moved)
        assert "some moved in this window" in d.text
        assert next(row for row in d.view.tensors.rows if row.name == "inputs").size_bytes == 64 * MIB
        while d.view.header.position_s > 4 * 0.203 + 0.21:
            await d.press("T")
        await d.until(lambda: "inputs" not in {row.name for row in d.view.tensors.rows})
        await d.press("home")
        await d.until(lambda: d.view.tensors.note)
        assert "where its tensors lie is known from 00:00" in d.text


async def test_sort_and_filter_are_about_the_table_that_is_seen(tmp_path):
    async with opened(tmp_path, told(2), keys=("w", "s")) as d:
        await d.until(lambda: d.view.tensors.sort == "touched")
        assert list(rows(d))[:3] == ["inputs", "weights", "optimiser state"]
        await d.press("S")
        await d.until(lambda: not d.view.tensors.descending)
        assert list(rows(d))[:3] == ["optimiser state", "weights", "inputs"]
        await d.press("slash", *"optim", "enter")
        await d.until(lambda: d.view.tensors.not_matching == 2)
        assert next(iter(rows(d))) == "optimiser state"
        assert "hides 2" in d.text
        await d.press("escape")
        await d.until(lambda: d.view.tensors.not_matching == 0)
        await d.press("w")
        await d.until(lambda: "address ranges" in d.text)
        assert d.view.table.filter_text == ""
        await d.press("w", "p")
        await d.until(lambda: "processes  1" in d.text)
        await d.press("g")
        await d.until(lambda: "working set by kind" in d.text)  # which shows it first


async def test_a_tensor_that_is_chosen_is_where_the_cursor_is(tmp_path):
    async with opened(tmp_path, told(2), keys=("w", "k", "down"), size=(210, 60)) as d:
        await d.until(lambda: d.view.heat.cursor is not None)
        assert d.view.heat.cursor.start == sessions.HEAP
        await d.until(lambda: "features.0.weight weights" in d.text)
        await d.press("down", "down")
        await d.until(lambda: d.view.heat.cursor.start == sessions.DATA)
        await d.press("down")  # the rest lies in no one place
        await d.press("escape")
        await d.until(lambda: d.view.heat.cursor is None)


async def test_rows_of_the_heat_map_by_kind(tmp_path):
    async with opened(tmp_path, told(2), keys=("k",), size=(210, 60)) as d:
        await d.until(lambda: d.view.heat.kinds is not None)
        await d.settle()
        kinds = [CATEGORIES[kind] if kind != 255 else "" for kind in d.view.heat.kinds.tolist()]
        assert {"weights", "optimiser state", "inputs", ""} == set(kinds)
        assert kinds.index("weights") < kinds.index("optimiser state") < kinds.index("inputs")
        assert "W weights  O optimiser state  I inputs" in heading(d)
        of_data = [line for line in screen_lines(d.app)[17:38] if line.startswith("│anon 64M")]
        assert "I" in of_data[0][:30]
        before = d.view.heat.kinds
        await d.press("T")
        await d.until(lambda: d.view.header.position_s < 4)
        assert d.view.heat.kinds is before, "they are found once for each layout"
        await d.press("k")
        await d.until(lambda: d.view.heat.kinds is None)
        assert "touched few" in heading(d)


def heading(d) -> str:
    """The upper edge of the heat map."""
    return next(line for line in screen_lines(d.app) if "where and when" in line)


@pytest.mark.parametrize("how", [{"color": "16"}, {"color": "none", "ascii_only": True}])
async def test_kinds_without_many_colours_are_letters(tmp_path, how):
    async with opened(tmp_path, told(2), keys=("w", "k"), **how) as d:
        await d.until(lambda: d.view.heat.kinds is not None and d.view.tensors.rows)
        await d.settle()
        letters = {line[1 + 15] for line in screen_lines(d.app)[10:24]}  # 15 cells of names before
        assert {"W", "I"} <= letters
        assert ("W weights" if how["color"] == "none" else "■ weights") in d.text
        if how.get("ascii_only"):
            assert d.text.isascii()


@pytest.mark.parametrize("size", [(80, 24), (60, 16)])
async def test_it_fits(tmp_path, size):
    async with opened(tmp_path, told(2), size=size) as d:
        lines = screen_lines(d.app)
        assert {len(line) for line in lines} == {size[0]}
        assert "100.0 %" in rows(d)["weights"]
        assert "all: working set 13.2 MiB" in d.text
        assert ("w tensors" in lines[-1]) == (size[0] == 80), "a key of the footer, where there is room"


async def test_what_was_not_traced_says_how_to(tmp_path):
    async with opened(tmp_path, keys=("w", "k")) as d:
        await d.until(lambda: "no tensor is known: memtui trace -- python train.py" in d.text)
        await d.until(lambda: "no tensor is known (memtui trace)" in d.text)
        assert "w tensors" not in d.text
        await d.pilot.resize_terminal(100, 30)
        await d.until(lambda: "┌ where and when  no tensor is known ─" in d.text)


async def test_of_a_process_that_told_of_nothing(tmp_path):
    async with opened(tmp_path, told(2, pid=999)) as d:
        assert "no process of this window told of its tensors" in d.text


async def test_live_on_an_invented_session():
    """Keys of a tree that nobody traced, while it grows."""
    async with running(held(live=True), live=True, size=(80, 24)) as d:
        await d.press("w", "g", "k", "s", "S", "down", "pagedown", "w")
        await d.until(lambda: d.view.header.notice == "")


def test_a_view_of_many_tensors_is_made_of_new_windows_only(tmp_path):
    many = [(f"layer {n}", "weights", sessions.DATA + n * 8192, 8192) for n in range(4000)]
    reader = Session(session(tmp_path, (2, told(2, many)), samples=20))
    presenter = Presenter(reader, follow=False)
    presenter.tensors_shown = True
    presenter.tensors.by = list(type(presenter.tensors.by))[-1]
    assert len(presenter.view(9.0).tensors.rows) == 4000 + 3
    queries = []
    page_set = reader.pages.page_set
    reader.pages.page_set = lambda *which: queries.append(which) or page_set(*which)
    assert len(presenter.view(9.0).tensors.rows) == 4000 + 3
    assert not queries
    reader.close()


def test_without_pages_the_reason_stands_there(tmp_path):
    stream = list(sessions.messages(5, tracked=False))
    reader = Session(sessions.write_session(tmp_path / "s.memtui", [*stream[:6], told(1), *stream[6:]]))
    presenter = Presenter(reader, follow=False)
    presenter.tensors_shown = True
    assert "reading page tables needs root" in presenter.view().tensors.note
    reader.close()


def test_every_kind_has_a_style_of_its_own():
    for theme in ("dark", "light"):
        assert len(set(number_styles(draw_style("256", False, theme)))) == len(CATEGORIES)
