"""What runs beside a training, or before the first picture, must not load what it does not need."""

from __future__ import annotations

import pytest

from tests.support.imports import loaded

HEAVY = {"torch", "pandas", "scipy", "sklearn", "matplotlib", "tensorboard"}
SCREEN = {"textual", "rich"}


@pytest.mark.parametrize(
    ("source", "absent"),
    [
        ("import memtui.recording.sampler.__main__", HEAVY | SCREEN | {"sqlite3", "hashlib", "difflib"}),
        ("import memtui.recording.recorder.__main__", HEAVY | SCREEN | {"psutil", "pynvml"}),
        (
            "import memtui.recording.supervisor.foreground, memtui.recording.supervisor.launch\n"
            "from memtui.analysis.vma_filter import parse_filter\n"
            "parse_filter('default')",
            HEAVY | SCREEN | {"numpy", "pynvml"},
        ),
        ("import memtui.placement.command, memtui.placement.solvers.solver", HEAVY | SCREEN | {"psutil", "pynvml"}),
        ("import memtui.cli.main", HEAVY | SCREEN | {"numpy", "psutil", "sqlite3", "asyncio"}),
        ("import memtui.training.tune.command", HEAVY | SCREEN | {"psutil", "sqlite3", "asyncio"}),
        ("import memtui.tui.app, memtui.tui.session_app, memtui.session.session", HEAVY | {"psutil", "pynvml"}),
        ("import memtui.study.command, memtui.study.report", HEAVY | SCREEN | {"pynvml"}),
        ("import memtui.study.runs.limit_holder", HEAVY | SCREEN | {"numpy", "psutil", "pynvml"}),
        ("import memtui.formats.command, memtui.reports.breakdown.command", HEAVY | SCREEN | {"psutil", "pynvml"}),
        ("import memtui.training.command, memtui.training.torch.worker", HEAVY | SCREEN),
        ("import memtui.reports.comparison.text", HEAVY),
        ("import memtui.reports.report, memtui.reports.export.writers, memtui.reports.figures", HEAVY | SCREEN),
    ],
)
def test_nothing_unneeded_is_loaded(source, absent):
    assert not loaded(source) & absent


def test_the_sampler_after_work_is_still_lean():
    """Lazy imports count too: the set after trackers and power were tried."""
    source = (
        "import memtui.recording.sampler.__main__\n"
        "from memtui.probes.pages.select_tracker import capabilities\n"
        "from memtui.probes.power.probe import PowerProbe\n"
        "capabilities(); PowerProbe().read(0)\n"
    )
    assert not loaded(source) & (HEAVY | SCREEN | {"sqlite3", "hashlib"})  # numpy.random loads hashlib: 7 MiB
