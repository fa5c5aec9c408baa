"""Sessions of a traced training in the shape of a transformer, made by the real recorder from invented steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import synthetic
from memtui.analysis.allocation_trace import CATEGORIES, PHASES
from memtui.core.tracer_messages import AllocationStep
from memtui.recording.recorder.session_builder import SessionBuilder
from memtui.session.writer import SessionWriter

LAYERS, PARTS = 48, ("attn.qkv", "attn.proj", "mlp.up", "mlp.down")
OPERATORS = ("aten::linear/aten::addmm", "aten::gelu", "aten::softmax/aten::_softmax", "AddmmBackward0/aten::mm")
EXISTING = LAYERS * len(PARTS) * 3  # weights, and two moments of each
ROW_NS = 2_000
_KINDS = {name: number for number, name in enumerate(CATEGORIES)}
_FORWARD, _BACKWARD, _BETWEEN = (PHASES.index(name) for name in ("forward", "backward", "between"))


def step(number: int, rows: int) -> AllocationStep:
    """About ``rows`` rows: two in three in the forward pass, half of them temporaries that are freed at once."""
    names = (*OPERATORS, *(f"blocks.{layer}.{part}" for layer in range(LAYERS) for part in PARTS))
    random = np.random.default_rng(number)
    layers = np.arange(len(OPERATORS), len(names))
    found: list[tuple[int, int, int, int, int, int]] = []  # change, block, kind, phase, operator, layer
    for layer in layers[: max(1, min(len(layers), rows // 12))].tolist():
        for kind in ("weights", "optimiser state", "optimiser state"):
            found.append((1 << 16, len(found), _KINDS[kind], _BETWEEN, -1, layer))
    existing = blocks = len(found)
    kept: list[tuple[int, int, int]] = []
    each = max(1, (rows - existing) // 6)  # an activation, a temporary and two frees, and a temporary backward
    sizes = (random.integers(1, 1 << 14, 2 * each + 1) * 64).tolist()
    for at in range(each):
        layer = int(layers[at * len(layers) // each])
        found.append((sizes[at], blocks, _KINDS["activations"], _FORWARD, 0, layer))
        kept.append((sizes[at], blocks, layer))
        change = sizes[each + at]
        found.append((change, blocks + 1, _KINDS["temporaries"], _FORWARD, 1, layer))
        found.append((-change, blocks + 1, _KINDS["temporaries"], _FORWARD, -1, -1))
        blocks += 2
    for at, (size, block, layer) in enumerate(reversed(kept)):
        found.append((sizes[at], blocks, _KINDS["temporaries"], _BACKWARD, 3, layer))
        found.append((-size, block, _KINDS["activations"], _BACKWARD, -1, -1))
        found.append((-sizes[at], blocks, _KINDS["temporaries"], _BACKWARD, -1, -1))
        blocks += 1
    columns = np.empty((7, len(found)), np.int64)
    columns[1:] = np.array(found, np.int64).T
    start_ns = 1_000_000 + number * 1_000_000
    columns[0] = start_ns + ROW_NS * np.maximum(0, np.arange(len(found)) - existing + 1)
    end_ns = int(columns[0, -1])
    return AllocationStep(4242, number, start_ns, end_ns, existing, names, columns, cost_ns=end_ns - start_ns)


def write_session(path: Path, steps: int, rows: int) -> None:
    """A short recording with so many steps of about so many rows."""
    writer = SessionWriter(path, overwrite=True)
    recorder = SessionBuilder(writer)
    for at, message in enumerate(_stream(steps, rows)):
        recorder.add(message)
        if at % 100 == 0:
            writer.commit()
    if not writer.close():
        raise RuntimeError(f"{path}: was not closed")


def _stream(steps: int, rows: int) -> Iterator:
    *first, end = synthetic.messages(8)
    yield from first
    for number in range(steps):
        yield step(number, rows)
    yield end
