"""``memtui report`` of a placement profile: what was measured and solved, as text or as a JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.core.json_fields import to_json
from memtui.core.text import printable
from memtui.core.units import duration_ns, percent, size
from memtui.placement import text
from memtui.placement.command import comparisons, slow_downs
from memtui.placement.kernel_times import TimedConfiguration, timed_configurations
from memtui.placement.plan import PlacementPlan
from memtui.placement.profile import MODES, Profile
from memtui.placement.profiling.text import pool_as_json
from memtui.placement.redact import redacted
from memtui.placement.solvers.problem import PAGE_BYTES
from memtui.placement.solvers.solver import mode_of
from memtui.placement.store import ProfileFile
from memtui.placement.timing_agreement import Comparison, modes_of
from memtui.placement.worker_protocol import Environment

KIND = "placement profile"


@dataclass(frozen=True, slots=True)
class KindTime:
    """The ops of one kind, with everything in fast memory.

    Attributes:
        kind: name of the operator.
        ops: number of them in the step.
        configurations: number of their configurations.
        all_fast_ns: sum of their typical times; None where one of them was not measured.
    """

    kind: str
    ops: int
    configurations: int
    all_fast_ns: float | None


def print_report(path: Path, console: Console, *, as_json: bool, redact: bool) -> None:
    """Print what is in a profile. Raises UserError."""
    file = ProfileFile(path)
    with console.progress(f"adding up {path}"):
        profile, plans = file.profile(), file.plans()
        if redact:
            labels = dict(zip((p.name for p in profile.pools), (p.name for p in redacted(profile).pools), strict=True))
            profile = redacted(profile)
        else:
            labels = {}
        compared = comparisons(profile) if len(modes_of(profile)) > 1 else []
        document = {**facts_of(profile), **_measured(profile, compared)}
        document["plans"] = [_plan(plan, labels) for plan in plans]
    if as_json:
        console.print_json(document)
    else:
        print("\n".join(map(printable, lines(profile, document, compared))))


def facts_of(profile: Profile) -> dict[str, Any]:
    """Return what was profiled, where and how, for JSON."""
    about = profile.about
    return {
        "kind": KIND,
        "model": profile.graph.name,
        "batch": about.get("batch"),
        "seed": about.get("seed"),
        "environment": {field.name: about.get(field.name) for field in fields(Environment)},
        "ops": len(profile.graph.ops),
        "tensors": len(profile.graph.tensors),
        "peak_bytes": profile.graph.peak_bytes,
        "peak_bytes_in_pages": profile.graph.peak_in_pages(PAGE_BYTES),
        "resolution_ns": profile.resolution_ns,
        "results_copied": about.get("results_copied"),
        "pools": [pool_as_json(profile, pool) for pool in profile.pools],
        "emulated": list(profile.emulated),
    }


def _measured(profile: Profile, compared: Sequence[Comparison]) -> dict[str, Any]:
    rows = list(timed_configurations(profile))
    return {
        "configurations": len(rows),
        "measured": {mode: sum(mode in row.times for row in rows) for mode in MODES},
        "comparisons": [{k: v for k, v in each.to_dict().items() if k != "pairs"} for each in compared],
        "slow_down": slow_downs(profile),
        "kinds": to_json(_kinds(profile, rows)),
        "kernels": [row.to_dict() for row in rows],
    }


def _kinds(profile: Profile, rows: Sequence[TimedConfiguration]) -> list[KindTime]:
    """Return the kinds of ops, what takes longest first; by the way of timing that plans rest upon."""
    mode = next((m for m in (_mode(profile, pool.name) for pool in profile.pools[1:]) if m), None)
    first: dict[str, TimedConfiguration] = {}
    for row in rows:
        first.setdefault(row.op.name, row)
    counts = Counter(row.op.kind for row in rows)
    kinds = []
    for kind, count in counts.items():
        ops = [row for row in first.values() if row.op.kind == kind]
        times = [None if mode is None or mode not in row.times else row.times[mode].median_ns for row in ops]
        measured = [ns for ns in times if ns is not None]
        kinds.append(KindTime(kind, len(ops), count, sum(measured) if len(measured) == len(times) else None))
    return sorted(kinds, key=lambda each: (-(each.all_fast_ns or 0), each.kind))


def _mode(profile: Profile, slow: str) -> str | None:
    try:
        return mode_of(profile, slow)
    except UserError:
        return None


def _plan(plan: PlacementPlan, labels: dict[str, str]) -> dict[str, Any]:
    """Return a plan without its spans and moves, which ``memtui place solve --json`` prints."""
    names = ("formulation", "mode", "limit_bytes", "predicted_ns", "fast_peak_bytes", "slow_peak_bytes")
    return {
        **{name: getattr(plan, name) for name in names},
        "slow": labels.get(plan.slow, plan.slow),
        "moves": len(plan.moves),
        "move_ns": plan.move_ns,
        "status": plan.status,
        "gap": plan.gap,
        "solver": plan.solver,
    }


def lines(profile: Profile, document: dict[str, Any], compared: Sequence[Comparison]) -> Iterator[str]:
    """Yield the report as lines of text. ``compared``: the ways of timing, as they stand in the document."""
    yield from text.head_lines(profile)
    environment = document["environment"]
    where = [f"PyTorch {environment['torch']}" if environment["torch"] else "", environment["cpu"] or ""]
    threads = environment["threads"]
    where += [f"{threads} thread{'s' if threads != 1 else ''}" if threads else ""]
    if any(where):
        yield ", ".join(filter(None, where))
    peak = size(document["peak_bytes_in_pages"])
    yield f"at most {peak} of intermediate tensors at once, in pages of {size(PAGE_BYTES)}"
    measured = ", ".join(f"{mode} {count}" for mode, count in document["measured"].items() if count) or "none measured"
    yield f"{document['configurations']} configurations: {measured}"
    yield ""
    yield f"{'all in ' + profile.fast.name:>14}  {'ops':>5}  {'configurations':>14}  kind"
    for kind in document["kinds"]:
        yield f"{duration_ns(kind['all_fast_ns']):>14}  {kind['ops']:>5}  {kind['configurations']:>14}  {kind['kind']}"
    for comparison in compared:
        yield ""
        yield from text.comparison_lines(comparison)
    if document["plans"]:
        yield ""
        yield f"{'plan':12}  {'fast memory':>11}  {'step':>9}  {'gap':>7}  {'moves':>5}  slow pool"
    for plan in document["plans"]:
        row = f"{size(plan['limit_bytes']):>11}  {duration_ns(plan['predicted_ns']):>9}  {percent(plan['gap']):>7}"
        yield f"{plan['formulation']:12}  {row}  {plan['moves']:>5}  {plan['slow']}"
