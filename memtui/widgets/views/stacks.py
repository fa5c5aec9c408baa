"""What the screen of call stacks shows: values for widgets, made in another thread."""

from __future__ import annotations

from dataclasses import dataclass

GROUPS = ("stack", "function", "file")
SORTS = ("touched", "resident", "there", "at peak", "allocations")


@dataclass(frozen=True, slots=True)
class StackUseRow:
    """Bytes of a stack, or of all stacks in which a function or a file is. None: not known.

    Attributes:
        key: number of the stack, the function or the file; below 0: of a row that is neither.
        name: the stack with its innermost call first, the function, or the file; a sentence where it is neither.
        touched_bytes: touched in the window, of blocks that were there all the time and of those that came or went.
        resident_bytes: resident bytes of the blocks that were there all the time.
        there_bytes: size of these.
        peak_bytes: allocated when the process had allocated most.
        allocations: how often it allocated.
    """

    key: int
    name: str
    touched_bytes: float | None
    resident_bytes: float | None
    there_bytes: float | None
    peak_bytes: float | None
    allocations: int | None


@dataclass(frozen=True, slots=True)
class StacksView:
    """Bytes by call stack in the window at the cursor.

    Attributes:
        by: of ``GROUPS``.
        sort, descending: the column by which rows are in order, of ``SORTS``.
        rows: the first ones in that order, what is left of them, and sums that are of no single stack.
        count: how many stacks, functions or files there are.
        pid: the process; several: whether there are others.
        peak_bytes: the most that it had allocated at once.
        time_s: end of the window, seconds after the recording began; None: there is no window here.
        note: why nothing of pages is known.
        resident: when resident bytes are from, or why they are not known.
    """

    by: str
    sort: str = SORTS[0]
    descending: bool = True
    count: int = 0
    rows: tuple[StackUseRow, ...] = ()
    pid: int = 0
    several: bool = False
    peak_bytes: int = 0
    time_s: float | None = None
    note: str = ""
    resident: str = ""
