"""``memtui export`` of a placement profile: its ops in their configurations, as tables that other programs read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

from memtui.core import progress_line
from memtui.core.console import JSON_VERSION
from memtui.core.errors import UserError
from memtui.core.file_set import Write, all_or_none
from memtui.placement.configurations import free_storages
from memtui.placement.kernel_times import timed_configurations
from memtui.placement.profile import Profile
from memtui.placement.profiling.alike import configurations_of
from memtui.placement.redact import redacted
from memtui.placement.report import facts_of
from memtui.placement.store import ProfileFile

FORMS = ("csv", "parquet", "json")
UNITS = {"*_ns": "nanoseconds", "*_bytes": "bytes", "spread": "standard deviation by mean"}
Row = tuple[Any, ...]
TEXTS = frozenset(("op", "kind", "key", "inputs", "outputs", "configuration", "mode", "tensor", "role", "storage"))
REALS = frozenset(("median_ns", "mean_ns", "least_ns", "spread", "time_ns"))


def _kernels(profile: Profile) -> Iterator[Row]:
    """Yield a row for each op of the step, in its order."""
    pools = [pool.name for pool in profile.pools]
    configurations = configurations_of(profile.graph, pools)
    for index, op in enumerate(profile.graph.ops):
        free = len(free_storages(profile.graph, op, pools))
        tensors = (";".join(op.inputs), ";".join(op.outputs))
        yield index, op.name, op.kind, op.key, *tensors, free, len(configurations[op.name])


def _configurations(profile: Profile) -> Iterator[Row]:
    """Yield a row for each op, configuration and way of timing; one without times where it was not measured."""
    for row in timed_configurations(profile):
        about = (row.index, row.op.name, row.op.kind, str(row.configuration))
        for mode, times in row.times.items():
            yield *about, mode, *astuple(times)
        if not row.times:
            yield *about, None, 0, None, None, None, None


def _samples(profile: Profile) -> Iterator[Row]:
    """Yield a row for each measured time."""
    for samples in profile.samples:
        about = (profile.graph.index[samples.op], samples.op, str(samples.configuration), samples.mode)
        for run, ns in zip(samples.run, samples.time_ns, strict=True):
            yield *about, run, ns


def _tensors(profile: Profile) -> Iterator[Row]:
    for tensor in profile.graph.tensors:
        storage = profile.graph.storages[tensor.storage]
        yield tensor.name, tensor.role, tensor.storage, tensor.size_bytes, storage.first, storage.last


TABLES: dict[str, tuple[tuple[str, ...], Callable[[Profile], Iterable[Row]]]] = {
    "kernels": (("index", "op", "kind", "key", "inputs", "outputs", "free", "configurations"), _kernels),
    "configurations": (
        (
            *("index", "op", "kind", "configuration", "mode"),
            *("samples", "median_ns", "mean_ns", "least_ns", "spread"),
        ),
        _configurations,
    ),
    "samples": (("index", "op", "configuration", "mode", "run", "time_ns"), _samples),
    "tensors": (("tensor", "role", "storage", "size_bytes", "first_op", "last_op"), _tensors),
}


def export(
    path: Path, form: str, folder: Path, *, force: bool = False, redact: bool = False, packed: bool = False
) -> list[Path]:
    """Write a profile into a folder and return the files; all files, or no file.

    ``packed``: by gzip, with ``.gz`` after each name. Raises UserError.
    """
    if form not in FORMS:
        raise UserError(f"{path}: is a placement profile, which is written as {', '.join(FORMS)}, and not as {form}")
    profile = ProfileFile(path).profile()
    if redact:
        profile = redacted(profile)
    with all_or_none(folder, force=force, packed=packed) as files:
        for name, write in _files(profile, form):
            progress_line.update(name)
            files.write(name, write)
        return files.finish()


def _files(profile: Profile, form: str) -> Iterator[tuple[str, Write]]:
    from memtui.reports.export import parquet
    from memtui.reports.export.writers import write_csv, write_json

    about = {"schema_version": JSON_VERSION, **facts_of(profile), "units": UNITS}
    if form == "json":
        tables = {
            name: [dict(zip(columns, row, strict=True)) for row in rows(profile)]
            for name, (columns, rows) in TABLES.items()
        }
        yield "profile.json", partial(write_json, {"meta": about, **tables})
        return
    for name, (columns, rows) in TABLES.items():
        if form == "csv":
            yield f"{name}.csv", partial(write_csv, columns, rows(profile))
        else:
            parquet.load()

            def write(file: Any, columns: tuple[str, ...] = columns, rows: Any = rows) -> None:
                parquet.write_table(file, columns, rows(profile), about, texts=TEXTS, reals=REALS)

            yield f"{name}.parquet", write
    if form == "csv":
        yield "meta.json", partial(write_json, about)
