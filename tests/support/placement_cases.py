"""Placement problems that were worked out by hand."""

from __future__ import annotations

from memtui.core.json_fields import to_json
from memtui.placement.profile import Profile
from tests.support.placements import SLOW, graph_of, profile_of, slow_pool

PAGE = 4096

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


def in_pages(profile: Profile) -> Profile:
    """Return the profile with tensors of whole pages, in two ways of timing, one of which takes 1.5 times as long."""
    fields = to_json(profile)
    for tensor in fields["graph"]["tensors"]:
        tensor["size_bytes"] *= PAGE
    for pool in fields["pools"]:
        pool["emulated"] = pool["name"] == SLOW
        for way in ("read", "write", "async_read", "async_write"):
            if pool[f"{way}_bytes_per_s"]:
                pool[f"{way}_bytes_per_s"] *= PAGE
    base = list(fields["samples"])
    fields["samples"] = [{**s, "mode": "single"} for s in base]
    fields["samples"] += [{**s, "mode": "simultaneous", "time_ns": [1.5 * s["time_ns"][0]]} for s in base]
    return Profile.from_dict(fields)
