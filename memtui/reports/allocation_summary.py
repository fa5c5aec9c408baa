"""The recorded steps of a session: how much was held at their peak, of what, and which blocks that was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.fast_numpy import median
from memtui.analysis.tensor_pages import UNKNOWN
from memtui.core.samples import MAIN_MEMORY
from memtui.core.units import size
from memtui.reports.source import ReportSource
from memtui.session.records.allocations import RecordedStep

LARGEST = 3  # blocks that are named


def allocations(reader: ReportSource, steps: Sequence[RecordedStep]) -> dict[str, Any] | None:
    """Return what was held at the peak of some recorded steps; None where there are none.

    The operator at the peak is the one that came last and may have added little: ``largest`` are the largest of the
    blocks that the step had made itself by then.

    Raises:
        SessionError: the session is damaged.
    """
    if not steps:
        return None
    most = max(steps, key=lambda step: step.peak_bytes)
    return {
        "steps": len(steps),
        "pids": sorted({step.pid for step in steps}),
        "peak_bytes": {"median": median(np.array([s.peak_bytes for s in steps])), "max": most.peak_bytes},
        "at_peak": {
            "pid": most.pid,
            "step": most.step,
            "op": most.peak_op,
            "layer": most.peak_layer,
            "bytes": most.peak_parts,
            **_blocks(reader, most),
            "most_unknown": _most_unknown(reader, most),
        },
        "recording_ns": median(np.array([s.cost_ns for s in steps])),  # on top of a step's own time
        "lost_steps": sum(step.lost for step in steps),
    }


def _blocks(reader: ReportSource, step: RecordedStep) -> dict[str, Any]:
    """``at_begin``: whether the peak is what was there before."""
    trace = reader.step_trace(step)
    if trace.peak_row < 0:
        return {"at_begin": True, "largest": []}
    made = [block for block in trace.made_by(trace.peak_row) if block.size_bytes]
    return {
        "at_begin": trace.peak_row < trace.existing,
        "largest": [
            {
                "op": trace.name(block.op),
                "layer": trace.name(block.layer),
                "category": CATEGORIES[block.category],
                "size_bytes": block.size_bytes,
            }
            for block in made[:LARGEST]
        ],
    }


def _most_unknown(reader: ReportSource, step: RecordedStep) -> dict[str, Any] | None:
    """Return the tensor that is most of what no model and no optimiser holds, as told around that step."""
    if step.device != MAIN_MEMORY or CATEGORIES[UNKNOWN] not in step.peak_parts:
        return None
    maps = [tensors for pid, _, tensors in reader.tensor_maps() if pid == step.pid]
    most = maps[-1].most_of(UNKNOWN) if maps else None
    if (
        most is None
        or not step.peak_parts[CATEGORIES[UNKNOWN]] <= 2 * most[1] <= 2 * step.peak_parts[CATEGORIES[UNKNOWN]]
    ):
        return None
    return {"part": most[0], "size_bytes": most[1]}


def most_words(most: dict[str, Any] | None) -> str:
    """Which tensor is most of a sum: " (97.7 MiB of it int64[200000, 64] of TensorDataset.tensors)"."""
    return f" ({size(most['size_bytes'])} of it {most['part']})" if most else ""


def allocation_words(found: dict[str, Any] | None, what: str = "training step") -> list[str]:
    """Lines of the report."""
    if found is None:
        return []
    peak, at = found["peak_bytes"], found["at_peak"]
    many = f"{found['steps']} {what}{'' if found['steps'] == 1 else 'es' if what.endswith('h') else 's'}"
    where = _made_by(at) or ("the begin of the step" if at["at_begin"] else "an operator that is not known")
    held = sorted(at["bytes"].items(), key=lambda part: -part[1])
    lost = f"; {found['lost_steps']} more were lost" if found["lost_steps"] else ""
    largest = [f"{_made_by(one) or 'unknown'} {size(one['size_bytes'])} ({one['category']})" for one in at["largest"]]
    return [
        f"allocations  {many} recorded: peak {size(peak['median'])} in the median, at most {size(peak['max'])} in step "
        f"{at['step']}, at {where}{lost}",
        "at the peak  "
        + ", ".join(
            f"{category} {size(part)}{most_words(at.get('most_unknown') if category == CATEGORIES[UNKNOWN] else None)}"
            for category, part in held
        ),
        *([f"largest new  {', '.join(largest)}"] if largest else []),
    ]


def _made_by(one: dict[str, Any]) -> str:
    layer = f" in layer {one['layer']}" if one["layer"] else ""
    return one["op"].rpartition("/")[2] + layer
