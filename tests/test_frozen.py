"""A target in a frozen cgroup cannot be paused: its windows say so, nothing hangs, and it goes on when it is thawed."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.live import needs_root, needs_tracker
from tests.streams import sample
from tests.test_pause import Counter

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


@needs_root
@needs_tracker
@pytest.mark.parametrize("version", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_frozen_target(version):
    counter = Counter(2)
    try:
        with freezer(version) as (folder, switch, (off, on)):
            (folder / "cgroup.procs").write_text(str(counter.pid))
            switch.write_text(on)
            counter.assert_stands()
            frozen = sample(counter.pid, 1).of_pid(counter.pid)
            counter.assert_stands()
            assert frozen
            switch.write_text(off)
            counter.assert_runs()
            thawed = sample(counter.pid, 1).of_pid(counter.pid)
            counter.assert_runs()
        # The freezer of version 1 takes the target out of reach. That of version 2 lets it stop, and it stays frozen.
        assert {w.status for w in frozen} == {"not paused" if version == 1 else "ok"}
        assert all("frozen" in w.reason for w in frozen if version == 1)
        assert "ok" in {w.status for w in thawed}
    finally:
        counter.close()
