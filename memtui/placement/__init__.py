"""In which memory each tensor should live: kernels timed by placement, and the placement that costs least."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from memtui.placement.plan import PlacementPlan


def solve(
    path: str | os.PathLike[str],
    *,
    limit_bytes: int | None = None,
    ratio: str | None = None,
    formulation: str = "static",
    slow: str | None = None,
    mode: str | None = None,
    time_limit_s: float = 60.0,
) -> PlacementPlan:
    """Return the placement that costs least, of a profile that ``memtui place profile`` made; the file stays as it is.

    >>> plan = memtui.placement.solve("profile.memtui", ratio="1:1")
    >>> plan.limit_bytes, plan.predicted_ns, plan.status
    (2048, 26.0, 'optimal')
    >>> [(span.storage, span.pool) for span in plan.spans]
    [('t', 'slow')]

    Args:
        path: the profile.
        limit_bytes: of fast memory for intermediate tensors; either this or ``ratio``.
        ratio: slow to fast memory: "1:1" is half of the most bytes that are alive at once.
        formulation: "static" (tensors stay where they are made), "sync" (they are moved between operators), "async"
            (during them, too) or "first-touch".
        slow: the slow pool; the first one of the profile unless given.
        mode: the way of timing to rest upon; the one with most configurations unless given.
        time_limit_s: the best plan that was found until then is returned.

    Raises:
        ValueError: not exactly one of ``limit_bytes`` and ``ratio`` is given, or the ratio or formulation is wrong.
        memtui.UserError: the file is not a whole profile, or no placement keeps the limit.
    """
    from dataclasses import replace
    from pathlib import Path

    from memtui.core.options import FORMULATIONS
    from memtui.placement.solvers.limit import limit_of, parse_ratio
    from memtui.placement.solvers.solver import PlanRequest, find, problem_for
    from memtui.placement.store import ProfileFile

    if (limit_bytes is None) == (ratio is None):
        raise ValueError("give either limit_bytes or ratio: how much fast memory there is")
    if formulation not in FORMULATIONS:
        raise ValueError(f"a formulation is one of {', '.join(FORMULATIONS)}, and not {formulation!r}")
    part = None if ratio is None else parse_ratio(ratio)
    profile = ProfileFile(Path(path)).profile()
    request = PlanRequest(limit_bytes or 0, formulation, slow, mode, time_limit_s)
    if part is not None:
        request = replace(request, limit_bytes=limit_of(part, max(problem_for(profile, request).all_bytes)))
    return find(profile, request)
