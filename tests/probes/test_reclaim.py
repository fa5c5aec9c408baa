"""Memory pressure: a target in a small memory cgroup is swapped out and in while it is watched."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from memtui.probes.disturbance import LIMIT, SWAPPED
from memtui.probes.pages.pagetable.rearm import FULL
from memtui.session.session import Session
from tests.support.cgroups import limited_cgroup
from tests.support.cli import memtui
from tests.support.live import needs_root, needs_tracker

pytestmark = pytest.mark.real_clock

_PAGES = 16384  # 64 MiB
# Writes each page's number into it, and then reads round and round whether it still stands there.
_TARGET = f"""
import mmap, os, sys
import numpy as np
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
memory = mmap.mmap(-1, {_PAGES} << 12, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
numbers = np.frombuffer(memory, np.uint64)[::512]
wanted = np.arange({_PAGES}, dtype=np.uint64)
numbers[:] = wanted
while (numbers == wanted).all():
    print(end=".", flush=True)
sys.exit("its memory was changed")
"""


@needs_root
@needs_tracker
def test_a_target_that_is_swapped_out_is_not_hurt_and_its_windows_say_so(tmp_path):
    if Path("/proc/swaps").read_text().count("\n") < 2:
        pytest.skip("there is no swap here (tests/lab has some)")
    path = tmp_path / "s.memtui"
    with limited_cgroup(_PAGES * 4096 * 3 // 4) as (version, folder):
        command = [sys.executable, "-c", _TARGET, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            try:
                assert child.stdout
                assert child.stdout.read(1) == b".", "one round"
                done = memtui("record", child.pid, "-o", path, "--interval", 0.5, "--duration", 10, timeout=300)
                assert done.returncode == 0, done.stderr
                time.sleep(0.5)
                assert child.poll() is None, child.stderr
            finally:
                child.kill()
    reader = Session(path)
    disturbed = reader.samples.disturbed
    cause = LIMIT if version == 1 else "reclaim in its memory cgroup"
    assert all(cause in text for text in disturbed[1:-1]), disturbed
    assert any(SWAPPED in text for text in disturbed), disturbed
    rows = reader.processes.samples(0, int(reader.samples.sample[-1]))
    # Under pressure, what memtui clears must not be offered to the kernel as cold.
    assert {row["rearm"] for row in rows if row["rearm"]} == {FULL}
    (process,) = reader.processes.all()
    seen = [p for s in reader.samples.sample.tolist() if (p := reader.pages.page_set(s, process.key)) is not None]
    assert len(seen) >= 3
    mapped = reader.vmas.rows()
    for pages in seen:
        addresses = pages.pages() << np.uint64(12)
        inside = np.zeros(len(addresses), bool)
        for row in mapped:
            inside |= (addresses >= row.start) & (addresses < row.end)
        assert inside.all()
    reader.close()
