"""Which tests may run beside each other (``pytest -n 2 --dist loadgroup``, as ``make test`` does).

Those that watch, pause or kill real processes run one after the other, in a lane of their own; so do those that train
or bench, which take a whole CPU. All others go where there is room.
"""

from __future__ import annotations

import os
import types

import pytest

# GNU readline sets them in the process that starts the workers; to a program on a terminal of a test they are a lie.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# What a test module that starts processes imports, or takes something from.
_PROCESSES = {"subprocess", "signal", "pty", "tests.live", "tests.pagetable_targets", "tests.terminals", "tests.users"}
_TRAINING = (
    "test_trace_",
    "test_watch",
    "test_bench_",
    "test_predict_",
    "test_workloads",
    "test_screen_bench",
    "test_operators",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        module = item.getparent(pytest.Module)
        if module is not None and (lane := _lane(module.obj)):
            item.add_marker(pytest.mark.xdist_group(lane))


def _lane(module: types.ModuleType) -> str:
    if module.__name__.rpartition(".")[2].startswith(_TRAINING):
        return "training"
    for value in vars(module).values():
        origin = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", "")
        if origin in _PROCESSES or str(origin).startswith("memtui.probes.pages"):
            return "processes"
    return ""
