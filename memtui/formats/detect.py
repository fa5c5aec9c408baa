"""The registry of formats; the format of a file is detected by its content, not by its name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from memtui.core.errors import UserError
from memtui.core.os_errors import READ, refused
from memtui.core.text import storable
from memtui.formats import mxnet_log, zpp
from memtui.formats.imported import Imported, NotImportable
from memtui.formats.input_file import name_of, parse_json, read_file
from memtui.session.file_format import SQLITE_MAGIC

EXPECTED = (
    "an MXNet log with [mem] lines, its *_ANALYSIS, the text of ZPP-MEM, a Chrome trace or memory timeline of "
    "PyTorch's profiler, or a CUDA memory snapshot"
)
_TEXTS = (zpp, mxnet_log)
_JSON = re.compile(rb"\s*[\[{]\s*[\]\[{}\"0-9-]")
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


def import_file(path: Path) -> Imported:
    """Return the content of a file. Raises NotImportable, without the name of the file."""
    imported = import_bytes(read_file(path))
    return replace(imported, about=replace(imported.about, file=storable(Path(name_of(path)).name)))


def import_bytes(data: bytes) -> Imported:
    """Return the content of the bytes of a file. Only the needed modules are imported: a small text takes a third."""
    if data.startswith(SQLITE_MAGIC):
        raise NotImportable("is a database, perhaps a session (memtui replay), and not what other tools write")
    if _PICKLE.match(data):
        from memtui.formats import cuda_snapshot
        from memtui.formats.safe_pickle import load_pickle

        document = load_pickle(data)
        if not cuda_snapshot.recognises(document):
            raise NotImportable("is a pickle, but no CUDA memory snapshot")
        return cuda_snapshot.parse(document)
    if _JSON.match(data):
        from memtui.formats import chrome_trace, memory_timeline, mxnet_analysis

        try:
            document = parse_json(data)
        except NotImportable:
            if (text := _text_format(data)) is None:  # a log may begin with a time in brackets
                raise
            return text.parse(data)
        for form in (chrome_trace, memory_timeline, mxnet_analysis):
            if form.recognises(document):
                return form.parse(document)
        raise NotImportable(f"is JSON, but of no format that is known: {EXPECTED}")
    if (text := _text_format(data)) is not None:
        return text.parse(data)
    what = "is binary and" if b"\0" in data[: 1 << 16] else "is text, but"
    raise NotImportable(f"{what} of no format that is known: {EXPECTED}")


def _text_format(data: bytes) -> ModuleType | None:
    return next((text for text in _TEXTS if text.recognises(data)), None)
