"""The process that asks a Redfish service, so that one that hangs delays nothing, and no other process uses a password.

Run as ``python -m memtui.recording.network_power URL``, by the supervisor, with the rights of the user: root's only
where the user is root. It writes a reading as a line of JSON whenever there is one, and ends at the end of its input or
when nobody reads its output.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from dataclasses import asdict
from pathlib import Path

from memtui.core import capabilities
from memtui.core.readings import CHASSIS, PowerReading
from memtui.core.samples import Status
from memtui.recording.network_power.address import parse_address
from memtui.recording.network_power.connection import Connection
from memtui.recording.network_power.credentials import NoCredentials, credentials_for
from memtui.recording.network_power.redfish_reader import SOURCE, RedfishReader


def main() -> int:
    """Exit 0."""
    capabilities.forbid_new_privileges()
    capabilities.forbid_tracing()  # nobody reads a password out of it
    address = parse_address(sys.argv[1])
    try:
        credentials = credentials_for(address.host, os.environ, Path.home())
    except NoCredentials as error:
        _send(PowerReading(time.monotonic_ns(), "machine", CHASSIS, SOURCE, status=Status.DENIED, reason=str(error)))
        select.select([0], [], [])
        return 0
    reader = RedfishReader(lambda: Connection(address, credentials), address.chassis)
    while True:
        ready, _, _ = select.select([0, reader.ready_fd], [], [], reader.wait_s)
        if 0 in ready:
            os._exit(0)  # without waiting for a thread in a call that hangs
        if reading := reader.step():
            _send(reading)


def _send(reading: PowerReading) -> None:
    try:
        os.write(1, json.dumps(asdict(reading)).encode() + b"\n")
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
