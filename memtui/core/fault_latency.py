"""What it takes on a machine to read a page back that was evicted, as ``memtui doctor --measure`` measured it.

Stored in the user's state folder, for the screen, which turns a share of misses into time.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.files import write_atomically
from memtui.core.json_fields import from_json, to_json
from memtui.core.os_errors import CREATE, refused
from memtui.core.samples import Host
from memtui.core.small_file import read_small

FILE_NAME = "fault-latencies.json"
SWAP, FILE = "swap", "file"


@dataclass(frozen=True, slots=True)
class FaultLatency:
    """The latency of major faults: times of single touches, each of a page that no other touch brought in.

    Attributes:
        source: ``SWAP`` or ``FILE``.
        where: the swap devices, or the folder of the file.
        lower_ns, median_ns, upper_ns: quartiles.
        faults: how many were timed.
    """

    source: str
    where: str
    lower_ns: int
    median_ns: int
    upper_ns: int
    faults: int


@dataclass(frozen=True, slots=True)
class FaultLatencies:
    """The latencies of one machine, and why others are missing.

    Attributes:
        measured: local date and time, ISO 8601.
        unmeasured: a sentence for each source that is missing.
    """

    host: Host
    measured: str
    latencies: tuple[FaultLatency, ...]
    unmeasured: tuple[str, ...] = ()

    def of(self, host: Host | None) -> FaultLatency | None:
        """Return the latency of swap, else of files, for a program that ran on a machine; None: it was another one."""
        here = self.host
        if host is None or (here.hostname, here.architecture) != (host.hostname, host.architecture):
            return None
        return min(self.latencies, key=lambda latency: latency.source != SWAP, default=None)


def save(latencies: FaultLatencies, folder: Path) -> None:
    """Store them in the state folder, which is created where it is missing. Raises UserError."""
    path = folder / FILE_NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, json.dumps(to_json(latencies), indent=1) + "\n")
    except OSError as error:
        raise refused(path, error, CREATE) from None


def stored() -> FaultLatencies | None:
    """Return what this user stored last; None where there is nothing."""
    try:
        from memtui.core.privilege import invoker, state_directory
    except ImportError:  # a session is read on systems without users of POSIX, too
        return None
    return load(state_directory(invoker()))


def load(folder: Path) -> FaultLatencies | None:
    """Return what was stored last; None where there is nothing that can be read."""
    path = folder / FILE_NAME
    if not os.path.lexists(path):
        return None
    try:
        return from_json(FaultLatencies, json.loads(read_small(path)))
    except (UserError, ValueError, RecursionError):
        return None
