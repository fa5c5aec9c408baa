"""Kinds of the columns of a session's tables (``tables.TABLES``), by their names."""

from __future__ import annotations

from enum import Enum, auto

from memtui.core.readings import GPU_COUNTERS

_TEXTS = frozenset(
    (  # noqa: SIM905
        "flush status reason pss_reason counters_reason rearm disturbed perms name filtered bound device source scope "
        "kind text category phase op layer part function file cgroup stall_cgroup high_cgroup role command session"
    ).split()
)
_REALS = frozenset(
    (
        *("watts", "joules", "limit_w", "utilization", "touched_share", "gpus_used", *GPU_COUNTERS, "share"),
        *("miss_ratio_low", "miss_ratio_high", "miss_ratio_estimate", "probe_ns", "loss", "accuracy", "minimum"),
    )
)
_INTEGERS = frozenset(
    (  # noqa: SIM905
        "sample pid minor_faults major_faults gaps start end first_sample last_sample count bursts touches step stack "
        "parent line iteration epoch windows processes parent_pid generation start_ticks node pages threads "
        "refaults oom_score_adj high_events"
    ).split()
)


INSTANTS = frozenset(("t_ns", "start_ns", "end_ns", "pss_ns"))
"""Moments of CLOCK_MONOTONIC; other columns in nanoseconds are lengths of time."""


class Kind(Enum):
    """What the values of a column are."""

    TEXT = auto()
    REAL = auto()
    INTEGER = auto()


def kind_of(column: str) -> Kind:
    """Return the kind of a column. Raises ValueError for one that no table has."""
    if column in _TEXTS:
        return Kind.TEXT
    if column in _REALS:
        return Kind.REAL
    if column in _INTEGERS or column.endswith(("_ns", "_bytes")):
        return Kind.INTEGER
    raise ValueError(f"the kind of column {column!r} is not declared")
