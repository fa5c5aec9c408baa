"""Operators that take each element by itself."""

from __future__ import annotations

from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor


class Pointwise(Operator):
    """One input, one output of the same size; ``function`` is where ``bind`` takes it from."""

    defaults: ClassVar[Parameters] = {"elements": 1 << 20}
    function: ClassVar[str]  # of torch.nn.functional

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["elements"],)),)

    def output(self, p: Any) -> Shape:
        return (p["elements"],)

    def flops(self, p: Any) -> int:
        """Count 1 an element, by convention, whatever the function."""
        return p["elements"]

    def bind(self, torch: Any, p: Any) -> Call:
        function = getattr(torch.nn.functional, self.function)
        return lambda x, w: function(x[0])


class Relu(Pointwise):
    name = function = "relu"
    summary = "max(x, 0)"


class Gelu(Pointwise):
    name = function = "gelu"
    summary = "x times the normal distribution function of x"


class Silu(Pointwise):
    name = function = "silu"
    summary = "x times the logistic function of x"


class Sigmoid(Pointwise):
    name = function = "sigmoid"
    summary = "the logistic function"


class Add(Pointwise):
    name = "add"
    summary = "the sum of two tensors, such as a residual connection"

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["elements"],)),) * 2

    def bind(self, torch: Any, p: Any) -> Call:
        add = torch.add
        return lambda x, w: add(x[0], x[1])


class Dropout(Pointwise):
    name = "dropout"
    summary = "sets percent of the elements to zero, by chance"
    defaults: ClassVar[Parameters] = {"elements": 1 << 20, "percent": 50}

    def check(self, p: Any) -> None:
        if p["percent"] > 99:
            raise ValueError("percent is at most 99")

    def bind(self, torch: Any, p: Any) -> Call:
        dropout, share = torch.nn.functional.dropout, p["percent"] / 100
        return lambda x, w: dropout(x[0], share, True)


class Hardswish(Pointwise):
    name = function = "hardswish"
    summary = "x times a line from 0 to 1 between -3 and 3"


class Hardsigmoid(Pointwise):
    name = function = "hardsigmoid"
    summary = "a line from 0 to 1 between -3 and 3"


class Hardtanh(Pointwise):
    name = function = "hardtanh"
    summary = "x between two bounds; relu6 is one between 0 and 6"


class LeakyRelu(Pointwise):
    name = "leakyrelu"
    function = "leaky_relu"
    summary = "x, and a small part of it below 0"


class Elu(Pointwise):
    name = function = "elu"
    summary = "x, and an exponential function below 0"


class Tanh(Pointwise):
    name = function = "tanh"
    summary = "the hyperbolic tangent"


class Mish(Pointwise):
    name = function = "mish"
    summary = "x times the hyperbolic tangent of its softplus"


class Softplus(Pointwise):
    name = function = "softplus"
    summary = "the logarithm of 1 + e^x"
