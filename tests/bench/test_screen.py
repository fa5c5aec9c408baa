"""The screen of the bench: what it makes of a sweep's words, its keys, and the whole in a terminal."""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import asynccontextmanager, closing
from dataclasses import replace

import pytest

from memtui.bench import text
from memtui.bench.configuration import Titles, make
from memtui.bench.plan import BenchPlan
from memtui.bench.result import BenchRow, failed
from memtui.bench.screen import BenchApp, BenchScreen, updated
from memtui.bench.store import Database
from memtui.bench.sweep import SweepProgress
from memtui.bench.sweep_task import SweepMessage, SweepProcess, SweepUpdate, update_of
from memtui.core.errors import UserError
from memtui.core.json_fields import from_json, to_json
from memtui.core.processes import WorkEnded
from memtui.tui.screens.help import HelpScreen
from memtui.widgets.views.bench import BenchView
from tests.support.screen_text import screen_lines, screen_text
from tests.support.terminals import terminals

pytestmark = pytest.mark.real_clock(alone=False)

CONFIGURATIONS = [make("conv2d", {"cin": 8 * n, "cout": 64}) for n in range(1, 31)]
PLAN = BenchPlan()


def row(n: int, **changes) -> BenchRow:
    return BenchRow(
        CONFIGURATIONS[n],
        PLAN,
        **{"call_ns": 1e6 * (n + 1), "low_ns": 0.99e6 * (n + 1), "high_ns": 1.01e6 * (n + 1), "iqr_ns": 2e4, **changes},
    )


def word(phase="window", **changes) -> SweepMessage:
    base = {"number": 0, "of": 30, "window": 2, "windows": 5, "left_s": 125.0, "source": "no RAPL zone"}
    return message(SweepProgress(phase, **{**base, "configuration": CONFIGURATIONS[3], **changes}))


def message(progress: SweepProgress, titles: Titles | None = None) -> SweepMessage:
    """As it comes out of the pipe."""
    update = update_of(progress, titles or Titles([]))
    received = from_json(SweepUpdate, json.loads(json.dumps(to_json(update))))
    assert received == update
    return received


def told(*words: SweepMessage):
    """A sweep that says these words, and nothing more."""
    left = [list(words)]
    return lambda seconds: left.pop() if left else (time.sleep(min(seconds, 0.05)) or [])


@asynccontextmanager
async def running(*words: SweepMessage, size=(120, 36), until="", **how):
    app = BenchApp("conv2d on cpu", told(*words), text.COLUMNS, **how)
    async with app.run_test(size=size) as pilot:
        for _ in range(300):
            await pilot.pause(0.01)
            if until and until in screen_text(app):
                break
        yield app, pilot


FINISHED = [word("done", number=n + 1, row=row(n), window=0) for n in range(3)]
FINISHED[1] = word("done", number=2, window=0, row=row(1, flags=("noisy",), energy_reason="no RAPL zone"))
FINISHED[2] = word("done", number=3, window=0, row=failed(CONFIGURATIONS[2], PLAN, "out of memory", "9 GiB"))


async def test_it_shows_what_goes_on_and_what_is_finished():
    async with running(*FINISHED, word(number=3), until="3 of 30") as (app, _):
        shown = screen_text(app)
    assert "memtui bench  conv2d on cpu   power n/a: no RAPL zone" in shown
    assert "data > warm-up > [window 2 of 5]   conv2d n=8 cin=32" in shown
    assert "3 of 30, 2.1 min left" in shown
    assert "finished  3" in shown
    assert "1.00 ms" in shown
    assert "out of memory: 9 GiB" in shown, "the newest row is the chosen one, and says why"
    assert shown.count("n/a") >= 7


async def test_windows_beyond_the_least_number_of_them_say_why():
    async with running(word(number=3, window=7), until="window 7") as (app, _):
        assert "[window 7, as the first 5 vary]" in screen_text(app)


async def test_a_reason_is_told_once_and_not_cut():
    reason = "no RAPL zone: this is a virtual machine"
    why = f"energy is unavailable: {reason}"
    done = [word("done", number=1, source=reason, window=0, row=row(1, energy_reason=reason))]
    async with running(*done, word(number=1, source=reason, notice=why), size=(80, 24), until="1 of 30") as (app, _):
        lines = [line.rstrip() for line in screen_lines(app)]
    assert lines[0] == " memtui bench  conv2d on cpu   power n/a: no RAPL zone"
    assert sum(why in line for line in lines) == 1
    async with running(word(source=reason), size=(120, 24), until="0 of 30") as (app, _):
        assert screen_lines(app)[0].rstrip().endswith(f"power n/a: {reason}")


@pytest.mark.parametrize("width", [80, 70])
async def test_what_is_measured_now_keeps_what_differs_from_the_finished_rows(width):
    shapes = [make("conv2d", {"cin": 64, "cout": 64, "groups": groups}) for groups in (1, 2, 4)]
    done = [word("done", number=n + 1, row=replace(row(n), configuration=shapes[n]), window=0) for n in (0, 1)]
    async with running(*done, word(number=2, configuration=shapes[2]), size=(width, 24), until="2 of 30") as (app, _):
        now = screen_lines(app)[1]
        assert "[window 2 of 5]   conv2d " in now
        assert now.rstrip().endswith("groups=4") or now.rstrip().endswith("s=4")


async def test_a_row_that_is_chosen_spells_its_flags_out():
    async with running(*FINISHED, word(number=3), until="3 of 30") as (app, pilot):
        await pilot.press("up")
        shown = screen_text(app)
        assert "the interquartile range of the time is above 25 %" in shown
        assert " energy is unavailable: no RAPL zone" in shown
        app.screen.on__received(type("Heard", (), {"messages": [word("done", number=4, row=row(3))]}))
        assert app.screen.rows.selected == 1, "it stays where it was put"
        await pilot.press("end")
        assert app.screen.rows.selected == 3


async def test_power_and_its_source():
    async with running(word(power_w=251.26, source="nvml counter"), until="251 W") as (app, _):
        assert "251 W over 1 s (nvml counter)" in screen_text(app)


def drawing(seconds: float, *, sensor: bool = True) -> list[SweepMessage]:
    """Twice a second: 100 W between windows, 300 W in them, 10 of every 20 s; the mean is 10 W lower."""
    words = []
    for n in range(1, int(seconds * 2) + 1):
        inside = n // 20 % 2 == 1
        watts = 300.0 if inside else 100.0
        how = {"sensor_w": watts, "sensor": "instant"} if sensor else {}
        phase, number = ("window", 1) if inside else ("warm-up", 0)
        words.append(word(phase, window=number, power_w=watts - 10, source="nvml counter", t_ns=n * 500_000_000, **how))
    return words


def strip_lines(app) -> list[str]:
    lines = screen_lines(app)
    first = next(y for y, line in enumerate(lines) if "power ─" in line or "power -" in line)
    last = next(y for y in range(first, len(lines)) if "-60 s" in lines[y])
    return lines[first : last + 1]


@pytest.mark.parametrize("how", [{}, {"ascii_only": True, "color": "none"}])
async def test_power_is_drawn_with_the_measured_windows_marked(how):
    async with running(*drawing(60), until="-60 s", **how) as (app, _):
        assert "100 W instant" in screen_text(app)
        assert "90.0 W over 1 s (nvml counter)" in screen_text(app)
        head, *rows, rule, foot = strip_lines(app)
        assert "in a measured window" in head
        assert "mean of 1 s" in head
        assert rows[0].startswith(("│ 300 W", "| 300 W"))
        assert foot.rstrip().endswith(("now ┘", "now +"))
        # The picture is 60 s wide and ends between two windows: three of 10 s are in it, the rest is not marked.
        marks = rule[8:-1]
        runs = [run for run in marks.replace("#", "■").split() if run]
        assert len(runs) == 3
        assert len("".join(runs)) == pytest.approx(len(marks) / 2, abs=3)
        # It is three times as high in them.
        tall = [x for x in range(len(marks)) if rows[0][8 + x] not in " _"]
        assert tall
        assert all(marks[x] != " " for x in tall)
        low = [x for x in range(len(marks)) if rows[-1][8 + x] == " "]
        assert len(low) <= 2


async def test_a_counter_alone_is_drawn_too():
    async with running(*drawing(30, sensor=False), until="-60 s") as (app, _):
        head = strip_lines(app)[0]
        assert "mean of 1 s" not in head
        assert "290 W over 1 s (nvml counter)" in screen_text(app)
        assert " W instant" not in screen_text(app)


async def test_without_a_sensor_there_is_no_room_for_it():
    async with running(*FINISHED, word(number=3), until="3 of 30") as (app, _):
        assert "-60 s" not in screen_text(app)
        assert app.screen.power.size.height == 0


async def test_a_reading_is_drawn_once():
    view = BenchView()
    for one in drawing(5):
        view = updated(updated(view, one), replace(one, row=None))
    assert len(view.drawn) == 10
    for n in range(2000):
        view = updated(view, word(t_ns=(100 + n) * 10**9, power_w=1.0))
    assert len(view.drawn) == 400
    assert view.drawn[-1].t_ns == 2099 * 10**9


@pytest.mark.parametrize("size", [(210, 60), (120, 36), (80, 24), (60, 16)])
@pytest.mark.parametrize("how", [{}, {"ascii_only": True, "color": "none"}])
async def test_it_fits(size, how):
    many = [word("done", number=n + 1, row=row(n), window=0) for n in range(30)]
    async with running(
        *drawing(70), *many, word(number=30, notice="the reference takes +3.0 %"), size=size, until="30 of 30", **how
    ) as (
        app,
        _,
    ):
        lines = screen_lines(app)
        assert len(lines) == size[1]
        shown = "\n".join(lines)
        assert "30 of 30" in shown
        assert "the reference takes" in shown
        assert "30.0 ms" in shown
        assert "q ends" in shown or size[0] < 80
        if how:
            assert shown.isascii()


SHAPES = [(n, h, k) for n in (1, 8) for h in (14, 28, 56) for k in (1, 3)]
NEARLY_ALIKE = [
    make("conv2d", {"n": n, "cin": 64, "cout": 64, "h": h, "k": k, "cache": "warm", "weights": "same"})
    for n, h, k in SHAPES
]


@pytest.mark.parametrize("columns", [80, 100, 120, 210])
async def test_rows_that_differ_in_the_middle_look_different(columns):
    titles = Titles(NEARLY_ALIKE)
    words = [
        message(SweepProgress("done", number=n + 1, of=12, row=BenchRow(made, PLAN, call_ns=1e6)), titles)
        for n, made in enumerate(NEARLY_ALIKE)
    ]
    heading = text.heading(titles.common)
    async with running(*words, size=(columns, 36), until="12 of 12", heading=heading) as (app, _):
        lines = [line for line in screen_lines(app) if " 1.00 ms " in line]
        names = [line.rstrip("│ ").split("  ")[-1].strip() for line in lines]
    assert len(set(names)) == 12, names
    if columns >= 120:
        assert set(names) == {f"conv2d n={n} h={h} k={k}" for n, h, k in SHAPES}


def test_what_all_configurations_have_takes_a_line_where_the_head_has_no_room_for_it():
    whole = text.head("n=512")
    assert whole == text.head("n=512", 210)
    assert whole[0].endswith("configuration (all: n=512)")
    common, head = text.head("n=512", 80)
    assert common == "all: n=512"
    assert head == text.head()[0] == whole[0].removesuffix(" (all: n=512)")
    assert len(head) <= 80


async def test_too_small_a_terminal_says_so():
    async with running(*FINISHED, size=(40, 10)) as (app, _):
        assert "too small" in screen_text(app) or "60x16" in screen_text(app)


async def test_help_is_about_these_keys():
    async with running(*FINISHED, word(number=3), until="3 of 30") as (app, pilot):
        assert "? help" in screen_text(app).splitlines()[-1]
        await pilot.press("question_mark")
        await pilot.pause(0.1)
        assert isinstance(app.screen, HelpScreen)
        assert "What an operator costs" in screen_text(app)
        assert "jump to a typed time" not in screen_text(app)
        await pilot.press("escape")
        await pilot.pause(0.1)
        assert isinstance(app.screen, BenchScreen)


async def test_the_end():
    async with running(*FINISHED, WorkEnded(("2 of 3 rows are flagged",)), until="it is over") as (app, pilot):
        shown = screen_text(app)
        assert "2 of 3 rows are flagged" in shown
        assert "finished" in shown
        await pilot.press("q")
        await pilot.pause()
    assert app.return_code == 0


def test_a_reference_is_no_row_of_the_count():
    view = updated(BenchView(), word("done", number=0, row=row(0, reference=True)))
    assert (view.number, len(view.rows), view.rows[0].reference) == (0, 1, True)


def finished(tell) -> list[str]:
    tell(SweepProgress("done", number=1, of=1, row=row(0)))
    tell(SweepProgress("done", number=1, of=1, row=row(0, reference=True)))
    return ["that was all"]


def test_a_sweep_beside_a_screen_is_heard_to_its_end():
    process = SweepProcess(finished)
    assert process.wait_for_start()
    words = []
    while not process.over:
        words += process.receive(1.0)
    process.end()
    assert words[-1] == WorkEnded(("that was all",))
    assert (len(process.measured), process.error, process.conclusion) == (1, None, ("that was all",))


def refused(tell) -> list[str]:
    tell(SweepProgress("start", notice="no energy"))
    raise UserError("cpu is being measured by process 7", 1)


def test_what_stops_it_at_once_is_said_without_a_screen():
    process = SweepProcess(refused)
    assert not process.wait_for_start()
    process.end()
    assert (str(process.error), process.error.code) == ("cpu is being measured by process 7", 1)


def endless(tell) -> list[str]:
    tell(SweepProgress("data", of=1))
    time.sleep(60)
    return []


def test_leaving_ends_it():
    process = SweepProcess(endless)
    assert process.wait_for_start()
    start = time.monotonic()
    process.end()
    assert time.monotonic() - start < 5


class TestInATerminal:
    """The real thing, with torch."""

    @pytest.fixture(autouse=True)
    def torch(self):
        pytest.importorskip("torch", reason="torch is not installed")

    @pytest.fixture
    def words(self, tmp_path):
        grid = "elements=" + ",".join(str(1000 * n) for n in range(1, 40))
        fast = ("--windows", "1", "--seconds", "0.05", "--threads", "1", "--cache", "warm", "--warm-up", "0.1")
        return ("bench", "relu", "--grid", grid, *fast, "--db", tmp_path / "bench.db")

    def rows(self, tmp_path) -> int:
        with closing(Database(tmp_path / "bench.db")) as database:
            return len(list(database.rows()))

    @pytest.mark.parametrize("key", [pytest.param("q", marks=pytest.mark.slow), "\x03"])
    def test_rows_appear_and_stay_when_it_is_left(self, words, tmp_path, key):
        with terminals() as start:
            terminal = start(*words)
            terminal.read(60, until="2 of 39")
            assert "relu elements=" in terminal.text
            terminal.send(key)
            assert terminal.end(20) == 130  # as of ^C: it has not ended
            assert terminal.restored()
            assert b"left before its end: " in terminal.output
            left = terminal.output.decode().rpartition("\x1b[?1049l")[2]
            rows = [line for line in left.splitlines() if "relu elements=" in line]
            count = int(re.search(r"(\d+) rows? w(?:as|ere) measured", left)[1])
            assert len(rows) >= count >= 2, "the table stays in the terminal"
            assert "J/call" in left
            for flag in {word for line in rows for word in re.findall(r"[a-z_]+", line)} & set(text.FLAGS):
                assert f"  {flag} (" in left, "flags are spelled out"
        assert 2 <= self.rows(tmp_path) < 39

    def test_a_screen_that_is_killed_ends_the_sweep(self, words, tmp_path):
        with terminals() as start:
            terminal = start(*words)
            terminal.read(60, until="2 of 39")
            terminal.process.send_signal(signal.SIGKILL)
        deadline, before = time.monotonic() + 20, -1
        while (now := self.rows(tmp_path)) != before:
            before = now
            assert time.monotonic() < deadline
            time.sleep(3)
        assert 2 <= now < 39
