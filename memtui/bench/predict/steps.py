"""The steps of a call: its way of computing, the steps of that way, and the amount of each step.

All of it follows from a configuration, nothing from a measurement. Most operators have one way: a call, its operations,
and the bytes that it has to move, as in the roofline model (Williams, Waterman, Patterson 2009). Convolutions have
several ways, in which the cost of an operation differs by ten times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from memtui.bench.configuration import Configuration

BLOCK = 16  # channels, which are numbers of 4 bytes in a register of 512 bits
MMAP_THRESHOLD_BYTES = 32 << 20  # larger tensors get new memory every time (M_MMAP_THRESHOLD_MAX of glibc)
Amounts = Mapping[str, float]


@dataclass(frozen=True)
class Steps:
    """The steps of one configuration.

    Attributes:
        way: name of the way; configurations of one way have the same steps.
        amounts: by step. Numbers are those of tensors, operations are multiplications and additions.
        general: amounts for an operator whose ways are not known: by call, operations and bytes.
    """

    way: str
    amounts: Amounts
    general: Amounts


def steps_of(configuration: Configuration) -> Steps:
    """Return the steps of a configuration.

    Of convolutions in single precision, ways are those of PyTorch 2.x with oneDNN 3.x on one thread of a CPU with
    registers of 512 bits, as ``ONEDNN_VERBOSE=1`` prints them. Where the ways differ, the amounts still hold.
    """
    c, p = configuration, configuration.parameters
    moved_bytes = c.operator.moved_bytes(p, c.item_bytes)
    general = {"call": 1.0, "operations": float(c.flops), "bytes": float(moved_bytes)}
    if c.op == "conv2d" and c.item_bytes == 4 and _is_usual(p) and not c.both_ways:
        way, amounts = _convolution(p, c.operator.output(p))
        return Steps(f"conv2d {way}", {"call": 1.0, **amounts}, general)
    how = [*([c.dtype] if c.dtype != "fp32" else []), *(["with backward pass"] if c.both_ways else [])]
    return Steps(" ".join([c.op, *how]), general, general)


def _is_usual(p: Any) -> bool:
    """Whether a convolution has a square kernel without holes, on contiguous images."""
    return bool(p["format"] == "contiguous" and p["kw"] == p["k"] and p["pw"] == p["p"] and p["d"] == 1)


def takes_own_loops(p: Any, item_bytes: int) -> bool:
    """Whether PyTorch (2.x) computes a convolution with its own loops on one thread of a CPU instead of with oneDNN.

    The rule is ``ConvParams::use_mkldnn`` in PyTorch's ``aten/src/ATen/native/Convolution.cpp``, for single precision.
    """
    small = p["k"] <= 3 and p["groups"] == p["n"] == 1 and p["cin"] * p["h"] * p["w"] <= 20480
    pointwise = p["k"] == p["s"] == 1 and p["n"] < 16
    return item_bytes == 4 and (small or pointwise)


def _convolution(p: Any, output: tuple[int, ...]) -> tuple[str, Amounts]:
    cin, cout = p["cin"] // p["groups"], p["cout"] // p["groups"]
    if takes_own_loops(p, 4):
        return "own loops", _own_loops(p, output)
    if 1 < p["groups"] == p["cin"] == p["cout"]:
        return "depthwise", _blocks(p, output, BLOCK, _products(p, output) * _filled(p["cin"], BLOCK))
    if p["groups"] == 1:
        read = cin if _is_read_as_it_is(p) else _filled(cin, BLOCK)
        return "blocks of channels", _blocks(p, output, BLOCK, _products(p, output) * read * _filled(cout, BLOCK))
    if block := next((block for block in (BLOCK, 8, 4) if cin % block == cout % block == 0), 0):
        filled = _products(p, output) * p["groups"] * cin * cout * BLOCK // block  # less of a register is used
        return "blocks of channels", _blocks(p, output, block, filled)
    products = _products(p, output) * p["groups"] * cin
    return "matrix products", {  # one for each image and group, behind a table of all that is multiplied
        "operations": 2 * products * cout,
        "operations, filled": 2 * products * _filled(cout, BLOCK),
        "numbers of columns": products,
        "numbers written": prod(output),
    }


def _products(p: Any, output: tuple[int, ...]) -> int:
    """Count the products of one input channel and one output channel."""
    n, _, high, wide = output
    return n * high * wide * p["k"] ** 2


def _own_loops(p: Any, output: tuple[int, ...]) -> Amounts:
    """Return the amounts of the way with a matrix product for each image and group."""
    columns = _products(p, output) * p["cin"]
    return {
        "matrix products": p["n"] * p["groups"],
        "groups": p["groups"] if p["groups"] > 1 else 0,
        "operations": 2 * columns * p["cout"] // p["groups"],
        "numbers of columns": 0 if p["k"] == p["s"] == 1 else columns,
        "numbers read": p["n"] * p["cin"] * p["h"] * p["w"],
        "numbers written": prod(output),
    }


def _is_read_as_it_is(p: Any) -> bool:
    """Whether a convolution reads its input without reordering: an image or the like, of few channels."""
    return p["groups"] == 1 and p["cin"] <= 8 and p["k"] > 1


def _blocks(p: Any, output: tuple[int, ...], block: int, products: int) -> Amounts:
    """Return the amounts of the way with channels in blocks: tensors are reordered, and the output back."""
    read = 0 if _is_read_as_it_is(p) else p["n"] * p["cin"] * p["h"] * p["w"]
    written = prod(output)
    read_whole, written_whole = (p[side] % block == 0 and block > 4 for side in ("cin", "cout"))
    return {
        "operations, filled": 2 * products,
        "numbers read": read if read_whole else 0,
        "numbers read, blocks not full": 0 if read_whole else read,
        "numbers written": written if written_whole else 0,
        "numbers written, blocks not full": 0 if written_whole else written,
        "weights": p["cout"] * p["cin"] // p["groups"] * p["k"] ** 2,
        "numbers in new memory": sum(some for some in (read, written, written) if some * 4 > MMAP_THRESHOLD_BYTES),
    }


def _filled(channels: int, block: int) -> int:
    return -(-channels // block) * block
