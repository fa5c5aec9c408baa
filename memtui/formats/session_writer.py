"""Write imported data as a session: recorded steps, events, and their origin."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from memtui._version import __version__
from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.trace_segments import stretches, within
from memtui.core.errors import UserError
from memtui.core.os_errors import WRITE, refused
from memtui.core.samples import Capability, Clock, Hello, Host, Options, Target
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.formats import reading
from memtui.formats.imported import Imported, NotImportable
from memtui.session.file_format import is_own_file, sqlite_temporary_files
from memtui.session.tables.allocations import MAX_ROWS, AllocationDeviceRecord, trace_record, with_short_names
from memtui.session.tables.call_stacks import AllocationStackRecord, encode_stacks, stack_records
from memtui.session.tables.captures import capture_records
from memtui.session.tables.imported import WALL
from memtui.session.validation import check_device
from memtui.session.writer import SessionWriter

TRACKER = "import"
_INTERVAL_NS = 200_000_000  # the default of a recording; an import has no interval
Range = tuple[float | None, float | None]
"""From and to, seconds after the start (numbers of lines where there is no clock); None: no limit."""


def write(imported: Imported, path: Path, *, force: bool = False) -> tuple[str, ...]:
    """Write the session, whole or not at all; return warnings. Raises UserError and SessionError."""
    steps, lost = _stretches(imported)  # before a file is replaced: it may raise
    written = with_warnings(imported, lost)
    write_as(path, lambda writer: _fill(writer, written, steps), force=force)
    return lost


def with_warnings(imported: Imported, warnings: tuple[str, ...]) -> Imported:
    """Return the content of a file with more warnings."""
    return replace(imported, about=replace(imported.about, warnings=(*imported.about.warnings, *warnings)))


def write_as(
    path: Path, fill: Callable[[SessionWriter], None], *, force: bool = False, copy_of: Path | None = None
) -> None:
    """Write a session by a function, whole or not at all; ``copy_of``: it begins as a copy of another session.

    Raises UserError and SessionError.
    """
    try:
        if not force and os.path.lexists(path):
            raise FileExistsError
        writer = SessionWriter(_draft(path), copy_of=copy_of)
        try:
            fill(writer)
        except BaseException:
            writer.discard()
            raise
        writer.close_as(path, overwrite=force)
    except FileExistsError:
        raise UserError(f"{path}: exists already; choose another name or add --force") from None
    except (sqlite3.Error, OSError, MemoryError) as error:
        raise refused(path, error, WRITE) from None


def _draft(path: Path) -> Path:
    """Return the path of the draft, after removing the files of a killed import."""
    draft = path.with_name(f".{path.name}.part")
    for name in (draft, *sqlite_temporary_files(draft)):
        if os.path.lexists(name) and is_own_file(name):
            name.unlink()
    return draft


def in_range(imported: Imported, wanted: Range) -> Imported:
    """Return the rows and events in a range of time. Raises NotImportable: the range has no rows."""
    if wanted == (None, None):
        return imported
    if imported.about.sums is not None:
        raise NotImportable("knows sums only, so there is no range of it")
    start_ns = min(part.trace.start_ns for part in imported.parts)
    unit = 1 if imported.about.counts else 10**9
    low, high = (None if limit is None else start_ns + round(limit * unit) for limit in wanted)
    low_ns, high_ns = 0 if low is None else low, 1 << 62 if high is None else high
    parts = [replace(part, trace=within(part.trace, low_ns, high_ns)) for part in imported.parts]
    if not any(len(part.trace) > part.trace.existing for part in parts):
        end = max(part.trace.end_ns for part in imported.parts)
        what = "lines" if imported.about.counts else "s"
        raise NotImportable(f"has nothing in that range: it is {(end - start_ns) / unit:g} {what} long")
    return replace(
        imported,
        parts=tuple(parts),
        events=tuple(event for event in imported.events if low_ns <= event.t_ns < high_ns),
        driver=tuple(record for record in imported.driver if low_ns <= record.t_ns < high_ns),
        capture=None if imported.capture is None else imported.capture.within(low_ns, high_ns),
    )


def _fill(writer: SessionWriter, imported: Imported, steps: list[tuple[str, StepTrace]]) -> None:
    start_ns = min(part.trace.start_ns for part in imported.parts)
    end_ns = max(part.trace.end_ns for part in imported.parts)
    writer.put_meta(
        hello=_hello(imported, start_ns).to_dict(),
        recorder_pid=os.getpid(),
        imported=imported.about.to_dict(),
        end={"t_ns": end_ns, "kind": "imported", "text": ""},
    )
    for number, (device, trace) in enumerate(steps):
        reading.advance(number / len(steps))
        check_device(device)
        writer.insert([trace_record(number, trace)])
        if device != MAIN_MEMORY:
            writer.insert([AllocationDeviceRecord(number, device)])
        if trace.stack is not None:
            writer.insert([AllocationStackRecord(number, encode_stacks(trace.stack))])
    if imported.stacks is not None:
        writer.insert(stack_records(imported.stacks))
    if imported.capture is not None:
        writer.insert(capture_records(imported.capture))
    writer.insert(imported.events)
    writer.insert(imported.driver)


def _stretches(imported: Imported) -> tuple[list[tuple[str, StepTrace]], tuple[str, ...]]:
    """Return the steps with their devices, and warnings.

    Raises NotImportable: a step has more rows or names than a session may have.
    """
    steps = [(part.device, trace) for part in imported.parts for trace in stretches(part.trace, part.begins)]
    if any(len(trace) > MAX_ROWS for _, trace in steps):
        raise NotImportable(f"has more than {MAX_ROWS} blocks alive at once")
    try:
        fitted = [(device, *with_short_names(trace)) for device, trace in steps]
    except ValueError as error:
        raise NotImportable(str(error)) from None
    least = min((characters for *_, characters in fitted if characters), default=0)
    lost = (
        f"its names of operations and layers take more room than a session has; they are cut to {least} characters",
    )
    return [(device, trace) for device, trace, _ in fitted], lost if least else ()


def _hello(imported: Imported, start_ns: int) -> Hello:
    """Return a Hello without data about a machine or a process: the file has no such data."""
    why = f"imported from a file ({imported.about.format}), which knows no pages"
    no_pages = Capability("wss", False, why)
    return Hello(
        __version__,
        Clock(start_ns, start_ns if imported.about.clock == WALL else 0, 0, ""),
        Host("", "", "", 0, 0),
        Target(0, 0, imported.about.file, ""),
        Options(_INTERVAL_NS),
        TRACKER,
        "off",
        "off",
        wss=no_pages,
        pages=replace(no_pages, name="pages"),
    )
