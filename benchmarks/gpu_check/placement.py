"""Pools on a GPU: bandwidths against copies timed by CUDA events, and a plan that is executed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.gpu_check.checks import Report
from benchmarks.gpu_check.children import run_memtui, torch_with_cuda

COPIED_BYTES, REPEATS = 1 << 30, 7
BANDWIDTH_WITHIN, PREDICTION_WITHIN = 0.10, 0.10


def run(report: Report) -> None:
    """Run the stage."""
    if (torch := torch_with_cuda(report)) is None:
        return
    profile = report.folder / "transformer.place"
    with report.part("place profile"):
        text = run_memtui(
            "place", "profile", "transformer", "--pools", "cuda,pinned,pageable", "--mode", "single", "--batch", 32,
            "--seconds", 0.03, "--no-tui", "--json", "--force", "--again", "-o", profile, folder=report.folder,
            seconds=150,
        )  # fmt: skip
        pools = {pool["name"]: pool for pool in json.loads(text)["pools"]}
        with report.part("bandwidths"):
            _bandwidths(report, torch, pools)
    for ratio in ("1:1", "0:1"):
        with report.part(f"plan {ratio}"):
            _plan(report, profile, ratio)


def _bandwidths(report: Report, torch: Any, pools: dict[str, Any]) -> None:
    source = torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda").random_(256)
    target = torch.empty_like(source)
    numbers = source.view(torch.int64)
    host = {
        "pinned": torch.empty(COPIED_BYTES >> 2, dtype=torch.uint8).fill_(1).pin_memory(),
        "pageable": torch.empty(COPIED_BYTES >> 2, dtype=torch.uint8).fill_(1),
    }
    on_gpu = {
        "read_bytes_per_s": lambda: numbers.sum(),
        "written_bytes_per_s": lambda: target.fill_(1),
        "copied_from_bytes_per_s": lambda: target.copy_(source),
        "copied_to_bytes_per_s": lambda: target.copy_(source),
    }
    for key, work in on_gpu.items():
        _bandwidth(report, torch, pools, "cuda", key, work, COPIED_BYTES)
    for name, memory in host.items():
        size = len(memory)
        ways = {
            "copied_from_bytes_per_s": lambda m=memory, n=size: target[:n].copy_(m, non_blocking=True),
            "copied_to_bytes_per_s": lambda m=memory, n=size: m.copy_(source[:n], non_blocking=True),
        }
        for key, work in ways.items():
            _bandwidth(report, torch, pools, name, key, work, size)


def _bandwidth(
    report: Report, torch: Any, pools: dict[str, Any], pool: str, key: str, work: Callable[[], object], size: int
) -> None:
    times = []
    for _ in range(REPEATS + 1):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    rate = size / (statistics.median(times[1:]) / 1e3) / 1e9
    measured = pools[pool].get(key)
    what = f"{pool}: {key.removesuffix('_bytes_per_s').replace('_', ' ')}"
    # Pageable memory goes through a buffer of the driver, at a speed that varies.
    within = 0.3 if pool == "pageable" else BANDWIDTH_WITHIN
    report.close(what, measured and measured / 1e9, rate, within, "GB/s", f"{size >> 20} MiB, CUDA events")


def _plan(report: Report, profile: Any, ratio: str) -> None:
    text = run_memtui(
        "place", "solve", profile, "--ratio", ratio, "--slow", "pinned", "--run", "--json",
        folder=report.folder, name=f"solve-{ratio.replace(':', '-')}", seconds=120,
    )  # fmt: skip
    (report.folder / f"solve-{ratio.replace(':', '-')}.json").write_text(text)
    ran = json.loads(text)["run"][0]
    predicted, actual = ran["predicted_ns"], ran["actual_ns"]
    report.equal(
        f"plan {ratio}: results bit by bit those of the step without a plan", ran["equal"], True, "its own run"
    )
    report.close(f"plan {ratio}: time of a step", predicted / 1e3, actual / 1e3, PREDICTION_WITHIN, "us", "executed")
