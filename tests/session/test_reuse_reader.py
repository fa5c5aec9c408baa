"""Reuse distances of a stored session: those of bursts, with what is read before them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import astuple, replace

import pytest

from memtui.analysis.reuse_burst import BurstReuse, part_distances
from memtui.core.page_set import PageSet
from memtui.core.samples import Window
from memtui.reports.comparison.differences import figure_rows
from memtui.reports.comparison.load import memory_of
from memtui.reports.comparison.model import OF_BURSTS
from memtui.reports.export.page import page
from memtui.reports.export.tables import TABLES
from memtui.reports.report import build_report
from memtui.reports.source import Source
from memtui.reports.text import format_report
from memtui.session.file_format import SessionError
from memtui.session.reuse_reader import ReuseReader
from memtui.session.session import Session
from memtui.tui.presenters.reuse import BACK_SAMPLES, BATCH_BURSTS, ReuseLog
from memtui.tui.presenters.time_budget import TimeBudget
from tests.support.sessions import CODE, HEAP, MS, messages, touched, write_session

SAMPLES, BURSTS, MANY = 12, (4, 9), 400


def parts_of(sample: int, code: int = 300, heap: int = 1024) -> tuple[PageSet, ...]:
    """Return the parts of a window: all of it, then its heap and some code, which filters leave out."""
    pages = [*range(HEAP >> 12, (HEAP >> 12) + heap), *range(CODE >> 12, (CODE >> 12) + code)]
    return touched(sample), PageSet.from_pages(pages), PageSet.from_pages(pages)


@pytest.fixture
def path(tmp_path):
    stream = [
        replace(
            m,
            processes=(
                replace(m.processes[0], parts=parts_of(m.sample), part_lengths_ns=(99 * MS, 10 * MS + m.sample)),
            ),
        )
        if isinstance(m, Window) and m.sample in BURSTS
        else m
        for m in messages(SAMPLES)
    ]
    return write_session(tmp_path / "s.memtui", stream)


def test_bursts_are_those_of_the_parts(path):
    with closing(Session(path)) as reader:
        first, second = reader.reuse.bursts(0, SAMPLES)
        assert [sample for sample, _, _ in reader.reuse.bursts(5, SAMPLES)] == [9]
        assert [(sample, process, parts[-1].length_ns) for sample, process, parts in (first, second)] == [
            (4, 1, 10 * MS + 4), (9, 1, 10 * MS + 9)
        ]  # fmt: skip
        expected = part_distances(touched(3), parts_of(4, code=0), (99 * MS, 10 * MS + 4))
        assert [part.length_ns for part in first[2]] == [part.length_ns for part in expected] == [99 * MS, 10 * MS + 4]
        for part, other in zip(first[2], expected, strict=True):
            assert part.distances.counts.tolist() == other.distances.counts.tolist() == [1024]
            assert part.touched_bytes == other.touched_bytes == 4 << 20
            assert (part.same_order, part.reverse_order) == (other.same_order, other.reverse_order)
        assert first[2][-1].distances.upper_bytes.tolist() == [4 << 20]


def test_report_and_screen_say_them(path):
    report = build_report(path)
    bursts = report.reuse.bursts
    assert (bursts.count, bursts.touches, bursts.probe_s) == (2, 2048, pytest.approx(0.01, abs=1e-6))
    assert (bursts.median_bytes.lower, bursts.median_bytes.upper) == (4096, 4 << 20)
    text = format_report(report)
    assert "\nreuse        in windows of 10.0 ms, of 2 bursts: half of all touches within about" in text
    assert "\n             in whole windows half of all returning touches within" in text
    with closing(Source(path)) as source:
        html = page(source)
    assert "<dt>half of touches in windows of 10.0 ms within</dt><dd><strong>about" in html
    assert "half of all touches within about" in html
    assert "; in whole windows half of all returning touches within" in html
    few = replace(report, reuse=replace(report.reuse, bursts=replace(bursts, median_bytes=None, p95_bytes=None)))
    assert "\nreuse        half of all returning touches within" in (text := format_report(few))
    assert "\n             in windows of 10.0 ms, of 2 bursts: more than half of all touches are of pages" in text
    with closing(Session(path)) as reader:
        log, budget = ReuseLog(), TimeBudget(10.0)
        for sample, count in ((3, 0), (4, 1), (11, 2), (5, 1)):
            view, _ = log.view(reader, sample, budget)
            alone = BurstReuse()
            for number, _, parts in reader.reuse.bursts(0, sample):
                alone.add(number, parts)
            assert alone.count == count
            assert view.burst_half_bytes == alone.within(0.5)
            assert view.probe == ("10.0 ms" if count else "")


def test_they_are_exported_and_compared(path):
    with closing(Source(path)) as source:
        columns, rows = TABLES["reuse_bursts"]
        halves = [dict(zip(columns, row, strict=True)) for row in rows(source) if row[1] == 0.5]
        columns, rows = TABLES["miss_ratio"]
        ratios = [dict(zip(columns, row, strict=True)) for row in rows(source)]
        memory = memory_of(source)
    bursts = build_report(path).reuse.bursts
    (half,) = halves
    assert [half[f"{name}_bytes"] for name in ("lower", "upper", "estimate")] == [*astuple(bursts.median_bytes)]
    assert (half["bursts"], half["touches"], half["probe_ns"]) == (2, 2048, bursts.probe_s * 1e9)
    assert all(row["miss_ratio_low"] <= row["miss_ratio_estimate"] <= row["miss_ratio_high"] for row in ratios)
    assert any(row["miss_ratio_low"] < row["miss_ratio_estimate"] < row["miss_ratio_high"] for row in ratios)
    assert memory.figures["burst_p50_estimate_bytes"] == bursts.median_bytes.estimate
    names = [row.label for row in figure_rows([memory])]
    assert {"half, if in random order", "half, of touches in bursts", "95 %, of touches in bursts"} <= set(names)


def parts_with_few_touches_that_return(returning: int) -> tuple[PageSet, ...]:
    """Return the parts of a window that touch a thousand pages each, so many of them the same."""
    first = HEAP >> 12
    second = first + 1000 - returning
    return touched(4), *(PageSet.from_pages(range(page, page + 1000)) for page in (first, second))


@pytest.mark.parametrize(
    ("returning", "reasons"),
    [
        (None, ["no window was cut into parts"] * 2),
        (0, ["more than half of their touches did not come back", "more than 5 % of their touches did not come back"]),
        (800, ["", "more than 5 % of their touches did not come back"]),
        (1000, ["", ""]),
    ],
)
def test_a_figure_of_bursts_that_is_missing_has_its_own_reason(returning, reasons, tmp_path):
    stream = list(messages(SAMPLES))
    for index, message in enumerate(stream):
        if isinstance(message, Window) and message.sample == 4 and returning is not None:
            parts = parts_with_few_touches_that_return(returning)
            process = replace(message.processes[0], parts=parts, part_lengths_ns=(80 * MS, 10 * MS, 10 * MS))
            stream[index] = replace(message, processes=(process,))
    with closing(Source(write_session(tmp_path / "s.memtui", stream))) as source:
        memory = memory_of(source)
    assert [memory.reasons.get(name, "") for name in OF_BURSTS] == reasons
    assert [memory.figures[name] is None for name in OF_BURSTS] == [*map(bool, reasons)]
    assert {row.name for row in figure_rows([memory])} & {*OF_BURSTS} == {
        name for name, why in zip(OF_BURSTS, reasons, strict=True) if not why
    }
    other = replace(memory, figures={**memory.figures, **dict.fromkeys(OF_BURSTS, 1.0)}, reasons={})
    rows = {row.name: row.reasons for row in figure_rows([memory, other])}
    assert [rows[name] for name in OF_BURSTS] == [(why, "") for why in reasons]


def test_many_bursts_take_several_pictures_and_are_not_read_again_for_a_step_back(tmp_path, monkeypatch):
    stream = (
        replace(
            m, processes=(replace(m.processes[0], parts=parts_of(m.sample, 0, 1 + m.sample), part_lengths_ns=(MS, MS)),)
        )
        if isinstance(m, Window)
        else m
        for m in messages(MANY)
    )
    with closing(Session(write_session(tmp_path / "many.memtui", stream))) as reader:
        log, last = ReuseLog(), MANY - 1
        pictures = [log.view(reader, last, TimeBudget(0.0))]
        while not pictures[-1][1]:
            assert len(pictures) < MANY, "goes on for ever"
            pictures.append(log.view(reader, last, TimeBudget(0.0)))
        assert len(pictures) >= MANY // BATCH_BURSTS
        assert {(view.burst_half_bytes, view.whose) for view, _ in pictures[:-1]} == {(None, "")}, "of all, or of none"
        assert pictures[-1][0].burst_half_bytes == half_of(reader, last)

        read, bursts = [], reader.reuse.bursts
        monkeypatch.setattr(reader.reuse, "bursts", lambda first, last: read.append(first) or bursts(first, last))
        for sample in (last - 1, last - 2, last, last - BACK_SAMPLES):
            view, complete = log.view(reader, sample, TimeBudget(10.0))
            assert (view.burst_half_bytes, complete) == (half_of(reader, sample), True)
        assert min(read) > last - BACK_SAMPLES
        view, _ = log.view(reader, 7, TimeBudget(10.0))
        assert view.burst_half_bytes == half_of(reader, 7) != half_of(reader, last)


def half_of(reader, sample):
    alone = BurstReuse()
    for number, _, parts in ReuseReader.bursts(reader.reuse, 0, sample):
        alone.add(number, parts)
    return alone.within(0.5)


def test_a_damaged_burst_is_told(path):
    for column, value in (("parts", 0), ("probe_ns", -5), ("parts", 1), ("parts", 1 << 20), ("data", b"x")):
        damaged = path.with_name(f"{column}-{value!r}"[:20])
        damaged.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(damaged)) as connection:
            connection.execute(f"UPDATE reuse_burst SET {column} = ?", (value,))
            connection.commit()
        with closing(Session(damaged)) as reader, pytest.raises(SessionError, match="is damaged"):
            list(reader.reuse.bursts(0, SAMPLES))
