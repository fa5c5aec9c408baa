"""What the cheap view of tensors costs a training, between the steps that are recorded whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from benchmarks.run import Run, say
from benchmarks.table import Row, Skip, slower

BLOCK_S = 1.0
NEVER = 1 << 40  # steps from one that is recorded whole to the next
SETTLE = 40  # steps, among them one that is recorded whole; then the view knows what it costs
SHARES = {"as it is": None, "every step seen": 1e9}
# The nets of research: batch 10, and twenty layers of 500 with a batch of 100. Limits in percent.
NETS: tuple[tuple[str, list[int], int, float], ...] = (
    ("784-100-30-10", [784, 100, 30, 10], 10, 100.0),
    ("20 x 500", [500] * 21 + [10], 100, 20.0),
)


def measure(run: Run) -> Iterator[Row]:
    """Blocks of steps in one process, with and without in turns; who is first takes turns, too."""
    try:
        import torch

        from memtui.recording.tracer import overhead
        from memtui.recording.tracer.tracer import Tracer
    except ImportError:
        raise Skip("torch is not installed") from None
    torch.set_num_threads(1)
    kept = overhead.SHARE
    try:
        for title, widths, batch, limit in NETS:
            step = _training(torch, widths, batch)
            for how, share in SHARES.items():
                overhead.SHARE = kept if share is None else share
                with_it: list[float | None] = []
                without: list[float | None] = []
                for pair in range(3 if run.quick else 20):
                    for mine in (pair % 2 == 0, pair % 2 == 1):
                        tracer = Tracer(NEVER, _Nobody) if mine else None  # type: ignore[arg-type]
                        (with_it if mine else without).append(_step_ns(step))
                        if tracer is not None:
                            tracer.close()
                    say(f"cheap_view: {title}, {how}, pair {pair + 1}: {with_it[-1]:.0f} {without[-1]:.0f} ns")
                what = f"{title}, batch {batch}, cheap view ({how})"
                yield slower(what, with_it, without, limit if share is None else None)
    finally:
        overhead.SHARE = kept


class _Nobody:
    """Takes what is sent, as the thread of a connection would."""

    lost = 0

    def send(self, message: object) -> None:
        pass

    def close(self) -> None:
        pass


def _training(torch: Any, widths: list[int], batch: int) -> Callable[[], None]:
    torch.manual_seed(0)
    layers = []
    for into, out in pairwise(widths):
        layers += [torch.nn.Linear(into, out), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(batch, widths[0]), torch.randint(0, widths[-1], (batch,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()

    return step


def _step_ns(step: Callable[[], None]) -> float:
    """Mean time of a step over a block."""
    for _ in range(SETTLE):
        step()
    begin = time.perf_counter_ns()
    steps = 0
    while time.perf_counter_ns() - begin < BLOCK_S * 1e9:
        step()
        steps += 1
    return (time.perf_counter_ns() - begin) / steps
