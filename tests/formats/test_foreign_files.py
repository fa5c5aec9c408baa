"""Files that nobody here wrote: a result or one line for each, and the numbers that they have themselves.

``MEMTUI_FILES`` names a folder of such files, ``MEMTUI_HTA`` a checkout of github.com/facebookresearch/
HolisticTraceAnalysis, whose tests have traces; a git directory without a work tree is enough.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.formats.catalogue import import_file
from memtui.formats.imported import Imported, NotImportable
from memtui.formats.session_writer import write
from memtui.session.session import Session
from tests.support.checkouts import Checkout

FILES = "MEMTUI_FILES"
HTA = Checkout("MEMTUI_HTA", "github.com/facebookresearch/HolisticTraceAnalysis")
HTA_DATA, HTA_TIMELINE = "tests/data", "tests/data/memory_analysis/memory_timeline.raw.gz"
PREEXISTING = 1  # an action of a timeline
KINDS = ("weights", "optimiser state", "inputs", "temporaries", "activations", "gradients", "temporaries", "unknown")


def foreign_files() -> Iterator[Any]:
    """Yield (name, what returns the content) of each file."""
    if folder := os.environ.get(FILES):
        for path in sorted(path for path in Path(folder).iterdir() if path.is_file()):
            yield pytest.param(path.name, path.read_bytes, id=path.name)
    if HTA.is_named:
        for name in HTA.names(HTA_DATA):
            if name.endswith((".json", ".gz")):
                yield pytest.param(Path(name).name, partial(HTA.blob, name), id=name.removeprefix(f"{HTA_DATA}/"))


@pytest.mark.parametrize(
    ("name", "content"),
    [*foreign_files()]
    or [pytest.param("", bytes, marks=pytest.mark.skip(reason=f"neither {FILES} nor MEMTUI_HTA is set"), id="none")],
)
def test_a_file_is_a_session_with_its_own_peaks_or_one_line(name: str, content: Callable[[], bytes], tmp_path):
    path, session = tmp_path / name, tmp_path / "s.memtui"
    path.write_bytes(content())
    totals = totals_of_chrome_trace(path.read_bytes())
    imported = imported_or_why(path)
    if isinstance(imported, str):
        assert imported.isprintable(), "one line"
        assert not totals, "it has [memory] events"
        return
    peaks = {part.device: part.trace.peak_bytes for part in imported.parts}
    assert {device: peaks.get(device) for device in totals} == totals
    for part in imported.parts:
        assert part.trace.check() == []
    write(imported, session)
    with closing(Session(session)) as reader:
        rows = Counter({step.device: len(reader.allocations.trace(step)) for step in reader.allocations.steps()})
    assert rows.keys() == peaks.keys()


def imported_or_why(path: Path) -> Imported | str:
    try:
        return import_file(path)
    except NotImportable as error:
        return str(error)


def totals_of_chrome_trace(data: bytes) -> dict[str, int]:
    """Return the most that the profiler says is allocated on each device; none of another file."""
    try:
        document = json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    except ValueError:
        return {}
    events = document.get("traceEvents", []) if isinstance(document, dict) else document
    totals: dict[str, int] = defaultdict(int)
    for event in events if isinstance(events, list) else []:
        if isinstance(event, dict) and event.get("name") == "[memory]":
            args = event["args"]
            device = "cpu" if args["Device Type"] == 0 else f"cuda:{args['Device Id']}"
            totals[device] = max(totals[device], args["Total Allocated"])
    return dict(totals)


def test_the_raw_timeline_of_hta_has_the_sums_of_its_rows(tmp_path):
    path = tmp_path / "memory_timeline.raw.gz"
    path.write_bytes(HTA.blob(HTA_TIMELINE))
    rows = json.loads(gzip.decompress(path.read_bytes()))
    imported: Imported = import_file(path)
    (part,) = imported.parts
    trace = part.trace
    assert (imported.about.format, imported.about.clock) == ("raw memory timeline", "wall")
    before = [row for row in rows if row[1] == PREEXISTING]
    timed = sorted((row for row in rows if row[1] != PREEXISTING), key=lambda row: row[0])
    usage = np.cumsum([sum(row[2] for row in before), *(row[2] for row in timed)])
    assert (trace.start_bytes, trace.peak_bytes, trace.usage_bytes[-1]) == (usage[0], usage.max(), usage[-1])
    for part_of_rows, index in ((before, trace.existing - 1), (rows, -1)):
        sums = Counter(dict.fromkeys(CATEGORIES, 0))
        for *_, size, kind in part_of_rows:
            sums[KINDS[kind]] += size
        assert dict(zip(CATEGORIES, trace.by_category()[index].tolist(), strict=True)) == sums
