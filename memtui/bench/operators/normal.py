"""Operators that normalise."""

from __future__ import annotations

from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor


class LayerNorm(Operator):
    name = "layernorm"
    summary = "rows of dim numbers, each to mean 0 and variance 1"
    defaults: ClassVar[Parameters] = {"rows": 4096, "dim": 1024, "affine": True}
    later = ("affine",)
    function: ClassVar[str] = "layer_norm"  # of torch.nn.functional

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["rows"], p["dim"])),)

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["dim"],)),) * 2 if p["affine"] else ()

    def output(self, p: Any) -> Shape:
        return p["rows"], p["dim"]

    def flops(self, p: Any) -> int:
        """Count 8 an element, by convention: mean, variance, scale, shift."""
        return 8 * p["rows"] * p["dim"]

    def bind(self, torch: Any, p: Any) -> Call:
        norm, shape = getattr(torch.nn.functional, self.function), (p["dim"],)
        return lambda x, w: norm(x[0], shape, *w)


class RmsNorm(LayerNorm):
    name = "rmsnorm"
    summary = "rows of dim numbers, each to a mean square of 1"
    function = "rms_norm"

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["dim"],)),) if p["affine"] else ()

    def flops(self, p: Any) -> int:
        """Count 4 an element, by convention: square, mean, scale, weight."""
        return 4 * p["rows"] * p["dim"]


class _OfImages(Operator):
    """n images of c channels, and as many come out."""

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor(self.output(p)),)

    def output(self, p: Any) -> Shape:
        return p["n"], p["c"], p["h"], p["w"]


class GroupNorm(_OfImages):
    name = "groupnorm"
    summary = "n images of c channels, each group of channels to mean 0 and variance 1"
    defaults: ClassVar[Parameters] = {"n": 8, "c": 64, "h": 56, "w": "h", "groups": 32, "affine": True}

    def check(self, p: Any) -> None:
        if p["c"] % p["groups"]:
            raise ValueError(f"c={p['c']} cannot be shared among {p['groups']} groups")

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["c"],)),) * 2 if p["affine"] else ()

    def flops(self, p: Any) -> int:
        """Count 8 an element, as for a layernorm, by convention."""
        return 8 * p["n"] * p["c"] * p["h"] * p["w"]

    def bind(self, torch: Any, p: Any) -> Call:
        group_norm, groups = torch.nn.functional.group_norm, p["groups"]
        return lambda x, w: group_norm(x[0], groups, *w)


class BatchNorm(_OfImages):
    name = "batchnorm"
    summary = "n images of c channels, each channel normalised; train=true takes statistics from the batch"
    defaults: ClassVar[Parameters] = {"n": 8, "c": 64, "h": 56, "train": False, "w": "h"}
    later = ("w",)

    def check(self, p: Any) -> None:
        if p["train"] and p["n"] * p["h"] * p["w"] == 1:
            raise ValueError("the statistics of a batch need more than one value a channel")

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        """Return the scale, shift, and the running mean and variance, which a training step changes."""
        shape = (p["c"],)
        return Tensor(shape), Tensor(shape), Tensor(shape), Tensor(shape, positive=True)

    def flops(self, p: Any) -> int:
        """Count 4 an element, by convention."""
        return 4 * p["n"] * p["c"] * p["h"] * p["w"]

    def bind(self, torch: Any, p: Any) -> Call:
        batch_norm, train = torch.nn.functional.batch_norm, p["train"]
        # The running statistics are not parameters: no gradient is computed for them.
        return lambda x, w: batch_norm(x[0], w[2].detach(), w[3].detach(), w[0], w[1], train)


class Softmax(Operator):
    name = "softmax"
    summary = "rows of cols numbers, each to a sum of 1; inner: the count of numbers between two of a row"
    defaults: ClassVar[Parameters] = {"rows": 4096, "cols": 1024, "inner": 1}
    later = ("inner",)
    function: ClassVar[str] = "softmax"  # of torch

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor(self.output(p)),)

    def check(self, p: Any) -> None:
        if p["rows"] % p["inner"]:
            raise ValueError(f"{p['rows']} rows do not lie {p['inner']} beside each other")

    def output(self, p: Any) -> Shape:
        within = (p["inner"],) if p["inner"] > 1 else ()
        return p["rows"] // p["inner"], p["cols"], *within

    def flops(self, p: Any) -> int:
        """Count 5 an element, by convention: maximum, difference, exponential, sum, quotient."""
        return 5 * p["rows"] * p["cols"]

    def bind(self, torch: Any, p: Any) -> Call:
        softmax = getattr(torch, self.function)
        return lambda x, w: softmax(x[0], 1)


class LogSoftmax(Softmax):
    name = "logsoftmax"
    summary = "the logarithm of a softmax"
    function = "log_softmax"
