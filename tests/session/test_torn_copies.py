"""A session that is copied with its log while it is written: whole rows are read from the copy, or a clear error.

The copy has blocks of different moments, because a copy takes its time, and may end anywhere.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.core.samples import End, Process, ProcessWindow, Vma, VmaTable, Window
from memtui.recording.recorder.session_builder import SessionBuilder
from memtui.session.file_format import SessionError
from memtui.session.writer import SessionWriter
from tests.conftest import LONG
from tests.support import sessions
from tests.support.session_faults import contents
from tests.support.sessions import HEAP, MS

SAMPLES = 24
COPIES = 2000 if LONG else 60
BLOCK_BYTES = 4096  # half a page of a session: what the kernel writes at once

Moments = list[tuple[bytes, bytes]]  # the file and its log, after each commit


def stream():
    """Two processes, whose sets of pages take from one to ten pages of the file."""
    chance = np.random.default_rng(1)
    yield sessions.hello()
    for key in (1, 2):
        yield Process(key, 4241 + key, 1, 777, 0, "python train.py", "target")
        yield VmaTable(key, 0, (Vma(HEAP, HEAP + (1 << 30), "rw-p", "[heap]"),))
    for sample in range(SAMPLES):
        if sample == SAMPLES // 2:
            yield VmaTable(1, sample, (Vma(HEAP, HEAP + (1 << 29), "rw-p", "[heap]"),))
        start, end = sample * 203 * MS, sample * 203 * MS + 200 * MS
        windows = []
        for key in (1, 2):
            numbers = np.unique(chance.integers(0, 1 << 17, int(chance.integers(10, 30_000))))
            pages = PageSet.from_pages((HEAP >> 12) + numbers)
            windows.append(ProcessWindow(key, start, end, cpu_ns=start, threads=1, pages=pages, rss_bytes=sample << 20))
        yield Window(sample, start, end, 200 * MS, sample * MS, tuple(windows), shared_excess_bytes=0)
    yield End(SAMPLES * 203 * MS, "target exited")


def recorded(path: Path, fold_pages: int) -> Moments:
    """Record the stream, and fold the log into the file whenever it has so many pages."""
    moments = []
    with closing(SessionWriter(path)) as writer:
        writer._connection.execute(f"PRAGMA wal_autocheckpoint={fold_pages}")
        builder = SessionBuilder(writer)
        for message in stream():
            builder.add(message)
            writer.commit()
            moments.append((path.read_bytes(), path.with_name(f"{path.name}-wal").read_bytes()))
    return moments


def torn(moments: Moments, chance: random.Random) -> tuple[bytes, bytes]:
    """A copy of the file that was begun at one moment and ended at a later one, and then one of its log."""
    first = chance.randrange(len(moments))
    second = min(len(moments) - 1, first + chance.choice((0, 0, 1, 2, 5, 20)))
    third = min(len(moments) - 1, second + chance.choice((0, 0, 1, 2, 5)))
    file, later, log = moments[first][0], moments[second][0], moments[third][1]
    if chance.random() < 0.5:
        cut = chance.randrange(len(later) + 1)
        file = file[:cut] + later[cut:]
    else:
        starts = range(0, len(later), BLOCK_BYTES)
        blocks = ((file if chance.random() < 0.5 and n < len(file) else later)[n : n + BLOCK_BYTES] for n in starts)
        file = b"".join(blocks)
    if chance.random() < 0.3:
        file = file[: chance.randrange(len(file) + 1)]
    if chance.random() < 0.5:
        log = log[: chance.randrange(len(log) + 1)]
    return file, log


def half_rows(there: list, truth: list) -> list[str]:
    """What was read of a copy and never written. A row may be missing as a whole."""
    if len(there) > len(truth):
        return ["more samples than were recorded"]
    wrong = []
    for number, (part, whole) in enumerate(zip(there, truth, strict=False)):
        columns, rows, sets = part[:3]
        page_sets = dict(zip(whole[1], whole[2], strict=True))
        if columns != whole[0]:
            wrong.append(f"sample {number}: {columns}, and not {whole[0]}")
        for row, pages in zip(rows, sets, strict=True):
            if row not in page_sets:
                wrong.append(f"sample {number}: a row that nobody wrote: {row}")
            elif pages is not None and pages != page_sets[row]:
                wrong.append(f"sample {number}: {len(pages)} pages, and not {len(page_sets[row])}")
        touched, of_truth = (set(zip(*of[3], strict=True)) for of in (part, whole))
        if not touched <= of_truth:
            wrong.append(f"sample {number}: touched {touched - of_truth}")
    return wrong


@pytest.mark.parametrize("fold_pages", [4, 64])
def test_a_copy_that_was_torn_has_whole_rows_or_is_a_clear_error(fold_pages, tmp_path):
    path, copied = tmp_path / "s.memtui", tmp_path / "copy" / "s.memtui"
    moments, chance = recorded(path, fold_pages), random.Random(fold_pages)
    truth, outcomes, messages = contents(path), Counter(), []
    assert len(truth) == SAMPLES
    copied.parent.mkdir()
    for number in range(COPIES):
        for old in copied.parent.iterdir():
            old.unlink()
        file, log = torn(moments, chance)
        copied.write_bytes(file)
        if log:
            copied.with_name(f"{copied.name}-wal").write_bytes(log)
        try:
            there = contents(copied, torn=True)
        except SessionError as error:
            messages.append(str(error))
            continue
        assert half_rows(there, truth) == [], number
        outcomes["whole" if there == truth else "in part"] += 1
    assert [text for text in messages if not text.startswith(f"{copied}: ") or "\n" in text] == []
    assert min(len(messages), outcomes["in part"]) > COPIES // 6


def test_half_a_row_would_be_noticed(tmp_path):
    recorded(tmp_path / "s.memtui", 64)
    truth = contents(tmp_path / "s.memtui")
    for part in range(4):
        there = copy.deepcopy(truth)
        there[5][part] = truth[6][part]
        assert half_rows(there, truth) != [], part
    there[5][3] = [values[:1] for values in truth[5][3]]
    there[5][2] = [None] * len(truth[5][2])
    there[5][1], there[5][2] = there[5][1][:1], there[5][2][:1]
    assert half_rows(there[:10], truth) == [], "what is missing was not written wrongly"
