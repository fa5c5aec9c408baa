"""Kinds of columns: those of every table are declared, and are what its values are."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from memtui.core.readings import GpuUse, MemoryLimit, MemoryUse, NumaUse, Power, PowerReading
from memtui.core.tracer_messages import LearningProgress, TensorRanges, TrainingProgress
from memtui.reports.export import export
from memtui.reports.export.columns import Kind, kind_of
from memtui.reports.export.tables import TABLES
from memtui.reports.redact import open_source
from tests.support import told_steps
from tests.support.hostile_sessions import small_stream
from tests.support.sessions import HEAP, write_session

TYPES = {Kind.TEXT: str, Kind.REAL: (int, float), Kind.INTEGER: (int, np.integer)}
# Call stacks and bursts have tests of their own, with exports to Parquet.
WITHOUT_ROWS = {"call_stacks", "reuse_bursts"}


def test_all_are_declared():
    for columns, _ in TABLES.values():
        for column in columns:
            assert isinstance(kind_of(column), Kind)
    with pytest.raises(ValueError, match="'colour' is not declared"):
        kind_of("colour")


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """A session with rows in nearly every table."""

    def messages():
        *most, end = small_stream()
        yield from most
        yield told_steps.step()
        yield TensorRanges(4242, 100, np.array([[HEAP], [4096], [0]]), ("head.0",), ("weight",))
        usage = np.array([[100, 130, 2, 0, *([64] * 8)]]).T
        yield TrainingProgress(4242, 2, 100, np.array([[130, 160]]), usage, ("aten::add",), "")
        places = np.array([[10, 20], [1, 2], [1, 1]], np.int64)
        about = '{"network": "LeNet", "type": "BP"}'
        yield LearningProgress(4242, about, places, np.array([[2.3, 0.125], [11.25, np.nan], [np.nan, 97.5]]))
        limit = MemoryLimit(5, "/job", 1 << 30, 1 << 29, 1 << 20, 0, "/job", 12, None)
        use = MemoryUse(6, 2, 9 << 20, 8 << 20)
        reading = PowerReading(7, "GPU 0", "board", "nvml", 312.5, 17.25, 700.0, utilization=0.5)
        yield Power(
            (reading,),
            gpu_use=(GpuUse(8, 1, 0.5),),
            limits=(limit,),
            memory_use=(use,),
            numa_use=(NumaUse(8, 1, 0, 500, 2),),
        )
        yield end

    return write_session(tmp_path_factory.mktemp("rich") / "s.memtui", messages())


@pytest.mark.parametrize("redact", [False, True])
def test_values_are_of_their_kind(rich, redact):
    with closing(open_source(rich, redact=redact)) as source:
        for name, (columns, rows) in TABLES.items():
            table = list(rows(source))
            assert bool(table) is (name not in WITHOUT_ROWS), name
            for row in table:
                for column, value in zip(columns, row, strict=True):
                    assert value is None or isinstance(value, TYPES[kind_of(column)]), f"{name}.{column}: {value!r}"


def test_parquet_has_all_of_them(rich, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    export(rich, "parquet", tmp_path / "out")
    (limit,) = parquet.read_table(tmp_path / "out" / "memory_limit.parquet").to_pylist()
    assert (limit["cgroup"], limit["stall_cgroup"], limit["full_stall_ns"]) == ("/job", "/job", None)
    points = parquet.read_table(tmp_path / "out" / "learning.parquet").to_pylist()
    assert [(point["loss"], point["accuracy"], point["minimum"]) for point in points] == [
        (2.3, 11.25, None),
        (0.125, None, 97.5),
    ]
