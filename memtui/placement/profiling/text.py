"""A profile as it is measured, for JSON and as lines, under the names of the table of ``memtui place profile``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from memtui.core.units import duration_ns, size
from memtui.placement.profile import MODES, Pool, Profile
from memtui.placement.profiling.progress import ProfileProgress
from memtui.placement.solve.problem import PAGE_BYTES


def about(found: Profile, output: Path, shown: ProfileProgress) -> dict[str, Any]:
    """Return what the file has, for JSON."""
    counts = {mode: sum(s.mode == mode for s in found.samples) for mode in MODES}
    speeds = {
        pool.name: {
            "read_bytes_per_s": found.about.get(f"{pool.name} read"),
            "written_bytes_per_s": found.about.get(f"{pool.name} written"),
            "copied_from_bytes_per_s": pool.read_bytes_per_s,
            "copied_to_bytes_per_s": pool.write_bytes_per_s,
        }
        for pool in found.pools
    }
    return {
        "file": str(output),
        "model": found.graph.name,
        "ops": len(found.graph.ops),
        "tensors": len(found.graph.tensors),
        "peak_bytes": found.graph.peak_bytes,
        "peak_bytes_in_pages": found.graph.peak_in_pages(PAGE_BYTES),
        "resolution_ns": found.resolution_ns,
        "results_copied": found.about.get("results_copied"),
        "pools": [pool_as_json(found, pool) | speeds[pool.name] for pool in found.pools],
        "emulated": list(found.emulated),
        "configurations": {mode: found for mode, found in counts.items() if found},
        "times": {
            "in_the_file_before": shown.before,
            "from_the_cache": shown.cached,
            "cached_from": _when(min(shown.moments, default=None)),
            "cached_to": _when(max(shown.moments, default=None)),
            "measured_now": shown.measured,
        },
        "bandwidths_cached": _when(shown.bandwidths_ns),
    }


def _when(ns: int | None) -> str | None:
    """Return a moment as ISO 8601, in local time; None where there is none."""
    if ns is None:
        return None
    return datetime.fromtimestamp(ns / 1e9).astimezone().isoformat(" ", "seconds")


def _fixed(pool: Mapping[str, Any]) -> list[str]:
    """Return what a move takes however small it is."""
    fixed = pool["fixed_ns"]
    if fixed["copy_out"] is None or fixed["copy_in"] is None:
        return []
    line = f"{pool['name']}: a move takes {duration_ns(fixed['copy_out'])} out, {duration_ns(fixed['copy_in'])} in"
    if fixed["start_meanwhile"] is not None:
        out, into = (duration_ns(fixed[f"copy_{way}_meanwhile"]) for way in ("out", "in"))
        line += f"; during an op {out} out, {into} in, and the op {duration_ns(fixed['start_meanwhile'])} longer"
    return [f"{line}; and its bytes"]


def _known_before(plain: Mapping[str, Any]) -> list[str]:
    """Return how many times are from the cache or were in the file before."""
    found, times = [], plain["times"]
    if times["from_the_cache"]:
        every = sum(times[which] for which in ("in_the_file_before", "from_the_cache", "measured_now"))
        when = " to ".join(dict.fromkeys((times["cached_from"], times["cached_to"])))
        found.append(f"{times['from_the_cache']} of {every} times are from the cache, of {when}")
    if times["in_the_file_before"]:
        found.append(f"{times['in_the_file_before']} times were in the profile before")
    if plain["bandwidths_cached"]:
        found.append(f"bandwidths and times of moves are from the cache, of {plain['bandwidths_cached']}")
    if found:
        found.append("--again measures all of them now")
    return found


def lines(plain: Mapping[str, Any]) -> list[str]:
    """Return the same for people."""
    cells = max(20, *(len(pool["name"]) for pool in plain["pools"]))
    found = [
        f"{plain['model']}: {plain['ops']} ops, at most {size(plain['peak_bytes_in_pages'])} of intermediate tensors "
        f"at once, in pages of {size(PAGE_BYTES)}",
        f"{'pool':{cells}} {'read':>9} {'written':>9} {'copy out':>9} {'copy in':>9}  GB/s",
    ]
    for pool in plain["pools"]:
        ways = ("read", "written", "copied_from", "copied_to")
        speeds = " ".join(f"{(pool[f'{way}_bytes_per_s'] or 0) / 1e9:9.1f}" for way in ways)
        found.append(f"{pool['name']:{cells}} {speeds}  {pool['note']}".rstrip())
    for pool in plain["pools"][1:]:
        found += _fixed(pool)
    found += [f"{mode}: {number} configurations" for mode, number in plain["configurations"].items()]
    found += _known_before(plain)
    if plain["results_copied"]:
        count = plain["results_copied"]
        which = (
            "1 op cannot write where it is told to: its times"
            if count == 1
            else (f"{count} ops cannot write where they are told to: their times")
        )
        found.append(f"{which} have a copy in them")
    if plain["emulated"]:
        found.append(f"emulated, so no measurement of a machine: {', '.join(plain['emulated'])}")
    found.append(f"{plain['file']}: memtui place compare, solve and show read it")
    return found


def pool_as_json(profile: Profile, pool: Pool) -> dict[str, Any]:
    """Return for JSON the pool as the profile has it, its bandwidths (bytes a second) and fixed times of moves (ns).

    ``out`` is out of the pool into the fast one, ``in`` the other way; ``meanwhile``: while an op runs.
    """
    return pool.to_dict() | {
        "bandwidth_bytes_per_s": {
            "read": profile.about.get(f"{pool.name} read"),
            "written": profile.about.get(f"{pool.name} written"),
            "copy_out": pool.read_bytes_per_s,
            "copy_in": pool.write_bytes_per_s,
            "copy_out_meanwhile": pool.async_read_bytes_per_s,
            "copy_in_meanwhile": pool.async_write_bytes_per_s,
        },
        "fixed_ns": {
            "copy_out": pool.read_fixed_ns,
            "copy_in": pool.write_fixed_ns,
            "copy_out_meanwhile": pool.async_read_fixed_ns,
            "copy_in_meanwhile": pool.async_write_fixed_ns,
            "start_meanwhile": pool.async_start_ns,
        },
    }
