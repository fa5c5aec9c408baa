"""When no memory is left below a limit that kills, if its use goes on growing as it does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memtui.analysis.memory_growth import growth_of
from memtui.core.readings import MemoryLimit
from memtui.core.text import printable
from memtui.core.units import size, span

# How those who start programs call the cgroup of one, of both versions.
_OWNERS = {
    "Slurm job": re.compile(r"/job_(?P<id>\d+)(?:/step_(?P<step>\w+))?"),
    "Kubernetes pod": re.compile(
        r"pod(?P<id>[0-9a-f]{8})(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}(?:\.slice)?(?P<container>/[^/]+)?"
    ),
    "Docker container": re.compile(r"/docker[/-](?P<id>[0-9a-f]{12})[0-9a-f]{52}"),
    "Podman container": re.compile(r"/libpod-(?P<id>[0-9a-f]{12})[0-9a-f]{52}"),
}
FURTHEST = 30.0  # times as long as growth was seen: what is further away is not foretold
LATELY = 1 / 6  # of the time in which growth was seen: the highest peak in it counts
LEAST_SHARE = 0.002  # of the limit: what use grew by at least, where the end is foretold


@dataclass(frozen=True, slots=True)
class Forecast:
    """When no memory is left, if use goes on growing as it does.

    Attributes:
        full_in_s: seconds until then.
        full_in_low_s, full_in_high_s: between which that lies with 95 %, if the growth stays as it is.
        growth_bytes_per_s: by how much use grows.
    """

    full_in_s: float
    full_in_low_s: float
    full_in_high_s: float
    growth_bytes_per_s: float


def forecast_of(limits: Sequence[MemoryLimit]) -> Forecast | None:
    """Return the forecast at the last of some readings; None where use does not grow steadily towards that limit.

    Readings of another limit, which left less memory at the time, are not looked at. They are in the order of time, of
    ten minutes at most; there is at least one.
    """
    last = limits[-1]
    limits = [limit for limit in limits if (limit.cgroup, limit.limit_bytes) == (last.cgroup, last.limit_bytes)]
    t_s = np.array([(limit.t_ns - last.t_ns) / 1e9 for limit in limits])
    gone_bytes = -np.array([limit.left_bytes for limit in limits])
    growth = growth_of(t_s, gone_bytes)
    if growth is None or gone_bytes[-1] >= 0:
        return None
    # Use that rises and falls reaches the limit with a peak, and not in its mean.
    lately = t_s >= -LATELY * growth.span_s
    peak = int(np.flatnonzero(lately)[gone_bytes[lately].argmax()])
    left_bytes = max(float(-gone_bytes[peak] + t_s[peak] * growth.bytes_per_s), 0.0)
    if left_bytes > FURTHEST * growth.span_s * growth.bytes_per_s:
        return None
    if gone_bytes[-1] - gone_bytes.min() < LEAST_SHARE * last.limit_bytes:
        return None
    low_s, high_s = left_bytes / growth.high_bytes_per_s, left_bytes / growth.low_bytes_per_s
    return Forecast(left_bytes / growth.bytes_per_s, low_s, high_s, growth.bytes_per_s)


def whose_limit(cgroup: str) -> str:
    """Return whose limit it is, by what the user knows: a job, a pod, a container; ``cgroup`` empty: the machine's."""
    if not cgroup:
        return "the machine"
    kind, part = _owner(cgroup)
    if not kind:
        return f"cgroup {printable(cgroup)}"
    step = f"step {part['step']} of " if part.get("step") else ""
    container = "a container of " if part.get("container") else ""
    return f"{step}{container}{kind} {part['id']}"


def owner_labels(cgroup: str) -> dict[str, str]:
    """Return the job, pod or container that a cgroup belongs to, as labels; empty where its path names none."""
    kind, part = _owner(cgroup)
    return {kind.rpartition(" ")[2]: part["id"]} if kind else {}


def _owner(cgroup: str) -> tuple[str, dict[str, str]]:
    """Return the kind of what a cgroup belongs to, and the parts of its name; empty where its path names nothing."""
    for kind, pattern in _OWNERS.items():
        if match := pattern.search(cgroup):
            return kind, match.groupdict()
    return "", {}


def forecast_sentence(cgroup: str, forecast: Forecast) -> str:
    """Return a forecast in words, without a full stop."""
    whose = whose_limit(cgroup)
    return (
        f"{whose[:1].upper()}{whose[1:]} will be out of memory in about {time_left(forecast)} "
        f"if its use goes on growing by {rate(forecast.growth_bytes_per_s)}"
    )


def time_left(forecast: Forecast) -> str:
    """Return how long it lasts, and between which bounds where these differ."""
    low, high = span(forecast.full_in_low_s), span(forecast.full_in_high_s)
    return span(forecast.full_in_s) if low == high else f"{span(forecast.full_in_s)} ({low} to {high})"


def rate(bytes_per_s: float) -> str:
    """Return a rate per second, minute or hour: in the first unit in which it is at least a MiB."""
    return rates(bytes_per_s)


def rates(*bytes_per_s: float) -> str:
    """Return ``2.00 MiB/s to 3.00 MiB/s``: rates that rise, all in the unit of the first; one where they look alike."""
    first = bytes_per_s[0]
    seconds, name = next((unit for unit in ((1, "s"), (60, "min")) if first * unit[0] >= 1 << 20), (3600, "h"))
    return " to ".join(dict.fromkeys(f"{size(each * seconds)}/{name}" for each in bytes_per_s))
