"""What a program is started with so that it is traced from inside: environment variables, and a start-up hook.

Python runs ``sitecustomize`` when it starts. The folder of ours is put before all others on ``PYTHONPATH``; it runs the
one it hides, too. Programs that are no Python do not notice. Children inherit it, so a launcher may start the training.
Further variables keep the profiler of torch from writing to the standard error stream of the traced program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SOCKET = "MEMTUI_TRACE_SOCKET"  # where the recorder listens
EVERY = "MEMTUI_TRACE_EVERY"  # steps from one that is recorded to the next
HOOK = Path(__file__).parent / "start"


def asked_for(path: Path, every: int) -> dict[str, str]:
    """Return what the gate has to be told."""
    return {SOCKET: str(path), EVERY: str(every)}


def injected(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what is changed in the environment of a program that is to be traced.

    Nothing is changed where nobody asked for it.
    """
    if SOCKET not in environment:
        return {}
    path = environment.get("PYTHONPATH", "")
    quiet = {name: value for name, value in QUIET_ENVIRONMENT.items() if name not in environment}
    return {"PYTHONPATH": f"{HOOK}{os.pathsep}{path}" if path else str(HOOK), **quiet}


QUIET_ENVIRONMENT: dict[str, str] = {
    # Read once, when the profiler is first used. From 6 on not even the lines "USDT: profiler_start" are printed.
    "KINETO_LOG_LEVEL": "99",
}
"""To be set before that, where the user has not chosen a value; changes no stream and nothing else."""
