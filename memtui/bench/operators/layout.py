"""Operators that only move numbers: no operations, all bytes."""

from __future__ import annotations

from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor


class Copy(Operator):
    name = "copy"
    summary = "a contiguous copy of b x m x n x run numbers with m and n exchanged; m=1: as they lie"
    defaults: ClassVar[Parameters] = {"b": 8, "m": 64, "n": 3136, "run": 1}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["b"], p["m"], p["n"], p["run"])),)

    def output(self, p: Any) -> Shape:
        return p["b"], p["n"], p["m"], p["run"]

    def flops(self, p: Any) -> int:
        return 0

    def bind(self, torch: Any, p: Any) -> Call:
        contiguous = torch.contiguous_format
        return lambda x, w: x[0].transpose(1, 2).clone(memory_format=contiguous)


class Concatenate(Operator):
    name = "cat"
    summary = "parts of together inner numbers, beside each other, outer times"
    defaults: ClassVar[Parameters] = {"outer": 8, "inner": 256 * 784, "parts": 2}

    def check(self, p: Any) -> None:
        if p["parts"] > p["inner"]:
            raise ValueError(f"{p['inner']} numbers cannot come in {p['parts']} parts")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        """Return parts of the same size, but for the last one, which has the rest."""
        each, parts = p["inner"] // p["parts"], p["parts"]
        last = p["inner"] - each * (parts - 1)
        return (*(Tensor((p["outer"], each)),) * (parts - 1), Tensor((p["outer"], last)))

    def output(self, p: Any) -> Shape:
        return p["outer"], p["inner"]

    def flops(self, p: Any) -> int:
        return 0

    def bind(self, torch: Any, p: Any) -> Call:
        cat = torch.cat
        return lambda x, w: cat(x, 1)


class Roll(Operator):
    name = "roll"
    summary = "n images of h x w x c, each moved by shift to both sides, around its edges"
    defaults: ClassVar[Parameters] = {"n": 8, "h": 56, "w": "h", "c": 96, "shift": 3}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor(self.output(p)),)

    def output(self, p: Any) -> Shape:
        return p["n"], p["h"], p["w"], p["c"]

    def flops(self, p: Any) -> int:
        return 0

    def bind(self, torch: Any, p: Any) -> Call:
        roll, shifts = torch.roll, (-p["shift"], -p["shift"])
        return lambda x, w: roll(x[0], shifts, (1, 2))


class Pad(Operator):
    name = "pad"
    summary = "outer x rows x cols x inner numbers with rows and columns of zeros added"
    defaults: ClassVar[Parameters] = {"outer": 512, "rows": 56, "cols": 56, "inner": 1, "more_rows": 2, "more_cols": 2}
    may_be_zero = ("more_rows", "more_cols")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["outer"], p["rows"], p["cols"], p["inner"])),)

    def output(self, p: Any) -> Shape:
        return p["outer"], p["rows"] + p["more_rows"], p["cols"] + p["more_cols"], p["inner"]

    def flops(self, p: Any) -> int:
        return 0

    def bind(self, torch: Any, p: Any) -> Call:
        pad, sides = torch.constant_pad_nd, (0, 0, 0, p["more_cols"], 0, p["more_rows"])
        return lambda x, w: pad(x[0], sides, 0.0)


class Fill(Operator):
    name = "fill"
    summary = "new memory, of zeros"
    defaults: ClassVar[Parameters] = {"elements": 1 << 20}
    trains = False

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((1,)),)

    def output(self, p: Any) -> Shape:
        return (p["elements"],)

    def flops(self, p: Any) -> int:
        return 0

    def bind(self, torch: Any, p: Any) -> Call:
        shape = (p["elements"],)
        return lambda x, w: x[0].new_zeros(shape)


class Permute(Operator):
    name = "permute"
    summary = "a contiguous copy of a tensor with its sides in another order, where copy does not do"
    defaults: ClassVar[Parameters] = {"shape": "8x64x8x7x8x7", "order": "0,2,4,3,5,1"}
    texts = ("shape", "order")

    def check(self, p: Any) -> None:
        try:
            shape, order = _whole_numbers(p["shape"], "x"), _whole_numbers(p["order"], ",")
        except ValueError:
            raise ValueError(
                f"shape and order are written 2x3x5 and 2,0,1, not {p['shape']} and {p['order']}"
            ) from None
        if sorted(order) != list(range(len(shape))):
            raise ValueError(f"order={p['order']} does not name each of {len(shape)} sides once, from 0 on")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor(_whole_numbers(p["shape"], "x")),)

    def output(self, p: Any) -> Shape:
        shape = _whole_numbers(p["shape"], "x")
        return tuple(shape[side] for side in _whole_numbers(p["order"], ","))

    def flops(self, p: Any) -> int:
        return 0

    def bind(self, torch: Any, p: Any) -> Call:
        order, contiguous = _whole_numbers(p["order"], ","), torch.contiguous_format
        return lambda x, w: x[0].permute(order).clone(memory_format=contiguous)


def _whole_numbers(text: str, separator: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(separator)))
