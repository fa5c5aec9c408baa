"""Placement problems that were worked out by hand."""

from __future__ import annotations

from tests.support.placements import graph_of, profile_of, slow_pool

STATIC_CASE = profile_of(
    graph_of(
        {"n1": ("x", "t1"), "n2": ("t1", "t2"), "n3": ("t1 t2", "t3"), "n4": ("t3", "y")}, {"t1": 4, "t2": 3, "t3": 2}
    ),
    {"t1": 1, "t2": 2, "t3": 1},
    {"t1": 3, "t2": 7, "t3": 3},
    slow_pool(1, 1),
)


SYNC_CASE = profile_of(
    graph_of(
        {"f1": ("x", "t1"), "f2": ("t1", "t2"), "f3": ("t2", "t3"), "b2": ("t3", "t4"), "b1": ("t1 t4", "y")},
        {"t1": 4, "t2": 3, "t3": 1, "t4": 1},
    ),
    {"t1": 20, "t2": 10, "t3": 5, "t4": 5},
    dict.fromkeys(("t1", "t2", "t3", "t4"), 10),
    slow_pool(0.75, 0.5),
)
