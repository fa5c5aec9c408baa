"""What the working set of a traced program is made of, from its session: pages from outside, tensors from inside."""

from __future__ import annotations

from typing import Any

import numpy as np

from memtui.analysis.step_trace import CATEGORIES
from memtui.session.reader import SessionReader

WINDOWS = 64  # spread over the session: a page set takes a millisecond or more to decode


def by_category(reader: SessionReader) -> dict[str, Any] | None:
    """Bytes touched in a window and bytes there are, by category of tensor, means over windows; None: not traced.

    A page that two tensors share counts for the first of them; ``rest_bytes`` is what lies in no tensor that was told
    of, so that all parts add up to the stored pages of those windows.

    Raises:
        SessionError: the session is damaged.
    """
    maps = reader.tensor_maps()
    if not maps:
        return None
    pid = maps[-1][0]
    maps = [one for one in maps if one[0] == pid]
    keys = [process.key for process in reader.processes() if process.pid == pid]
    samples = reader.samples
    begins = np.array([t_ns for _, t_ns, _ in maps])
    inside = np.flatnonzero(samples.start_ns >= begins[0])
    touched, exists = np.zeros(len(CATEGORIES)), np.zeros(len(CATEGORIES))
    total = windows = 0
    for at in inside[np.unique(np.linspace(0, len(inside) - 1, WINDOWS).astype(int))] if len(inside) else ():
        place = int(np.searchsorted(begins, samples.start_ns[at], side="right")) - 1
        if place + 1 < len(begins) and begins[place + 1] < samples.end_ns[at]:
            continue  # some moved in the middle of it
        found = (reader.page_set(int(samples.sample[at]), key) for key in reversed(keys))
        pages = next((one for one in found if one is not None), None)
        if pages is None:
            continue
        touched += maps[place][2].touched_bytes(pages)
        exists += maps[place][2].exists_bytes()
        total += pages.size_bytes
        windows += 1
    plain: dict[str, Any] = {"pid": pid, "windows": windows, "parts": [], "rest_bytes": None, "reason": ""}
    if not windows:
        return plain | {"reason": "no pages are stored of a window in which the places of tensors were known"}
    parts = [
        {"category": name, "touched_bytes": touched[n] / windows, "exists_bytes": exists[n] / windows}
        for n, name in enumerate(CATEGORIES)
        if exists[n]
    ]
    return plain | {"parts": parts, "rest_bytes": (total - float(touched.sum())) / windows}
