"""Operators that take a value from a neighbourhood."""

from __future__ import annotations

from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor


class _Pool(Operator):
    defaults: ClassVar[Parameters] = {"n": 8, "c": 64, "h": 112, "k": 3, "s": 2, "p": 1}
    may_be_zero = ("p",)
    function: ClassVar[str]  # of torch.nn.functional

    def check(self, p: Any) -> None:
        if 2 * p["p"] > p["k"]:
            raise ValueError(f"padding of {p['p']} is more than half a kernel of {p['k']}")
        if p["h"] + 2 * p["p"] < p["k"]:
            raise ValueError(f"a kernel of {p['k']} does not fit into {p['h']}x{p['h']} padded by {p['p']}")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["n"], p["c"], p["h"], p["h"])),)

    def output(self, p: Any) -> Shape:
        side = (p["h"] + 2 * p["p"] - p["k"]) // p["s"] + 1
        return p["n"], p["c"], side, side

    def flops(self, p: Any) -> int:
        """Count one for each element, by convention, of each neighbourhood."""
        n, c, high, wide = self.output(p)
        return n * c * high * wide * p["k"] ** 2

    def bind(self, torch: Any, p: Any) -> Call:
        pool, (k, s, pad) = getattr(torch.nn.functional, self.function), (p["k"], p["s"], p["p"])
        return lambda x, w: pool(x[0], k, s, pad)


class MaxPool(_Pool):
    name = "maxpool"
    summary = "the largest of each k x k"
    function = "max_pool2d"


class AveragePool(_Pool):
    name = "avgpool"
    summary = "the mean of each k x k"
    function = "avg_pool2d"


class AdaptiveAveragePool(Operator):
    name = "adaptiveavgpool"
    summary = "means, of as large neighbourhoods as make out x out of them"
    defaults: ClassVar[Parameters] = {"n": 8, "c": 2048, "h": 7, "out": 1}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["n"], p["c"], p["h"], p["h"])),)

    def output(self, p: Any) -> Shape:
        return p["n"], p["c"], p["out"], p["out"]

    def flops(self, p: Any) -> int:
        """Count one an element, by convention, of the input."""
        return p["n"] * p["c"] * p["h"] ** 2

    def bind(self, torch: Any, p: Any) -> Call:
        pool, out = torch.nn.functional.adaptive_avg_pool2d, p["out"]
        return lambda x, w: pool(x[0], out)
