"""The operators that ResNet-50 (``core.networks.resnet50``) calls."""

from __future__ import annotations

from collections.abc import Iterator

from memtui.bench.operators.base import Parameters
from memtui.core.networks import CLASSES, RESNET_STAGES

Call = tuple[str, Parameters]  # operator and parameters, one for each time that it is called


def calls(n: int = 1, size: int = 224) -> Iterator[Call]:
    """Yield every operator that a forward pass calls, in order, the residual additions included.

    Args:
        n: images.
        size: their height and width; at least 32.
    """
    side = _half(size)
    yield from _conv(n, 3, 64, size, 7, 2)
    yield "relu", {"elements": n * 64 * side * side}
    yield "maxpool", {"n": n, "c": 64, "h": side, "k": 3, "s": 2, "p": 1}
    side, channels = _half(side), 64
    for stage, (blocks, inside, out) in enumerate(RESNET_STAGES):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            end = _half(side) if stride == 2 else side
            yield from _conv(n, channels, inside, side, 1, 1)
            yield "relu", {"elements": n * inside * side * side}
            yield from _conv(n, inside, inside, side, 3, stride)
            yield "relu", {"elements": n * inside * end * end}
            yield from _conv(n, inside, out, end, 1, 1)
            if not block:
                yield from _conv(n, channels, out, side, 1, stride)
            yield "add", {"elements": n * out * end * end}
            yield "relu", {"elements": n * out * end * end}
            channels, side = out, end
    yield "adaptiveavgpool", {"n": n, "c": channels, "h": side, "out": 1}
    yield "linear", {"m": n, "in": channels, "out": CLASSES, "bias": True}


def _conv(n: int, cin: int, cout: int, h: int, k: int, s: int) -> Iterator[Call]:
    """Yield a convolution and the normalisation behind it."""
    yield "conv2d", {"n": n, "cin": cin, "cout": cout, "h": h, "k": k, "s": s}
    yield "batchnorm", {"n": n, "c": cout, "h": _half(h) if s == 2 else h}


def _half(side: int) -> int:
    """Return a side after a stride of 2 with a kernel of k padded by k // 2."""
    return (side + 1) // 2
