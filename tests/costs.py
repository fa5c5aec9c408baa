"""``pytest -p tests.costs``, then ``python -m tests.costs [--each]``: what tests cost, in CPU time and waiting.

A line for each module, or for each test.

The CPU time is that of the worker and of all processes that its tests started and waited for. Workers write theirs to
``build/test-costs``.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "build" / "test-costs"
_costs: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])  # by test: of the worker, of others, wall


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Add what a test costs, with its fixtures, to its own."""
    before = _now()
    try:
        return (yield)
    finally:
        cost = _costs[item.nodeid]
        for part, (first, last) in enumerate(zip(before, _now(), strict=True)):
            cost[part] += last - first


def pytest_sessionfinish() -> None:
    """Write what this process measured."""
    if _costs:
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.json").write_text(json.dumps(_costs))


def _now() -> tuple[float, float, float]:
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime, time.monotonic()


def main() -> int:
    """Print a line for each module or test, the dearest first."""
    each = "--each" in sys.argv
    total: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for path in FOLDER.glob("*.json"):
        for test, cost in json.loads(path.read_text()).items():
            name = test if each else test.partition("::")[0]
            total[name] = [before + more for before, more in zip(total[name], cost, strict=True)]
    total["all"] = [sum(parts) for parts in zip(*total.values(), strict=True)] or [0.0] * 3
    print("   CPU s  of it started   wall s")
    for name, (own, others, wall) in sorted(total.items(), key=lambda pair: -pair[1][0] - pair[1][1]):
        print(f"{own + others:8.1f} {others:14.1f} {wall:8.1f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
