"""Features of a configuration: numbers that follow from its parameters, without a measurement.

Sizes go in as logarithms to the base of 2, because costs are products of them and span many orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.bench.configuration import Configuration, canonical
from memtui.bench.operators.base import Tensor, Value
from memtui.bench.predict.steps import Steps, steps_of

Matrix = NDArray[np.float64]
FLOPS, BYTES, CLOCK = "log2 flops", "log2 bytes", "log2 clock MHz"
WIDEST_STEP = 32  # numbers in the widest registers, or in a tile of a matrix unit


@dataclass(frozen=True)
class Described:
    """A configuration as a model sees it. Created by ``describe``.

    Attributes:
        op: name of the operator.
        features: by name; a missing feature is 0.
        steps: steps of a call.
        device: name of the device, where several are fitted together.
    """

    op: str
    features: Mapping[str, float]
    steps: Steps
    device: str = ""


def describe(configuration: Configuration, device: str = "", clock_mhz: float | None = None) -> Described:
    """Return work, sizes, conditions, and the operator's own parameters, which are named ``operator.parameter``.

    ``intensity`` is that of the roofline model (Williams, Waterman, Patterson 2009): operations for each byte that has
    to be moved. ``flops by output`` is the length of the sum behind an element of the output. A backward pass counts in
    the operations and as a feature; the bytes it moves are not known, so bytes are those of the forward pass.

    Args:
        configuration: what is described.
        device: name of the device, where several are fitted together.
        clock_mhz: clock of the device; None: not known.
    """
    op, operator, p = configuration.op, configuration.operator, configuration.parameters
    output = prod(operator.output(p))
    moved_bytes = operator.moved_bytes(p, configuration.item_bytes)
    steps = steps_of(configuration)
    features = {
        FLOPS: _log2(configuration.flops),
        BYTES: _log2(moved_bytes),
        "log2 intensity": _log2(configuration.flops) - _log2(moved_bytes),
        "log2 flops by output": _log2(configuration.flops / output),
        "log2 input elements": _log2(_elements(operator.inputs(p))),
        "log2 weight elements": _log2(_elements(operator.weights(p))),
        "log2 output elements": _log2(output),
        "number bytes": float(configuration.item_bytes),
        "backward": float(configuration.both_ways),
        f"op={op}": 1.0,
    }
    if steps.amounts is not steps.general:
        features[f"way={steps.way}"] = 1.0
    for key, value in configuration.conditions.items():
        features |= _own(key, value)
    for key, value in configuration.stated.items():
        features |= _own(f"{op}.{key}", value)
    if device:
        features[f"device={device}"] = 1.0
    if clock_mhz is not None:
        features[CLOCK] = _log2(clock_mhz)
    return Described(op, features | _FURTHER.get(op, _nothing)(p, operator.output(p)), steps, device)


@dataclass(frozen=True)
class Space:
    """The space of features of measured configurations.

    Attributes:
        names: names of the features that vary, [f].
        low: by operator, the least value of each feature of its configurations.
        high: by operator, the greatest value of each feature of its configurations.
    """

    names: tuple[str, ...]
    low: Mapping[str, Mapping[str, float]]
    high: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, rows: Sequence[Described]) -> Space:
        """Return the space of these configurations."""
        every = dict.fromkeys(name for row in rows for name in row.features)
        names = tuple(name for name in every if len({row.features.get(name, 0.0) for row in rows}) > 1)
        low: dict[str, dict[str, float]] = {}
        high: dict[str, dict[str, float]] = {}
        for op in dict.fromkeys(row.op for row in rows):
            own = [row.features for row in rows if row.op == op]
            mentioned = dict.fromkeys(name for features in own for name in features)
            low[op] = {name: min(features.get(name, 0.0) for features in own) for name in mentioned}
            high[op] = {name: max(features.get(name, 0.0) for features in own) for name in mentioned}
        return cls(names, low, high)

    def matrix(self, rows: Sequence[Described]) -> Matrix:
        """Return f8[n, f]. Parameters of other operators are 0."""
        return np.array([[row.features.get(name, 0.0) for name in self.names] for row in rows]).reshape(len(rows), -1)

    def outside(self, row: Described) -> tuple[str, ...]:
        """Return the features outside of the operator's measured values: a model extrapolates, its range says little.

        An operator that was not measured at all is outside by its name alone.
        """
        if row.op not in self.low:
            return (f"op={row.op}",)
        low, high = self.low[row.op], self.high[row.op]
        return tuple(k for k, value in row.features.items() if not low.get(k, 0.0) <= value <= high.get(k, 0.0))


def _own(name: str, value: Value) -> dict[str, float]:
    """Return a parameter or condition as a feature."""
    if isinstance(value, str):
        return {f"{name}={value}": 1.0}
    if isinstance(value, bool):
        return {name: float(value)}
    return {f"log2 {name}": _log2(1 + value)}


def _log2(value: float) -> float:
    """Return the logarithm, and 0 for 0 as for 1: counts here are either 0 or, nearly always, larger than 1."""
    return log2(value) if value > 0 else 0.0


def _elements(tensors: Sequence[Tensor]) -> int:
    return sum(t.elements for t in tensors)


def _conv2d(p: Any, output: tuple[int, ...]) -> dict[str, float]:
    """Return the size of a convolution's matrix product, per group: rows x columns, and the length of its sums."""
    n, _, high, wide = output
    by_group = {side: p[side] // p["groups"] for side in ("cin", "cout")}
    features = {
        "log2 conv2d.rows": _log2(n * high * wide),
        "log2 conv2d.columns": _log2(by_group["cout"]),
        "log2 conv2d.summed": _log2(by_group["cin"] * p["k"] * p["kw"]),
    }
    for side, channels in by_group.items():  # libraries process several channels at a time
        features[f"log2 conv2d.{side} in steps of"] = _log2(min(channels & -channels, WIDEST_STEP))
    return features


def _nothing(p: Any, output: tuple[int, ...]) -> dict[str, float]:
    return {}


# Features of an operator that follow from several parameters together, besides work and sizes.
_FURTHER: Mapping[str, Callable[[Any, tuple[int, ...]], dict[str, float]]] = {"conv2d": _conv2d}


# The parameter that only repeats the same work; None: the operator has no other parameter.
BATCH: Mapping[str, str | None] = {
    **dict.fromkeys(("conv2d", "conv1d", "conv3d", "convtranspose2d", "batchnorm", "groupnorm", "resnet50"), "n"),
    **dict.fromkeys(("maxpool", "avgpool", "adaptiveavgpool", "upsample", "roll"), "n"),
    **dict.fromkeys(("linear", "matmul"), "m"),
    **dict.fromkeys(("bmm", "sdpa", "mha", "encoderlayer", "lstm", "gru", "rnn", "copy"), "b"),
    **dict.fromkeys(("layernorm", "rmsnorm", "softmax", "logsoftmax", "cross_entropy"), "rows"),
    "embedding": "tokens",
    "embedding_bag": "bags",
    **dict.fromkeys(("binary", "addcmul", "outer"), "a"),
    **dict.fromkeys(("reduce", "cat", "pad"), "outer"),
    **dict.fromkeys(("relu", "gelu", "silu", "sigmoid", "hardswish", "hardsigmoid", "hardtanh", "leakyrelu"), None),
    **dict.fromkeys(("elu", "tanh", "mish", "softplus", "unary", "compare", "masked_fill", "fill"), None),
    **dict.fromkeys(("add", "dropout", "permute", "sgd", "adamw"), None),
}


def group_of(configuration: Configuration) -> str:
    """Return the name of a configuration's group: operator and shape, without the batch, the type and the conditions.

    A model that saw a convolution of 8 images is right about the same convolution of 16 images, which tells nothing
    about unseen shapes. So nearly equal configurations are in one group, and a group is never on both sides of a split.
    """
    batch = BATCH.get(configuration.op)
    shape = {key: value for key, value in configuration.stated.items() if key != batch}
    return canonical([configuration.op, shape])
