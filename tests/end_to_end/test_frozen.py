"""A target in a frozen cgroup cannot be paused: its windows say so, nothing hangs, and it goes on when it is thawed."""

from __future__ import annotations

import pytest

from tests.support.cgroups import freezer
from tests.support.live import needs_root, needs_tracker
from tests.support.paused import Counter
from tests.support.streams import sample


@pytest.mark.real_clock(alone=False)
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
