"""Writes a session again and again, each time with another call of SQLite's that fails, and reads what there is then.

Run as ``LD_PRELOAD=faults.so python -m tests.support.session_faults FOLDER STRIDE``. Prints JSON: how many calls of
each kind a whole session makes, how many of the sessions with a fault were read whole, in part or not at all, and what
was wrong.
"""

from __future__ import annotations

import ctypes
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
from memtui.recording.recorder.session_builder import SessionBuilder
from memtui.reports.report import build_report
from memtui.reports.text import format_report
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from memtui.session.writer import SessionWriter
from tests.support.hostile_sessions import small_stream

KINDS = ("read", "write", "sync", "size", "memory")
DONE = 77  # the exit code of a session that was written in spite of all


def library_range(name: str) -> tuple[int, int]:
    """Where a shared library lies in this process."""
    lines = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if name in line]
    return int(lines[0].split("-")[0], 16), int(lines[-1].split("-")[1], 16)


def write(path: Path, committed: mmap.mmap) -> None:
    """Record a small stream, with a commit after each window, as the recorder does."""
    writer = SessionWriter(path)
    builder, windows = SessionBuilder(writer), 0
    for message in small_stream():
        builder.add(message)
        writer.commit()
        windows += isinstance(message, Window)
        committed[0] = windows
    writer.close()


def plain(value: Any) -> Any:
    """What can be compared, with nan equal to itself."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return repr(value)


def contents(path: Path) -> list[list[Any]]:
    """All that a reader says of each sample. Raises SessionError."""
    reader = Session(path)
    try:
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


def main(folder: Path, stride: int) -> None:
    faults = ctypes.CDLL(None)
    faults.faults_end.restype = ctypes.c_long
    begin, end = (ctypes.c_void_p(address) for address in library_range("libsqlite3"))
    committed = mmap.mmap(-1, mmap.PAGESIZE)
    whole = folder / "whole.memtui"
    faults.faults_begin(-1, ctypes.c_long(0), 0, 0, begin, end)
    write(whole, committed)
    calls = {kind: faults.faults_end(n) for n, kind in enumerate(KINDS)}
    truth = contents(whole)
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    cases = [(kind, at, ever, cut) for kind in KINDS for at in range(1, calls[kind] + 1) for ever in (0, 1)
             for cut in ((0, 1) if kind == "write" else (0,))]  # fmt: skip
    for case in cases[::stride]:
        kind, at, ever, cut = case
        place = folder / "one"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        path, committed[0] = place / "s.memtui", 0
        pid = os.fork()
        if not pid:
            code = 1
            try:
                faults.faults_begin(KINDS.index(kind), ctypes.c_long(at), ever, cut, begin, end)
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
        outcomes["whole" if there == truth else "in part" if there else "not at all"] += 1
    print(json.dumps({"calls": calls, "cases": len(cases[::stride]), "outcomes": outcomes, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
