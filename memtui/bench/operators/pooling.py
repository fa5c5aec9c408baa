"""Operators that take a value from a neighbourhood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor


class _Pool(Operator):
    defaults: ClassVar[Parameters] = {"n": 8, "c": 64, "h": 112, "k": 3, "s": 2, "p": 1, "w": "h", "ceil": False}
    may_be_zero = ("p",)
    later = ("w", "ceil")
    function: ClassVar[str]  # of torch.nn.functional

    def check(self, p: Any) -> None:
        if 2 * p["p"] > p["k"]:
            raise ValueError(f"padding of {p['p']} is more than half a kernel of {p['k']}")
        if min(p["h"], p["w"]) + 2 * p["p"] < p["k"]:
            raise ValueError(f"a kernel of {p['k']} does not fit into {p['h']}x{p['w']} padded by {p['p']}")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["n"], p["c"], p["h"], p["w"])),)

    def output(self, p: Any) -> Shape:
        return p["n"], p["c"], _pooled(p, p["h"]), _pooled(p, p["w"])

    def flops(self, p: Any) -> int:
        """Count one for each element, by convention, of each neighbourhood."""
        n, c, high, wide = self.output(p)
        return n * c * high * wide * p["k"] ** 2

    def bind(self, torch: Any, p: Any) -> Call:
        pool, (k, s, pad, ceil) = getattr(torch.nn.functional, self.function), (p["k"], p["s"], p["p"], p["ceil"])
        return lambda x, w: pool(x[0], k, s, pad, ceil_mode=ceil)


def _pooled(p: Any, side: int) -> int:
    """Return a side of the output. The last neighbourhood begins within the input, or its padding before it."""
    steps, rest = divmod(side + 2 * p["p"] - p["k"], p["s"])
    more = int(p["ceil"] and rest > 0 and (steps + 1) * p["s"] < side + p["p"])
    return steps + 1 + more


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
    defaults: ClassVar[Parameters] = {"n": 8, "c": 2048, "h": 7, "out": 1, "w": "h"}
    later = ("w",)

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["n"], p["c"], p["h"], p["w"])),)

    def output(self, p: Any) -> Shape:
        return p["n"], p["c"], p["out"], p["out"]

    def flops(self, p: Any) -> int:
        """Count one an element, by convention, of the input."""
        return p["n"] * p["c"] * p["h"] * p["w"]

    def bind(self, torch: Any, p: Any) -> Call:
        pool, out = torch.nn.functional.adaptive_avg_pool2d, p["out"]
        return lambda x, w: pool(x[0], out)


class Upsample(Operator):
    name = "upsample"
    summary = "images of h x w made larger, or smaller, to out x out_w"
    defaults: ClassVar[Parameters] = {
        "n": 8, "c": 64, "h": 28, "w": "h", "out": 56, "out_w": "out", "how": "bilinear",
    }  # fmt: skip
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"how": ("nearest", "bilinear", "bicubic")}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["n"], p["c"], p["h"], p["w"])),)

    def output(self, p: Any) -> Shape:
        return p["n"], p["c"], p["out"], p["out_w"]

    def flops(self, p: Any) -> int:
        """Count a multiplication and an addition, by convention, for each neighbour of an element of the output."""
        neighbours = {"nearest": 0, "bilinear": 4, "bicubic": 16}[p["how"]]
        return 2 * neighbours * p["n"] * p["c"] * p["out"] * p["out_w"]

    def bind(self, torch: Any, p: Any) -> Call:
        interpolate, sides, how = torch.nn.functional.interpolate, (p["out"], p["out_w"]), p["how"]
        return lambda x, w: interpolate(x[0], sides, mode=how)
