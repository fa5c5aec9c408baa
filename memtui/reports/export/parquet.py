"""``--to parquet``: the tables of ``--to csv`` with types, units and the session's metadata inside each file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from memtui.core.errors import UserError
from memtui.reports.export.columns import Kind, kind_of
from memtui.reports.export.tables import TABLES, Row, meta, unit_of
from memtui.reports.source import ReportSource

if TYPE_CHECKING:
    import pyarrow

ROWS_PER_BATCH = 1 << 16


def load() -> Any:
    """Return the library. Raises UserError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(
            "Parquet needs pyarrow, which is not installed: pip install 'memtui[export]', or take --to csv"
        ) from None
    return pyarrow


def write(source: ReportSource, name: str, file: BinaryIO) -> None:
    """Write one table of a session."""
    columns, rows = TABLES[name]
    texts, reals = ({column for column in columns if kind_of(column) is kind} for kind in (Kind.TEXT, Kind.REAL))
    write_table(file, columns, rows(source), meta(source), texts=texts, reals=reals)


def write_table(
    file: BinaryIO,
    columns: Sequence[str],
    rows: Iterable[Row],
    about: dict[str, Any],
    *,
    texts: Collection[str],
    reals: Collection[str],
) -> None:
    """Write rows, a part of them in memory at a time.

    Args:
        file: to write into.
        columns: names of the columns, which say their units.
        rows: a value for each column; None where there is none.
        about: metadata, which is written as JSON.
        texts: the columns with text.
        reals: the columns with numbers that are not whole.
    """
    arrow = load()
    kinds = {**dict.fromkeys(texts, arrow.string()), **dict.fromkeys(reals, arrow.float64())}
    fields = [arrow.field(c, kinds.get(c, arrow.int64()), metadata=_unit(c)) for c in columns]
    schema = arrow.schema(fields, metadata={b"memtui": json.dumps(about).encode()})
    with arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in record_batches(arrow, schema, rows):
            writer.write_batch(batch)


def record_batches(arrow: Any, schema: pyarrow.Schema, rows: Iterable[Row]) -> Iterator[pyarrow.RecordBatch]:
    """Yield rows as Arrow has them, a part of them in memory at a time.

    Args:
        arrow: the library.
        schema: names and types of the columns.
        rows: a value for each column; None where there is none.
    """
    remaining = iter(rows)
    while part := list(islice(remaining, ROWS_PER_BATCH)):
        columns = zip(schema, zip(*part, strict=True), strict=True)
        arrays = [arrow.array(values, field.type) for field, values in columns]
        yield arrow.RecordBatch.from_arrays(arrays, schema=schema)


def _unit(column: str) -> dict[bytes, bytes] | None:
    unit = unit_of(column)
    return {b"unit": unit.encode()} if unit else None
