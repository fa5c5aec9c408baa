"""Pages by the tensors that lie in them: against a naive count, as rows, and on a session whose truth is known."""

from __future__ import annotations

import csv
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.tensor_sums import Identity, TensorNumbers, TensorSums
from memtui.core.page_set import PageSet
from memtui.core.tracer_messages import TensorRanges
from memtui.reports.allocation_summary import LargestTensor, of_it
from memtui.reports.export.writers import export
from memtui.reports.redact import open_source
from memtui.reports.report import build_report
from memtui.reports.source import Source
from memtui.reports.tensor_summary import MOVED, _extremes, tensor_summary
from memtui.reports.text import format_report
from memtui.reports.traced_windows import TracedWindows, tensor_histories
from memtui.session.file_format import SessionError
from memtui.session.tables.tensors import decode_map, encode_map
from tests.support import sessions
from tests.support.tensor_maps import made, maps, session
from tests.support.told_steps import step

WEIGHTS, INPUTS, GRADIENTS = (CATEGORIES.index(kind) for kind in ("weights", "inputs", "gradients"))


def test_a_tensor_of_which_half_is_touched_is_cold_and_one_without_bytes_is_not():
    numbers, count = TensorNumbers(), np.array([1, 1, 1])
    sizes = {"half": 8, "more": 8, "none": 0}
    numbers.identities += [Identity(WEIGHTS, name, "", size, 0) for name, size in sizes.items()]
    sums = TensorSums(np.array([4, 5, 0]), count, count, count)
    assert [tensor.layer for tensor in _extremes(numbers, sums)[1]] == ["half"]


@given(maps(), st.frozensets(st.integers(0, 60), max_size=40))
def test_each_tensor_counts_its_own_part_of_a_touched_page(tensors, touched):
    expected = [0] * len(CATEGORIES)
    for page in touched:
        for start, size, category in tensors.columns.T.tolist():
            expected[category] += max(min(start + size, (page + 1) * 4096) - max(start, page * 4096), 0)
    pages = PageSet.from_pages(sorted(touched))
    assert tensors.touched_bytes(pages).tolist() == expected
    assert sum(expected) <= pages.size_bytes
    assert (tensors.touched_each(pages) <= tensors.size_bytes).all()


@given(maps())
def test_a_map_as_a_blob(tensors):
    decoded = decode_map(encode_map(tensors))
    assert np.array_equal(decoded.columns, tensors.columns)
    assert decoded.names == tensors.names
    assert decoded.exists_bytes().sum() == tensors.size_bytes.sum()


def test_a_part_of_a_large_page():
    pages = PageSet.from_blocks([], np.empty((0, 8)), huge=[1])
    tensors = made((2 << 20, 4096, WEIGHTS), ((2 << 20) + 8192, 4096, INPUTS))
    assert tensors.touched_bytes(pages)[[WEIGHTS, INPUTS]].tolist() == [4096, 4096]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(-4096, 10, 0)], "outside of memory"),
        ([(1 << 60, 10, 0)], "outside of memory"),
        ([(4096, 0, 0)], "outside of memory"),
        ([(4096, 10, 0), (4100, 10, 0)], "on top of each other"),
        ([(4096, 10, 99)], "no known category"),
    ],
)
def test_what_cannot_be_is_refused(rows, why):
    with pytest.raises(ValueError, match=why):
        made(*rows)


@pytest.mark.parametrize("data", [b"", b"nonsense", encode_map(made((0, 10, 0)))[:-4]])
def test_a_damaged_blob(data):
    with pytest.raises(ValueError, match=r"."):
        decode_map(data)


def told(sample: int, *rows: tuple[int, int, int]) -> TensorRanges:
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return TensorRanges(4242, sample * 203 * sessions.MS, columns, tuple("abc"[: len(rows)]), ("weight",) * len(rows))


# In every window the first 1024 pages of the heap are touched, and 2048 of 16384 of the data.
HOT = (sessions.HEAP, 3 << 20, WEIGHTS)
DATA_SET = (sessions.DATA, 64 << 20, INPUTS)


def test_the_working_set_by_category(tmp_path):
    path = session(tmp_path, (2, told(2, HOT)), (8, told(8, HOT, DATA_SET)))
    reader = Source(path)
    result = tensor_summary(reader)
    total = np.mean([reader.page_set(n, 1).size_bytes for n in range(2, 20) if n != 7])
    reader.close()
    assert result.pid == 4242
    parts = {part.category: part for part in result.parts}
    assert parts["weights"].touched_bytes == parts["weights"].exists_bytes == 3 << 20
    later = 12 / result.windows  # of the windows that know of the data set
    assert parts["inputs"].touched_bytes == pytest.approx((8 << 20) * later)
    assert parts["inputs"].exists_bytes == pytest.approx((64 << 20) * later)
    assert result.rest_bytes + sum(p.touched_bytes for p in parts.values()) == pytest.approx(total, rel=1e-3)
    text = format_report(build_report(path))
    assert [parts[name].exists_max_bytes for name in ("weights", "inputs")] == [3 << 20, 64 << 20]
    assert "by tensor    touched in a window, of what there is: weights 3.00 MiB of 3.00 MiB, inputs " in text
    mean = f"{(64 << 20) * later / (1 << 20):.1f} MiB"
    assert f"inputs {(8 << 20) * later / (1 << 20):.2f} MiB of {mean} (up to 64.0 MiB), the rest" in text
    assert "\nby layer     b " in text
    assert "\nhot tensors  b.weight inputs 8.00 MiB of 64.0 MiB, a.weight weights 3.00 MiB of 3.00 MiB" in text
    assert "\ncold tensors b.weight inputs 8.00 MiB of 64.0 MiB\n" in text
    rest = {part.part: part.touched_bytes for part in result.rest}
    assert sum(rest.values()) == pytest.approx(result.rest_bytes)
    assert rest["stack"] == 8 * 4096
    assert rest["libraries and files"] == 0, "code is left out at capture"
    assert rest["no known range"] == 0


def test_the_tensors_at_a_time_are_those_of_the_last_map_before_it(tmp_path):
    path = session(tmp_path, (2, told(2, HOT)), (8, told(8, HOT, DATA_SET)))
    with closing(Source(path)) as reader:
        (_, first_ns, first), (_, second_ns, second) = reader.tensor_maps()
        assert reader.latest_tensors(4242, first_ns - 1) is None
        for t_ns, expected in ((first_ns, first), (second_ns - 1, first), (second_ns, second), (second_ns + 9, second)):
            assert encode_map(reader.latest_tensors(4242, t_ns)) == encode_map(expected)
        assert reader.latest_tensors(4243, second_ns) is None
    with closing(open_source(path, redact=True)) as hidden:
        (name,) = set(hidden.latest_tensors(4242, first_ns).names)
        assert name != "a"
        assert hidden.latest_tensors(4242, first_ns - 1) is None


def test_parts_add_up_to_the_stored_pages_of_each_window(tmp_path):
    path = session(tmp_path, (2, told(2, HOT)), (8, told(8, HOT, DATA_SET)))
    reader = Source(path)
    (of_process,) = tensor_histories(reader)
    counted = TracedWindows(reader, of_process)
    windows = list(counted.count(range(20)))
    assert {window.sample for window in windows} == set(range(2, 20)), "nothing was known before"
    for window in windows:
        pages = reader.page_set(window.sample, 1)
        assert window.touched_bytes.sum() + window.rest_bytes.sum() == pages.size_bytes
    reader.close()


def test_the_largest_tensor_of_a_mean_is_no_larger_than_the_mean():
    largest = LargestTensor("float32[2097152]", 8 << 20)
    assert of_it(largest, 16 << 20) == " (8.00 MiB of it float32[2097152])"
    assert of_it(largest, 4 << 20) == " (most of it float32[2097152])", "it was not there in all windows"
    assert of_it(None, 4 << 20) == ""


def test_the_table_of_tensors(tmp_path):
    path = session(tmp_path, (2, told(2, HOT)), (8, told(8, HOT, DATA_SET, (sessions.DATA + (64 << 20), 4096, 5))))
    export(path, "csv", tmp_path / "out")
    with (tmp_path / "out" / "tensors.csv").open() as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert rows["a"] == {
        "pid": "4242", "name": "a", "category": "weights", "size_bytes": str(3 << 20),
        "touched_bytes": str(3 << 20), "windows": "18", "touched_share": "1.0", "last_sample": "19",
        "part": "weight",
    }  # fmt: skip
    assert (rows["b"]["touched_bytes"], rows["b"]["windows"]) == (str(8 << 20), "12")
    assert (rows["c"]["touched_share"], rows["c"]["last_sample"]) == ("0.0", "")
    export(path, "csv", tmp_path / "redacted", redact=True)
    with (tmp_path / "redacted" / "tensors.csv").open() as file:
        hidden = list(csv.DictReader(file))
    assert [row["name"] for row in hidden] == [f"layer-{n + 1}" for n in range(len(rows))]
    document = [{**row, "name": ""} for row in rows.values()]
    assert [{**row, "name": ""} for row in hidden] == document, "sums of pages, at true addresses, tell none"


def test_what_was_told_as_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    export(session(tmp_path, (2, told(2, HOT)), (3, step())), "parquet", tmp_path / "out")
    (row,) = parquet.read_table(tmp_path / "out" / "tensors.parquet").to_pylist()
    assert (row["name"], row["category"], row["touched_share"]) == ("a", "weights", 1.0)
    rows = parquet.read_table(tmp_path / "out" / "allocations.parquet").to_pylist()
    assert {row["layer"] for row in rows} == {"", "features.0"}


def test_without_pages_it_says_why(tmp_path):
    path = session(tmp_path, (19, told(30, HOT)))
    assert "by tensor    n/a: no pages are stored of a window in which" in format_report(build_report(path))
    path.unlink()
    assert build_report(session(tmp_path)).by_category is None


def in_the_middle(of: int, place: TensorRanges) -> tuple[int, TensorRanges]:
    return of, replace(place, t_ns=place.t_ns + 100 * sessions.MS)


def test_of_a_window_in_which_tensors_moved_those_count_that_stayed(tmp_path):
    """Gradients are freed after each step, and windows may be longer than it is from one recorded step to the next."""
    moving = [(sessions.DATA + (n << 20), 1 << 20, GRADIENTS) for n in range(20)]
    path = session(tmp_path, *(in_the_middle(n, told(n, HOT, moving[n])) for n in range(2, 20)))
    reader = Source(path)
    (history,) = tensor_histories(reader)
    for window in TracedWindows(reader, history).count(range(3, 19)):
        assert window.touched_bytes.tolist() == [3 << 20]
        assert window.touched_bytes.sum() + window.rest_bytes.sum() == reader.page_set(window.sample, 1).size_bytes
    assert [part.category for part in tensor_summary(reader).parts if part.exists_bytes > 1 << 20] == ["weights"]
    reader.close()


def test_where_every_tensor_moved_in_every_window_it_says_so(tmp_path):
    places = [told(n, HOT if n % 2 else DATA_SET) for n in range(2, 20)]
    path = session(tmp_path, *(in_the_middle(n, place) for n, place in enumerate(places, 2)), (19, told(20, HOT)))
    reader = Source(path)
    assert tensor_summary(reader).reason == MOVED
    reader.close()
    assert "by tensor    n/a: every tensor moved within every window" in format_report(build_report(path))


def test_tensors_that_cannot_be_are_left_out_with_a_word(tmp_path):
    path = session(tmp_path, (2, told(2, HOT, (HOT[0] + 5, 100, WEIGHTS))))
    report = build_report(path)
    assert report.by_category is None
    assert any("process 4242 tells of its tensors is left out: two tensors lie" in text for text in report.warnings)


def test_a_tampered_session(tmp_path):
    path = session(tmp_path, (2, told(2, HOT)))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE tensor_ranges SET data = x'00'")
    connection.commit()
    connection.close()
    reader = Source(path)
    with pytest.raises(SessionError, match="is damaged: places of tensors"):
        reader.tensor_maps()
    reader.close()


def test_small_tensors_are_never_touched_more_than_they_are(tmp_path):
    """Running means of 36 bytes in pages of their own: what is beyond them is told as rounding."""
    small = [(sessions.HEAP + n * 8192 + 64, 36, WEIGHTS) for n in range(3)]
    path = session(tmp_path, (2, told(2, *small)))
    reader = Source(path)
    result = tensor_summary(reader)
    reader.close()
    (weights,) = result.parts
    assert weights.touched_bytes == weights.exists_bytes == 3 * 36
    rest = {part.part: part.touched_bytes for part in result.rest}
    assert rest["page rounding"] == 3 * (4096 - 36)
    assert "weights 108 B of 108 B" in format_report(build_report(path))
