"""The rule about NUMA nodes, against readings whose shares are counted by hand."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import pytest

from memtui.core.readings import NumaUse, Power
from memtui.core.samples import Process, Window
from memtui.reports.redact import open_source
from memtui.reports.verdict.numa import LEAST_BYTES, RULE, numa
from memtui.reports.verdict.recent import Check
from memtui.reports.verdict.verdict import last_verdict
from tests.support.sessions import messages, write_session

S = 10**9
FIVE = (0, 5, 10, 15, 20)  # seconds


def readings(pages: dict[int, int], threads: dict[int, int], times=FIVE, process: int = 1) -> list[NumaUse]:
    """The same pages and threads by node at each time."""
    nodes = sorted(pages | threads)
    return [
        NumaUse(round(t_s * S), process, node, pages.get(node, 0), threads.get(node, 0))
        for t_s in times
        for node in nodes
    ]


def checked(
    uses: list[NumaUse], wss_bytes: int | None = 4 * LEAST_BYTES, *, end_s: float = 20, nodes: int | None = None
) -> Check:
    rows = {key: {"wss_bytes": wss_bytes} for key in (1, 2)}
    processes = [Process(key, 40 + key, 1, 0, key, "python") for key in (1, 2)]
    between = lambda first, last: [use for use in uses if first <= use.t_ns < last]  # noqa: E731
    hello = SimpleNamespace(host=SimpleNamespace(numa_nodes=nodes))
    source = SimpleNamespace(numa_use=between, processes=lambda: processes, hello=hello)
    return numa(SimpleNamespace(end_ns=round(end_s * S), source=source, processes=rows))


def test_pages_of_another_node_are_found():
    found = checked(readings({0: 128, 1: 384}, {0: 3}))
    assert found.rule == RULE
    assert found.finding.sentence == (
        "It runs on NUMA node 0, and 75.0 % of what it touches (192 MiB) lies on node 1, which takes longer to reach."
    )
    assert found.finding.short == "75.0 % of what it touches lies on another NUMA node."
    assert found.finding.action.startswith("Start it with numactl --cpunodebind=0 --membind=0;")
    assert found.finding.evidence == (
        "pid 41: its threads ran on node 0 in 5 readings",
        "of 512 touched pages chosen at random, 128 were on node 0, 384 were on node 1",
        "share on other nodes, by reading: 75.0 % to 75.0 %",
    )


def test_the_worst_process_is_named():
    found = checked(readings({0: 128, 1: 384}, {0: 3}) + readings({0: 512}, {1: 1}, process=2))
    assert "pid 42: its threads ran on node 1" in found.finding.evidence[0]


@pytest.mark.parametrize(
    "uses",
    [
        readings({0: 512}, {0: 2}),
        readings({0: 256, 1: 256}, {0: 2, 1: 2}),  # it runs on both
        readings({0: 256, 1: 256}, {0: 2}, (0, 5)) + readings({0: 256, 1: 256}, {1: 1}, (10, 15, 20)),  # it moved
        readings({0: 400, 1: 112}, {0: 2}),  # less than a quarter
        readings({0: 128, 1: 384}, {0: 2}, (0, 5, 10, 15)) + readings({0: 512}, {0: 2}, (20,)),  # not any more
    ],
)
def test_what_is_no_finding(uses):
    check = checked(uses)
    assert (check.measured, check.finding) == (True, None)


def test_little_memory_is_no_finding():
    uses = readings({0: 128, 1: 384}, {0: 2})
    assert checked(uses, LEAST_BYTES).finding is None
    assert checked(uses, None).finding is None
    assert checked(uses, LEAST_BYTES * 4 // 3 + 1).finding is not None


def test_a_machine_with_one_node_has_no_others():
    check = checked([], nodes=1)
    assert (check.looked_at, check.applies) == ("memory on other NUMA nodes: the machine has one node", False)


@pytest.mark.parametrize(
    ("uses", "why"),
    [
        ([], "memory on other NUMA nodes: not read"),
        (readings({0: 128, 1: 384}, {0: 2}, (10, 20)), "too few readings"),
        (readings({0: 128, 1: 384}, {0: 2}, (11, 12, 13, 20)), "too few readings"),
        (readings({0: 128, 1: 384}, {}), "too few readings"),  # nothing ran
        (readings({0: 128, 1: 384}, {0: 2}, process=7), "too few readings"),  # it has ended
    ],
)
def test_what_has_to_be_seen(uses, why):
    check = checked(uses)
    assert (check.measured, check.finding) == (False, None)
    assert check.looked_at.endswith(why)


@pytest.mark.parametrize("redact", [False, True])
def test_a_session_keeps_what_the_rule_reads(redact, tmp_path):
    """By the product's way into a session and out of it, where little memory is touched."""
    *begin, end = messages(30, interval_ns=S)
    last_ns = max(message.end_ns for message in begin if isinstance(message, Window))
    uses = readings({0: 128, 1: 384}, {0: 3}, [last_ns / S - before for before in (20, 10, 0)])
    path = write_session(tmp_path / "s.memtui", [*begin, Power(numa_use=tuple(uses)), end])
    with closing(open_source(path, redact=redact)) as source:
        (check,) = [check for check in last_verdict(source).checks if check.rule == RULE]
    assert (check.measured, check.finding) == (True, None)
    assert "75.0 % of what is touched (9.9" in check.looked_at


def test_five_minutes_are_looked_at():
    """Where it ran before that does not count."""
    uses = readings({0: 128, 1: 384}, {1: 1}, (0, 5)) + readings({0: 128, 1: 384}, {0: 1}, (305, 310, 315, 320))
    assert checked(uses, end_s=320).finding is not None
    assert checked(uses, end_s=304).finding is None
