"""What the screen of a grid of trainings shows, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

WAITING, RUNNING, INTERRUPTED = "waiting", "running", "interrupted"  # the states beside those of a run that has ended


@dataclass(frozen=True, slots=True)
class GridRow:
    """A run.

    Attributes:
        run: from 0, in the order of the grid.
        values: on each axis.
        label: the values for display.
        state: ``WAITING``, ``RUNNING``, ``INTERRUPTED``, ``finished``, ``stopped early`` or ``failed``.
        accuracy: percent; None: not known, as in all attributes that may be None.
        peak_bytes: peak memory of its tensors.
        peak_above_start_bytes: the same above what they held when the iteration started.
        seconds: its duration until now.
        message: why the run failed or stopped, or the last line of a running one.
    """

    run: int
    values: tuple[str, ...]
    label: str
    state: str
    accuracy: float | None = None
    loss: float | None = None
    peak_bytes: int | None = None
    peak_above_start_bytes: int | None = None
    seconds: float | None = None
    iterations: int | None = None
    message: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class GridView:
    """The grid as it is now.

    Attributes:
        path: its folder.
        axes: their names.
        rows: in the order of the grid.
        ended: number of runs that have ended.
        failed: number of runs that failed.
        left_s: until the end; None: not known, or nothing runs.
        own: the runs end with this screen.
        holder: PID of the process that runs the grid; 0: none.
        trouble: what is wrong with the folder.
    """

    path: str = ""
    axes: tuple[str, ...] = ()
    rows: tuple[GridRow, ...] = ()
    ended: int = 0
    failed: int = 0
    left_s: float | None = None
    own: bool = False
    holder: int = 0
    trouble: str = ""
