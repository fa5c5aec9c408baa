"""Lists of the kernel, and where it says that pages lie."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from memtui.core import numa
from memtui.core.numa import nodes_of_pages, numbers_in

PAGE = 4096


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-2,8\n", [0, 1, 2, 8]), ("3", [3]), ("\n", []), ("0-1,4-5", [0, 1, 4, 5])]
)
def test_lists_of_cpus(text, numbers):
    assert numbers_in(text) == numbers


def test_the_kernel_says_where_pages_lie():
    """On a machine with one node all are there; a page that nobody has touched is nowhere."""
    with mmap.mmap(-1, 8 * PAGE) as memory:
        memory[:PAGE] = b"x" * PAGE
        start = np.frombuffer(memory, np.uint8).ctypes.data
        found = nodes_of_pages(os.getpid(), np.array([start, start + 4 * PAGE], np.uint64))
    online = numbers_in(Path("/sys/devices/system/node/online").read_text())
    assert found[0] in online
    assert found[1] < 0
    with pytest.raises(ProcessLookupError):
        nodes_of_pages(2**22 + 1, np.array([start], np.uint64))


def test_another_machine_has_another_number_for_the_call(monkeypatch):
    monkeypatch.setattr(numa.platform, "machine", lambda: "riscv64")
    with pytest.raises(NotImplementedError, match="riscv64"):
        nodes_of_pages(os.getpid(), np.array([0], np.uint64))
