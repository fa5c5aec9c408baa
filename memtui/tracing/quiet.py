"""Environment that keeps the profiler of torch from writing to the standard error stream of the traced program."""

from __future__ import annotations

QUIET_ENVIRONMENT: dict[str, str] = {
    # Read once, when the profiler is first used. From 6 on not even the lines "USDT: profiler_start" are printed.
    "KINETO_LOG_LEVEL": "99",
}
"""To be set before that, where the user has not chosen a value; changes no stream and nothing else."""
