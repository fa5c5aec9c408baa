"""The reference speed of a CPU: what the yardstick took when a sweep first measured it, kept for all later ones."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from memtui.errors import UserError
from memtui.small_file import read_small_bytes
from memtui.whole_file import replace_whole

NAME = "bench-speed.json"


class References:
    """By name of the CPU, and by what else changes the yardstick. In one small file; without one, for this sweep."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, float] = {}
        if path is not None:
            with suppress(OSError, UserError, ValueError, AttributeError, RecursionError):
                found = json.loads(read_small_bytes(path))
                self._known = {str(k): float(v) for k, v in found.items() if float(v) > 0}

    def of(self, cpu: str, now_ns: float) -> float:
        """Nanoseconds; those of now where there are none yet."""
        if cpu not in self._known:
            self._known[cpu] = now_ns
            self._keep()
        return self._known[cpu]

    def _keep(self) -> None:
        if self._path is None:
            return
        with suppress(OSError):  # then it is the reference of this sweep
            self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
            replace_whole(self._path, json.dumps(self._known, indent=2) + "\n", 0o600)
