"""The registry of formats; the format of a file is detected by its content, not by its name."""

from __future__ import annotations

import importlib
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from memtui.core.errors import UserError
from memtui.core.os_errors import READ, refused
from memtui.core.text import utf8_safe
from memtui.formats import memray_capture, mxnet_log, reading, zpp
from memtui.formats.certainty import MOST_LINES, most_certain
from memtui.formats.imported import Imported, NotImportable
from memtui.formats.input_file import MOST_BYTES, Input, check_size, name_of, open_input, parse_json
from memtui.session.file_format import SQLITE_MAGIC

_NO_TEXT = (
    "it has no line `[mem] Allocate BYTES bytes GPU memory (TAG).` (MXNet), half of its lines or more are not "
    "`TIME USAGE CHANGE OPERATION` (ZPP-MEM), and it does not begin as a page or table of memray"
)
_NO_DOCUMENT = (
    "it has no `traceEvents` (Chrome trace), is no list of times and sums, or of `[TIME, ACTION, BYTES, KIND]` (memory "
    "timeline), no table of `[BYTES, [TAG, ...]]` (*_ANALYSIS), and no report of memray"
)
_NO_BINARY = "it begins neither as a pickle (CUDA memory snapshot) nor as a capture of memray"
EXPECTED = (
    "an MXNet log with [mem] lines, its *_ANALYSIS, the text of ZPP-MEM, a Chrome trace or memory timeline of "
    "PyTorch's profiler, a CUDA memory snapshot, or a capture or report of memray"
)
# By the names of import --format (core/options.py).
_TEXTS = {"zpp": zpp, "mxnet": mxnet_log}
_DOCUMENTS = {
    "analysis": "mxnet_analysis",
    "chrome": "chrome_trace",
    "timeline": "memory_timeline",
    "memray-report": "memray_reports",
}
_JSON = re.compile(rb"\s*[\[{]\s*[\]\[{}\"0-9-]")
_STREAMED_JSON = re.compile(rb"\s*(?:\{\s*\"|\[\s*\{)")  # what may be a Chrome trace
_MOST_LINE_BYTES = 1 << 16
_MOST_FIRST_BYTES = 16 << 20  # by which the first events say whether it is one
_PICKLE = re.compile(rb"\x80[\x02-\x05]")


def files_of(given: Path) -> list[Path]:
    """Return the files of a folder, in order, or the one file. Raises UserError for a folder without any."""
    if not given.is_dir():
        return [given]
    try:
        files = sorted(path for path in given.iterdir() if not path.is_dir())
    except OSError as error:
        raise refused(given, error, READ) from None
    if not files:
        raise UserError(f"{given}: is a folder without files; expected is {EXPECTED}")
    return files


def import_file(path: Path, form: str = "") -> Imported:
    """Return the content of a file. ``form``: of ``IMPORT_FORMATS``; empty: the content says which.

    Raises NotImportable, without the name of the file.
    """
    with open_input(path) as source:
        imported = _import(source, form)
    return replace(imported, about=replace(imported.about, file=utf8_safe(Path(name_of(path)).name)))


def may_be_imported(path: Path) -> bool:
    """Whether a file begins as files of other tools do, or is a log with lines of them, however late they come."""
    try:
        with open_input(path) as source:
            head = source.head()
            if _PICKLE.match(head) or _JSON.match(head) or memray_capture.certainty(head):
                return True
            if _text_format(head) is not None or _is_memray_text(head):
                return True
            return b"\0" not in head and any(map(mxnet_log.certainty, _whole_lines(source)))
    except NotImportable:
        return False


def _whole_lines(source: Input) -> Iterator[bytes]:
    """Yield a file in pieces that end with a line. Raises NotImportable for one that is too large to be a log."""
    unfinished = b""  # of a line
    size_bytes = 0
    while piece := source.read():
        check_size(size_bytes := size_bytes + len(piece), MOST_BYTES)
        lines, end, rest = (unfinished + piece).rpartition(b"\n")
        yield lines + end
        unfinished = rest[:_MOST_LINE_BYTES]
    yield unfinished


def import_bytes(data: bytes, form: str = "") -> Imported:
    """Return the content of the bytes of a file, as ``import_file`` does."""
    return _import(Input(io.BytesIO(data)), form)


def _import(source: Input, form: str) -> Imported:
    """Return the content of a file. Raises NotImportable, also where there is too little memory or stack."""
    try:
        return _import_any(source, form)
    except MemoryError:
        raise NotImportable("is of more data than there is memory for") from None
    except RecursionError:
        raise NotImportable("is nested without end") from None


def _import_any(source: Input, form: str) -> Imported:
    """Return the content of a file. Only the needed modules are imported: a small text takes a third."""
    head = source.head()
    if not head:
        raise NotImportable("is empty")
    if form:
        return _import_as(form, source)
    if head.startswith(SQLITE_MAGIC):
        raise NotImportable("is a database, perhaps a session (memtui replay), and not what other tools write")
    if _PICKLE.match(head):
        return _import_pickle(source, "is a pickle, but no CUDA memory snapshot")
    if memray_capture.certainty(head):
        return memray_capture.parse(source)
    damaged: NotImportable | None = None
    if _JSON.match(head):
        try:
            document = _document(source)
        except NotImportable as error:
            if not source.at_start:
                raise
            damaged = error  # or a log that begins with a time in brackets
        else:
            return _import_document(document)
    return _import_text(source.rest(), damaged)


def _import_text(data: bytes, damaged: NotImportable | None) -> Imported:
    """Return the content of a text. ``damaged``: why it is no JSON, where it looks like it. Raises NotImportable."""
    if (text := _text_format(data)) is not None:
        return text.parse(data)
    if (report := _memray_text(data)) is not None:
        return report
    if damaged is not None:
        raise damaged
    if b"\0" in data[: 1 << 16]:
        raise NotImportable(f"is binary and of no format that is known: {_NO_BINARY}")
    raise NotImportable(f"is text, but of no format that is known: {_NO_TEXT}")


def _document(source: Input) -> Any:
    """Return a JSON document, the events of a Chrome trace as ``Events``. Raises NotImportable.

    What was read of a document that is damaged can be read again, unless it is a Chrome trace.
    """
    if not _STREAMED_JSON.match(source.head()):
        data = source.rest()
        source.unread(data)
        return parse_json(data)
    from memtui.formats.chrome_trace import KEYS, Events
    from memtui.formats.json_stream import JsonStream

    def events() -> Events:
        parsed, items = Events(), text.items()
        reading.parsed_by(parsed)
        first = []
        for event in itertools.islice(items, MOST_LINES):
            first.append(event)
            if text.kept_bytes >= _MOST_FIRST_BYTES:
                break
        text.commit()
        parsed.add_first(first)
        parsed.add(items)
        return parsed

    text = JsonStream(source)
    try:
        if text.peek() == "[":
            document: Any = events()
        else:
            document = {}
            for key in text.fields():
                value = events() if key == "traceEvents" and text.peek() == "[" else text.value()
                if not text.committed or key in KEYS:
                    document[key] = value
        text.end()
        reading.start(reading.MATCHING)
    except NotImportable:
        text.give_back()
        raise
    return document


def _import_document(document: Any) -> Imported:
    from memtui.formats import chrome_trace, memory_timeline, memray_reports, mxnet_analysis

    form = most_certain((memray_reports, chrome_trace, memory_timeline, mxnet_analysis), document)
    if form is None:
        raise NotImportable(f"is JSON, but of no format that is known: {_NO_DOCUMENT}")
    imported: Imported = form.parse(document)
    return imported


def _import_pickle(source: Input, otherwise: str) -> Imported:
    from memtui.formats import cuda_snapshot
    from memtui.formats.safe_pickle import load_pickle

    events = cuda_snapshot.Events()
    reading.parsed_by(events)
    document = load_pickle(source, events)
    reading.start(reading.MATCHING)
    if not cuda_snapshot.certainty(document):
        raise NotImportable(otherwise)
    return cuda_snapshot.parse(document, events)


def _import_as(form: str, source: Input) -> Imported:
    """Return the content of a file whose format the user says. Raises NotImportable."""
    wrong = f"is not what --format {form} says"
    if form in _TEXTS:
        return _TEXTS[form].parse(source.rest())
    if form == "memray":
        return memray_capture.parse(source)
    if form == "snapshot":
        return _import_pickle(source, wrong)
    if form == "memray-report" and not _JSON.match(source.head()):
        if (report := _memray_text(source.rest())) is None:
            raise NotImportable(wrong)
        return report
    module, document = importlib.import_module(f"memtui.formats.{_DOCUMENTS[form]}"), _document(source)
    if not module.certainty(document):
        raise NotImportable(wrong)
    return module.parse(document)


def _text_format(data: bytes) -> ModuleType | None:
    return most_certain(tuple(_TEXTS.values()), data)


def _is_memray_text(data: bytes) -> float:
    from memtui.formats import memray_reports

    return memray_reports.certainty_of_text(data)


def _memray_text(data: bytes) -> Imported | None:
    from memtui.formats import memray_reports

    return memray_reports.parse_text(data) if memray_reports.certainty_of_text(data) else None
