"""A real memory cgroup with a small limit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memtui.probes.memory_pressure import memory_mounts


@contextmanager
def limited_cgroup(limit_bytes: int) -> Iterator[tuple[int, Path]]:
    """A memory cgroup with a limit, whichever version is mounted here; (version, folder)."""
    for version, (top, _) in sorted(memory_mounts().items()):
        folder = top / f"memtui-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            limit = folder / ("memory.limit_in_bytes" if version == 1 else "memory.max")
            if not limit.exists():
                continue
            limit.write_text(str(limit_bytes))
            yield version, folder
            return
        finally:
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)
    pytest.skip("no memory cgroup can be made here")
