"""Readings of the whole machine on their way into a session."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

from memtui.core.samples import CHASSIS, PowerReading, Status
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
