"""What the child process makes of memray's records: lifetimes by address, mappings that are unmapped in part, times."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.formats.memray_worker import _Blocks, count_rows, read_capture

MALLOC, FREE, REALLOC, MMAP, MUNMAP = 6, 5, 7, 14, 15
KIB = 1024


class Format(Enum):
    ALL_ALLOCATIONS = 0
    AGGREGATED_ALLOCATIONS = 1


class Record(SimpleNamespace):
    native_stack_id = native_segment_generation = 0

    def stack_trace(self):
        return self.stack


def record(allocator, address, size=0, stack=(), number=0, count=1):
    return Record(
        allocator=allocator, address=address, size=size, stack=list(stack), stack_id=number, n_allocations=count
    )


class Reader:
    """Stands for ``memray.FileReader``."""

    def __init__(self, records, peak=(), left=(), form=Format.ALL_ALLOCATIONS):
        moment = SimpleNamespace(timestamp=lambda: 1.5)
        self.metadata = SimpleNamespace(
            pid=7, start_time=moment, end_time=moment, peak_memory=0, has_native_traces=False,
            trace_python_allocators=False, file_format=form,
        )  # fmt: skip
        self.records, self.peak, self.left = records, peak, left

    def get_allocation_records(self):
        return iter(self.records)

    def get_high_watermark_allocation_records(self, merge_threads):
        return iter(self.peak)

    def get_leaked_allocation_records(self, merge_threads):
        return iter(self.left)

    def get_memory_snapshots(self):
        return [SimpleNamespace(time=1500)]


def blocks_of(records):
    head, columns = read_capture(Reader(records))
    return head, [tuple(block) for block in zip(*columns[2:8], strict=True)]


def test_blocks_live_from_their_allocation_to_their_free():
    main, inner = ("main", "a.py", 3), ("make", "a.py", 9)
    head, blocks = blocks_of([
        record(MALLOC, 100, 10, [inner, main], 1),
        record(MALLOC, 200, 20, [main], 2),
        record(FREE, 100),
        record(FREE, 999),
        record(REALLOC, 100, 30, [inner, main], 1),
    ])  # fmt: skip
    assert head["rows"] == 5
    assert head["frames"] == [list(inner), list(main)]
    assert blocks == [(100, 10, 1, 0, 2, 1), (200, 20, 0, 1, -1, 1), (100, 30, 1, 4, -1, 1)]


def test_a_block_whose_free_was_not_seen_ends_where_the_next_one_begins():
    _, blocks = blocks_of([record(MALLOC, 100, 10), record(MALLOC, 100, 20)])
    assert [block[3:5] for block in blocks] == [(0, 1), (1, -1)]


def test_what_stays_of_a_mapping_is_as_old_as_it_was():
    page = 4 * KIB
    _, blocks = blocks_of([record(MMAP, 10 * page, 10 * page), record(MUNMAP, 12 * page, 3 * page)])
    assert sorted(blocks) == [
        (10 * page, 2 * page, -1, 0, -1, 1),
        (12 * page, 3 * page, -1, 0, 1, 1),
        (15 * page, 5 * page, -1, 0, -1, 1),
    ]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(1, 12)), max_size=30))
def test_mappings_are_what_a_map_of_pages_says(steps):
    blocks, pages = _Blocks(), {}
    for row, (mapped, start, count) in enumerate(steps):
        if mapped:
            blocks.map(row, start, count, row)
        else:
            blocks.unmap(row, start, count)
        for page in range(start, start + count):
            pages.pop(page, None)
            if mapped:
                pages[page] = row
    columns = zip(*blocks.columns, strict=True)
    left = {
        page: stack
        for address, size, stack, _, freed, _ in columns
        if freed < 0
        for page in range(address, address + size)
    }
    assert left == pages
    alive = [block[:2] for block in zip(*blocks.columns, strict=True) if block[4] < 0]
    assert sum(size for _, size in alive) == len(pages)


def test_an_aggregated_capture_has_the_peak_and_the_end():
    main = [("main", "a.py", 3)]
    reader = Reader(
        [], [record(MALLOC, 0, 50, main, 1, 5)], [record(MALLOC, 0, 10, main, 1, 1)], Format.AGGREGATED_ALLOCATIONS
    )
    head, columns = read_capture(reader)
    assert head["aggregated"]
    assert [tuple(block) for block in zip(*columns[2:8], strict=True)] == [(-1, 50, 0, 0, 1, 5), (-1, 10, 0, 1, -1, 1)]


def test_progress_is_told_in_rows_of_both_passes(monkeypatch):
    monkeypatch.setattr("memtui.formats.memray_worker._PROGRESS_ROWS", 2)
    told = []
    reader = Reader([record(MALLOC, 100, 10), record(FREE, 100), record(MALLOC, 100, 10), record(MALLOC, 200, 10)])
    read_capture(reader, lambda *how_far: told.append(how_far))
    assert told == [(2, 1), (4, 3)]
    count_rows([b"ALLOCATION "] * 5, lambda *how_far: told.append(how_far))
    assert told[2:] == [(2, None), (4, None)]


def test_the_parts_of_a_mapping_are_one_allocation(monkeypatch):
    monkeypatch.setattr("memtui.formats.memray_worker._PROGRESS_ROWS", 5)
    told = []
    unmapped = [record(MUNMAP, start, 1) for start in (12, 14, 16, 18)]
    read_capture(Reader([record(MMAP, 10, 10), *unmapped]), lambda *how_far: told.append(how_far))
    assert told == [(5, 1)]


@pytest.fixture
def endless_dump(tmp_path, monkeypatch):
    """A memray whose list of records does not end, for child processes."""
    (tmp_path / "memray.py").write_text(
        "import time\n\ndef dump_all_records(path):\n    print('ALLOCATION ', flush=True)\n    time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")


def test_the_list_of_records_ends_with_who_asked_for_it(endless_dump):
    program = (
        "import time; from memtui.formats.memray_worker import start_dump; dump = start_dump(); "
        "dump.stdout.readline(); print(dump.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as parent:
        dump = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 20
    while running(dump) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(dump)


def running(pid):
    """Whether a process is there, and not one that nobody waited for."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_size_that_is_no_number_of_a_block_is_refused():
    with pytest.raises(OverflowError):
        read_capture(Reader([record(MALLOC, 1 << 63, 1)]))


def test_rows_are_counted_between_the_readings_of_the_clock():
    lines = [
        b"HEADER magic=memray",
        b"MEMORY_RECORD time=1000 memory=5",
        b"ALLOCATION address=0x1 size=2 allocator=malloc native_frame_id=0",
        b"FRAME_PUSH code_object_id=1",
        b"ALLOCATION address=0x1 size=0 allocator=free native_frame_id=0",
        b"MEMORY_RECORD time=1010 memory=5",
    ]
    assert count_rows(lines) == ([1000, 1010], [0, 2], False)
    assert count_rows([*lines, b"TRAILER"])[2]
    assert np.diff(count_rows(lines)[1]).tolist() == [2]
