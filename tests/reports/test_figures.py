"""Figures: what they show is what was recorded, they say what they were made from, and no name in them is markup."""

from __future__ import annotations

import base64
import struct
import xml.etree.ElementTree as ElementTree
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.core.samples import End, Event, Process, ProcessWindow, Status, Vma, VmaTable, Window
from memtui.reports.export import export
from memtui.reports.figures import axes, graph, heat, png, svg, training
from memtui.reports.source import Source
from tests.support import allocation_screen, sessions
from tests.support.sessions import HEAP, MS, messages, write_session
from tests.support.training_screen import told

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
EVIL = "</title></svg><script>alert(1)</script>\"'&\x1b[31m\u202e"


def drawn(session: Path, folder: Path) -> dict[str, ElementTree.Element]:
    """The figures of a session by name, parsed."""
    return {path.stem: ElementTree.parse(path).getroot() for path in export(session, "svg", folder)}


def visible_text(figure: ElementTree.Element) -> str:
    return " ".join(text for text in figure.itertext() if text.strip())


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    return drawn(write_session(folder / "train.memtui", messages(60)), folder / "out")


def test_every_figure_says_what_it_was_made_from(figures):
    assert set(figures) == {"memory-over-time", "reuse-distance", "heat-map"}
    for figure in figures.values():
        text = visible_text(figure)
        for fact in ("train.memtui", "python train.py --lr 0.1", "pid 4242", "tracker pagetable", "200 ms asked"):
            assert fact in text
        assert figure.get("width") == "252pt"
        assert not [e for e in figure.iter() if e.tag.rpartition("}")[2] in ("script", "foreignObject", "a")]


def test_axes_have_units(figures):
    assert {"working set (MiB)", "RSS (MiB)", "time (s)"} <= set(figures["memory-over-time"].itertext())
    names = set(figures["reuse-distance"].itertext())
    assert {"reuse distance (bytes of other pages touched)", "size of an LRU memory (bytes)", "miss ratio (%)"} <= names
    assert "random order" in names
    assert "where the third line is if the order is random" in visible_text(figures["reuse-distance"])
    assert [e.get("class") for e in figures["reuse-distance"].iter(f"{SVG}path")].count("stroke-estimate") == 1
    assert {"time (s)", "[heap]", "anon 64M", "[stack]"} <= set(figures["heat-map"].itertext())
    assert "libtorch_cpu.so" not in set(figures["heat-map"].itertext())  # its pages are not stored


def test_the_graph_is_at_its_scale(tmp_path, monkeypatch):
    """The height of the RSS line against the tick of the axis."""
    monkeypatch.setattr(graph, "APART", 100)
    figure = drawn(write_session(tmp_path / "s.memtui", messages(60)), tmp_path / "out")["memory-over-time"]
    assert {"memory (MiB)", "WSS", "RSS"} <= set(figure.itertext())
    ticks = {e.text: float(e.get("y")) - 2.2 for e in figure.iter(f"{SVG}text") if e.get("text-anchor") == "end"}
    line = next(e for e in figure.iter(f"{SVG}path") if e.get("class") == "stroke-rss")
    heights = [float(point.split()[1]) for point in line.get("d").lstrip("M").split("L")]
    per_mib = (ticks["0"] - ticks["50"]) / 50
    rss = [80 + n * 4096 / (1 << 20) for n in range(60)]
    assert (ticks["0"] - heights[0]) / per_mib == pytest.approx(rss[0], abs=0.1)
    assert (ticks["0"] - heights[-1]) / per_mib == pytest.approx(rss[-1], abs=0.1)


def pixels(figure: ElementTree.Element) -> np.ndarray:
    """Colour numbers of the figure's largest picture."""
    best = np.empty((0, 0), np.uint8)
    for image in figure.iter(f"{SVG}image"):
        data = base64.b64decode(image.get(LINK).partition("base64,")[2])
        width, height = struct.unpack_from(">II", data, 16)
        offset = data.index(b"IDAT")
        raw = zlib.decompress(data[offset + 4 : offset + 4 + struct.unpack_from(">I", data, offset - 4)[0]])
        picture = np.frombuffer(raw, np.uint8).reshape(height, width + 1)[:, 1:]
        best = picture if picture.size > best.size else best
    return best


def test_the_heat_map_is_hot_where_pages_were_touched(figures):
    picture = pixels(figures["heat-map"])
    tops = {e.text: float(e.get("y")) for e in figures["heat-map"].iter(f"{SVG}text") if e.get("text-anchor") == "end"}
    assert tops["[heap]"] < tops["anon 64M"] < tops["[stack]"]
    assert (picture[0] == 255).all()  # the heap's touched blocks: all pages, in every window
    share = ((picture.astype(float) - 1) / 254) ** 2
    data = share[picture.shape[0] // 2]  # 2,048 of 16,384 pages move through the data: seldom, then all of it
    assert 0.05 < np.mean(data > 0.5) < 0.25
    assert (picture > 0).all() or (picture[-1] > 0).all()  # no hole in time: pauses are none


def test_a_session_without_marks_has_its_graph(tmp_path):
    stream = (message for message in sessions.messages(5) if not isinstance(message, Event))
    assert "memory-over-time" in drawn(write_session(tmp_path / "s.memtui", stream), tmp_path / "out")


def test_words_of_marks_do_not_lie_on_one_another(tmp_path):
    def stream():
        for message in sessions.messages(100):
            if isinstance(message, End):
                for time_s, text in ((4, "first of two"), (4.1, "second of two"), (15, "far away")):
                    yield Event(int(time_s * 1e9), "mark", text)
            yield message

    figure = drawn(write_session(tmp_path / "s.memtui", stream()), tmp_path / "out")["memory-over-time"]
    text = visible_text(figure)
    assert "second of two" in text
    assert "far away" in text
    assert "first of two" not in text, "its line stands there"


def test_names_are_no_markup(tmp_path):
    def stream():
        hello = sessions.hello()
        yield replace(hello, target=replace(hello.target, command=EVIL), host=replace(hello.host, hostname=EVIL))
        yield Process(1, 4242, 1, 777, 0, EVIL, "target")
        yield VmaTable(1, 0, (Vma(HEAP, HEAP + (1 << 20), "rw-p", f"/tmp/{EVIL}"),))
        for sample in range(5):
            start_ns = sample * 200 * MS
            pages = PageSet.from_pages((HEAP >> 12) + np.arange(64))
            part = ProcessWindow(1, start_ns, start_ns + 200 * MS, pages=pages, rss_bytes=5 << 20, reason=EVIL)
            yield Window(sample, start_ns, start_ns + 200 * MS, 200 * MS, 0, (part,), disturbed=EVIL)
        yield Event(2, "mark", EVIL)

    figures = drawn(write_session(tmp_path / "s.memtui", stream()), tmp_path / "out")
    assert set(figures) == {"memory-over-time", "reuse-distance", "heat-map"}
    for name, figure in figures.items():
        assert {e.tag.removeprefix(SVG) for e in figure.iter()} <= {
            *("svg", "title", "desc", "rect", "line", "path", "text", "image"),
        }
        text = visible_text(figure)
        assert "<script>alert(1)</script>" in figure.findtext(f"{SVG}desc")
        assert "\\x1b[31m<U+202E>" in figure.findtext(f"{SVG}desc")
        assert "disturbed in 5 windows" in text, name
        assert "\x1b" not in text


def test_a_figure_says_that_its_numbers_are_approximate(tmp_path):
    def stream():
        for message in messages(20):
            if isinstance(message, Window):
                part = replace(message.processes[0], status=Status.APPROXIMATE, reason="read while it ran")
                message = replace(message, processes=(part,))
            yield message

    for figure in drawn(write_session(tmp_path / "s.memtui", stream()), tmp_path / "out").values():
        assert "approximate in 20 windows: read while it ran" in " ".join(visible_text(figure).split())


def test_without_pages_there_is_a_graph_and_a_reason(tmp_path):
    figures = drawn(write_session(tmp_path / "s.memtui", messages(20, tracked=False)), tmp_path / "out")
    assert set(figures) == {"memory-over-time"}
    assert "no working set: reading page tables needs root" in visible_text(figures["memory-over-time"])
    assert "RSS (MiB)" in set(figures["memory-over-time"].itertext())


def test_many_windows_become_a_mean_between_bounds(tmp_path):
    figures = drawn(write_session(tmp_path / "s.memtui", messages(1000, interval_ns=MS)), tmp_path / "out")
    figure = figures["memory-over-time"]
    assert "band: least to most of them" in visible_text(figure)
    lines = [e.get("d").count("L") for e in figure.iter(f"{SVG}path") if e.get("fill") == "none"]
    assert max(lines) < 1000


def test_a_lost_window_is_a_hole(tmp_path):
    def stream():
        for message in messages(30):
            if isinstance(message, Window) and 10 <= message.sample < 15:
                part = replace(message.processes[0], pages=None, status=Status.NOT_PAUSED, reason="a disk")
                message = replace(message, processes=(part,))
            yield message

    figures = drawn(write_session(tmp_path / "s.memtui", stream()), tmp_path / "out")
    lines = [e for e in figures["memory-over-time"].iter(f"{SVG}path") if e.get("class") == "stroke-wss"]
    assert len(lines) == 2
    assert "5 windows without a working set" in visible_text(figures["memory-over-time"])
    columns = pixels(figures["heat-map"])[0]
    assert np.mean(columns == 0) == pytest.approx(5 / 30, abs=0.01)


def test_ranges_of_one_file_have_different_labels(tmp_path):
    def stream():
        for message in messages(20):
            if isinstance(message, VmaTable):
                names = ["/data/x.bin", "/data/x.bin", *(vma.name for vma in message.vmas[2:])]
                vmas = tuple(replace(vma, name=name) for vma, name in zip(message.vmas, names, strict=True))
                message = replace(message, vmas=vmas)
            yield message

    figure = drawn(write_session(tmp_path / "s.memtui", stream()), tmp_path / "out")["heat-map"]
    labels = [text for text in figure.itertext() if text.startswith("x.bin …")]
    assert len(set(labels)) == len(labels) == 2


def test_a_heat_map_is_small_however_long_the_session():
    noise = np.random.default_rng(1).integers(0, 256, (heat.ROWS * heat.SUBROWS, heat.COLUMNS)).astype(np.uint8)
    assert len(png.encode(noise, [(0, 0, 0)] * 256)) * 4 / 3 < 1 << 20


@given(st.floats(1, 2**50))
def test_byte_axes_hold_the_largest_value_in_few_round_steps(most):
    scale = axes.bytes_scale(most)
    assert scale.high >= most * (1 - 1e-9)
    assert scale.high <= max(most * 2, 4)
    assert 2 <= len(scale.ticks) <= 6
    assert len({label for _, label in scale.ticks}) == len(scale.ticks)


@given(st.floats(1e-3, 1e7))
def test_time_axes_end_with_the_recording(seconds):
    scale = axes.time_scale(seconds)
    assert scale.high == pytest.approx(max(seconds, 1e-3))
    assert all(value <= scale.high * (1 + 1e-9) for value, _ in scale.ticks)
    assert 2 <= len(scale.ticks) <= 8


@given(st.text(max_size=200), st.floats(10, 300))
def test_wrapped_text_stays_in_its_width(text, width):
    for line in svg.wrap(text, width, 5.5, 3):
        assert svg.text_width(line, 5.5) <= width or line == "…"
    assert len(svg.wrap(text, width, 5.5, 3)) <= 3


def test_figures_of_a_training_are_of_the_device_that_holds_the_most(tmp_path):
    small = told(0)
    small.usage[4:] //= 1024
    step = allocation_screen.step(40, extra=20)
    stream = list(messages(20))
    stream[9:9] = [small, replace(told(0), device="cuda:0"), allocation_screen.step(40), replace(step, device="cuda:0")]
    with closing(Source(write_session(tmp_path / "s.memtui", stream))) as reader:
        figures = {name: "".join(drawing.markup().split()) for name, drawing in training.draw(reader)}
    assert "Memoryoftensorsoncuda:0overtime" in figures["tensors"]
    assert "Allocationsofstep40oncuda:0" in figures["allocations"]
    assert "Atitspeak40.0MiB" in figures["allocations"]
