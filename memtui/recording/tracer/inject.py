"""Environment variables and a start-up hook by which a program is traced from inside.

Python runs ``sitecustomize`` when it starts. memtui's folder is put before all others on ``PYTHONPATH``; its file runs
the ``sitecustomize`` that it hides, too. Programs that are not Python are not affected. Children inherit the variables,
so a launcher may start the training. Further variables keep the profiler of torch from writing to the standard error
stream of the traced program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SOCKET = "MEMTUI_TRACE_SOCKET"  # where the recorder listens
EVERY = "MEMTUI_TRACE_EVERY"  # steps from one that is recorded to the next
HOOK = Path(__file__).parent / "start"


def trace_environment(path: Path, every: int) -> dict[str, str]:
    """Return the variables by which the exec gate injects the hook."""
    return {SOCKET: str(path), EVERY: str(every)}


def injected(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what is changed in the environment of a program that is to be traced.

    Nothing is changed where tracing was not requested.
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
"""To be set before the profiler is used, where the user has not chosen a value; changes nothing else."""
