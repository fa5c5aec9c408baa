"""The forms of ``export --to``, and the function that writes one: all of its files, or no file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from memtui.core import progress_line
from memtui.core.errors import UserError
from memtui.core.file_set import all_or_none
from memtui.core.text import csv_cell
from memtui.reports.export.tables import TABLES, meta
from memtui.reports.redact import open_source
from memtui.reports.source import ReportSource

Files = Iterator[tuple[str, Callable[[BinaryIO], Any]]]
"""Name of a file, and what writes it."""


def export(
    path: Path, form: str, folder: Path, *, force: bool = False, redact: bool = False, packed: bool = False
) -> list[Path]:
    """Write a session into a folder and return the files; all files, or no file.

    ``packed``: by gzip, with ``.gz`` after each name. Raises SessionError and UserError.
    """
    written = all_or_none(folder, force=force, packed=packed)
    with closing(open_source(path, redact=redact)) as reader, written as files:
        for name, write in FORMS[form](reader):
            progress_line.update(name)
            files.write(name, write)
        return files.finish()


def _csv(reader: ReportSource) -> Files:
    for name, (columns, rows) in TABLES.items():
        yield f"{name}.csv", lambda file, columns=columns, rows=rows: write_csv(columns, rows(reader), file)  # type: ignore[misc]
    yield "meta.json", partial(write_json, meta(reader))


def _json(reader: ReportSource) -> Files:
    def write(file: BinaryIO) -> None:
        tables = {
            name: [dict(zip(columns, row, strict=True)) for row in rows(reader)]
            for name, (columns, rows) in TABLES.items()
        }
        write_json({"meta": meta(reader), **tables}, file)

    yield "session.json", write


def _svg(reader: ReportSource) -> Files:
    from memtui.reports.figures import figures

    if reader.imported() is not None:
        raise UserError(f"{reader.short_title}: has no pages to draw; memtui breakdown --to svg draws what it has")
    for name, drawing in figures(reader):
        yield f"{name}.svg", partial(_write_text, drawing.document())


def _parquet(reader: ReportSource) -> Files:
    from memtui.reports.export import parquet

    parquet.load()
    for name in TABLES:
        yield f"{name}.parquet", partial(parquet.write, reader, name)


def _html(reader: ReportSource) -> Files:
    from memtui.reports.export.page import page

    yield "report.html", lambda file: _write_text(page(reader), file)


def _steps(form: str, reader: ReportSource) -> Files:
    from memtui.reports.export import steps

    return getattr(steps, form)(reader)


def _stacks(form: str, reader: ReportSource) -> Files:
    from memtui.reports.export import stacks

    return getattr(stacks, form)(reader)


def _openmetrics(reader: ReportSource) -> Files:
    from memtui.reports.export.openmetrics import openmetrics

    return openmetrics(reader)


FORMS: dict[str, Callable[[ReportSource], Files]] = {
    "csv": _csv,
    "parquet": _parquet,
    "json": _json,
    "svg": _svg,
    "html": _html,
    **{form: partial(_steps, form) for form in ("zpp", "analysis", "mxnet", "chrome", "perfetto")},
    **{form: partial(_stacks, form) for form in ("folded", "speedscope")},
    "openmetrics": _openmetrics,
}


def write_csv(columns: Sequence[str], rows: Iterable[tuple[Any, ...]], file: BinaryIO) -> None:
    """Write a table with its columns in the first line."""
    with io.TextIOWrapper(file, "utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([csv_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)


def write_json(document: dict[str, Any], file: BinaryIO) -> None:
    """Write a JSON document."""
    _write_text(json.dumps(document, indent=1) + "\n", file)


def _write_text(text: str, file: BinaryIO) -> None:
    file.write(text.encode())
