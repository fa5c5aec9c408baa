"""Loads on a GPU, as processes of their own: ``python -m benchmarks.gpu_check.loads NAME ...``.

Imports torch. A load writes "ready" when it begins, and one line of JSON at its end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

SIDE = 8192  # of the matrices: one product takes about 1.5 ms on an H100


def _product() -> Callable[[], Any]:
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def multiply() -> None:
        torch.mm(a, b)
        torch.cuda.synchronize()

    for _ in range(3):
        multiply()
    return multiply


def steady(seconds: float) -> dict[str, Any]:
    """Multiply matrices all the time."""
    multiply = _product()
    print("ready", flush=True)
    end, calls = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        multiply()
        calls += 1
    return {"calls": calls, "reserved_bytes": torch.cuda.memory_reserved()}


def rate(what: str, seconds: float) -> dict[str, Any]:
    """Do ``products`` or ``copies`` all the time. Returns multiplications, or bytes read and written, a second."""
    if what == "products":
        work, each = _product(), SIDE**3
    else:
        source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").random_(256)
        target, each = torch.empty_like(source), 2 << 30

        def work() -> None:
            for _ in range(8):
                target.copy_(source)
            torch.cuda.synchronize()

        work()
        each *= 8
    print("ready", flush=True)
    begin, calls = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        work()
        calls += 1
    return {"per_s": calls * each / (time.monotonic() - begin)}


def square(period_s: float, seconds: float) -> dict[str, Any]:
    """Multiply matrices during the first half of each period. Returns begin and end of each stretch of load."""
    multiply = _product()
    print("ready", flush=True)
    start = time.monotonic()
    on_ns: list[tuple[int, int]] = []
    for number in range(int(seconds / period_s)):
        begin = start + number * period_s
        time.sleep(max(0.0, begin - time.monotonic()))
        since = time.monotonic_ns()
        while time.monotonic() < begin + period_s / 2:
            multiply()
        on_ns.append((since, time.monotonic_ns()))
    return {"on_ns": on_ns}


class _Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1, stride=2),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )
        self.head = nn.Linear(32 * width, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def training(kind: str, steps: int, progress: str = "", batch: int = 64, seconds: float = 1e9) -> dict[str, Any]:
    """Train a convolutional network, and note the allocator's figures at the end of each step.

    Args:
        kind: ``plain``; ``streams``: with work on a second stream; ``graphs``: both passes are CUDA graphs.
        steps: number of steps.
        progress: a file that gets the time and the number of steps ten times a second.
        batch: images a step.
        seconds: ends earlier after this time.

    Returns:
        For each step: largest allocated and requested bytes since the end of the step before, and the requested sizes
        of the blocks that are in use at its end.
    """
    torch.manual_seed(0)
    model = _Net(32).cuda()
    optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    side = torch.cuda.Stream() if kind == "streams" else None
    x = torch.randn(batch, 3, 64, 64, device="cuda")
    y = torch.randint(0, 100, (batch,), device="cuda")
    run: Any = torch.cuda.make_graphed_callables(model, (x,)) if kind == "graphs" else model
    told: list[dict[str, Any]] = []
    print("ready", flush=True)
    end, written, done = time.monotonic() + seconds, 0.0, 0
    while done < steps and time.monotonic() < end:
        optimiser.zero_grad()
        extra = None
        if side is not None:
            with torch.cuda.stream(side):
                extra = (torch.randn(1 << 19, device="cuda") * 2).sum()
        loss = nn.functional.cross_entropy(run(x), y)
        loss.backward()
        if side is not None:
            torch.cuda.current_stream().wait_stream(side)
        optimiser.step()
        done += 1
        if progress:
            now = time.monotonic()
            if now - written > 0.1:
                torch.cuda.synchronize()
                written = time.monotonic()
                with Path(progress).open("a") as file:
                    file.write(f"{time.monotonic_ns()} {done}\n")
            continue
        told.append(_allocator(done % 10 == 3))  # memtui records the third step first
        del loss, extra
    torch.cuda.synchronize()
    return {"steps": done, "allocator": told}


def _allocator(blocks: bool) -> dict[str, Any]:
    """Return the peak since the last call, and the blocks in use."""
    stats = torch.cuda.memory_stats()
    found: dict[str, Any] = {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_requested_bytes": stats["requested_bytes.all.peak"],
        "reserved_bytes": torch.cuda.memory_reserved(),
    }
    if blocks:
        found["blocks"] = sorted(
            block.get("requested_size", block["size"])
            for segment in torch.cuda.memory_snapshot()
            for block in segment["blocks"]
            if block["state"].startswith("active")
        )
    torch.cuda.reset_peak_memory_stats()
    return found


def recordings(folder: Path, kind: str) -> dict[str, Any]:
    """Write what PyTorch says of a small training step, for tests on machines without a GPU.

    ``history-KIND.json``: the allocator's snapshots around the step, its history, and its own peaks.
    ``kineto-KIND.json``: the profiler's trace of the next step.
    """
    torch.manual_seed(0)
    model = _Net(8).cuda()
    optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    x, y = torch.randn(8, 3, 32, 32, device="cuda"), torch.randint(0, 100, (8,), device="cuda")
    side = torch.cuda.Stream() if kind == "streams" else None
    run: Any = torch.cuda.make_graphed_callables(model, (x,)) if kind == "graphs" else model

    def step() -> None:
        optimiser.zero_grad()
        if side is not None:
            with torch.cuda.stream(side):
                (torch.randn(1 << 16, device="cuda") * 2).sum()
        nn.functional.cross_entropy(run(x), y).backward()
        optimiser.step()

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    memory: Any = torch.cuda.memory
    before = memory._snapshot()["segments"]
    memory._record_memory_history("all", context=None, max_entries=1 << 16, clear_history=True)
    torch.cuda.reset_peak_memory_stats()
    step()
    after = memory._snapshot()
    memory._record_memory_history(None)
    document = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
        "before": before,
        "after": after["segments"],
        "device_traces": after["device_traces"][:1],
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_requested_bytes": torch.cuda.memory_stats()["requested_bytes.all.peak"],
    }
    (folder / f"history-{kind}.json").write_text(json.dumps(document, separators=(",", ":")))
    with torch.profiler.profile(profile_memory=True, record_shapes=True) as profile:
        step()
        torch.cuda.synchronize()
    profile.export_chrome_trace(str(folder / f"kineto-{kind}.json"))
    return {"entries": len(after["device_traces"][0])}


def main(words: list[str]) -> int:
    """Run the load that the words name."""
    name, rest = words[0], words[1:]
    if name == "steady":
        result = steady(float(rest[0]))
    elif name == "recordings":
        result = recordings(Path(rest[0]), rest[1])
    elif name == "rate":
        result = rate(rest[0], float(rest[1]))
    elif name == "square":
        result = square(float(rest[0]), float(rest[1]))
    else:
        output, kind, steps, *more = rest
        options = dict(word.split("=", 1) for word in more)
        result = training(
            kind, int(steps), options.get("progress", ""), int(options.get("batch", 64)),
            float(options.get("seconds", 1e9)),
        )  # fmt: skip
        Path(output).write_text(json.dumps(result))
        return 0
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
