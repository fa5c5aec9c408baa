"""Rule ``numa``: pages that a process touches lie on another NUMA node than the one that it runs on."""

from __future__ import annotations

from collections import defaultdict

from memtui.core.readings import NumaUse
from memtui.core.units import percent, size
from memtui.reports.verdict.recent import Check, Finding, Recent

RULE = "numa"
LEAST_SHARE = 0.25  # of the touched pages, in each reading: below, the latency of a mixture is up to a quarter higher
LEAST_BYTES = 64 << 20  # less than that fits into the caches of a server's processor
LEAST_READINGS, LEAST_S = 3, 10.0
LOOKED_NS = 300_000_000_000


def numa(recent: Recent) -> Check:
    """Return which process touches pages of nodes on whose CPUs none of its threads ran."""
    subject = "memory on other NUMA nodes"
    uses = recent.source.numa_use(recent.end_ns - LOOKED_NS, recent.end_ns + 1)
    if not uses:
        if recent.source.hello.host.numa_nodes == 1:
            return Check(RULE, f"{subject}: the machine has one node", measured=False, applies=False)
        return Check(RULE, f"{subject}: not read", measured=False)
    by_process: dict[int, dict[int, list[NumaUse]]] = defaultdict(lambda: defaultdict(list))
    for use in uses:
        if use.process in recent.processes:
            by_process[use.process][use.t_ns].append(use)
    each = (_far(recent, key, readings) for key, readings in by_process.items())
    far = [part for part in each if part is not None]
    if not far:
        return Check(RULE, f"{subject}: too few readings", measured=False)
    share, far_bytes, home, others, lines = max(far)
    what = f"{subject}: {percent(share)} of what is touched ({size(far_bytes)}) is on a node without its threads"
    if share < LEAST_SHARE or far_bytes < LEAST_BYTES:
        return Check(RULE, what)
    return Check(
        RULE,
        what,
        finding=Finding(
            f"It runs on NUMA node {home}, and {percent(share)} of what it touches ({size(far_bytes)}) lies on node "
            f"{others}, which takes longer to reach.",
            f"{percent(share)} of what it touches lies on another NUMA node.",
            f"Start it with numactl --cpunodebind={home} --membind={home}; what is larger than a node: one process for "
            "each node, or numactl --interleave=all.",
            lines,
        ),
    )


def _far(
    recent: Recent, process: int, readings: dict[int, list[NumaUse]]
) -> tuple[float, int, str, str, tuple[str, ...]] | None:
    """Return (the least share of pages on nodes where no thread ran, bytes, nodes where it ran, the others, evidence).

    None where there are too few readings to say so.
    """
    times = sorted(readings)
    home = {use.node for t_ns in times for use in readings[t_ns] if use.threads}
    if len(times) < LEAST_READINGS or times[-1] - times[0] < LEAST_S * 1e9 or not home:
        return None
    shares = []
    for t_ns in times:
        pages = sum(use.pages for use in readings[t_ns])
        shares.append(sum(use.pages for use in readings[t_ns] if use.node not in home) / pages)
    least, touched_bytes = min(shares), recent.processes[process]["wss_bytes"] or 0
    pid = next((each.pid for each in recent.source.processes() if each.key == process), None)
    others = {use.node for t_ns in times for use in readings[t_ns] if use.pages} - home
    lines = (
        f"pid {pid}: its threads ran on node {_listed(home)} in {len(times)} readings",
        f"of {sum(use.pages for use in readings[times[-1]])} touched pages chosen at random, "
        + ", ".join(f"{use.pages} were on node {use.node}" for use in readings[times[-1]] if use.pages),
        f"share on other nodes, by reading: {percent(min(shares))} to {percent(max(shares))}",
    )
    return least, round(least * touched_bytes), _listed(home), _listed(others), lines


def _listed(nodes: set[int]) -> str:
    return ",".join(map(str, sorted(nodes)))
