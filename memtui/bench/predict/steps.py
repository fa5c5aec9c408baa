"""What a call consists of: the way it takes, the steps of that way, and how much there is to do of each.

All follows from a configuration, nothing from a measurement. Most operators have one way: a call, its operations, and
the bytes that it has to move, as in the roofline model (Williams, Waterman, Patterson 2009). Convolutions have several,
which differ by ten times in what an operation costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from memtui.bench.configuration import Configuration

BLOCK = 16  # channels, which are numbers of 4 bytes in a register of 512 bits
MOST_KEPT_BYTES = 32 << 20  # of larger tensors the memory is asked for anew every time (M_MMAP_THRESHOLD_MAX of glibc)
Amounts = Mapping[str, float]


@dataclass(frozen=True)
class Steps:
    """Of one configuration.

    Attributes:
        way: its name; configurations of one way have the same steps.
        amounts: by step. Numbers are those of tensors, operations are multiplications and additions.
        general: the same, of an operator whose ways are not known: by call, operations and bytes.
    """

    way: str
    amounts: Amounts
    general: Amounts


def steps_of(configuration: Configuration) -> Steps:
    """Those of a configuration.

    Of convolutions in single precision, ways are those of PyTorch 2.x with oneDNN 3.x on one thread of a CPU with
    registers of 512 bits, as ``ONEDNN_VERBOSE=1`` tells them. Where they are others, steps still say how much there is.
    """
    c = configuration
    moved_bytes = c.operator.moved_bytes(c.parameters, c.item_bytes)
    general = {"call": 1.0, "operations": float(c.flops), "bytes": float(moved_bytes)}
    if c.op == "conv2d" and c.item_bytes == 4 and not c.both_ways:
        way, amounts = _convolution(c.parameters, c.operator.output(c.parameters))
        return Steps(f"conv2d {way}", {"call": 1.0, **amounts}, general)
    return Steps(c.op + (" with backward pass" if c.both_ways else ""), general, general)


def takes_own_loops(p: Any, item_bytes: int) -> bool:
    """Whether PyTorch (2.x) computes it by itself on one thread of a CPU instead of by oneDNN.

    As ``ConvParams::use_mkldnn`` in its ``aten/src/ATen/native/Convolution.cpp`` has it, for single precision.
    """
    small = p["k"] <= 3 and p["groups"] == p["n"] == 1 and p["cin"] * p["h"] * p["w"] <= 20480
    pointwise = p["k"] == p["s"] == 1 and p["n"] < 16
    return item_bytes == 4 and (small or pointwise)


def _convolution(p: Any, output: tuple[int, ...]) -> tuple[str, Amounts]:
    n, _, high, wide = output
    groups, k = p["groups"], p["k"]
    by_group = p["cin"] // groups, p["cout"] // groups
    products = n * high * wide * k * k * groups  # of one channel of a group by one
    read, written, weights = n * p["cin"] * p["h"] * p["w"], prod(output), p["cout"] * by_group[0] * k * k
    if takes_own_loops(p, 4):  # a matrix product for each image and group
        return "own loops", {
            "matrix products": n * groups,
            "groups": groups if groups > 1 else 0,
            "operations": 2 * products * prod(by_group),
            "numbers of columns": 0 if k == p["s"] == 1 else products * by_group[0],
            "numbers read": read,
            "numbers written": written,
        }
    depthwise = 1 < groups == p["cin"] == p["cout"]
    block = BLOCK if groups == 1 or depthwise else _common_block(*by_group)
    if not block:  # one matrix product for each image and group, behind a table of all that is multiplied
        return "matrix products", {
            "operations": 2 * products * prod(by_group),
            "operations, filled": 2 * products * by_group[0] * _filled(by_group[1], BLOCK),
            "numbers of columns": products * by_group[0],
            "numbers written": written,
        }
    # Channels in blocks: tensors are brought into that order, and the output back.
    as_it_is = groups == 1 and p["cin"] <= 8 and k > 1  # images and the like are read in their own order
    filled = tuple(c if groups > 1 else _filled(c, block) for c in by_group)
    if depthwise:
        operations = 2 * products // groups * _filled(groups, block)
    else:
        operations = 2 * products * (by_group[0] if as_it_is else filled[0]) * filled[1] * BLOCK // block
    whole = [c % block == 0 and block > 4 for c in (p["cin"], p["cout"])]
    ordered = [0 if as_it_is else read, written]
    return "depthwise" if depthwise else "blocks of channels", {
        "operations, filled": operations,
        "numbers read": ordered[0] if whole[0] else 0,
        "numbers read, blocks not full": 0 if whole[0] else ordered[0],
        "numbers written": ordered[1] if whole[1] else 0,
        "numbers written, blocks not full": 0 if whole[1] else ordered[1],
        "weights": weights,
        "numbers in new memory": sum(some for some in (ordered[0], written, written) if some * 4 > MOST_KEPT_BYTES),
    }


def _common_block(cin: int, cout: int) -> int:
    """How many channels of a group are taken at once; 0: it is no such number for both sides."""
    return next((block for block in (BLOCK, 8, 4) if cin % block == cout % block == 0), 0)


def _filled(channels: int, block: int) -> int:
    return -(-channels // block) * block
