"""Beside ``memory_analysis.py`` of tbd-tools itself: what it makes of a log, memtui makes of it to the byte.

``MEMTUI_TBD`` names a checkout of github.com/tbd-ai/tbd-tools; a git directory without a work tree is enough.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.formats.mxnet_tags import compat_keys
from tests.support.checkouts import Checkout
from tests.support.in_process import run
from tests.support.memory_logs import A1, mxnet_log

TBD = Checkout("MEMTUI_TBD", "github.com/tbd-ai/tbd-tools")
PREFIXES = ("in_arg:", "arg_grad:", "aux_state:", "workspace:", "forward_features:", "optimizer_weight_update_", "")
PARTS = (*(key.strip("()") for key in compat_keys()), "encoder", "l0_t3", "zzz", "0")


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    """The original, as it is in the checkout."""
    path = tmp_path_factory.mktemp("tbd") / "memory_analysis.py"
    path.write_bytes(TBD.blob("MXNet-MemoryProfiler/memory_analysis.py"))
    return path


def rows(seed: int) -> list[tuple[str, int]]:
    """Allocations with tags out of the words that the script looks for, and others."""
    chance = random.Random(seed)
    tags = [chance.choice(PREFIXES) + "_".join(chance.choices(PARTS, k=chance.randint(1, 3))) for _ in range(60)]
    return [(tag, chance.randint(1, 1 << 30)) for tag in tags]


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_the_analysis_of_a_log_is_that_of_the_original(seed, script, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    log = mxnet_log(A1 if seed is None else rows(seed)).replace(b"\xff", b"")  # it reads UTF-8 only
    Path("logs/net").write_bytes(log)
    done = subprocess.run([sys.executable, script, "logs"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert run(capsys, "import", "logs/net", "-o", "s.memtui")[0] == 0
    assert run(capsys, "export", "s.memtui", "--to", "analysis", "-o", "out")[0] == 0
    (ours,) = Path("out").iterdir()
    original = json.loads(Path("memory_analysis/net_ANALYSIS").read_bytes())
    assert json.loads(ours.read_bytes()) == original
    assert list(json.loads(ours.read_bytes())) == list(original), "in its order"
