"""Arithmetic between layers: functions of one tensor, of two of different shapes, and over a part of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor
from memtui.bench.operators.pointwise import Pointwise

OF_POSITIVE = ("log", "pow", "rsqrt", "sqrt")  # numbers only
_UNARY: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "abs": lambda torch: torch.abs,
    "clamp": lambda torch: lambda x: torch.clamp(x, -1.0, 1.0),
    "cos": lambda torch: torch.cos,
    "erf": lambda torch: torch.erf,
    "exp": lambda torch: torch.exp,
    "log": lambda torch: torch.log,
    "neg": lambda torch: torch.neg,
    "pow": lambda torch: lambda x: torch.pow(x, 1.7),
    "reciprocal": lambda torch: torch.reciprocal,
    "rsqrt": lambda torch: torch.rsqrt,
    "scale": lambda torch: lambda x: torch.mul(x, 0.125),
    "shift": lambda torch: lambda x: torch.add(x, 0.125),
    "sin": lambda torch: torch.sin,
    "sqrt": lambda torch: torch.sqrt,
    "square": lambda torch: torch.square,
}


class Unary(Pointwise):
    name = "unary"
    summary = "a function of each element: scale, shift and pow are by a number"
    defaults: ClassVar[Parameters] = {"function": "scale", "elements": 1 << 20}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"function": tuple(_UNARY)}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["elements"],), positive=p["function"] in OF_POSITIVE),)

    def bind(self, torch: Any, p: Any) -> Call:
        function = _UNARY[p["function"]](torch)
        return lambda x, w: function(x[0])


class Binary(Operator):
    name = "binary"
    summary = "a function of a x b x c x d elements and of 1 x b x 1 x d, each of which is taken a x c times"
    defaults: ClassVar[Parameters] = {"function": "mul", "a": 1, "b": 512, "c": 3136, "d": 1}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"function": ("add", "sub", "mul", "div", "maximum", "minimum")}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return Tensor((p["a"], p["b"], p["c"], p["d"])), Tensor((1, p["b"], 1, p["d"]))

    def output(self, p: Any) -> Shape:
        return p["a"], p["b"], p["c"], p["d"]

    def flops(self, p: Any) -> int:
        """Count 1 an element, by convention."""
        return p["a"] * p["b"] * p["c"] * p["d"]

    def bind(self, torch: Any, p: Any) -> Call:
        function = getattr(torch, p["function"])
        return lambda x, w: function(x[0], x[1])


class Addcmul(Binary):
    name = "addcmul"
    summary = "a x b x c x d elements times 1 x b x 1 x d of them, plus another 1 x b x 1 x d"
    defaults: ClassVar[Parameters] = {"a": 1, "b": 512, "c": 3136, "d": 1}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        small = Tensor((1, p["b"], 1, p["d"]))
        return Tensor((p["a"], p["b"], p["c"], p["d"])), small, small

    def flops(self, p: Any) -> int:
        """Count a multiplication and an addition an element."""
        return 2 * super().flops(p)

    def bind(self, torch: Any, p: Any) -> Call:
        addcmul = torch.addcmul
        return lambda x, w: addcmul(x[2], x[1], x[0])


class Reduce(Operator):
    name = "reduce"
    summary = "one number of several, of a tensor of outer x reduced x inner"
    defaults: ClassVar[Parameters] = {"function": "mean", "outer": 4096, "reduced": 1024, "inner": 1}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"function": ("mean", "sum", "amax", "amin", "norm", "var")}

    def check(self, p: Any) -> None:
        if p["function"] == "var" and p["reduced"] < 2:
            raise ValueError("the variance is of two numbers at least")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["outer"], p["reduced"], p["inner"])),)

    def output(self, p: Any) -> Shape:
        return p["outer"], p["inner"]

    def flops(self, p: Any) -> int:
        """Count 1 an element of the input, by convention, whatever the function."""
        return p["outer"] * p["reduced"] * p["inner"]

    def bind(self, torch: Any, p: Any) -> Call:
        if p["function"] == "norm":
            norm = torch.linalg.vector_norm
            return lambda x, w: norm(x[0], dim=1)
        function = getattr(torch, p["function"])
        return lambda x, w: function(x[0], dim=1)


class Outer(Operator):
    name = "outer"
    summary = "a function of each two of b and of c elements, a times"
    defaults: ClassVar[Parameters] = {"function": "sub", "a": 64, "b": 49, "c": 49}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = Binary.choices

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return Tensor((p["a"], p["b"], 1)), Tensor((p["a"], 1, p["c"]))

    def output(self, p: Any) -> Shape:
        return p["a"], p["b"], p["c"]

    def flops(self, p: Any) -> int:
        """Count 1 an element, by convention."""
        return p["a"] * p["b"] * p["c"]

    def bind(self, torch: Any, p: Any) -> Call:
        function = getattr(torch, p["function"])
        return lambda x, w: function(x[0], x[1])


class Compare(Pointwise):
    name = "compare"
    summary = "whether each element is 0"
    trains = False

    def moved_bytes(self, p: Any, item_bytes: int) -> int:
        """Count the input, and a byte for each answer."""
        return p["elements"] * (item_bytes + 1)

    def bind(self, torch: Any, p: Any) -> Call:
        equal = torch.eq
        return lambda x, w: equal(x[0], 0)


class MaskedFill(Pointwise):
    name = "masked_fill"
    summary = "sets every other element to a number, as a mask says"

    def flops(self, p: Any) -> int:
        return 0

    def moved_bytes(self, p: Any, item_bytes: int) -> int:
        """Count input and output, and a byte an element of the mask."""
        return p["elements"] * (2 * item_bytes + 1)

    def bind(self, torch: Any, p: Any) -> Call:
        masks: list[Any] = []  # on the first call, for the device of its input

        def call(x: tuple[Any, ...], w: tuple[Any, ...]) -> Any:
            if not masks:
                masks.append(torch.arange(p["elements"], device=x[0].device) % 2 == 0)
            return x[0].masked_fill(masks[0], -100.0)

        return call
