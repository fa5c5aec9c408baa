"""Code for a process that reads GPUs through the stub of NVML."""

from __future__ import annotations

SETUP = """
import json, os, pathlib, time
from dataclasses import asdict
from memtui.probes.gpu.client import GpuProcess
longest = 0.0
def read():
    global longest
    begin = time.monotonic()
    found = probe.read(time.monotonic_ns())
    longest = max(longest, time.monotonic() - begin)
    return found
def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = read()
        if found and condition(found):
            return [asdict(one) for one in found]
        time.sleep(0.02)
    raise SystemExit("it did not come")
def good(found): return found[0].status == "ok"
def stale(found): return found[0].status == "failed"
"""
