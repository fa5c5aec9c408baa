"""Profiles of a small step."""

from __future__ import annotations

from pathlib import Path

from memtui.placement.profile import Profile
from memtui.placement.store import ProfileFile
from tests.support.placements import graph_of, profile_of, slow_pool

CASE = profile_of(graph_of({"a": ("x", "t"), "b": ("t", "y")}, {"t": 4}), {"t": 1}, {"t": 5}, slow_pool(1, 1))


def written(path: Path, profile: Profile = CASE) -> ProfileFile:
    file = ProfileFile.create(
        path, profile.graph, profile.pools, profile.resolution_ns, dict(profile.about), force=True
    )
    file.add(profile.samples)
    return file
