"""What programs report to the recorder about their allocations: accepted from anybody, and always checked."""

from __future__ import annotations

import os
import select
import socket
import time
from dataclasses import replace

import numpy as np
import pytest

from memtui.core.samples import End, Event
from memtui.core.tracer_messages import AllocationStep
from memtui.recording.recorder import tracer_server as tracer_server
from memtui.recording.recorder.session_builder import SessionBuilder
from memtui.recording.recorder.tracer_server import TracerServer
from memtui.recording.wire import Decoder, encode
from memtui.reports.report import build_report
from memtui.reports.text import format_report
from memtui.session.columns import columns_of
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from memtui.session.tables.allocations import (
    AllocationStepColumns,
    AllocationStepRecord,
    RecordedStep,
    decode_step,
    peak_record,
    recorded_step,
    step_record,
    trace_of,
)
from memtui.session.writer import SessionWriter
from memtui.tui.presenters.markers import TickLog
from tests.support import sessions
from tests.support.told_steps import step


@pytest.fixture
def listening():
    """A recorder's ear, and a way to connect to it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("")  # a name the kernel makes
    listener.listen(8)
    name = listener.getsockname()
    server = TracerServer(listener.detach())
    sockets = []

    def connect():
        sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        sockets[-1].connect(name)
        sockets[-1].setblocking(False)
        return sockets[-1]

    yield server, connect
    server.close()
    for connection in sockets:
        connection.close()


def receive(server: TracerServer, seconds: float = 0.3) -> list:
    messages, end = [], time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        ready = select.select(server.fds, [], [], left)[0]
        messages += server.read(ready, 42)
    return messages


def same(first: AllocationStep, second: AllocationStep) -> bool:
    names = [name for name in AllocationStep.__dataclass_fields__ if name not in ("columns", "pid")]
    alike = all(getattr(first, name) == getattr(second, name) for name in names)
    return alike and np.array_equal(first.columns, second.columns)


def test_a_step_as_a_message():
    (message,) = Decoder().feed(encode(step()))
    assert same(message, step())
    assert message.columns.dtype == np.int64


def test_steps_of_several_programs_at_once(listening):
    server, connect = listening
    first, second = connect(), connect()
    data = encode(step(1)) + encode(step(2))
    for start in range(0, len(data), 100):  # in pieces, in turn
        first.send(data[start : start + 100])
        second.send(data[start : start + 100])
    messages = receive(server)
    assert sorted(message.step for message in messages) == [1, 1, 2, 2]
    assert all(same(message, step(message.step)) for message in messages)
    assert {message.pid for message in messages} == {os.getpid()}, "the kernel says who it is, not the message"


def test_what_was_sent_before_the_end_is_heard(listening):
    server, connect = listening
    connection = connect()
    connection.send(encode(step(3)))
    connection.close()
    assert [message.step for message in server.drain(0)] == [3]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not a memtui stream"),
        (encode(End(1, "stopped")), "may not send a End"),
        (encode(Event(1, "mark", "x")), "may not send a Event"),
        (encode(step())[:16] + b"}" * 4000, "damaged"),
    ],
)
def test_a_stream_of_something_else_is_closed_with_a_word(listening, data, why):
    server, connect = listening
    bad, good = connect(), connect()
    bad.send(data)
    good.send(encode(step(5)))
    messages = receive(server)
    (warning,) = (message for message in messages if isinstance(message, Event))
    assert warning.kind == "warning"
    assert why in warning.text
    assert f"process {os.getpid()}" in warning.text
    assert [message.step for message in messages if isinstance(message, AllocationStep)] == [5], "the other one goes on"
    bad.setblocking(True)
    with pytest.raises(ConnectionError):
        bad.sendall(b"x" * 1_000_000)


def test_a_message_without_end_takes_no_memory(listening, monkeypatch):
    monkeypatch.setattr(tracer_server, "MAX_PENDING_BYTES", 10_000)
    server, connect = listening
    connection = connect()
    connection.send(encode(step(1, columns=np.zeros((7, 5000), np.int64)))[:50_000])
    (warning,) = receive(server)
    assert "more than" in warning.text
    assert len(server.fds) == 1


def test_no_more_connections_than_it_can_hold(listening, monkeypatch):
    monkeypatch.setattr(tracer_server, "CONNECTIONS", 2)
    server, connect = listening
    for _ in range(5):
        connect()
    receive(server)
    assert len(server.fds) == 2


def recorded(record: AllocationStepRecord) -> RecordedStep:
    return recorded_step(*(getattr(record, name) for name in columns_of(AllocationStepColumns)))


def test_a_row_holds_the_step():
    record = step_record(4, step())
    scalars = recorded(record)
    assert (scalars.id, scalars.step, scalars.start_bytes, scalars.peak_bytes, scalars.rows) == (4, 7, 1000, 1464, 5)
    assert (scalars.peak_op, scalars.peak_layer) == ("aten::relu", "features.0")
    assert scalars.peak_parts == {"weights": 1000, "activations": 400, "temporaries": 64}
    trace = decode_step(scalars, record.data)
    assert np.array_equal(trace.to_columns(), trace_of(step()).to_columns())
    assert trace.names == step().names


@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_a_damaged_row_says_so(cut):
    record = step_record(4, step())
    with pytest.raises(ValueError, match=r"cut short|too short|length|header|incomplete"):
        decode_step(recorded(record), record.data[:cut])


def test_a_session_with_steps(tmp_path):
    stream = list(sessions.messages(6))
    stream[8:8] = [step(20), step(40, columns=step().columns * np.array([[1], [-1], [1], [1], [1], [1], [1]]))]
    reader = Session(sessions.write_session(tmp_path / "s.memtui", stream))
    (recorded,) = reader.allocations.steps()
    assert recorded.step == 20
    assert reader.allocations.trace(recorded).peak_bytes == 1464
    (mark,) = (event for event in reader.events(0, 1 << 62) if event.kind == "step")
    assert (mark.t_ns, mark.text) == (150, "step 20, every allocation recorded")
    tick_log = TickLog()
    tick_log.update(reader, int(reader.samples.end_ns[-1]))
    assert "step" in {tick.kind for tick in tick_log.drawn(0, int(reader.samples.end_ns[-1]))}, "a tick of the timeline"
    (warning,) = (event.text for event in reader.events(0, 1 << 62) if event.kind == "warning")
    assert warning.startswith("what process 1 tells of its tensors is left out: "), "its memory would be below 0"
    reader.close()


def test_a_session_whose_step_was_tampered_with(tmp_path):
    writer = SessionWriter(tmp_path / "s.memtui")
    builder = SessionBuilder(writer)
    for message in sessions.messages(3):
        builder.add(message)
    record = step_record(0, step())
    writer.insert([replace(record, data=b"nonsense"), replace(record, id=1, peak_parts='{"gold": 5}')])
    writer.close()
    reader = Session(tmp_path / "s.memtui")
    with pytest.raises(SessionError, match="is damaged: peak_parts is not a table"):
        reader.allocations.steps()
    with pytest.raises(SessionError, match="is damaged: allocations of step 7"):
        reader.allocations.trace(recorded(record))
    reader.close()


def test_steps_of_a_gpu_are_distinguished_from_those_of_main_memory(tmp_path):
    stream = list(sessions.messages(4))
    stream[9:9] = [step(5), step(5, device="cuda:0"), step(6, device="cuda:1")]
    path = sessions.write_session(tmp_path / "s.memtui", stream)
    reader = Session(path)
    assert [(recorded_step.step, recorded_step.device) for recorded_step in reader.allocations.steps()] == [
        (5, "cpu"),
        (5, "cuda:0"),
        (6, "cuda:1"),
    ]
    assert [event.kind for event in reader.events(0, 1 << 62)].count("step") == 1
    reader.close()
    report = build_report(path)
    assert report.allocations.steps == 1
    assert {device: summary.steps for device, summary in report.device_allocations.items()} == {
        "cuda:0": 1,
        "cuda:1": 1,
    }
    assert "cuda:0       1 training step recorded: peak" in format_report(report)


def on_gpu(number: int, of: int, **changes):
    """A step of main memory, and the same with so many times the bytes on a GPU."""
    main = step(number)
    columns = main.columns.copy()
    columns[1] *= of
    return main, step(number, device="cuda:0", columns=columns, **changes)


def test_what_the_allocator_of_a_gpu_held_is_stored_and_reported(tmp_path):
    known = {"allocated_peak_bytes": 3 << 20, "reserved_peak_bytes": 22 << 20}
    stream = list(sessions.messages(4))
    stream[9:9] = [
        *on_gpu(5, 1000, **known),
        *on_gpu(6, 900, allocated_peak_bytes=4 << 20, reserved_peak_bytes=20 << 20),
        *on_gpu(7, 100, allocator_reason="blocks differ"),
    ]
    path = sessions.write_session(tmp_path / "s.memtui", stream)
    reader = Session(path)
    steps = reader.allocations.steps()
    reader.close()
    assert [(one.allocated_peak_bytes, one.reserved_peak_bytes, one.allocator_reason) for one in steps] == [
        (None, None, ""),
        (3 << 20, 22 << 20, ""),
        (None, None, ""),
        (4 << 20, 20 << 20, ""),
        (None, None, ""),
        (None, None, "blocks differ"),
    ]
    report = build_report(path)
    assert report.allocations.allocator is None
    assert report.to_dict()["device_allocations"]["cuda:0"]["allocator"] == {
        "allocated_bytes": 4 << 20,
        "reserved_bytes": 22 << 20,
        "unknown_steps": 1,
        "reason": "blocks differ",
    }
    lines = format_report(report).splitlines()
    assert next(line for line in lines if line.startswith("allocations")) == (
        "allocations  cuda:0: 3 training steps recorded: peak 1.26 MiB requested in the median, at most 1.40 MiB in "
        "step 5, at aten::relu in layer features.0; allocated 4.00 MiB (max_memory_allocated), reserved 22.0 MiB "
        "(n/a in 1 of the steps)"
    )
    assert "main memory  peak 1.43 KiB, below 1 % of that of cuda:0" in lines


def test_blocks_that_are_not_known_in_any_step_have_their_reason(tmp_path):
    stream = list(sessions.messages(4))
    stream[9:9] = on_gpu(5, 10, allocator_reason="blocks differ")
    lines = format_report(build_report(sessions.write_session(tmp_path / "s.memtui", stream))).splitlines()
    assert next(line for line in lines if line.startswith("allocations")).endswith("; allocated n/a: blocks differ")
    assert any(line.startswith("main memory  1 training step recorded: peak 1.43 KiB in the median") for line in lines)


def test_an_operator_without_a_name_is_called_unknown(tmp_path):
    columns = step().columns.copy()
    columns[5] = -1  # no operator is known
    stream = list(sessions.messages(4))
    stream[9:9] = [step(columns=columns)]
    text = format_report(build_report(sessions.write_session(tmp_path / "s.memtui", stream)))
    assert "at an unknown operator in layer features.0" in text
    assert "largest new  an unknown operator in layer features.0 400 B (activations)" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"allocated_peak_bytes": -1},
        {"reserved_peak_bytes": 1.5},
        {"allocated_peak_bytes": True},
        {"allocator_reason": 5},
    ],
)
def test_what_no_allocator_can_hold_is_refused(changes):
    with pytest.raises(ValueError, match=r"peak of an allocator is not|reason for an unknown peak is not"):
        peak_record(0, step(device="cuda:0", **changes))


@pytest.mark.parametrize("device", [5, None, "x" * 65])
def test_a_step_of_no_device_is_refused(device):
    with pytest.raises(ValueError, match="a device has no name"):
        step_record(0, step(device=device))
