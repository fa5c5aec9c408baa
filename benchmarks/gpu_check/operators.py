"""Time and energy of operators on a GPU: ``memtui bench`` against ``torch.utils.benchmark``, the counter and Zeus."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu_check.checks import Report
from benchmarks.gpu_check.children import run_memtui, smi, torch_with_cuda, zeus_monitor
from memtui.analysis.energy import from_counter
from memtui.bench.configuration import COMPRESSED, product
from memtui.probes.power.energy_source import NvmlEnergy

# Large enough that the work of the GPU hides the start of the next call.
_PRODUCT = {"m": 4096, "in": 4096, "out": 4096}
_LARGE = {"m": 8192, "in": 8192, "out": 8192}  # Python starts a product with compressed weights in half a millisecond
GRIDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("conv2d", {"n": 64, "dtype": ("fp32", "tf32", "bf16", "fp16")}),
    ("linear", {**_PRODUCT, "dtype": ("tf32", "bf16", "fp8")}),
    ("linear", {**_LARGE, "dtype": ("bf16",), "weight_zeros": 50, "zeros": COMPRESSED}),
    ("sdpa", {"b": 4, "heads": 16, "s": 2048, "d": 64, "dtype": ("bf16", "fp16", "tf32", "fp32")}),
)
ENERGY_OF = {("conv2d", "fp32"), ("linear", "bf16"), ("linear", "fp8"), ("sdpa", "bf16")}
TIME_WITHIN, ENERGY_WITHIN, ZEUS_WITHIN = 0.03, 0.01, 0.03
WARM_S, LOOP_S = 2.0, 5.0
BLOCK_NS = 20e6  # of calls that are queued together: reading the counter takes some 4 ms


def run(report: Report) -> None:
    """Run the stage."""
    if (torch := torch_with_cuda(report)) is None:
        return
    for op, grid in GRIDS:
        if report.short:  # only what is also held against the counter
            grid = grid | {"dtype": tuple(dtype for dtype in grid["dtype"] if (op, dtype) in ENERGY_OF)}
        with report.part(f"bench {op} {grid.get('zeros', '')}".rstrip()):
            _operator(report, torch, op, grid)
    report.missing("clocks locked", "clocks are left as they are: the card is shared with whoever comes next")


def _operator(report: Report, torch: Any, op: str, grid: dict[str, Any]) -> None:
    words: list[object] = []
    for key, values in (*grid.items(), ("cache", "warm"), ("weights", "same")):
        text = ",".join(map(str, values)) if isinstance(values, tuple) else values
        words += ["--grid", f"{key}={text}"]
    own = {key: list(values) if isinstance(values, tuple) else [values] for key, values in grid.items()}
    references: dict[str, list[_Reference]] = {}

    def refer() -> None:
        for configuration in product(op, own):
            compressed = configuration.compressed
            call = _call(torch, op, dict(configuration.parameters), configuration.dtype, compressed)
            seconds = LOOP_S if (op, configuration.dtype) in ENERGY_OF else 0.0
            if seconds or configuration.dtype not in references:
                references.setdefault(configuration.dtype, []).append(_reference(torch, call, seconds))

    refer()
    torch.cuda.empty_cache()
    text = run_memtui(
        "bench", op, *words, "--device", "cuda", "--quick", "--again", "--no-tui", "--json",
        "--db", report.folder / "bench.db", folder=report.folder, name=f"bench-{op}{grid.get('zeros', '')}",
    )  # fmt: skip
    # Power goes up while a board becomes warm: what is measured before and after shows by how much.
    refer()
    for row in json.loads(text)["rows"]:
        dtype = row["conditions"]["dtype"]
        what = f"{op} {dtype}{' 2:4' * (row['conditions']['zeros'] == COMPRESSED)}"
        if row["status"] != "ok":
            report.missing(what, row["reason"])
            continue
        if row["flags"]:
            report.figure(f"{what}, flags", ", ".join(map(str, row["flags"])))
        _compare(report, what, row, references[dtype])


def _compare(report: Report, what: str, row: dict[str, Any], references: list[_Reference]) -> None:
    """Compare a row with what was measured before and after."""
    call_ns = statistics.mean(each.call_ns for each in references)
    report.close(
        f"{what}, time of a call", row["call_ns"] / 1e3, call_ns / 1e3, TIME_WITHIN, "us", "torch.utils.benchmark"
    )
    if references[0].energy_j is None:
        return
    millijoules = None if row["energy_j"] is None else 1e3 * row["energy_j"]
    around = [1e3 * each.energy_j for each in references if each.energy_j is not None]
    reason = row["energy_reason"] or (
        f"memtui's interval {1e3 * row['energy_low_j']:.4g} to {1e3 * row['energy_high_j']:.4g} mJ; "
        f"before and after {' and '.join(f'{value:.4g}' for value in around)} mJ"
    )
    report.close(
        f"{what}, energy of a call", millijoules, statistics.mean(around), ENERGY_WITHIN, "mJ",
        f"counter over {LOOP_S:g} s of calls, before and after", reason,
    )  # fmt: skip
    zeus = [1e3 * each.zeus_j for each in references if each.zeus_j is not None]
    zeus_mean = statistics.mean(zeus) if zeus else None
    report.close(f"{what}, energy of a call", millijoules, zeus_mean, ZEUS_WITHIN, "mJ", "Zeus")


class _Reference(NamedTuple):
    """Nanoseconds of a call, and joules by the counter and by Zeus; None where only time was asked for."""

    call_ns: float
    energy_j: float | None
    zeus_j: float | None


def _call(torch: Any, op: str, p: dict[str, Any], dtype: str, compressed: bool) -> Callable[[], Any]:
    """Return a call of an operator as anybody would write it."""
    nn = torch.nn.functional
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}.get(dtype, torch.float32)

    def some(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=kind)

    if op == "conv2d":
        x, w = some(p["n"], p["cin"], p["h"], p.get("w", p["h"])), some(p["cout"], p["cin"], p["k"], p["k"])
        return lambda: nn.conv2d(x, w, None, p["s"], p["k"] // 2)
    if op == "linear":
        a, weight, bias = some(p["m"], p["in"]), some(p["out"], p["in"]), some(p["out"])
        if dtype == "fp8":
            return _scaled(torch, a, weight, bias)
        if compressed:
            kept = torch.tensor([1, 0, 0, 1], device="cuda", dtype=kind).repeat(p["out"], p["in"] // 4)
            weight = torch.sparse.to_sparse_semi_structured(weight * kept)
        return lambda: nn.linear(a, weight, bias)
    q, k, v = (some(p["b"], p["heads"], p["s"], p["d"]) for _ in range(3))
    return lambda: nn.scaled_dot_product_attention(q, k, v, is_causal=p["causal"])


def _scaled(torch: Any, a: Any, weight: Any, bias: Any) -> Callable[[], Any]:
    left, right = (matrix.to(torch.float8_e4m3fn) for matrix in (a, weight))
    one, how = torch.ones((), device="cuda"), torch.nn.functional.ScalingType.TensorWise
    multiply, transposed = torch.nn.functional.scaled_mm, right.t()
    return lambda: multiply(left, transposed, one, how, one, how, bias=bias)


def _reference(torch: Any, call: Callable[[], Any], loop_s: float) -> _Reference:
    from torch.utils.benchmark import Timer

    with torch.inference_mode():
        end = time.monotonic() + WARM_S  # to the clock that the load settles at
        while time.monotonic() < end:
            for _ in range(20):
                call()
            torch.cuda.synchronize()
        call_ns = Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=1.0).median * 1e9
        if not loop_s:
            return _Reference(call_ns, None, None)
        queue, source, monitor = _Queue(torch, call, call_ns), NvmlEnergy(smi("uuid")[0]), zeus_monitor()
        rows: list[tuple[int, float]] = []

        def run_on(seconds: float) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                queue.advance()
                rows.append((time.monotonic_ns(), source.read()[0]))

        run_on(0.5)
        begin_ns, before = time.monotonic_ns(), queue.done
        if monitor:
            monitor.begin_window("calls", sync_execution=False)
        run_on(loop_s)
        zeus = monitor.end_window("calls", sync_execution=False) if monitor else None
        end_ns, calls = time.monotonic_ns(), queue.done - before
        run_on(0.3)  # until the counter's next step
        queue.finish()
    t_ns, energy = (np.array(column) for column in zip(*rows, strict=True))
    power_w = from_counter(t_ns.astype(np.int64), energy, begin_ns, end_ns).power_w
    source.close()
    each_s = (end_ns - begin_ns) / 1e9 / calls
    joules = None if power_w is None else power_w * each_s
    zeus_j = None if zeus is None else float(next(iter(zeus.gpu_energy.values()))) / zeus.time * each_s
    return _Reference(call_ns, joules, zeus_j)


class _Queue:
    """Calls that keep the GPU busy: a block of them waits while the block before it runs."""

    def __init__(self, torch: Any, call: Callable[[], Any], call_ns: float) -> None:
        self._torch, self._call, self._block = torch, call, max(1, int(BLOCK_NS / call_ns))
        self._events: list[Any] = []
        self.done = 0  # calls that have ended

    def advance(self) -> None:
        """Queue a block, and wait for the end of the one before the last."""
        for _ in range(self._block):
            self._call()
        event = self._torch.cuda.Event()
        event.record()
        self._events.append(event)
        if len(self._events) > 2:
            self._events.pop(0).synchronize()
            self.done += self._block

    def finish(self) -> None:
        """Wait for the end of all calls."""
        self._torch.cuda.synchronize()
