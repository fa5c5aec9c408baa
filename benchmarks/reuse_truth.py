"""Reuse distances beside known ones: a program that touches pages in a known order at a known rate.

The truth is of the same touches that memtui counts, one of each page in each window or probe: the order is played out
touch by touch, and the distance is that of the first touch of a page in a window.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.recording import environment
from benchmarks.run import Run, memtui
from benchmarks.table import Row, once
from benchmarks.targets import compiled, needs_root
from memtui.core.page_sizes import PAGE_BYTES
from memtui.reports.report import build_report
from memtui.reports.reuse_summary import DistanceBounds

PAGES = 8192
# Of ``memtui.study.workloads.cnn`` with 32 images, in pages: what each layer keeps for the backward pass, and weights.
IMAGES_PAGES = 96
LAYERS = (
    *((1024, 1), (1024, 0), (900, 10), (900, 0), (225, 0), (225, 0)),  # convolution, ReLU, twice; pooling, dropout
    *((450, 18), (450, 0), (338, 36), (338, 0), (72, 0), (72, 0)),
    *((16, 1153), (16, 0), (16, 0), (1, 5)),  # dense, ReLU, dropout, dense
)
WINDOW_S, BUDGET = 1.0, "10%"
MOST_APART, MOST_OFF_PERCENT = 2, 20
_WINDOWS, _SHORT_WINDOWS, _MOST_TOUCHES = 24, 400, 1000  # that are simulated, and looked at in each: for a median
_GOLDEN = (5**0.5 - 1) / 2  # its multiples fill the numbers from 0 to 1 evenly, however many there are
Stream = Callable[[float, float], NDArray[np.int64]]  # the pages that are touched between two times, in order


@dataclass(frozen=True, slots=True)
class Case:
    """An order of touches, and the time in which as many pages are touched as there are."""

    order: str
    round_s: float

    def __str__(self) -> str:
        mib = pages_of(self) * PAGE_BYTES >> 20
        return f"{self.order} over {mib} MiB, a round in {self.round_s * 1e3:.3g} ms"


CASES = tuple(Case("ring", s) for s in (0.004, 0.05, 0.1, 0.3, 1.0)) + tuple(
    Case(order, s) for order in ("uniform", "zipf", "zigzag", "cnn") for s in (0.1, 0.5)
)
QUICK = (Case("ring", 0.1), Case("zipf", 0.1))


def measure(run: Run) -> Iterator[Row]:
    """How far bounds are apart, and how far the estimate is from the truth."""
    needs_root()
    for wanted in QUICK if run.quick else CASES:
        with target(wanted, run.folder) as child:
            path = run.folder / "reuse.memtui"
            path.unlink(missing_ok=True)
            record = ("record", child.pid, "-o", path, "--interval", WINDOW_S, "--max-overhead", BUDGET)
            argv = memtui(*record, "--duration", 20 if run.quick else 40, "--tracker", "pagetable")
            subprocess.run(argv, check=True, capture_output=True, env=environment())
            child.terminate()
            assert child.stdout is not None
            case = replace(wanted, round_s=float(child.stdout.readline()) / 1e3)
        reuse = build_report(path).reuse
        yield from _rows(f"{case}, windows of {WINDOW_S:g} s", reuse.median_bytes, truth(case, WINDOW_S), limits=False)
        bursts = reuse.bursts
        if bursts is None:
            yield Row(f"{case}: bursts", failed="there was none")
            continue
        name = f"{case}, {bursts.count} probes of {bursts.probe_s * 1e3:.0f} ms"
        yield from _rows(name, bursts.median_bytes, truth(case, bursts.probe_s), limits=case.round_s > bursts.probe_s)


def _rows(name: str, seen: DistanceBounds | None, true_bytes: float, *, limits: bool) -> Iterator[Row]:
    if seen is None or seen.estimate is None:
        yield Row(f"{name}: median", failed="half of the touches did not come back")
        return
    apart, off = seen.upper / seen.lower, 100 * abs(seen.estimate / true_bytes - 1)
    mib = "{:.3g} MiB".format
    bounds = f"{mib(seen.lower / 2**20)} to {mib(seen.upper / 2**20)}"
    yield once(f"{name}: bounds of the median ({bounds}) apart by", apart, "times", MOST_APART if limits else None)
    figures = f"{mib(seen.estimate / 2**20)}, truth {mib(true_bytes / 2**20)}"
    yield once(f"{name}: estimate ({figures}) off by", off, "%", MOST_OFF_PERCENT if limits else None)


@contextmanager
def target(case: Case, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that touches pages in this order. Raises Skip without a C compiler."""
    program = compiled(Path(__file__).with_name("paced_touches.c"), folder)
    ranges = [f"{first}+{count}" for first, count in cnn_ranges()] if case.order == "cnn" else []
    argv = [str(program), case.order, str(pages_of(case)), str(case.round_s * 1e3), *ranges]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield child
        finally:
            child.kill()


def _cnn_tensors(scale: float = 1.0) -> list[tuple[int, int]]:
    """The pages of the images, and of what each layer keeps; and its weights, their gradients and squares."""
    sizes = [(IMAGES_PAGES, 0), *((kept, 3 * weights) for kept, weights in LAYERS)]
    return [(max(1, round(kept * scale)), 3 * -(-round(weights * scale) // 3)) for kept, weights in sizes]


def cnn_ranges(scale: float = 1.0) -> list[tuple[int, int]]:
    """A training step of the small network as first page and number of pages of each tensor that is walked through.

    Forward, each layer reads its input and its weights and writes what it keeps; backward, in reverse order, each reads
    its weights and its input and writes its gradients; then the optimiser goes through weights, gradients and squares.
    """
    kept, weights, end = [], [], 0
    for kept_pages, weight_pages in _cnn_tensors(scale):
        kept.append((end, kept_pages))
        end += kept_pages
        count = weight_pages // 3
        weights.append([(end + part * count, count) for part in range(3)])
        end += weight_pages
    layers = range(1, len(kept))
    forward = [tensor for n in layers for tensor in (kept[n - 1], weights[n][0], kept[n])]
    backward = [tensor for n in reversed(layers) for tensor in (weights[n][0], kept[n - 1], weights[n][1])]
    optimiser = [tensor for n in layers for tensor in weights[n]]
    return [tensor for tensor in (*forward, *backward, *optimiser) if tensor[1]]


def pages_of(case: Case, scale: float = 1.0) -> int:
    """The number of pages of a program at another scale."""
    return sum(map(sum, _cnn_tensors(scale))) if case.order == "cnn" else round(PAGES * scale)


def stream(case: Case, scale: float = 1.0) -> Stream:
    """The touches of such a program."""
    pages = pages_of(case, scale)
    rate, rng = pages / case.round_s, np.random.default_rng(1)
    step = np.concatenate([np.arange(first, first + count) for first, count in cnn_ranges(scale)])

    def touched(start_s: float, end_s: float) -> NDArray[np.int64]:
        numbers = np.arange(int(start_s * rate), int(end_s * rate))
        if case.order == "ring":
            return numbers % pages
        if case.order == "zigzag":
            there = numbers % (2 * pages)
            return np.minimum(there, 2 * pages - 1 - there)
        if case.order == "cnn":
            return step[numbers % len(step)]
        if case.order == "uniform":
            return rng.integers(0, pages, len(numbers))
        return ((pages + 1) ** rng.random(len(numbers))).astype(np.int64) - 1

    return touched


def period_s(case: Case, scale: float = 1.0) -> float:
    """The time after which an order begins again; of a random one, that of a round."""
    if case.order == "cnn":
        return case.round_s * sum(count for _, count in cnn_ranges(scale)) / pages_of(case, scale)
    return case.round_s * (2 if case.order == "zigzag" else 1)


def truth(case: Case, window_s: float, scale: float = 1.0) -> float:
    """The median distance, in bytes, of the first touches of pages in windows of this length, at any moment."""
    touches, period = stream(case, scale), period_s(case, scale)
    last, now, t = np.full(pages_of(case, scale), -1), 0, 0.0  # the number of each page's last touch; -1: none yet
    distances: list[int] = []
    for window in range(_SHORT_WINDOWS if window_s < case.round_s else _WINDOWS):
        before_s = (
            (window * _GOLDEN * period - t) % period if window else 3 * case.round_s
        )  # first all pages are touched
        for length_s in (before_s, window_s):
            order = touches(t, t + length_s)
            if length_s == window_s:
                distances += _distances(order, last)
            newest, from_end = np.unique(order[::-1], return_index=True)
            last[newest] = now + len(order) - 1 - from_end
            now, t = now + len(order), t + length_s
    return float(np.median(distances)) * PAGE_BYTES


def _distances(order: NDArray[np.int64], last: NDArray[np.int64]) -> Iterator[int]:
    """Yield the distances in pages of first touches in a window: of some of them, where there are very many."""
    first = np.sort(np.unique(order, return_index=True)[1])
    for position in first[:: max(1, len(first) // _MOST_TOUCHES)].tolist():
        if last[order[position]] >= 0:
            touched_since = last >= last[order[position]]
            touched_since[order[:position]] = True
            yield int(np.count_nonzero(touched_since))
