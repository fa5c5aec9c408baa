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
        label: the same for people.
        state: ``WAITING``, ``RUNNING``, ``INTERRUPTED``, ``finished``, ``stopped early`` or ``failed``.
        accuracy: percent; None: not known, as in all that may be None.
        seconds: it took, or takes until now.
        said: why it failed or stopped, or the last line of one that runs.
    """

    run: int
    values: tuple[str, ...]
    label: str
    state: str
    accuracy: float | None = None
    loss: float | None = None
    peak_bytes: int | None = None
    seconds: float | None = None
    iterations: int | None = None
    said: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class GridView:
    """The grid as it is now.

    Attributes:
        path: its folder.
        axes: their names.
        rows: in the order of the grid.
        ended: how many of them have.
        failed: how many of these failed.
        left_s: until the end; None: not known, or nothing runs.
        own: the runs end with this screen.
        holder: the process that runs it; 0: none does.
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
