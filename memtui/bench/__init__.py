"""Measurement of the time and energy of an operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    import pandas


def run(
    operator: str,
    *,
    grid: Mapping[str, object | Iterable[object]] | None = None,
    space: str | None = None,
    database: str | os.PathLike[str] | None = None,
    windows: int | None = None,
    seconds: float | None = None,
    warm_up: float | None = None,
    quick: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> pandas.DataFrame:
    """Measure what calls of an operator cost in time and joules, and return a data frame: a row for each configuration.

    >>> costs = memtui.bench.run("linear", grid={"m": [1, 2]}, windows=2, seconds=0.05, warm_up=0.1, progress=False)
    >>> costs.p_m.tolist(), bool((costs.call_ns > 0).all())
    ([1, 2], True)

    Its columns are those of ``memtui.open_bench``; energy is absent where the machine has no counter of it. It is
    measured by ``memtui bench`` in a process of its own, whose lines of progress are printed.

    Args:
        operator: of ``memtui bench list``.
        grid: a value or several of each parameter; every combination is measured. Others have their defaults.
        space: a bundled set of configurations ("small", "resnet50", ...).
        database: where the results are kept. What it has of this machine is not measured again, and is not in the data
            frame: ``memtui.open_bench`` has all of it. Without one, nothing is kept.
        windows: measured one after another, of each configuration (5).
        seconds: that a window lasts (2).
        warm_up: seconds to wait at most until the load has settled (10).
        quick: three windows of one second, and a shorter warm-up.
        threads: of a CPU (all CPUs but one).
        device: "cpu" or "cuda:N".
        progress: whether lines of progress are printed, on standard error.

    Raises:
        memtui.UserError: the operator or a value is unknown, torch or pandas is not installed, or nothing
            can be measured here; the text is the line that the command line prints.
    """
    from memtui.api.bench_run import measured

    options: dict[str, object] = {
        "space": space, "windows": windows, "seconds": seconds, "warm_up": warm_up, "threads": threads,
        "device": device,
    }  # fmt: skip
    return measured(operator, grid or {}, options, quick=quick, database=database, progress=progress)
