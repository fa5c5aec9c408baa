"""What the supervisor tells the sampler, as JSON lines on the sampler's standard input.

The first line is the order; ``stop`` or the end of the input ends the observation, so a supervisor that dies for
whatever reason ends it too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from memtui.samples import Options

STOP = b"stop\n"


@dataclass(frozen=True, slots=True)
class Order:
    """Observe this process, this way.

    ``start_ticks`` guards against a pid that was reused meanwhile; ``command`` is what it will become, for one that
    waits at the gate.
    """

    pid: int
    start_ticks: int
    options: Options
    command: str = ""

    def to_line(self) -> bytes:
        """One line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        """Inverse of ``to_line``. Raises ValueError."""
        try:
            plain = json.loads(line)
            return cls(plain["pid"], plain["start_ticks"], Options(**plain["options"]), plain["command"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an order: {error}") from error
