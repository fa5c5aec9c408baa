"""The summary of ``memtui place profile``, as a JSON document and as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from memtui.core.json_fields import to_json
from memtui.core.units import duration_ns, size
from memtui.placement.profile import MODES, Pool, Profile
from memtui.placement.profiling.alike import measured_count
from memtui.placement.profiling.progress import ProfileProgress
from memtui.placement.solvers.problem import PAGE_BYTES


def about(profile: Profile, output: Path, progress: ProfileProgress) -> dict[str, Any]:
    """Return the summary of a profile, for JSON."""
    counts = {mode: sum(s.mode == mode for s in profile.samples) for mode in MODES}
    speeds = {
        pool.name: {
            "read_bytes_per_s": profile.about.get(f"{pool.name} read"),
            "written_bytes_per_s": profile.about.get(f"{pool.name} written"),
            "copied_from_bytes_per_s": pool.read_bytes_per_s,
            "copied_to_bytes_per_s": pool.write_bytes_per_s,
        }
        for pool in profile.pools
    }
    return {
        "file": str(output),
        "model": profile.graph.name,
        "ops": len(profile.graph.ops),
        "tensors": len(profile.graph.tensors),
        "peak_bytes": profile.graph.peak_bytes,
        "peak_bytes_in_pages": profile.graph.peak_in_pages(PAGE_BYTES),
        "resolution_ns": profile.resolution_ns,
        "results_copied": profile.about.get("results_copied"),
        "pools": [pool_as_json(profile, pool) | speeds[pool.name] for pool in profile.pools],
        "emulated": list(profile.emulated),
        "configurations": {mode: count for mode, count in counts.items() if count},
        "measured_configurations": {
            mode: measured_count(profile.graph, [pool.name for pool in profile.pools], mode)
            for mode, count in counts.items()
            if count
        },
        "times": {
            "in_the_file_before": progress.before,
            "from_the_cache": progress.cached,
            "cached_from": _when(min(progress.moments, default=None)),
            "cached_to": _when(max(progress.moments, default=None)),
            "measured_now": progress.measured,
        },
        "bandwidths_cached": _when(progress.bandwidths_ns),
    }


def _when(ns: int | None) -> str | None:
    """Return a moment as ISO 8601, in local time; None where there is none."""
    if ns is None:
        return None
    return datetime.fromtimestamp(ns / 1e9).astimezone().isoformat(" ", "seconds")


def _fixed(pool: Mapping[str, Any]) -> list[str]:
    """Return a line about the fixed time of moves of a pool; empty where it was not measured."""
    fixed = pool["fixed_ns"]
    if fixed["copy_out"] is None or fixed["copy_in"] is None:
        return []
    line = f"{pool['name']}: a move takes {duration_ns(fixed['copy_out'])} out, {duration_ns(fixed['copy_in'])} in"
    if fixed["start_meanwhile"] is not None:
        out, into = (duration_ns(fixed[f"copy_{way}_meanwhile"]) for way in ("out", "in"))
        line += f"; during an op {out} out, {into} in, and the op {duration_ns(fixed['start_meanwhile'])} longer"
    return [f"{line}; and its bytes"]


def _cached_lines(document: Mapping[str, Any]) -> list[str]:
    """Return lines about the times that are from the cache or were in the file before."""
    sentences, times = [], document["times"]
    if times["from_the_cache"]:
        every = sum(times[which] for which in ("in_the_file_before", "from_the_cache", "measured_now"))
        when = " to ".join(dict.fromkeys((times["cached_from"], times["cached_to"])))
        sentences.append(f"{times['from_the_cache']} of {every} times are from the cache, of {when}")
    if times["in_the_file_before"]:
        sentences.append(f"{times['in_the_file_before']} times were in the profile before")
    if document["bandwidths_cached"]:
        sentences.append(f"bandwidths and times of moves are from the cache, of {document['bandwidths_cached']}")
    if sentences:
        sentences.append("--again measures all of them now")
    return sentences


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return the summary as lines of text."""
    cells = max(20, *(len(pool["name"]) for pool in document["pools"]))
    peak = size(document["peak_bytes_in_pages"])
    result = [
        f"{document['model']}: {document['ops']} ops, at most {peak} of intermediate tensors "
        f"at once, in pages of {size(PAGE_BYTES)}",
        f"{'pool':{cells}} {'read':>9} {'written':>9} {'copy out':>9} {'copy in':>9}  GB/s",
    ]
    for pool in document["pools"]:
        ways = ("read", "written", "copied_from", "copied_to")
        speeds = " ".join(f"{(pool[f'{way}_bytes_per_s'] or 0) / 1e9:9.1f}" for way in ways)
        result.append(f"{pool['name']:{cells}} {speeds}  {pool['note']}".rstrip())
    for pool in document["pools"][1:]:
        result += _fixed(pool)
    for mode, number in document["configurations"].items():
        measured = document["measured_configurations"][mode]
        shared = f", {measured} of them measured: ops that are alike share their times" if measured < number else ""
        result.append(f"{mode}: {number} configurations{shared}")
    result += _cached_lines(document)
    if document["results_copied"]:
        count = document["results_copied"]
        which = (
            "1 op cannot write where it is told to: its times"
            if count == 1
            else (f"{count} ops cannot write where they are told to: their times")
        )
        result.append(f"{which} have a copy in them")
    if document["emulated"]:
        result.append(f"emulated, so no measurement of a machine: {', '.join(document['emulated'])}")
    result.append(f"{document['file']}: memtui place compare, solve and show read it")
    return result


def pool_as_json(profile: Profile, pool: Pool) -> dict[str, Any]:
    """Return for JSON the pool of a profile, its bandwidths (bytes a second) and fixed times of moves (ns).

    ``out`` is out of the pool into the fast one, ``in`` the other way; ``meanwhile`` is while an op runs.
    """
    return to_json(pool) | {
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
