"""How much slower an op is with some of its tensors in slow memory: the ratio to everything in fast memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from memtui.placement.configurations import configurations, free_storages
from memtui.placement.graph import Configuration, Op
from memtui.placement.profile import Profile


@dataclass(frozen=True, slots=True)
class Cell:
    """One op in one configuration.

    Attributes:
        configuration: the pools of its tensors.
        time_ns: typical time; None where it was not measured.
        ratio: to the time with everything in fast memory; None where one of the two is missing or zero.
    """

    configuration: Configuration
    time_ns: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Effect:
    """Slowdown of ops with a single tensor in slow memory.

    Attributes:
        ops: number of ops that were measured with one output (input) in slow memory and all else in fast.
        median: median of the ratios.
        worst: largest of the ratios.
    """

    ops: int
    median: float
    worst: float


def cells(profile: Profile, op: Op, slow: str, mode: str) -> list[Cell]:
    """Return an op's configurations with a slow pool, the one with everything in fast memory first."""
    choices = list(configurations(profile.graph, op, (profile.fast.name, slow)))
    times = [profile.typical_ns(op.name, configuration, mode) for configuration in choices]
    base = times[0]
    return [
        Cell(configuration, ns, ns / base if ns is not None and base else None)
        for configuration, ns in zip(choices, times, strict=True)
    ]


def effects(profile: Profile, slow: str, mode: str) -> dict[str, Effect]:
    """Return the slowdown by a single output or input in slow memory, over all ops.

    The keys are ``output`` and ``input``, where measured. Times below ten steps of the clock are left out.
    """
    floor_ns = 10 * profile.resolution_ns
    ratios: dict[str, list[float]] = {"output": [], "input": []}
    for op in profile.graph.ops:
        row = cells(profile, op, slow, mode)
        if row[0].time_ns is None or row[0].time_ns < floor_ns:
            continue
        for cell in row[1:]:
            which = _alone(profile, op, cell.configuration, slow)
            if which and cell.ratio is not None:
                ratios[which].append(cell.ratio)
    return {which: _effect(values) for which, values in ratios.items() if values}


def _effect(ratios: Sequence[float]) -> Effect:
    return Effect(len(ratios), median(ratios), max(ratios))


def _alone(profile: Profile, op: Op, configuration: Configuration, slow: str) -> str:
    """Return ``output`` or ``input`` where a single such storage is in slow memory; empty otherwise."""
    storage_of = {t: profile.graph.tensor[t].storage for t in op.tensors}
    placed = {storage_of[t] for t, pool in zip(op.tensors, configuration.pools, strict=True) if pool == slow}
    if len(placed) != 1 or not placed <= {*free_storages(profile.graph, op, (profile.fast.name, slow))}:
        return ""
    return "output" if placed & {storage_of[t] for t in op.outputs} else "input"
