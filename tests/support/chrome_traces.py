"""Chrome traces of PyTorch's profiler, small enough to check by hand."""

from __future__ import annotations

import json


def memory(ts, size, address, total=0, device=(0, -1)):
    """Return the event of an allocation or a free; times in microseconds."""
    args = {"Bytes": size, "Addr": address, "Total Allocated": total, "Device Type": device[0], "Device Id": device[1]}
    return {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}


def span(name, ts, dur, cat="cpu_op"):
    """Return a span of the same thread."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}


def chrome(*events, base=10**18) -> bytes:
    """Return a trace of some events."""
    return json.dumps({"baseTimeNanoseconds": base, "traceEvents": events}).encode()
