"""Writes a session again and again, each time with another call of SQLite's that fails, and reads what there is then.

Run as ``LD_PRELOAD=faults.so python -m tests.support.session_faults FOLDER STRIDE [FIRST]``: every STRIDEth case from
the FIRSTth, which is 0 unless given. Prints JSON: how many calls of each kind a whole session makes, how many of the
sessions with a fault in such a call were read whole, in part or not at all, and what was wrong. Says on standard error
how far it is: with all calls it takes long.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from memtui.core.samples import Window
from memtui.recording.recorder.__main__ import FAILURES
from memtui.recording.recorder.session_builder import SessionBuilder
from memtui.reports.report import build_report
from memtui.reports.text import format_report
from memtui.session.file_format import SessionError, row_ids
from memtui.session.session import Session
from memtui.session.tables.reuse import ReuseRecord
from memtui.session.tables.samples import PageSetRecord, ProcessSampleRecord
from memtui.session.tables.vmas import VmaRssRecord, VmaSharedRecord, VmaWssRecord
from memtui.session.writer import SessionWriter
from tests.support import fault_calls
from tests.support.hostile_sessions import small_stream

PROGRESS = 500  # cases from one line of progress to the next
DONE = 77  # the exit code of a session that was written in spite of all


def write(path: Path, committed: mmap.mmap) -> None:
    """Record a small stream, with a commit after each window, as the recorder does; raise what it meets."""
    writer = SessionWriter(path)
    try:
        builder, windows = SessionBuilder(writer), 0
        for message in small_stream():
            builder.add(message)
            if isinstance(message, Window):
                writer.commit()
                windows += 1
                committed[0] = windows
        writer.commit()
    except FAILURES:
        writer.abandon()
        raise
    writer.close()


def plain(value: Any) -> Any:
    """What can be compared, with nan equal to itself."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return repr(value)


def contents(path: Path, *, torn: bool = False) -> list[list[Any]]:
    """All that a reader says of each sample. Raises SessionError.

    ``torn``: the file has blocks of different moments, and may have rows of windows that it lacks, which nobody reads.
    """
    reader = Session(path)
    try:
        first_missing, _ = row_ids(len(reader.samples), 0)
        for record in (PageSetRecord, ProcessSampleRecord, VmaWssRecord, VmaRssRecord, VmaSharedRecord, ReuseRecord):
            rows = reader._file.rows(record, "WHERE id >= ?", first_missing, names=("id",))
            assert torn or not rows, f"{len(rows)} rows of {record.__name__} belong to a window that is not there"
        found = []
        for at, sample in enumerate(reader.samples.sample.tolist()):
            columns = [
                plain(getattr(reader.samples, name)[at]) for name in ("end_ns", "wss_bytes", "rss_bytes", "status")
            ]
            rows = reader.processes.samples(sample, sample)
            sets = [reader.pages.page_set(sample, row["process"]) for row in rows]
            pages = [None if one is None else plain(one.pages()) for one in sets]
            by_row = [plain(part) for part in reader.vmas.wss(sample, sample)]
            others = [plain(reader.vmas.rss(sample)), plain(reader.vmas.shared(sample))]
            found.append([columns, [plain(sorted(row.items())) for row in rows], pages, by_row, others])
        return found
    finally:
        reader.close()


def main(folder: Path, stride: int, first: int = 0) -> None:
    committed = mmap.mmap(-1, mmap.PAGESIZE)
    whole = folder / "whole.memtui"
    fault_calls.begin(None)
    write(whole, committed)
    calls = fault_calls.end()
    truth = contents(whole)
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in fault_calls.KINDS}
    wrong: list[str] = []
    # Allocations are most of them, and most of those create tables: they come last.
    kinds = sorted(fault_calls.KINDS, key=lambda kind: calls[kind])
    cases = [(kind, at, ever, cut) for kind in kinds for at in range(calls[kind], 0, -1) for ever in (0, 1)
             for cut in ((0, 1) if kind == "write" else (0,))][first::stride]  # fmt: skip
    for count, case in enumerate(cases):
        if count % PROGRESS == PROGRESS - 1:
            print(f"{count} of {len(cases)}: {json.dumps(outcomes)} {wrong}", file=sys.stderr, flush=True)
        kind, at, ever, cut = case
        place = folder / "one"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        path, committed[0] = place / "s.memtui", 0
        pid = os.fork()
        if not pid:
            code = 1
            try:
                fault_calls.begin(kind, at, for_ever=bool(ever), half=bool(cut))
                write(path, committed)
                code = DONE
            finally:
                os._exit(code)
        done = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == DONE
        try:
            there = contents(path)
            format_report(build_report(path))
        except SessionError as error:
            there = []
            if str(error).count("\n") or committed[0]:
                wrong.append(f"{case}: {committed[0]} windows were committed: {error}")
        except Exception as error:
            wrong.append(f"{case}: {type(error).__name__}: {error}")
            continue
        if there != truth[: len(there)]:
            wrong.append(f"{case}: what is there is not what was recorded")
        if len(there) < committed[0] or (done and there != truth):
            wrong.append(f"{case}: {committed[0]} windows were committed, {len(there)} are there")
        outcomes[kind]["whole" if there == truth else "in part" if there else "not at all"] += 1
    print(json.dumps({"calls": calls, "cases": len(cases), "outcomes": outcomes, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
