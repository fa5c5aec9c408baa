"""Strings of others: they are seen as they are, on a screen, in a report and in exports, and nothing acts on them."""

from __future__ import annotations

import asyncio
import csv
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.core.readings import Power, PowerReading
from memtui.core.samples import Capability, End, Event, Process, ProcessWindow, Target, Vma, VmaTable, Window
from memtui.core.text import csv_cell, printable, program_name, short_command, some_of, utf8_safe, wrapped
from memtui.reports.export import export
from memtui.reports.report import build_report
from memtui.reports.text import format_report
from memtui.session.session import Session
from memtui.tui.presenters import Presenter, Room
from memtui.tui.session_app import MemtuiApp
from memtui.widgets.footer_line import FooterLine
from memtui.widgets.header_line import HeaderLine
from memtui.widgets.heat_map import HeatMap
from memtui.widgets.label import Notice, TextLine
from memtui.widgets.power_gauge import PowerGauge
from memtui.widgets.reuse_histogram import ReuseHistogram
from memtui.widgets.style import draw_style
from memtui.widgets.vma_table import VmaTable as VmaTableWidget
from memtui.widgets.wss_graph import WssGraph
from tests.support import sessions
from tests.support.repository import ROOT
from tests.support.screen_text import Stage
from tests.support.sessions import DATA, HEAP, MS, write_session

OSC52 = "\x1b]52;c;ZXZpbA==\x07"
EVIL = f"{OSC52}[bold red on blue]x[/][@click=app.quit]y</script><b>&amp;\u202eetad\u2066\r\n\t\x7f\x9b2J"
FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1")


# The function


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3 -u /a/train.py --x", "train.py"),
        ("python -m torch.distributed.run train.py", "torch.distributed.run"),
        ("/opt/python3.11 -c print(1)", "python3.11 -c"),
        ("python3", "python3"),
        ("python3 -u", "python3"),
        ("python -m", "python"),
        ("/usr/local/bin/a.out 3", "a.out"),
        ("", "?"),
        ("  ", "?"),
    ],
)
def test_a_program_is_called_what_a_person_calls_it(command, name):
    assert program_name(command) == name


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("plain name-1.so", "plain name-1.so"),
        ("caf\u00e9 \u6f22 \U0001f600 [bold]", "caf\u00e9 \u6f22 \U0001f600 [bold]"),
        (OSC52, "\\x1b]52;c;ZXZpbA==\\x07"),
        ("a\tb\nc\rd\x00\x7f", "a\\tb\\nc\\rd\\x00\\x7f"),
        ("\x85\x9b", "<U+0085><U+009B>"),
        ("\u202a\u202e\u2066\u2069\u200e\u200f\u061c", "<U+202A><U+202E><U+2066><U+2069><U+200E><U+200F><U+061C>"),
        ("\u200b\u2060\ufeff\u00ad", "<U+200B><U+2060><U+FEFF><U+00AD>"),
        ("\u2028\u2029\u00a0\u3164", "<U+2028><U+2029><U+00A0><U+3164>"),
        (os.fsdecode(b"a\xff\xc3"), "a\\xff\\xc3"),
        ("\ud800", "<U+D800>"),
        ("e\u0301\u0489", "e<U+0301><U+0489>"),
    ],
)  # fmt: skip
def test_visible(raw, seen):
    assert printable(raw) == seen


@given(st.text(st.characters()))
def test_visible_is_one_printable_line_and_stays(text):
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    shown.encode()


@given(st.binary())
def test_bytes_of_names_are_seen_and_stored(raw):
    name = os.fsdecode(raw)
    assert printable(name).isprintable()
    assert utf8_safe(name).encode().decode() == utf8_safe(name)
    assert utf8_safe(utf8_safe(name)) == utf8_safe(name)


@given(st.text())
def test_what_utf_8_holds_is_stored_as_it_is(text):
    assert utf8_safe(text) == text


@given(st.text(st.characters()))
def test_csv_cells_compute_nothing(text):
    cell = csv_cell(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert cell.isprintable()
    assert cell.removeprefix("'") in (printable(text), printable(text).removeprefix("'"))


@pytest.mark.parametrize(
    ("command", "short"),
    [
        ("python -m x", "python -m x"),
        ("/opt/venv/bin/python -P -m package.of.programs --network auto", "python -P -m package.of.programs --netw…"),
        ("/usr/bin/python -u /home/somebody/projects/llama/train.py --lr 1", "python -u …/train.py --lr 1"),
        ("python /a/t.py --data /b", "python /a/t.py --data /b"),
        ("python --data=/mnt/x/yyyyyyyyyyyyyyyyyy s3://bucket/zzzzzzzzzz", "python --data=/mnt/x/yyyyyyyyyyyyyyyyyy…"),
        ("sh\x1b[31m\n", "sh\\x1b[31m\\n"),
        ("", ""),
    ],
)  # fmt: skip
def test_short_commands(command, short):
    assert short_command(command, 40) == short


@given(st.text(), st.integers(1, 50))
def test_short_commands_fit(command, characters):
    short = short_command(command, characters)
    assert len(short) <= characters
    assert short == printable(short)


# Every widget


def poisoned(value, name=EVIL):
    """A view with the worst name, or another one, in the place of every text."""
    if isinstance(value, str) and type(value) is str:
        return name
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(poisoned(one, name) for one in value)
    if dataclasses.is_dataclass(value):
        changes = {f.name: poisoned(getattr(value, f.name), name) for f in dataclasses.fields(value)}
        if "kind" in changes:  # a word of ours that says how to draw it
            changes["kind"] = value.kind
        return dataclasses.replace(value, **changes)
    return value


def evil_stream(tracked: bool = True):
    """A session in which everybody chose that name."""
    target = Target(4242, 777, EVIL, EVIL)
    wss = Capability("wss", True) if tracked else Capability("wss", False, EVIL, EVIL)
    yield sessions.hello(target=target, tracker=EVIL, flush=EVIL, rearm=EVIL, wss=wss)
    for key, command in enumerate((EVIL, *FORMULAS), 1):
        yield Process(key, 4241 + key, 1, 777, 0, command, EVIL)
    vmas = tuple(Vma(HEAP + (n << 24), HEAP + (n << 24) + (8 << 20), "rw-p", f) for n, f in enumerate(FORMULAS))
    vmas += (Vma(DATA, DATA + (8 << 20), "rw-p", "/tmp/" + EVIL), Vma(DATA << 1, (DATA << 1) + 8192, "r-xp", EVIL))
    yield VmaTable(1, 0, vmas)
    pages = PageSet.from_pages(np.concatenate(((HEAP >> 12) + np.arange(20_000), (DATA >> 12) + np.arange(999))))
    for sample in range(12):
        at, end = sample * 203 * MS, sample * 203 * MS + 200 * MS
        window = ProcessWindow(1, at, end, flush=EVIL, rearm=EVIL, status=EVIL, reason=EVIL, rss_bytes=1)
        window = dataclasses.replace(window, pages=pages if tracked else None, resident=pages if tracked else None)
        yield Window(sample, at, end, 200 * MS, 0, (window,), disturbed=EVIL)
        for device in (EVIL, *FORMULAS):
            yield Power((PowerReading(at, device, EVIL, EVIL, status=EVIL, reason=EVIL, name=EVIL),))
        for kind in ("gap", "warning", "mark", EVIL):
            yield Event(at, kind, EVIL)
    yield End(3_000_000_000, EVIL, EVIL)


@pytest.fixture(scope="module", params=[True, False], ids=["tracked", "rss"])
def session(request, tmp_path_factory):
    return write_session(
        tmp_path_factory.mktemp("evil") / f"{EVIL.replace('/', '')[:40]}.memtui", evil_stream(request.param)
    )


def drawn_text(app) -> str:
    """All that reaches the terminal, after looking at every piece of it."""
    lines = []
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            assert segment.control is None
            assert segment.text.isprintable(), ascii(segment.text)
            assert segment.style is None or segment.style.link is None
            assert segment.style is None or not any("click" in key for key in segment.style.meta)
        lines.append("".join(segment.text for segment in strip))
    return "\n".join(lines)


WIDGETS = {
    "header": HeaderLine, "graph": WssGraph, "heat": HeatMap, "reuse": ReuseHistogram, "power": PowerGauge,
    "table": VmaTableWidget, "footer": FooterLine,
}  # fmt: skip


@pytest.mark.parametrize("name", WIDGETS)
async def test_no_widget_lets_a_name_through(name, session):
    reader = Session(session)
    presenter = Presenter(reader, follow=False)
    presenter.ranges.filters_on = False
    presenter.room = Room(60, 12)
    view = getattr(presenter.view(1.0), name)
    for shown in (view, poisoned(view)):
        app = Stage(WIDGETS[name](shown))
        for size in ((170, 30), (60, 8)):
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                assert "\x1b" not in drawn_text(app)
            app = Stage(WIDGETS[name](shown))
    reader.close()


FAR = "épôque ‘三’ Ωж🙂 ½µ"


@pytest.mark.parametrize("name", [*WIDGETS, "words", "notice"])
async def test_no_glyph_that_an_ascii_terminal_lacks(name, session):
    """Whoever chose the name; one cell for one cell, so that columns stay."""
    if name in WIDGETS:
        reader = Session(session)
        presenter = Presenter(reader, follow=False)
        presenter.room = Room(60, 12)
        widget = WIDGETS[name](poisoned(getattr(presenter.view(1.0), name), FAR))
        reader.close()
    else:
        widget = TextLine(view=FAR) if name == "words" else Notice(FAR)
    app = Stage(widget, ascii_only=True, color="none")
    async with app.run_test(size=(170, 30)) as pilot:
        await pilot.pause()
        seen = drawn_text(app)
        assert seen.isascii(), ascii(seen)
        assert "epoque ???? ???? ??" in seen or name != "words"
    assert draw_style(ascii_only=True).displayable(FAR) == "epoque ???? ???? ??"


@pytest.mark.parametrize("widget", [TextLine(view=EVIL), Notice(EVIL)], ids=["words", "notice"])
async def test_no_words_let_a_name_through(widget):
    app = Stage(widget)
    async with app.run_test(size=(170, 9)) as pilot:
        await pilot.pause()
        assert "\\x1b]52;c;ZXZpbA==\\x07[bold red on blue]x[/]" in drawn_text(app)


async def on_screen(session: Path, size: tuple[int, int]) -> str:
    """The memory screen with every panel, as text; anything a terminal would act on fails."""
    app = MemtuiApp(lambda: Session(session), live=False)
    seen = []
    async with app.run_test(size=size) as pilot:
        for key in ("1", "f", "2", "3", "m", "4", "s", "question_mark", "escape"):
            await pilot.press(key)
            await pilot.pause(0.3)
            seen.append(drawn_text(app))
    return "\n".join(seen)


@pytest.mark.parametrize("size", [(160, 50), (80, 24)])
async def test_the_screen_shows_names_as_text(size, session):
    text = await on_screen(session, size)
    assert "\\x1b]52;c;" in text
    assert "[bold" in text, "markup is text"


# Reports and exports


def check_files(folder: Path) -> None:
    """No file of an export holds a control character, a bidi mark or a formula."""
    for path in folder.glob("*.csv"):
        text = path.read_text(encoding="utf-8")
        assert all(line.isprintable() for line in text.split("\n")), path
        for row in csv.reader(text.splitlines()):
            for cell in row:
                if cell.startswith(("=", "+", "-", "@")):
                    float(cell)  # a number below 0 is a number
    for path in folder.glob("*.json"):
        text = path.read_text(encoding="ascii")
        json.loads(text, parse_constant=lambda name: pytest.fail(name))
        assert text.replace("\n", "").isprintable()


def test_report_and_exports(session, tmp_path):
    report = build_report(session)
    for line in format_report(report).split("\n"):
        assert line.isprintable(), ascii(line)
    assert json.loads(json.dumps(report.to_dict()))["target"]["command"] == EVIL, "JSON keeps the very name"
    export(session, "csv", tmp_path)
    export(session, "json", tmp_path)
    check_files(tmp_path)
    with (tmp_path / "vmas.csv").open(encoding="utf-8") as file:
        names = {row["name"] for row in csv.DictReader(file)}
    assert {"'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\\t=1", "'\\r=1"} <= names
    with (tmp_path / "reuse.csv").open(encoding="utf-8") as file:
        assert all(int(row["distance_bytes"]) >= -1 for row in csv.DictReader(file)), "numbers stay numbers"
    plain = json.loads((tmp_path / "session.json").read_text())
    assert {row["name"] for row in plain["vmas"]} == {*FORMULAS, "/tmp/" + EVIL, EVIL}


def screenshot(session: Path, monkeypatch) -> str:
    """What docs/screenshot.py draws."""
    spec = importlib.util.spec_from_file_location("screenshot", ROOT / "docs" / "screenshot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SECONDS", 1.0)
    return asyncio.run(module.draw(session))


def test_the_picture_is_escaped(session, monkeypatch):
    svg = screenshot(session, monkeypatch)
    ElementTree.fromstring(svg)  # well formed, hence without control characters
    assert "</script" not in svg
    assert "<b>" not in svg
    assert "\\x1b]52" in "".join(ElementTree.fromstring(svg).itertext()).replace("\u00a0", " ")


# A real process

TARGET = """
import ctypes, mmap, os, sys, time
ctypes.CDLL(None).prctl(15, ctypes.c_char_p(bytes.fromhex(os.environ["COMM"])), 0, 0, 0)  # PR_SET_NAME
with open(bytes.fromhex(os.environ["MAPPED"]), "r+b") as file:
    held = mmap.mmap(file.fileno(), 1 << 20)
print("ready", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    for at in range(0, 1 << 20, 4096):
        held[at] = 1
    time.sleep(0.02)
"""


@contextmanager
def evil_process(folder: Path, *, bare: bool):
    """Named with an OSC 52 sequence and markup, with such words on its command line and such a file mapped.

    ``bare``: with an empty command line, so that the name stands for it.
    """
    where = os.fsencode(folder) + b"/" + OSC52.encode() + b"[bold]\r\xff\xfe<"
    Path(os.fsdecode(where)).mkdir(parents=True)
    mapped = where + b"/script>=\xe2\x80\xae.bin"
    with Path(os.fsdecode(mapped)).open("wb") as file:
        file.truncate(1 << 20)
    environment = os.environ | {"COMM": b"\x1b]52;c;eA\x07[b]\xff".hex(), "MAPPED": mapped.hex()}
    words = (
        [b""]
        if bare
        else [b"=evil", b"-c", TARGET.encode(), OSC52.encode(), b"[bold red]</script>\xff\n", b"--token=s3cr3t-t0ken"]
    )
    script = {"stdin": subprocess.PIPE} if bare else {"stdin": subprocess.DEVNULL}
    with subprocess.Popen(
        words, executable="/usr/bin/python3", env=environment, stdout=subprocess.PIPE, **script
    ) as child:
        assert child.stdout is not None
        if bare:
            assert child.stdin is not None
            child.stdin.write(TARGET.encode())
            child.stdin.close()
        try:
            assert child.stdout.readline() == b"ready\n"
            yield child.pid
        finally:
            child.kill()


def run(*words: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "memtui", *map(str, words)], capture_output=True, check=False, timeout=60
    )


@pytest.mark.real_clock(alone=False)
@pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="needs the system's Python")
@pytest.mark.parametrize("bare", [False, True], ids=["command", "name"])
async def test_a_real_process_with_such_names(bare, tmp_path):
    path = tmp_path / "s.memtui"
    with evil_process(tmp_path, bare=bare) as pid:
        await asyncio.sleep(0.1)
        done = run("record", pid, "-o", path, "--duration", "1.5", "--interval", "0.1")
    assert done.returncode == 0, done.stderr
    begin = "[\x1b]52;c;eA\x07[b]\\xff]" if bare else "=evil -c "
    text = run("report", path)
    assert text.returncode == 0, text.stderr
    for line in text.stdout.decode().split("\n"):
        assert line.isprintable(), ascii(line)
    plain = json.loads(run("report", path, "--json").stdout)
    assert plain["target"]["command"].startswith(begin), ascii(plain["target"]["command"])
    for form in ("csv", "json"):
        assert run("export", path, "--to", form, "-o", tmp_path / "out").returncode == 0
    check_files(tmp_path / "out")
    names = {row["name"] for row in json.loads((tmp_path / "out" / "session.json").read_text())["vmas"]}
    assert any(OSC52 + "[bold]\r\\xff\\xfe</script>=\u202e.bin" in name for name in names)
    screen = await on_screen(path, (160, 50))
    assert "script>=<U+202E>.bin" in screen
    if not bare:
        assert b"s3cr3t-t0ken" not in path.read_bytes()


def test_error_lines_show_names_as_text(tmp_path):
    evil = tmp_path / ("[bold]\x1b]52;c;eA==\x07\n\u202e" + os.fsdecode(b"\xff"))
    lines = [run("report", evil), run("export", evil, "--to", "csv", "-o", tmp_path), run("attach", OSC52), run(OSC52)]
    evil.write_bytes(b"x")
    lines += [run("replay", evil), run("record", os.getppid(), "-o", evil), run("record", "-o", evil, "--", OSC52)]
    for done in lines:
        assert done.returncode == 2, done
        line = done.stderr.decode()
        assert line.endswith("\n")
        assert line[:-1].isprintable(), ascii(line)
        assert "\\x1b]52;c;" in line or "PID" in line or "terminal" in line, line


@given(st.lists(st.text("abc-", min_size=1, max_size=30), min_size=1), st.integers(0, 120), st.integers(0, 13))
def test_a_line_is_wrapped_between_words(words, columns, indent):
    parts = wrapped(" ".join(words), columns, indent)
    assert " ".join(part.strip() for part in parts) == " ".join(words)
    if columns > 2 * indent:
        assert all(len(part) <= columns or " " not in part.strip() for part in parts)
        assert all(part.startswith(" " * indent) for part in parts[1:])


def test_the_first_items_are_described_and_the_others_counted():
    described = []

    def describe(number: int) -> str:
        described.append(number)
        return f"<{number}>"

    assert some_of([1, 2, 3], 3) == "1, 2, 3"
    assert some_of([1, 2, 3, 4, 5], 3, describe) == "<1>, <2>, <3> and 2 more"
    assert described == [1, 2, 3]
    assert some_of([], 3) == ""
