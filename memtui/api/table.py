"""A table of a session or of results, as pandas, Arrow (polars, DuckDB, pyarrow) and numpy take it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memtui.core.errors import UserError
from memtui.core.units import duration
from memtui.reports.export.columns import INSTANTS, Kind, kind_of
from memtui.reports.export.parquet import record_batches
from memtui.reports.export.tables import Row

if TYPE_CHECKING:
    import pandas
    import pyarrow

_SHOWN_ROWS = 10
INSTANT, DURATION = "instant", "duration"
_NUMPY_TYPES: dict[Kind | str, str] = {
    Kind.TEXT: "O",
    Kind.REAL: "f8",
    Kind.INTEGER: "i8",
    INSTANT: "M8[ns]",
    DURATION: "m8[ns]",
}


class Column(NamedTuple):
    """A column: its name as it is stored, its name in a data frame, and what its values are."""

    stored: str
    name: str
    kind: Kind | str


def session_columns(stored: Iterable[str]) -> list[Column]:
    """Return the columns of a table of a session: a time has a type in a data frame, and no unit in its name."""
    columns = []
    for name in stored:
        kind: Kind | str = INSTANT if name in INSTANTS else DURATION if name.endswith("_ns") else kind_of(name)
        short = {"t_ns": "time", "pss_ns": "pss_time"}.get(name, name.removesuffix("_ns"))
        columns.append(Column(name, short, kind))
    return columns


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one file, as they are stored.

    ``later_ns``: what turns its moments into nanoseconds since 1970 (UTC).
    """

    rows: Callable[[], Iterable[Row]]
    later_ns: int = 0

    def rows_of_the_day(self, instants: Sequence[int]) -> Iterator[Row]:
        """Yield the rows with all moments by the clock of the day; ``instants``: the numbers of their columns."""
        for stored in self.rows():
            row = list(stored)
            for column in instants:
                if row[column] is not None:
                    row[column] += self.later_ns
            yield tuple(row)


class Table:
    """Rows with fixed columns, which are read from the file when they are asked for.

    In data frames a moment is a ``Timestamp`` (UTC) and a length of time a ``Timedelta``; other units are in the names
    of the columns (``wss_bytes``, ``limit_w``). What could not be measured is absent (``NA``, null, masked) and never
    0; the columns ``status`` and ``reason`` say why, where a table has them. A text that does not apply is empty.

    Iterating yields a dict for each row as it is stored: times in nanoseconds of CLOCK_MONOTONIC, None where absent.

    >>> with memtui.open("run.memtui") as session:
    ...     next(iter(session.marks))
    {'t_ns': 3, 'text': 'epoch 1'}

    Attributes:
        name: of the table.
        columns: names of the columns of data frames.
    """

    def __init__(self, name: str, columns: Sequence[Column], parts: Sequence[Part]) -> None:
        """Take the columns, and the parts of the table, one of each file."""
        self.name, self.columns = name, tuple(column.name for column in columns)
        self._columns, self._parts = tuple(columns), tuple(parts)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for part in self._parts:
            for row in part.rows():
                yield {column.stored: value for column, value in zip(self._columns, row, strict=True)}

    def __len__(self) -> int:
        """Count the rows, all of which are read for it."""
        return sum(1 for part in self._parts for _ in part.rows())

    def __repr__(self) -> str:
        return f"<memtui table {self.name}: {', '.join(self.columns)}>"

    def to_numpy(self) -> np.ma.MaskedArray[Any, Any]:
        """Return a structured array, [rows] with a field for each column, in which what is absent is masked.

        Moments are ``datetime64[ns]`` in UTC, lengths of time ``timedelta64[ns]``; text is of type object.

        >>> with memtui.open("run.memtui") as session:
        ...     windows = session.windows.to_numpy()
        >>> int(windows["wss_bytes"].max()), int(windows["pss_bytes"].count())  # PSS was not read
        (557056, 0)
        """
        rows = list(self._rows())
        types = [(column.name, _NUMPY_TYPES[column.kind]) for column in self._columns]
        table: np.ma.MaskedArray[Any, Any] = np.ma.zeros(len(rows), types)
        for number, column in enumerate(self._columns):
            values = [row[number] for row in rows]
            absent = [value is None for value in values]
            filled = [0 if gone else value for value, gone in zip(values, absent, strict=True)]
            table[column.name] = np.ma.array(filled, _NUMPY_TYPES[column.kind], mask=absent)
        return table

    def to_arrow(self) -> pyarrow.Table:
        """Return the table for pyarrow. Raises UserError where that is not installed.

        >>> with memtui.open("run.memtui") as session:
        ...     session.windows.to_arrow().num_rows
        10
        """
        return self._reader().read_all()

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with types that can be absent. Raises UserError where pandas is not installed.

        >>> with memtui.open("run.memtui") as session:
        ...     session.windows.to_pandas().dtypes[["start", "paused", "wss_bytes", "status"]]
        start        datetime64[ns, UTC]
        paused           timedelta64[ns]
        wss_bytes                  Int64
        status                    string
        dtype: object
        """
        from memtui.api.data_frame import data_frame

        return data_frame(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand the table on, a part of it in memory at a time (the Arrow PyCapsule interface)."""
        return self._reader().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Return the first rows for a notebook."""
        rows = list(islice(self._rows(), _SHOWN_ROWS + 1))
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(f"<tr>{''.join(map(_cell, self._columns, row))}</tr>" for row in rows[:_SHOWN_ROWS])
        more = "<p>...</p>" if len(rows) > _SHOWN_ROWS else ""
        return f"<table><caption>{escape(self.name)}</caption><tr>{head}</tr>{body}</table>{more}"

    def _rows(self) -> Iterator[Row]:
        instants = [number for number, column in enumerate(self._columns) if column.kind == INSTANT]
        for part in self._parts:
            yield from part.rows_of_the_day(instants)

    def _reader(self) -> pyarrow.RecordBatchReader:
        arrow = _arrow()
        kinds: dict[Kind | str, Any] = {
            Kind.TEXT: arrow.string(),
            Kind.REAL: arrow.float64(),
            Kind.INTEGER: arrow.int64(),
            INSTANT: arrow.timestamp("ns", "UTC"),
            DURATION: arrow.duration("ns"),
        }
        schema = arrow.schema([(column.name, kinds[column.kind]) for column in self._columns])
        return arrow.RecordBatchReader.from_batches(schema, record_batches(arrow, schema, self._rows()))


def _cell(column: Column, value: Any) -> str:
    text = "" if value is None else str(value)
    if text and column.kind == INSTANT:
        text = str(np.datetime64(value, "ns"))
    elif text and column.kind == DURATION:
        text = duration(value / 1e9)
    return f"<td>{escape(text)}</td>"


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UserError("pyarrow is not installed: pip install 'memtui[notebook]'") from None
    return pyarrow
