"""Receives the power of the whole machine from the process that asks a Redfish service for it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

from memtui.core.readings import CHASSIS, Power, PowerReading
from memtui.core.samples import Status

READ_BYTES = 1 << 16


class MachinePowerReader:
    """Reads a reading per line of JSON. They do not come through the sampler, which may be root."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fds = [fd]
        self._rest = b""

    def read(self, since_ns: int) -> Iterator[Power]:
        """Yield the readings that have come since the last call, but for values from before the recording began."""
        for fd in tuple(self.fds):
            try:
                while chunk := os.read(fd, READ_BYTES):
                    *lines, self._rest = (self._rest + chunk).split(b"\n")
                    readings = (PowerReading(**json.loads(line)) for line in lines)
                    if new := tuple(r for r in readings if r.t_ns >= since_ns or r.power_w is None):
                        yield Power(new)
            except BlockingIOError:
                continue
            self.fds.clear()
            reason = "the process that reads Redfish ended"
            yield Power(
                (PowerReading(time.monotonic_ns(), "machine", CHASSIS, "redfish", status=Status.FAILED, reason=reason),)
            )
