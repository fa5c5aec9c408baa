"""Convolutions other than that of images: along one side or three, and transposed ones."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Parameters, Shape, Tensor
from memtui.bench.operators.dense import Convolution


class _SameSides(Convolution):
    """Sides of the same kernel, stride and padding."""

    may_be_zero: ClassVar[tuple[str, ...]] = ("p",)
    sides: ClassVar[tuple[str, ...]]
    function: ClassVar[str]  # of torch.nn.functional

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["n"], p["cin"], *(p[side] for side in self.sides))),)

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        kernel = Tensor((p["cout"], p["cin"] // p["groups"], *self._kernel(p)))
        return (kernel, Tensor((p["cout"],))) if p["bias"] else (kernel,)

    def _kernel(self, p: Any) -> Shape:
        return (p["k"],) * len(self.sides)

    def output(self, p: Any) -> Shape:
        moved = ((p[side] + 2 * p["p"] - p["d"] * (p["k"] - 1) - 1) // p["s"] + 1 for side in self.sides)
        return p["n"], p["cout"], *moved

    def flops(self, p: Any) -> int:
        """Count each weight at each element of the output that it is multiplied for."""
        return 2 * prod(self.output(p)) * (p["cin"] // p["groups"]) * prod(self._kernel(p))

    def bind(self, torch: Any, p: Any) -> Call:
        convolve, (s, pad, d, groups) = (
            getattr(torch.nn.functional, self.function),
            (p["s"], p["p"], p["d"], p["groups"]),
        )
        if p["bias"]:
            return lambda x, w: convolve(x[0], w[0], w[1], s, pad, d, groups)
        return lambda x, w: convolve(x[0], w[0], None, s, pad, d, groups)


class Conv1d(_SameSides):
    name = "conv1d"
    summary = "1-D convolution over l numbers; d: distance between two numbers of a kernel"
    defaults: ClassVar[Parameters] = {
        "n": 8, "cin": 64, "cout": 64, "l": 1024, "k": 3, "s": 1, "p": "same", "d": 1, "groups": 1, "bias": False,
    }  # fmt: skip
    sides = ("l",)
    function = "conv1d"


class Conv3d(_SameSides):
    name = "conv3d"
    summary = "3-D convolution over t images, or a volume"
    defaults: ClassVar[Parameters] = {
        "n": 1, "cin": 64, "cout": 64, "t": 8, "h": 28, "w": "h", "k": 3, "kt": "k", "s": 1, "st": "s", "p": "same",
        "pt": "p", "d": 1, "groups": 1, "bias": False,
    }  # fmt: skip
    own = ("kt", "pt")
    may_be_zero = ("p", "pt")
    sides = ("t", "h", "w")
    function = "conv3d"

    def _kernel(self, p: Any) -> Shape:
        return p["kt"], p["k"], p["k"]

    def output(self, p: Any) -> Shape:
        ways = (("t", "pt", "kt", "st"), ("h", "p", "k", "s"), ("w", "p", "k", "s"))
        moved = ((p[side] + 2 * p[pad] - p["d"] * (p[k] - 1) - 1) // p[s] + 1 for side, pad, k, s in ways)
        return p["n"], p["cout"], *moved

    def bind(self, torch: Any, p: Any) -> Call:
        convolve, d, groups = torch.nn.functional.conv3d, p["d"], p["groups"]
        s, pad = (p["st"], p["s"], p["s"]), (p["pt"], p["p"], p["p"])
        if p["bias"]:
            return lambda x, w: convolve(x[0], w[0], w[1], s, pad, d, groups)
        return lambda x, w: convolve(x[0], w[0], None, s, pad, d, groups)


class ConvTranspose2d(_SameSides):
    name = "convtranspose2d"
    summary = "transposed 2-D convolution, which makes images larger by its stride; op: rows added at the end"
    defaults: ClassVar[Parameters] = {
        "n": 8, "cin": 64, "cout": 64, "h": 28, "w": "h", "k": 4, "s": 2, "p": 1, "op": 0, "d": 1, "groups": 1,
        "bias": False,
    }  # fmt: skip
    may_be_zero = ("p", "op")
    sides = ("h", "w")
    function = "conv_transpose2d"

    def check(self, p: Any) -> None:
        super().check(p)
        if p["op"] >= max(p["s"], p["d"]):
            raise ValueError(f"op={p['op']} has to be smaller than the stride")

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        kernel = Tensor((p["cin"], p["cout"] // p["groups"], p["k"], p["k"]))
        return (kernel, Tensor((p["cout"],))) if p["bias"] else (kernel,)

    def output(self, p: Any) -> Shape:
        moved = ((p[side] - 1) * p["s"] - 2 * p["p"] + p["d"] * (p["k"] - 1) + p["op"] + 1 for side in self.sides)
        return p["n"], p["cout"], *moved

    def flops(self, p: Any) -> int:
        """Count each weight at each element of the input that it is multiplied with."""
        return 2 * prod(self.inputs(p)[0].shape) * (p["cout"] // p["groups"]) * p["k"] ** 2

    def bind(self, torch: Any, p: Any) -> Call:
        transposed = torch.nn.functional.conv_transpose2d
        how = (p["s"], p["p"], p["op"], p["groups"], p["d"])
        if p["bias"]:
            return lambda x, w: transposed(x[0], w[0], w[1], *how)
        return lambda x, w: transposed(x[0], w[0], None, *how)
