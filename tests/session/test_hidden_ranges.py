"""What the filter hides: only what it left out, window by window, and always accounted for."""

from __future__ import annotations

import csv
import sqlite3
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtui.analysis.row_states import MOST_NAMES, RowStates, state_at
from memtui.analysis.vma_filter import parse_filter
from memtui.analysis.vma_merger import RangeMerger
from memtui.analysis.working_set import select
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import BLOCK_BYTES, PAGES_PER_BLOCK
from memtui.core.samples import End, Options, Process, ProcessWindow, Vma, VmaTable, Window
from memtui.reports.export import export
from memtui.session.file_format import missing_columns
from memtui.session.session import Session
from memtui.tui.presenters.presenter import Presenter, Room
from memtui.tui.presenters.ranges import RangeTable
from memtui.widgets.views.memory import TableView
from memtui.widgets.vma_table import rest_of
from tests.conftest import LONG
from tests.support import sessions
from tests.support.live import needs_root, needs_tracker, start, stop, wait_for_samples

pytestmark = pytest.mark.real_clock

PAGE, MIB = 4096, 1 << 20
BASE = 0x7F00_0000_0000
FIRST_PID = 4241
EDGES = st.one_of(st.integers(0, 40), st.integers(500, 524), st.sampled_from((1024, 1536, 2048)))


def vma(first: int, end: int, perms: str = "rw-p", name: str = "") -> Vma:
    return Vma(BASE + first * PAGE, BASE + end * PAGE, perms, name)


@st.composite
def windows(draw):
    """A table of mappings in a small address space, and pages of it that were touched, some of them of 2 MiB."""
    edges = draw(st.lists(EDGES, max_size=10, unique=True).map(sorted))
    kinds = st.tuples(
        st.booleans(), st.sampled_from(("rw-p", "r--p", "r-xp", "---p")), st.sampled_from(("", "/a", "[heap]"))
    )
    table = [vma(a, b, perms, name) for a, b in pairwise(edges) for here, perms, name in [draw(kinds)] if here]
    pages_of = [range(v.start // PAGE, v.end // PAGE) for v in table]
    whole = [block for v in table for block in range(-(-v.start // BLOCK_BYTES), v.end // BLOCK_BYTES)]
    huge = draw(st.lists(st.sampled_from(whole), unique=True)) if whole else []
    mapped = [page for pages in pages_of for page in sorted({*pages[:40], *pages[-8:]})]
    touched = draw(st.lists(st.sampled_from(mapped), unique=True)) if mapped else []
    small = PageSet.from_pages(sorted(page for page in touched if page // PAGES_PER_BLOCK not in huge))
    return tuple(table), replace(small, huge=np.array(sorted(huge), np.uint64))


def both(one: PageSet, other: PageSet) -> PageSet:
    return one.difference(one.difference(other))


def stream(*histories, stored: str):
    """What a sampler says of the windows of each process; what several accessed at one address are the same frames.

    A process is missing in the windows in which it has None.
    """
    yield sessions.hello(options=Options(200 * sessions.MS, filter=stored))
    for key in range(1, len(histories) + 1):
        yield Process(key, FIRST_PID + key, 1, 777, 0, "python train.py", "target")
    for sample, windows_then in enumerate(zip(*histories, strict=True)):
        present = {key: window for key, window in enumerate(windows_then, 1) if window is not None}
        for key, (table, _) in present.items():
            yield VmaTable(key, sample, table)
        parts, excess_bytes = [], 0
        for key, (table, pages) in present.items():
            shared = None
            if len(histories) > 1:
                others = [other for number, (_, other) in present.items() if number != key]
                common = both(pages, others[0]) if others else PageSet.empty()
                excess_bytes = common.size_bytes
                shared = tuple((v.start, size) for v, size in by_vma(common, table) if size)
            parts.append(ProcessWindow(key, sample * 10, sample * 10 + 10, pages=pages, vma_shared_bytes=shared))
        excess = {"shared_excess_bytes": excess_bytes} if len(histories) > 1 else {}
        yield Window(sample, sample * 10, sample * 10 + 10, 10, 0, tuple(parts), **excess)
    yield End(len(histories[0]) * 10, "target exited")


def by_vma(pages: PageSet, table):
    for v in table:
        yield v, int(select(pages, [v.start], [v.end], [True]).size_bytes)


def as_of_format_9(path, last_filter: dict[int, str]) -> None:
    """Make of it what the format before would have: the last VMA's filter for all of a row, and no states."""
    file = sqlite3.connect(path)
    gone = ["vma_state", "gpu_use", "allocator_peak", "layer_types", "frame", "call_stack", "allocation_stack"]
    gone += [
        "capture",
        "capture_blocks",
        "reuse_burst",
        "resident_set",
        "memory_limit",
        "memory_use",
        "vma_private",
        "numa_use",
    ]
    file.execute("PRAGMA synchronous=OFF")  # not to wait for the disk at every change of a table
    file.executescript("".join(f"DROP TABLE {table};" for table in gone) + "PRAGMA user_version=9;")
    for table in ("sample", "process_sample", "power"):
        for name in missing_columns(9)[table]:
            file.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
    file.executemany("UPDATE vma SET filtered = ? WHERE id = ?", [(term, row) for row, term in last_filter.items()])
    file.commit()
    file.close()


def sum_of(view: TableView) -> int:
    return sum(row.wss_bytes for row in view.rows) + view.left_out_bytes + view.not_matching_bytes


def views(reader: Session, **settings_of_table) -> list[TableView]:
    table = RangeTable()
    for name, value in settings_of_table.items():
        assert hasattr(table, name)
        setattr(table, name, value)
    return [table.view(reader, sample, reader.processes.all()) for sample in reader.samples.sample.tolist()]


HISTORIES = st.lists(windows(), min_size=1, max_size=12)


@st.composite
def trees(draw):
    """The windows of one process, or of two that differ: the second one is not there in all of them."""
    first = draw(HISTORIES)
    if draw(st.booleans()):
        return (first,)
    count = len(first)
    second = draw(st.lists(st.one_of(windows(), st.sampled_from(first)), min_size=count, max_size=count))
    born, ended = sorted((draw(st.integers(0, count)), draw(st.integers(0, count))))
    return first, [window if born <= sample < ended else None for sample, window in enumerate(second)]


STORED = st.sampled_from(("default", "none", "exec", "!exec", "noaccess,name=/a"))
slow = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def place(tmp_path):
    numbers = iter(range(1 << 30))
    return lambda: tmp_path / f"{next(numbers)}.memtui"


@settings(slow, max_examples=60 if LONG else 25)
@given(tree=trees(), stored=STORED)
def test_rows_and_what_is_hidden_are_the_header(tree, stored, place):
    reader = Session(sessions.write_session(place(), stream(*tree, stored=stored)))
    samples = list(zip(*tree, strict=True))
    headers_bytes = reader.samples.wss_bytes.tolist()
    for then, header_bytes in zip(samples, headers_bytes, strict=True):
        (first, *others) = [pages for _, pages in filter(None, then)]
        assert header_bytes == first.size_bytes + sum(other.difference(first).size_bytes for other in others)
    sizes = [[0 if window is None else window[1].size_bytes for window in then] for then in samples]
    for options in ({}, {"filters_on": False}, {"filter_text": "heap"}):
        for view, header_bytes, size_bytes in zip(
            views(reader, **options), headers_bytes, map(sum, sizes), strict=True
        ):
            assert sum_of(view) == view.ranges_bytes == size_bytes  # what both accessed is in the rows of both
            assert view.wss_bytes == header_bytes
            assert ("that several processes touched" in rest_of(view)) == (header_bytes < size_bytes)
        for number in range(len(tree)):
            for view, size_bytes in zip(views(reader, pid=FIRST_PID + 1 + number, **options), sizes, strict=True):
                assert sum_of(view) == view.ranges_bytes == size_bytes[number]
    reader.close()


@slow
@given(history=HISTORIES, stored=STORED)
def test_no_range_is_hidden_of_which_pages_are_stored(history, stored, place):
    reader = Session(sessions.write_session(place(), stream(history, stored=stored)))
    chosen = parse_filter(stored)
    everything = views(reader, filters_on=False)
    for sample, (table, pages) in enumerate(history):
        included = [(v, size) for v, size in by_vma(pages, table) if chosen.leaves_out(v) is None]
        assert sum(size for _, size in included) == reader.samples.stored_bytes[sample]
        rows = everything[sample].rows
        not_stored = [row for row in rows if row.left_out.startswith("not stored")]
        # Rows in which something is kept, by the VMAs that are there, and those in which nothing is.
        assert sum(row.wss_bytes for row in rows if row not in not_stored) >= sum(size for _, size in included)
        for row in not_stored:
            assert set(row.left_out.removeprefix("not stored: ").split(",")) <= {t.text for t in chosen.terms}
    if stored == "default":  # the screen hides the very same
        for view, whole in zip(views(reader), everything, strict=True):
            stored_rows = {row.key for row in whole.rows if not row.left_out.startswith("not stored")}
            assert {row.key for row in view.rows} == stored_rows
    reader.close()


@settings(deadline=None)
@given(history=HISTORIES, stored=STORED)
def test_a_row_is_left_out_in_a_window_when_all_is_that_it_holds_then(history, stored):
    """Against every VMA of every window, under the row that it belongs to in the end."""
    chosen, merger, states, merged = parse_filter(stored), RangeMerger(), RowStates(), set()
    expected: list[tuple[int, int, str | None]] = []  # window, row as it was then, what leaves a VMA of it out
    for sample, (table, _) in enumerate(history):
        rows = merger.assign(table, sample).tolist()
        terms = [chosen.leaves_out(v) for v in table]
        gone = {old: new for old, new in merger.aliases.items() if old not in merged}
        merged |= gone.keys()
        parts = [(row, v.size_bytes, v.perms, term, v.name) for row, v, term in zip(rows, table, terms, strict=True)]
        states.update(sample, parts, gone)
        expected += [(sample, row, term) for row, term in zip(rows, terms, strict=True)]
    final = [(sample, merger.aliases.get(row, row), term) for sample, row, term in expected]
    for row in merger.rows():
        all_terms = [term for _, one, term in final if one == row.id]
        assert bool(states.left_out(row.id)) == (None not in all_terms)
        for sample in {sample for sample, one, _ in final if one == row.id}:
            terms = {term for one_sample, one, term in final if (one_sample, one) == (sample, row.id)}
            state = state_at(states.history(row.id), sample)
            assert state is not None
            assert state.left_out == ("" if None in terms else ",".join(sorted(terms)))


def test_a_file_mapped_in_the_place_of_anonymous_memory(place):
    pages = PageSet.from_pages([vma(0, 8).start // PAGE + n for n in range(8)])
    history = [((vma(0, 8, "rw-p", ""),), pages)] * 3 + [((vma(0, 8, "r--p", "/data/big.bin"),), pages)] * 3
    reader = Session(sessions.write_session(place(), stream(history, stored="none")))
    (row,) = reader.vmas.rows()
    assert (row.name, row.at(1).name, row.at(1).perms, row.at(4).name) == ("/data/big.bin", "", "rw-p", "/data/big.bin")
    shown = [[(r.name, r.perms) for r in view.rows] for view in views(reader)]
    assert shown == [[(f"anon {BASE:012x}", "rw-p")]] * 3 + [[("big.bin", "r--p")]] * 3
    reader.close()


def test_a_place_with_thousands_of_files_keeps_a_bounded_history():
    states = RowStates()
    for sample in range(5000):
        states.update(sample, [(0, PAGE, "rw-s", None, f"/dev/shm/{sample}")], {})
    assert len(states.history(0)) == MOST_NAMES
    states.update(5000, [(0, PAGE, "rw-s", "pages<4", "/dev/shm/x")], {})
    assert state_at(states.history(0), 5000).left_out == "pages<4", "what is hidden is told all the same"


@slow
@given(history=HISTORIES)
def test_a_row_of_an_older_format_is_not_hidden_where_its_pages_are_stored(history, place):
    path = sessions.write_session(place(), stream(history, stored="default"))
    reader = Session(path)
    ids = {row.id: row for row in reader.vmas.rows()}
    stored = {row.id for row in ids.values() if not row.filtered}
    with_bytes = set(reader.vmas.wss(0, len(history))[1].tolist())
    reader.close()
    as_of_format_9(path, {row: "pages<4" for row in ids if not ids[row].perms.startswith("---")})
    old = Session(path)
    pages = [old.pages.page_set(sample, 1) for sample in range(len(history))]
    marked = {row.id for row in old.vmas.rows() if row.filtered}
    for row in marked & stored & with_bytes:
        # What is still marked holds no stored page of its own, at addresses that no shorter row has.
        others = [r for r in ids.values() if r.id != row and r.end - r.start <= ids[row].end - ids[row].start]
        for found in filter(None, pages):
            own = select(found, [ids[row].start], [ids[row].end], [True])
            for other in others:
                own = own.difference(select(own, [other.start], [other.end], [True]))
            assert own.size_bytes == 0
    for view, wss in zip(views(old), old.samples.wss_bytes.tolist(), strict=True):
        assert sum(row.wss_bytes for row in view.rows) + view.left_out_bytes == wss
    old.close()


HOT = vma(0, 1000)
SPLIT = (vma(0, 998), vma(998, 1000, "r--p"))
ALL = PageSet.from_pages(BASE // PAGE + np.arange(1000))


def test_the_last_mapping_of_a_row_does_not_decide_for_the_others(tmp_path):
    path = sessions.write_session(tmp_path / "s.memtui", stream([((HOT,), ALL), (SPLIT, ALL)], stored="default"))
    reader = Session(path)
    assert [row.filtered for row in reader.vmas.rows()] == [""]
    assert [[row.wss_bytes for row in view.rows] for view in views(reader)] == [[1000 * PAGE]] * 2
    reader.close()


def test_a_row_is_hidden_in_the_windows_in_which_it_was_left_out(tmp_path):
    """A compiler's memory: written in two windows, made executable in between and afterwards."""
    code = (vma(0, 1000, "r-xp"),)
    history = [((HOT,), ALL), (code, ALL), ((HOT,), ALL), (code, ALL)]
    reader = Session(sessions.write_session(tmp_path / "s.memtui", stream(history, stored="default")))
    (row,) = reader.vmas.rows()
    assert row.filtered == ""
    assert [row.filtered_at(sample) for sample in range(4)] == ["", "exec", "", "exec"]
    assert [len(view.rows) for view in views(reader)] == [1, 0, 1, 0]
    assert [rest_of(view) for view in views(reader)] == ["", "and 3.91 MiB in 1 hidden range (f)"] * 2
    reader.close()
    # The same where all pages are stored, and only the screen's filter is left.
    reader = Session(sessions.write_session(tmp_path / "all.memtui", stream(history, stored="none")))
    assert [len(view.rows) for view in views(reader)] == [1, 0, 1, 0]
    reader.close()


def test_rows_that_are_merged_keep_what_was_true_of_both(tmp_path):
    code, data = vma(0, 10, "r--p", "/a"), vma(10, 12, "r--p", "/a")
    table_of_one = (vma(0, 12, "r--p", "/a"),)
    few = PageSet.from_pages(BASE // PAGE + np.arange(12))
    tail = PageSet.from_pages(BASE // PAGE + np.arange(10, 12))
    history = [((data,), tail), ((code, data), few), (table_of_one, few)]
    reader = Session(sessions.write_session(tmp_path / "s.memtui", stream(history, stored="pages<4")))
    (row,) = reader.vmas.rows()
    assert [row.filtered_at(sample) for sample in range(3)] == ["pages<4", "", ""]
    reader.close()


def test_a_session_of_the_format_before_shows_the_hot_range(tmp_path):
    """Pages show that it was stored: of more than a chunk of a sum, and of less in the page sets themselves."""
    small = vma(2000, 2008)
    pages = PageSet.from_pages(BASE // PAGE + np.concatenate((np.arange(1000), np.arange(2000, 2008))))
    bare = vma(3000, 3002, "r--p", "/lib")
    both = PageSet.from_pages(BASE // PAGE + np.concatenate((np.arange(1000), np.arange(3000, 3002))))
    history = [((HOT, small, bare), pages)] + [((*SPLIT, small, bare), both)] * 100
    path = sessions.write_session(tmp_path / "s.memtui", stream(history, stored="default"))
    reader = Session(path)
    filtered = {row.id: "pages<4" for row in reader.vmas.rows()}
    reader.close()
    as_of_format_9(path, filtered)
    old = Session(path)
    by_name = {(row.start, row.name): row.filtered for row in old.vmas.rows()}
    assert by_name == {(HOT.start, ""): "", (small.start, ""): "", (bare.start, "/lib"): "pages<4"}
    last = views(old)[-1]
    assert [row.wss_bytes for row in last.rows] == [1000 * PAGE, 0]
    assert rest_of(last) == "and 8.00 KiB in 1 hidden range (f)"
    old.close()


def test_what_is_not_stored_is_reported_below_the_figure_and_above_the_list(tmp_path):
    pages = PageSet.from_pages(BASE // PAGE + np.concatenate((np.arange(1000), np.arange(2000, 2100))))
    history = [((HOT, vma(2000, 2100, "r-xp", "/lib")), pages)] * 3
    path = sessions.write_session(tmp_path / "s.memtui", stream(history, stored="default"))
    (figure,) = [f for f in export(path, "svg", tmp_path / "svg") if f.stem == "heat-map"]
    text = " ".join(ElementTree.parse(figure).getroot().itertext())
    assert "(at most 400 KiB of a window)" in " ".join(text.split())
    (page,) = export(path, "html", tmp_path / "html")
    assert "In the mean of all windows that is 400 KiB of what is touched." in page.read_text()


TARGET = """
    import ctypes, mmap, sys, time
    size = 100 << 20
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block = memoryview(b"x" * size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    view = memoryview(memory)
    print(hex(address), flush=True)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        view[:] = block
    assert libc.mprotect(ctypes.c_void_p(address + size - 8192), ctypes.c_size_t(8192), 1) == 0
    print("protected", flush=True)
    while True:
        view[: size - 8192] = block[: size - 8192]
"""


@needs_root
@needs_tracker
def test_memory_that_is_written_stays_in_sight_when_its_end_is_protected(tmp_path):
    """The hottest range of a real program, in the table, in the heat map and in the figures."""
    target = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(TARGET)], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        start_of = int(target.stdout.readline(), 16)
        session = tmp_path / "s.memtui"
        recorder = start("record", target.pid, "-o", session, "--interval", "0.3", "--max-overhead", "none")
        seen = wait_for_samples(session, 2)  # of the range in one piece
        seen.close()
        assert target.stdout.readline() == "protected\n"
        wait_for_samples(session, len(seen.samples) + 6).close()
        code, _, errors = stop(recorder)
        assert code == 0, errors
    finally:
        target.kill()
        target.communicate()
    reader = Session(session)
    presenter = Presenter(reader, follow=False)
    presenter.room = Room(40, 20)
    for _ in range(20):
        view = presenter.view(10.0)
        if presenter.complete:
            break
    hot = [row for row in view.table.rows if row.start <= start_of < row.end]
    assert len(hot) == 1
    assert view.table.rows[0] == hot[0]
    assert hot[0].wss_bytes > 99 * MIB
    header = reader.samples.wss_bytes[-1]
    assert sum(row.wss_bytes or 0 for row in view.table.rows) + view.table.left_out_bytes == header
    drawn = [band for band in view.heat.bands if band.start <= start_of < band.end]
    assert drawn
    rows = view.heat.share[2 * drawn[0].row : 2 * (drawn[0].row + drawn[0].rows), -2]
    assert np.nanmean(rows) > 0.9
    (row,) = [r for r in reader.vmas.rows() if r.start <= start_of < r.end and r.perms != "---p"]
    label = f"anon {round((row.end - row.start) / MIB)}M"
    reader.close()
    figures = {
        f.stem: " ".join(ElementTree.parse(f).getroot().itertext()) for f in export(session, "svg", tmp_path / "o")
    }
    assert label in figures["heat-map"]
    csv_file = next(f for f in export(session, "csv", tmp_path / "c") if f.name == "vmas.csv")
    lines = csv.DictReader(csv_file.read_text().splitlines())
    (stored,) = [r for r in lines if int(r["start"]) == row.start and r["perms"] != "---p"]
    assert stored["filtered"] == ""
