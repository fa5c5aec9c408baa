"""The pages that several processes of one round accessed."""

from __future__ import annotations

from collections.abc import Sequence

from memtui.probes.pages.shared_frames import TouchedFrames, in_common
from memtui.probes.window_reader import Lost, Outcome, Reading

_Shared = tuple[list[TouchedFrames | None], int | None]  # see ``shared_pages``


def shared_pages(outcomes: Sequence[Outcome]) -> _Shared:
    """Return the pages of each process that another one accessed, too, and the bytes that their sum overcounts.

    None where that is not known: the tracker sees no page frames, or not those of every process. Call this after each
    round. The processes are read one after another, so a frame that moved from one to another in between counts as one
    that both had.
    """
    shared: list[TouchedFrames | None] = [None] * len(outcomes)
    gone = [isinstance(outcome, Lost) and isinstance(outcome.error, ProcessLookupError) for outcome in outcomes]
    there = [n for n, ended in enumerate(gone) if not ended]
    windows = [
        reading.window for n in there if isinstance(reading := outcomes[n], Reading) and reading.window.knows_wss
    ]
    touched = [window.frames() for window in windows if window.frames is not None]
    if len(windows) == 1:
        touched = [TouchedFrames()]
    if len(touched) < len(there) or not there:
        return shared, None
    common, excess_bytes = in_common(touched)
    for n, in_others in zip(there, common, strict=True):
        shared[n] = in_others
    return shared, excess_bytes
