"""ResNet-50 (He et al. 2015, arXiv:1512.03385; stride in the 3x3, "v1.5"): its operators, and the network in torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memtui.bench.operators.base import Parameters

# (blocks, channels inside, channels out) of each stage; the first block of each but the first halves the image.
STAGES = ((3, 64, 256), (4, 128, 512), (6, 256, 1024), (3, 512, 2048))
CLASSES = 1000
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
    for stage, (blocks, inside, out) in enumerate(STAGES):
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


def network(torch: Any) -> Any:
    """Return the network as a ``torch.nn.Module``, with random weights. ``torch`` is the module."""
    nn = torch.nn

    def conv(cin: int, cout: int, k: int, s: int = 1) -> list[Any]:
        return [nn.Conv2d(cin, cout, k, s, k // 2, bias=False), nn.BatchNorm2d(cout)]

    class Bottleneck(nn.Module):  # type: ignore[name-defined]
        def __init__(self, cin: int, inside: int, cout: int, s: int, first: bool) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *conv(cin, inside, 1), nn.ReLU(), *conv(inside, inside, 3, s), nn.ReLU(), *conv(inside, cout, 1)
            )
            self.shortcut = nn.Sequential(*conv(cin, cout, 1, s)) if first else nn.Identity()
            self.relu = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.relu(self.body(x) + self.shortcut(x))

    layers = [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, (blocks, inside, out) in enumerate(STAGES):
        for block in range(blocks):
            layers.append(Bottleneck(channels, inside, out, 2 if stage and not block else 1, not block))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))
