"""Convolutions, of images, along one side or three, and transposed ones."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar, NamedTuple

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor


class _Way(NamedTuple):
    """The names of the parameters of a direction in which a kernel moves."""

    side: str
    kernel: str = "k"
    stride: str = "s"
    padding: str = "p"


class _Convolution(Operator):
    """A convolution.

    Attributes:
        ways: the directions in which a kernel moves.
        own: the one whose kernel and padding may be other ones.
        function: of torch.nn.functional.
    """

    ways: ClassVar[tuple[_Way, ...]]
    own: ClassVar[_Way] = _Way("")
    function: ClassVar[str]
    may_be_zero: ClassVar[tuple[str, ...]] = ("p",)

    def derived(self, p: Any) -> Parameters:
        half = p["k"] // 2 if isinstance(p["k"], int) else p["k"]
        aliases = (("p", "same", half), ("groups", "depthwise", p["cin"]))
        derived = {**super().derived(p), **{key: value for key, word, value in aliases if p[key] == word}}
        kernel, pad = self.own.kernel, self.own.padding
        if p[pad] == "p":
            size, usual = derived.get(kernel, p[kernel]), derived.get("p", p["p"])
            # A kernel that is padded by its half is padded by its half in that direction, too.
            derived[pad] = size // 2 if usual == half and isinstance(size, int) else usual
        return derived

    def check(self, p: Any) -> None:
        for side in ("cin", "cout"):
            if p[side] % p["groups"]:
                raise ValueError(f"{side}={p[side]} cannot be shared among {p['groups']} groups")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["n"], p["cin"], *(p[way.side] for way in self.ways))),)

    def kernel(self, p: Any) -> Shape:
        """Return the shape of the weights."""
        return p["cout"], p["cin"] // p["groups"], *(p[way.kernel] for way in self.ways)

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        kernel = Tensor(self.kernel(p))
        return (kernel, Tensor((p["cout"],))) if p["bias"] else (kernel,)

    def output(self, p: Any) -> Shape:
        moved = (
            (p[way.side] + 2 * p[way.padding] - p["d"] * (p[way.kernel] - 1) - 1) // p[way.stride] + 1
            for way in self.ways
        )
        return p["n"], p["cout"], *moved

    def flops(self, p: Any) -> int:
        """Count each weight at each element of the output that it is multiplied for."""
        return 2 * prod(self.output(p)) * prod(self.kernel(p)[1:])

    def bind(self, torch: Any, p: Any) -> Call:
        convolve, d, groups = getattr(torch.nn.functional, self.function), p["d"], p["groups"]
        s, pad = (
            _same_kernel([p[name] for name in names]) for names in zip(*(way[2:] for way in self.ways), strict=True)
        )
        if p["bias"]:
            return lambda x, w: convolve(x[0], w[0], w[1], s, pad, d, groups)
        return lambda x, w: convolve(x[0], w[0], None, s, pad, d, groups)


def _same_kernel(values: list[int]) -> int | list[int]:
    """Return the number that all directions have, or one for each."""
    return values[0] if len(set(values)) == 1 else values


class Conv2d(_Convolution):
    name = "conv2d"
    summary = "2-D convolution; p=same pads by k//2, groups=depthwise takes one group a channel, kw makes k high only"
    defaults: ClassVar[Parameters] = {
        "n": 8, "cin": 64, "cout": 64, "h": 56, "w": "h", "k": 3, "s": 1, "p": "same", "groups": 1, "bias": False,
        "format": "contiguous", "kw": "k", "pw": "p", "d": 1,
    }  # fmt: skip
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"format": ("contiguous", "channels_last")}
    own = _Way("w", "kw", "s", "pw")
    ways = (_Way("h"), own)
    function = "conv2d"
    may_be_zero = ("p", "pw")
    later = ("kw", "pw", "d")

    def check(self, p: Any) -> None:
        super().check(p)
        high, wide = (p["d"] * (p[kernel] - 1) + 1 for kernel in ("k", "kw"))
        if p["h"] + 2 * p["p"] < high or p["w"] + 2 * p["pw"] < wide:
            kernel = high if high == wide else f"{high}x{wide}"
            raise ValueError(f"a kernel of {kernel} does not fit into {p['h']}x{p['w']} padded by {p['p']}")


class Conv1d(_Convolution):
    name = "conv1d"
    summary = "1-D convolution over l numbers; d: distance between two numbers of a kernel"
    defaults: ClassVar[Parameters] = {
        "n": 8, "cin": 64, "cout": 64, "l": 1024, "k": 3, "s": 1, "p": "same", "d": 1, "groups": 1, "bias": False,
    }  # fmt: skip
    ways = (_Way("l"),)
    function = "conv1d"


class Conv3d(_Convolution):
    name = "conv3d"
    summary = "3-D convolution over t images, or a volume"
    defaults: ClassVar[Parameters] = {
        "n": 1, "cin": 64, "cout": 64, "t": 8, "h": 28, "w": "h", "k": 3, "kt": "k", "s": 1, "st": "s", "p": "same",
        "pt": "p", "d": 1, "groups": 1, "bias": False,
    }  # fmt: skip
    own = _Way("t", "kt", "st", "pt")
    ways = (own, _Way("h"), _Way("w"))
    function = "conv3d"
    may_be_zero = ("p", "pt")


class ConvTranspose2d(_Convolution):
    name = "convtranspose2d"
    summary = "transposed 2-D convolution, which makes images larger by its stride; op: rows added at the end"
    defaults: ClassVar[Parameters] = {
        "n": 8, "cin": 64, "cout": 64, "h": 28, "w": "h", "k": 4, "s": 2, "p": 1, "op": 0, "d": 1, "groups": 1,
        "bias": False,
    }  # fmt: skip
    ways = (_Way("h"), _Way("w"))
    may_be_zero = ("p", "op")

    def check(self, p: Any) -> None:
        super().check(p)
        if p["op"] >= max(p["s"], p["d"]):
            raise ValueError(f"op={p['op']} has to be smaller than the stride")

    def kernel(self, p: Any) -> Shape:
        return p["cin"], p["cout"] // p["groups"], p["k"], p["k"]

    def output(self, p: Any) -> Shape:
        moved = ((p[way.side] - 1) * p["s"] - 2 * p["p"] + p["d"] * (p["k"] - 1) + p["op"] + 1 for way in self.ways)
        return p["n"], p["cout"], *moved

    def flops(self, p: Any) -> int:
        """Count each weight at each element of the input that it is multiplied with."""
        return 2 * prod(self.inputs(p)[0].shape) * prod(self.kernel(p)[1:])

    def bind(self, torch: Any, p: Any) -> Call:
        transposed = torch.nn.functional.conv_transpose2d
        how = (p["s"], p["p"], p["op"], p["groups"], p["d"])
        if p["bias"]:
            return lambda x, w: transposed(x[0], w[0], w[1], *how)
        return lambda x, w: transposed(x[0], w[0], None, *how)
