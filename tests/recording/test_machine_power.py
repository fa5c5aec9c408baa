"""Readings of the whole machine on their way into a session."""

from __future__ import annotations

import json
import os
import select
import threading
from dataclasses import asdict
from types import SimpleNamespace

from memtui.core.readings import CHASSIS, PowerReading
from memtui.core.samples import Status
from memtui.recording.recorder.__main__ import MarkReader, record
from memtui.recording.recorder.machine_power import MachinePowerReader


def line(t_ns, power_w=None, reason=""):
    status = Status.OK if power_w else Status.DENIED
    reading = PowerReading(t_ns, "machine", CHASSIS, "redfish", power_w=power_w, status=status, reason=reason)
    return reading, json.dumps(asdict(reading)).encode() + b"\n"


def test_readings_come_whole_and_not_from_before_the_recording():
    read_fd, write_fd = os.pipe()
    reader = MachinePowerReader(read_fd)
    (_, early), (refused, reason), (good, value) = line(5, 100.0), line(6, reason="no password"), line(20, 291.0)
    assert list(reader.read(10)) == []
    os.write(write_fd, early + reason + value[:20])
    assert [r for power in reader.read(10) for r in power.readings] == [refused], "a reason holds from then on"
    os.write(write_fd, value[20:])
    assert [r for power in reader.read(10) for r in power.readings] == [good]
    assert reader.fds == [read_fd]
    os.close(write_fd)
    ((ended,),) = (power.readings for power in reader.read(10))
    assert (ended.power_w, ended.status, ended.reason) == (None, Status.FAILED, "the process that reads Redfish ended")
    assert reader.fds == []
    assert list(reader.read(10)) == []
    os.close(read_fd)


def test_readings_and_marks_before_the_hello_keep_no_cpu_busy(monkeypatch):
    waits = []
    wait = select.select
    monkeypatch.setattr(select, "select", lambda *about: (waits.append(about), wait(*about))[1])
    (stream, _), (stop, end), (marks, mark), (power, value) = pipes = [os.pipe() for _ in range(4)]
    os.write(mark, b'[5, "early"]\n')
    os.write(value, line(5, 100.0)[1])
    stopper = threading.Timer(0.3, os.write, (end, b"x"))
    stopper.start()
    builder = SimpleNamespace(hello=None, limits=None)
    record(stream, builder, None, stop, lambda: None, MarkReader(marks), None, MachinePowerReader(power))
    stopper.join()
    assert len(waits) < 5
    for fd in (fd for pipe in pipes for fd in pipe):
        os.close(fd)
