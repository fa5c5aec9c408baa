"""The benchmark of very many mappings: the limit of the kernel is put back whatever happens, and its target is one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.many_mappings import SPARE, allowing, target
from memtui.probes.proc_maps import read_maps
from tests.support.live import wait_until
from tests.support.repository import ROOT

KILLED = """
import os, signal, sys
from pathlib import Path
from benchmarks.many_mappings import allowing
with allowing(1_000_000, Path(sys.argv[1])):
    print(Path(sys.argv[1]).read_text(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def setting(tmp_path):
    """What stands for ``vm.max_map_count``."""
    path = tmp_path / "max_map_count"
    path.write_text("65530\n")
    return path


def raise_and_fail(setting: Path) -> None:
    with allowing(1_000_000, setting):
        raise RuntimeError(setting.read_text())


def test_the_limit_is_raised_and_put_back_after_an_error(setting):
    with pytest.raises(RuntimeError, match=f"^{1_000_000 + SPARE}$"):
        raise_and_fail(setting)
    assert setting.read_text() == "65530\n"


def test_the_limit_is_put_back_after_kill_9(setting):
    argv = [sys.executable, "-c", KILLED, str(setting)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-9, "1001000\n")
    wait_until(lambda: setting.read_text() == "65530\n")


def test_a_limit_that_is_high_enough_is_left_alone(setting):
    with allowing(65_530 - SPARE, setting):
        setting.write_text("of somebody else")
    assert setting.read_text() == "of somebody else"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_target_has_its_mappings_and_measures_from_question_to_question(tmp_path):
    with target(500, tmp_path) as program:
        assert read_maps(program.pid).count(b"\n") >= 500
        for _ in range(3):
            stalls = program.stalls()
            assert stalls.clock_ms >= stalls.awake_ms > 0
