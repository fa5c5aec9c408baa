"""What runs beside a training, or before the first picture, must not load what it does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "pandas", "scipy", "sklearn", "matplotlib"}
SCREEN = {"textual", "rich"}


def loaded(source: str) -> set[str]:
    """Top-level names in sys.modules of a fresh interpreter after running ``source``."""
    code = f"{source}\nimport sys\nprint(' '.join({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("source", "absent"),
    [
        ("import memtui.sampler", HEAVY | SCREEN | {"sqlite3"}),
        ("import memtui.recorder.__main__", HEAVY | SCREEN | {"psutil", "pynvml"}),
        ("import memtui.observe", HEAVY | SCREEN | {"pynvml"}),
        ("import memtui.placement.command, memtui.placement.solve.find", HEAVY | SCREEN | {"psutil", "pynvml"}),
        ("import memtui.cli", HEAVY | SCREEN | {"numpy", "psutil", "sqlite3", "asyncio"}),
        ("import memtui.learning.tune_command", HEAVY | SCREEN | {"psutil", "sqlite3", "asyncio"}),
        ("import memtui.app, memtui.screens.monitor, memtui.session.reader", HEAVY | {"psutil", "pynvml"}),
        ("import memtui.study.command, memtui.study.report", HEAVY | SCREEN | {"pynvml"}),
        ("import memtui.importing.command, memtui.breakdown.command", HEAVY | SCREEN | {"psutil", "pynvml"}),
        ("import memtui.learning.command, memtui.learning.worker", HEAVY | SCREEN),
        ("import memtui.compare", HEAVY),
        ("import memtui.report, memtui.export.forms, memtui.export.figures", HEAVY | SCREEN),
    ],
)
def test_nothing_unneeded_is_loaded(source, absent):
    assert not loaded(source) & absent


def test_the_sampler_after_work_is_still_lean():
    """Lazy imports count too: the set after trackers and power were tried."""
    source = (
        "import memtui.sampler\n"
        "from memtui.probes.pages.choice import capabilities\n"
        "from memtui.probes.power import PowerProbe\n"
        "capabilities(); PowerProbe().read(0)\n"
    )
    assert not loaded(source) & (HEAVY | SCREEN | {"sqlite3"})
