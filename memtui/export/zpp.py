"""The raw text of ZPP-MEM (its plots/*_meta.txt): a line for each allocation and free."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memtui.analysis.step_trace import PHASES, StepTrace
from memtui.analysis.zpp_scopes import SCOPES

_BLANK = re.compile(r"[ \t\r\n\v\f]")


def zpp_lines(trace: StepTrace, since_epoch_ns: int = 0) -> Iterator[str]:
    r"""``%d %d %d %s\n``: microseconds since 1970, bytes in use afterwards, change in bytes, path of the operation.

    What was there before has no line of its own: it is in the second number of all of them.

    Args:
        trace: a recorded step; rows of no bytes are lines like others.
        since_epoch_ns: what makes its times those of the wall clock.
    """
    paths: dict[tuple[int, int, int], str] = {}
    columns = (trace.t_ns + since_epoch_ns) // 1000, trace.usage_bytes, trace.delta_bytes
    keys = zip(trace.phase.tolist(), trace.layer.tolist(), trace.op.tolist(), strict=True)
    for row, (t_us, usage, delta, key) in enumerate(zip(*(c.tolist() for c in columns), keys, strict=True)):
        if row < trace.existing:
            continue
        if key not in paths:
            paths[key] = _path(trace, *key)
        yield f"{t_us} {usage} {delta} {paths[key]}\n"


def _path(trace: StepTrace, phase: int, layer: int, op: int) -> str:
    """``forward/features.0/aten::conv2d``; a name that has its scope keeps it. One word: blanks become ``_``."""
    path = "/".join(filter(None, (trace.name(layer), trace.name(op)))) or "unknown"
    scope = SCOPES.get(PHASES[phase], "")
    return _BLANK.sub("_", path if path.startswith(scope) else scope + path)
