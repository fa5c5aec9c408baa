"""A real memory cgroup with a small limit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from memtui.probes.memory_pressure import memory_mounts

EATS = "import time\nkept = []\nwhile True: kept.append(b'x' * (2 << 20)); time.sleep(0.05)"
"""A program that takes 2 MiB at a time and keeps them: a limit is its end."""


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


_V1, _V2 = Path("/sys/fs/cgroup/freezer"), (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


@contextmanager
def freezer(version: int):
    """(A new cgroup, its switch, the words for off and on) of this version; skips where there is none."""
    if version == 1:
        root, switch, words = _V1, "freezer.state", ("THAWED", "FROZEN")
    else:
        root = next((path for path in _V2 if (path / "cgroup.controllers").exists()), _V2[0])
        switch, words = "cgroup.freeze", ("0", "1")
    folder = root / f"memtui-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup of version {version} can be made here: {error}")
    try:
        if not (folder / switch).exists():
            pytest.skip(f"cgroups of version {version} cannot be frozen here")
        yield folder, folder / switch, words
    finally:
        with suppress(OSError):
            (folder / switch).write_text(words[0])
        for pid in (folder / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(pid)
        folder.rmdir()
