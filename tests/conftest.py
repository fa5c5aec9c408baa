"""What test modules share, and which tests may run at the same time (``make test``: several workers of pytest-xdist).

Tests marked ``real_clock`` watch, pause or kill real processes against a deadline, and they alone are run a second time
when they fail (``tests/second_try.py``). One worker runs those of the probes, another one those of other rooms, but for
those that only wait for what real processes do: ``real_clock(alone=False)``. What
measures a device (benches, profiles of a placement) is a third worker's. All other modules go to whichever worker is
free: first those of the whole program, which take longest, then the larger ones.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Threads of torch and numpy that wait for one another sleep and do not spin: several workers share few CPUs. What tests
# start inherits this. Set before either library is loaded.
os.environ |= {"OMP_WAIT_POLICY": "passive", "OPENBLAS_THREAD_TIMEOUT": "4"}

# What a shell runs in the background ignores SIGINT, and so would all that tests start, which are to end by it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = os.environ.get("MEMTUI_LONG") == "1"  # make test-long: more examples, mutations and wrong calls

# A test says what is true, and not how fast: on a machine with other work any example may take long.
pytest.register_assert_rewrite("tests.support")
settings.register_profile("memtui", deadline=None, max_examples=100 if LONG else 40)
settings.load_profile("memtui")

# Windows come at --interval in tests, as most of them are about windows and not about how many there are.
# On a machine where tests run beside, what takes a ms alone is held for long now and then.
NO_BUDGET = 'max-overhead = "none"\nmax-pause = 5\n'
WHOLE_PROGRAM = "tests/end_to_end/"
# What measures a device: two at once refuse each other.
MEASURING = ("bench/", "placement/", "api/test_bench_run.py", "api/test_examples.py", "end_to_end/test_notebooks.py")
BESIDE_OTHERS = "pytest.mark.real_clock(alone=False)"  # they wait for real processes, but hold none up
LANES = ("real_clock", "real_clock of probes", "bench")  # groups of several modules


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what hands out groups of tests: a group is run by one worker, in order."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # not by the number of tests alone: pytest_collection_modifyitems

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid.partition("::")[0])

    return ByGroup(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have a worker of pytest-xdist list groups in the order in which they are handed out."""
    if hasattr(config, "workerinput"):
        items[:] = in_order(items)


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return tests by group, and first the groups that take longest: at the end idle workers wait for the last one."""
    paths = {item.nodeid: item.nodeid.partition("::")[0] for item in items}
    counts = Counter(_group(path) for path in paths.values())

    def late(item: pytest.Item) -> tuple[int, bool, int, str]:
        group = _group(path := paths[item.nodeid])
        if group in LANES:
            return LANES.index(group), False, 0, ""
        return len(LANES), not path.startswith(WHOLE_PROGRAM), -counts[group], group

    return sorted(items, key=late)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while modules and tests come, which stay: a sixth of the time that it takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Leave modules and tests out of garbage collection from here on, too, and at the end."""
    gc.freeze()


@cache
def _group(path: str) -> str:
    name = path.removeprefix("tests/")
    if name.startswith(MEASURING):
        return "bench"
    text = (Path(__file__).parent / name).read_text()
    if "pytest.mark.real_clock" in text and BESIDE_OTHERS not in text:
        return "real_clock of probes" if name.startswith("probes/") else "real_clock"
    return name


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
        for name in ("COLUMNS", "LINES"):  # of a worker of pytest-xdist, and not of the terminals that tests open
            patch.delenv(name, raising=False)
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
