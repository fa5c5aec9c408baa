"""A recorder that runs for hours gives free memory back to the kernel."""

from __future__ import annotations

import os
import threading
import time
from itertools import pairwise
from types import SimpleNamespace

from memtui.recording.recorder import __main__ as recorder

CALLS = 4
LONGEST_S = 60.0  # then it is not given back at all


def test_free_memory_is_given_back_now_and_then(monkeypatch):
    (stream, _), (stop, end) = pipes = [os.pipe() for _ in range(2)]
    calls_s = []

    def give_back():
        calls_s.append(time.monotonic())
        if len(calls_s) == CALLS:
            os.write(end, b"x")

    monkeypatch.setattr(recorder, "give_back_free_pages", give_back)
    monkeypatch.setattr(recorder, "COMMIT_SECONDS", 0.01)
    monkeypatch.setattr(recorder, "GIVE_BACK_SECONDS", 0.05)
    stopper = threading.Timer(LONGEST_S, os.write, (end, b"x"))
    stopper.start()
    recorder.record(stream, SimpleNamespace(hello=None, limits=None), None, stop, lambda: None)
    stopper.cancel()
    assert len(calls_s) == CALLS
    assert all(later - earlier >= 0.05 for earlier, later in pairwise(calls_s)), "no more often than asked"
    for fd in (fd for pipe in pipes for fd in pipe):
        os.close(fd)
