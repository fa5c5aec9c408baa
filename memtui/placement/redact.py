"""``--redact`` of a placement profile: without the paths of the user's model and of the folders that pools lie in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from memtui.placement.builtin_models import is_own
from memtui.placement.graph import Configuration
from memtui.placement.profile import Profile

OWN_MODEL = "a model of a file"
# Facts that name no person, host or place: versions of the kernel name whoever compiled it.
_HARMLESS = frozenset(("batch", "seed", "results_copied", "torch", "threads", "cpu", "capability"))


def redacted(profile: Profile) -> Profile:
    """Return the profile with labels for pools in folders, and without the name of a user's model."""
    in_folders = [pool.name for pool in profile.pools if pool.name.partition("file:")[2]]
    labels = {name: f"file:{number}" for number, name in enumerate(in_folders, 1)}
    graph = profile.graph
    if is_own(graph.name):
        graph = replace(graph, name=OWN_MODEL)
    graph = replace(
        graph, tensors=tuple(replace(t, pools=t.pools and _labelled(t.pools, labels)) for t in graph.tensors)
    )
    pools = tuple(replace(p, name=labels.get(p.name, p.name)) for p in profile.pools)  # a note names no folder
    samples = tuple(replace(s, configuration=_configuration(s.configuration, labels)) for s in profile.samples)
    about = {key: value for key, value in profile.about.items() if key in _HARMLESS}
    for pool in profile.pools:
        for way in ("read", "written"):
            if f"{pool.name} {way}" in profile.about:
                about[f"{labels.get(pool.name, pool.name)} {way}"] = profile.about[f"{pool.name} {way}"]
    return Profile(graph, pools, samples, profile.resolution_ns, about)


def _labelled(pools: tuple[str, ...], labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(pool, pool) for pool in pools)


def _configuration(configuration: Configuration, labels: Mapping[str, str]) -> Configuration:
    return Configuration(_labelled(configuration.inputs, labels), _labelled(configuration.outputs, labels))
