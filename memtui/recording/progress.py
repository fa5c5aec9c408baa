"""What the recorder prints for its supervisor: ``READY``, then a line of JSON after each commit."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

READY = b"ready"


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a recording after a commit.

    Attributes:
        samples: windows in the session.
        wss_bytes: of the last window; None: not measured.
        rss_bytes: as ``wss_bytes``.
        cpu_ns: CPU time of the recorder since it was started.
        file_bytes: size of the session on the disk.
        began: a process was observed.
        ending: (kind, reason) where the recorder sees a reason to end, see ``memtui.recording.recorder.limits``.
    """

    samples: int = 0
    wss_bytes: int | None = None
    rss_bytes: int | None = None
    cpu_ns: int = 0
    file_bytes: int = 0
    began: bool = False
    ending: tuple[str, str] | None = None

    def to_line(self) -> bytes:
        """Return one line of JSON, short enough that a pipe takes it whole or not at all."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Progress:
        """Undo ``to_line``. Raises ValueError and TypeError."""
        fields = json.loads(line)
        kind_and_reason = fields.pop("ending")
        return cls(**fields, ending=tuple(kind_and_reason) if kind_and_reason else None)
