"""Which worker of pytest-xdist runs which tests, and in which order."""

from __future__ import annotations

from dataclasses import dataclass

from tests import conftest


@dataclass(frozen=True)
class Item:
    nodeid: str


def test_groups_that_take_longest_begin_first():
    few = ["tests/core/test_text.py::test_a", "tests/tui/test_panels.py::test_a", "tests/tui/test_panels.py::test_b"]
    paths = [
        "tests/end_to_end/test_demo.py",
        "tests/bench/test_sweep.py",
        "tests/recording/test_limits.py",
        "tests/end_to_end/test_stress.py",
        "tests/probes/test_idle.py",
    ]
    whole_program, bench, limits, stress, idle = (f"{path}::test_a" for path in paths)
    items = [Item(nodeid) for nodeid in (*few, whole_program, bench, limits, stress, idle)]
    order = [item.nodeid for item in conftest.in_order(items)]
    assert order == [limits, stress, idle, bench, whole_program, *few[1:], few[0]]
    groups = [conftest._group(nodeid.partition("::")[0]) for nodeid in order]
    assert groups == [
        "real_clock", "real_clock", "real_clock of probes", "bench",
        "end_to_end/test_demo.py", "tui/test_panels.py", "tui/test_panels.py", "core/test_text.py",
    ]  # fmt: skip
