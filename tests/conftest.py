"""What test modules share, and which lane each is in: ``pytest --lane processes``, see ``tests/lanes.py``.

Those that watch, pause or kill real processes are one lane, those that press keys on a screen without a terminal
another (they wait for most of their time), together with some that take any place; all others, and those that train or
bench, the third. What is marked as slow runs with MEMTUI_LONG=1 (``make test-long``), or where no lane is named.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import types
from pathlib import Path

import pytest
from hypothesis import settings

# A test says what is true, and not how fast: on a machine with other work any example may take long.
pytest.register_assert_rewrite("tests.support")
settings.register_profile("memtui", deadline=None)
settings.load_profile("memtui")

# Windows come at --interval in tests, as most of them are about windows and not about how many there are.
# On a machine where tests run beside, what takes a ms alone is held for long now and then.
NO_BUDGET = 'max-overhead = "none"\nmax-pause = 5\n'
LONG = os.environ.get("MEMTUI_LONG") == "1"
LANES = ("processes", "others", "screens")
# What a test module that starts processes imports, or takes something from.
_PROCESSES = {
    "subprocess",
    "signal",
    "pty",
    "tests.support.live",
    "tests.support.pagetable_targets",
    "tests.support.terminals",
    "tests.support.users",
}
# Modules by the beginning of their path. They start programs, too, but hold no clock against them; two benches at once
# would refuse each other.
_TRAINING = ("bench/", "training/", "placement/", "formats/", "study/test_workloads", "study/test_numpy_network")
_TRAINING += ("study/test_access_patterns", "recording/test_step_recorder", "recording/test_storage_monitor")
_TRAINING += ("recording/test_context", "end_to_end/test_trace_command", "project/test_import_hygiene")
_SCREENS = ("tui/", "widgets/")
# These hold no clock against anybody, either, and go where there is time.
_WITH_SCREENS = (
    "reports/", "cli/test_main", "cli/test_config", "cli/test_home", "core/test_text", "end_to_end/test_run",
    "end_to_end/test_anywhere", "end_to_end/test_ssh", "bench/test_configuration", "bench/test_database_file",
    "bench/test_predict_models", "placement/test_solve", "training/test_tune_", "recording/test_pty_logger",
    "recording/test_registry", "recording/test_target_lock", "session/test_hostile_session", "study/test_report",
    "study/test_command", "formats/test_hostile_import",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=LANES, help="only the tests of this lane")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module whose name says that it is in another lane."""
    lane, name = config.getoption("lane"), _name(collection_path)
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    if lane == "screens":
        return None if name.startswith((*_SCREENS, *_WITH_SCREENS)) else True
    elsewhere = (*_WITH_SCREENS, *_TRAINING) if lane == "processes" else _WITH_SCREENS
    return True if lane is not None and name.startswith(elsewhere) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lane = config.getoption("lane")
    if lane is None:
        return
    chosen, others = [], []
    for item in items:
        here = _lane(item.getparent(pytest.Module)) == lane and (LONG or item.get_closest_marker("slow") is None)
        (chosen if here else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen


def _name(path: Path) -> str:
    """The path of a module below this folder."""
    return os.path.relpath(path, Path(__file__).parent)


def _lane(module: pytest.Module | None) -> str:
    if module is None:
        return "others"
    name = _name(module.path)
    if name.startswith(_WITH_SCREENS):
        return "screens"
    if name.startswith(_TRAINING):
        return "others"
    for value in vars(module.obj).values():
        origin = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", "")
        if origin in _PROCESSES or str(origin).startswith("memtui.probes.pages"):
            return "processes"
    return "screens" if name.startswith(_SCREENS) else "others"


@pytest.fixture(scope="session", autouse=True)
def _no_budget_by_default():
    """Every memtui that a test starts reads a config file without a budget, also one that is another user's."""
    folder = Path(tempfile.mkdtemp(prefix="memtui-config-"))
    (folder / "memtui").mkdir()
    (folder / "memtui" / "config.toml").write_text(NO_BUDGET)
    for path in (folder, folder / "memtui"):
        path.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        yield
    shutil.rmtree(folder)


@pytest.fixture
def default_options(monkeypatch):
    """Memtui without any config file, as somebody has it who just installed it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)


@pytest.fixture
def one_thread_of_torch():
    """With the same random numbers every time."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
