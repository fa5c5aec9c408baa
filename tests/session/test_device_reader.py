"""What is read of the machine: times at the edges of a range, and the last row until a moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from memtui.core.readings import GpuMemory, GpuUse, MemoryLimit, MemoryUse, NumaUse, Power, PowerReading
from memtui.session.device_reader import DeviceReader
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from tests.support.sessions import hello, messages, write_session

S = 10**9


def use(second: int) -> MemoryUse:
    return MemoryUse(second * S, 2, 5 << 20, (3 << 20) + second if second % 2 else None)


def node(second: int) -> NumaUse:
    return NumaUse(second * S, 1, second % 2, 500, 3)


def limit(second: int) -> MemoryLimit:
    return MemoryLimit(second * S, f"/job/{second}", 8 << 30, (second + 1) << 20, 1 << 20, 0)


def power(second: int) -> Power:
    memory = GpuMemory(second * S, 1, (second + 1) << 20)
    return Power(
        (PowerReading(second * S, "GPU 0", "board", "nvml", 100.0 + second),),
        (memory,),
        (),
        (limit(second),),
        (use(second),),
        (node(second),),
    )


@pytest.fixture
def reader(tmp_path) -> Iterator[DeviceReader]:
    def stream():
        *begin, end = messages(3)
        yield from begin
        yield from map(power, range(5))
        yield end

    with closing(Session(write_session(tmp_path / "s.memtui", stream()))) as session:
        yield session.devices


def test_a_range_has_its_begin_and_not_its_end(reader):
    watts = [reading.power_w for reading in reader.power(1 * S, 3 * S) if reading.device == "GPU 0"]
    assert watts == [101, 102]
    assert reader.memory_limits(1 * S, 3 * S) == [limit(1), limit(2)]
    assert reader.memory_use(1 * S, 3 * S) == [use(1), use(2)]
    assert reader.numa_use(1 * S, 3 * S) == [node(1), node(2)]
    assert [memory.gpu_bytes for memory in reader.gpu_memory(4 * S, 2**62)] == [5 << 20]
    assert reader.gpu_use(0, 2**62) == []


def test_the_last_until_a_moment(reader):
    assert reader.gpu_memory_at(2 * S + 5) == {1: GpuMemory(2 * S, 1, 3 << 20)}
    assert reader.gpu_memory_at(-1) == {}


def test_of_several_processes_each_has_its_last(tmp_path):
    def stream():
        yield hello()
        yield from (message for message in messages(1) if type(message).__name__ == "Process")
        yield Power(gpu_use=(GpuUse(5, 1, 0.5), GpuUse(7, 1, 0.25)))

    with closing(Session(write_session(tmp_path / "s.memtui", stream()))) as session:
        assert session.devices.gpu_use_at(6) == {1: GpuUse(5, 1, 0.5)}
        assert session.devices.gpu_use_at(7) == {1: GpuUse(7, 1, 0.25)}


def test_a_damaged_row_is_one_line(tmp_path):
    path = write_session(tmp_path / "s.memtui", [hello(), power(0)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE memory_limit SET limit_bytes = 'much'")
        connection.commit()
    with closing(Session(path)) as session, pytest.raises(SessionError, match="damaged"):
        session.devices.memory_limits(0, 2**62)
