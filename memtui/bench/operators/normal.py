"""Operators that normalise."""

from __future__ import annotations

from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor


class LayerNorm(Operator):
    name = "layernorm"
    summary = "rows of dim numbers, each to mean 0 and variance 1"
    defaults: ClassVar[Parameters] = {"rows": 4096, "dim": 1024}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["rows"], p["dim"])),)

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["dim"],)),) * 2

    def output(self, p: Any) -> Shape:
        return p["rows"], p["dim"]

    def flops(self, p: Any) -> int:
        """Count 8 an element, by convention: mean, variance, scale, shift."""
        return 8 * p["rows"] * p["dim"]

    def bind(self, torch: Any, p: Any) -> Call:
        layer_norm, shape = torch.nn.functional.layer_norm, (p["dim"],)
        return lambda x, w: layer_norm(x[0], shape, w[0], w[1])


class BatchNorm(Operator):
    name = "batchnorm"
    summary = "n images of c channels, each channel normalised; train=true takes statistics from the batch"
    defaults: ClassVar[Parameters] = {"n": 8, "c": 64, "h": 56, "train": False}

    def check(self, p: Any) -> None:
        if p["train"] and p["n"] * p["h"] == 1:
            raise ValueError("the statistics of a batch need more than one value a channel")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor(self.output(p)),)

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        """Return the scale, shift, and the running mean and variance, which a training step changes."""
        shape = (p["c"],)
        return Tensor(shape), Tensor(shape), Tensor(shape), Tensor(shape, positive=True)

    def output(self, p: Any) -> Shape:
        return p["n"], p["c"], p["h"], p["h"]

    def flops(self, p: Any) -> int:
        """Count 4 an element, by convention."""
        return 4 * p["n"] * p["c"] * p["h"] ** 2

    def bind(self, torch: Any, p: Any) -> Call:
        batch_norm, train = torch.nn.functional.batch_norm, p["train"]
        # The running statistics are not parameters: no gradient is computed for them.
        return lambda x, w: batch_norm(x[0], w[2].detach(), w[3].detach(), w[0], w[1], train)


class Softmax(Operator):
    name = "softmax"
    summary = "rows of cols numbers, each to a sum of 1"
    defaults: ClassVar[Parameters] = {"rows": 4096, "cols": 1024}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor(self.output(p)),)

    def output(self, p: Any) -> Shape:
        return p["rows"], p["cols"]

    def flops(self, p: Any) -> int:
        """Count 5 an element, by convention: maximum, difference, exponential, sum, quotient."""
        return 5 * p["rows"] * p["cols"]

    def bind(self, torch: Any, p: Any) -> Call:
        softmax = torch.softmax
        return lambda x, w: softmax(x[0], -1)
