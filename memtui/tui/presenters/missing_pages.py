"""Why a session has no page sets at all, or none of one window."""

from __future__ import annotations

import numpy as np

from memtui.core.samples import SAMPLED, Hello
from memtui.core.units import size
from memtui.session.session import Session


def why_no_pages(hello: Hello, *, every: bool = False) -> str:
    """Return why a session has no page sets, empty otherwise; ``every``: page sets of all pages in each window."""
    if every and hello.options.samples_pages:
        return SAMPLED
    if not hello.wss.ok:
        return f"no pages are tracked: {hello.wss.reason}"
    if not hello.pages.ok:
        return f"no pages are tracked: {hello.pages.reason}" + (f" ({hello.pages.remedy})" * bool(hello.pages.remedy))
    return ""


def why_no_window(reader: Session) -> str:
    """Return why a session that is over has no window; empty where it has some, or may get some."""
    over = reader.end is not None and not len(reader.samples.sample)
    return "no window: the recording ended before the first one was over" if over else ""


def why_downsampled(reader: Session, index: int) -> str:
    """Return why the page sets of one window were removed to save room; empty where they are stored.

    A window whose pages were never known is not downsampled: its ``stored_bytes`` is nan.
    """
    limit = reader.downsampled_to_bytes
    if limit is None or index < 0 or not np.isfinite(reader.samples.stored_bytes[index]):
        return ""
    sample = int(reader.samples.sample[index])
    if reader.pages.stored_sample(sample, sample) is not None:
        return ""
    return f"no pages of this moment: downsampled to keep the file below {size(limit)}"
