"""Results of measurements as tables: ``memtui.open_bench``, ``memtui.open_tune`` and ``memtui.open_profile``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from memtui.api.table import INSTANT, Column, Part, Table
from memtui.bench.store import Database
from memtui.placement.export import REALS, TABLES, TEXTS
from memtui.placement.store import ProfileFile
from memtui.reports.export.columns import Kind
from memtui.training.tune.results import reopen

_WALL = "t_wall_ns"


def bench_table(path: str | os.PathLike[str], operator: str | None = None, since_ns: int = 0) -> Table:
    """Return the measurements of a bench database, or those of one operator since a moment; see ``memtui.open_bench``.

    ``since_ns``: since 1970.
    """
    documents = []
    with closing(Database(Path(path), writable=False)) as database:
        for row in database.rows(op=operator, references=operator is None):
            if row[_WALL] < since_ns:
                continue
            configuration = json.loads(row.pop("text"))
            parameters = {f"p_{name}": value for name, value in configuration["parameters"].items()}
            documents.append({**row, **configuration["conditions"], **parameters})
    return _of_documents("measurements", documents)


def tune_table(folder: str | os.PathLike[str]) -> Table:
    """Return the trainings of a grid; see ``memtui.open_tune``."""
    results = reopen(Path(folder))
    return _of_documents("trainings", results.to_dict(results.rows()))


class Profile:
    """A placement profile. Each attribute is a table of ``memtui export`` of it.

    >>> profile = memtui.open_profile("profile.memtui")
    >>> profile.tensors.to_pandas()[["tensor", "size_bytes"]].head(2)
      tensor  size_bytes
    0      x           8
    1      t           4

    Attributes:
        kernels: the operators of a step, in their order.
        configurations: each operator in each configuration, with its times.
        samples: each measured time.
        tensors: the tensors, and between which operators they live.
    """

    def __init__(self, path: Path) -> None:
        """Read a profile. Raises UserError."""
        profile = ProfileFile(path).profile()
        self.kernels, self.configurations, self.samples, self.tensors = (
            Table(name, [_profile_column(column) for column in columns], [Part(partial(rows, profile))])
            for name, (columns, rows) in TABLES.items()
        )


def _profile_column(stored: str) -> Column:
    """Return a column of a profile: times of operators are medians and means, with fractions of a nanosecond."""
    return Column(stored, stored, Kind.TEXT if stored in TEXTS else Kind.REAL if stored in REALS else Kind.INTEGER)


def _of_documents(name: str, documents: Sequence[dict[str, Any]]) -> Table:
    """Return a table of rows with different columns; what a row lacks is absent."""
    names = list(dict.fromkeys(name for document in documents for name in document))
    columns = [_column(name, (document.get(name) for document in documents)) for name in names]

    def rows() -> Iterable[tuple[Any, ...]]:
        for document in documents:
            yield tuple(_of_kind(document.get(column.stored), column.kind) for column in columns)

    return Table(name, columns, [Part(rows)])


def _column(stored: str, values: Iterable[Any]) -> Column:
    """Return a column by its values: numbers where all are."""
    if stored == _WALL:
        return Column(stored, "time", INSTANT)
    types = {type(value) for value in values if value is not None}
    if types <= {int, bool}:
        return Column(stored, stored, Kind.INTEGER)
    return Column(stored, stored, Kind.REAL if types <= {int, bool, float} else Kind.TEXT)


def _of_kind(value: Any, kind: Kind | str) -> Any:
    if value is None:
        return None
    if kind is Kind.TEXT:
        return value if isinstance(value, str) else json.dumps(value)
    return value if kind is Kind.REAL else int(value)
