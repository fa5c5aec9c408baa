"""ResNet-50 (He et al. 2015) in PyTorch on the CPU, trained as the small network of ``cnn`` is, on the same images.

Run ``python -m memtui.study.workloads.resnet --help``. torch is imported only when a network is created.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from memtui.study.workloads import cnn

STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, channels inside, stride of the first
WIDER = 4  # channels of a block's output by those inside
CLASSES = 10


def model() -> Any:
    """Return the network: 50 layers with weights, the stride of a block in its second convolution."""
    from torch import nn

    class Bottleneck(nn.Module):
        """Three convolutions with a path around them."""

        def __init__(self, channels: int, inside: int, stride: int) -> None:
            super().__init__()
            out = WIDER * inside
            self.convolutions = nn.Sequential(
                *(nn.Conv2d(channels, inside, 1, bias=False), nn.BatchNorm2d(inside), nn.ReLU(inplace=True)),
                *(nn.Conv2d(inside, inside, 3, stride, 1, bias=False), nn.BatchNorm2d(inside), nn.ReLU(inplace=True)),
                *(nn.Conv2d(inside, out, 1, bias=False), nn.BatchNorm2d(out)),
            )
            self.around = nn.Sequential()
            if stride != 1 or channels != out:
                self.around = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            return self.relu(self.convolutions(x) + self.around(x))

    layers: list[Any] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for blocks, inside, stride in STAGES:
        for block in range(blocks):
            layers.append(Bottleneck(channels, inside, stride if block == 0 else 1))
            channels = WIDER * inside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    return cnn.main(arguments, "memtui.study.workloads.resnet", "Train ResNet-50 with PyTorch.", model)


if __name__ == "__main__":
    sys.exit(main())
