"""Published classifiers of images, written out: VGG-16, ResNet-50, Inception v3 and DenseNet-121, 1000 classes each.

Each function takes the module ``torch`` and returns a ``torch.nn.Module`` with random weights. The layers are those of
torchvision in their order, so that parameters, shapes and operations are the published ones.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

CLASSES = 1000
# Channels of VGG-16's convolutions by stage (Simonyan & Zisserman, arXiv:1409.1556, configuration D),
# and the sizes of its two hidden linear layers.
VGG_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
VGG_HIDDEN = (4096, 4096)
# (blocks, channels inside, channels out) of each stage of ResNet-50 (He et al., arXiv:1512.03385; stride in the 3x3,
# "v1.5"); the first block of each but the first halves the image.
RESNET_STAGES = ((3, 64, 256), (4, 128, 512), (6, 256, 1024), (3, 512, 2048))
# Blocks of Inception v3 (Szegedy et al., arXiv:1512.00567): channels of the pooling branch of those on images of
# 35 x 35, channels inside of those on 17 x 17, and how many there are on 8 x 8.
WIDE_BLOCKS, FACTORED_BLOCKS, LAST_BLOCKS = (32, 64, 64), (128, 160, 160, 192), 2
# Layers of each block of DenseNet-121 (Huang et al., arXiv:1608.06993), and the channels that a layer adds.
DENSE_BLOCKS, GROWTH = (6, 12, 24, 16), 32


def vgg16(torch: Any) -> Any:
    """Return VGG-16 for images of 224 x 224."""
    nn = torch.nn
    layers: list[Any] = []
    channels = 3
    for stage in VGG_STAGES:
        for out in stage:
            layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU()]
            channels = out
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    sizes = (channels * 7 * 7, *VGG_HIDDEN)
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], CLASSES))


def resnet50(torch: Any) -> Any:
    """Return ResNet-50 for images of at least 32 x 32."""
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
    for stage, (blocks, inside, out) in enumerate(RESNET_STAGES):
        for block in range(blocks):
            layers.append(Bottleneck(channels, inside, out, 2 if stage and not block else 1, not block))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def inception_v3(torch: Any) -> Any:
    """Return Inception v3 for images of 299 x 299.

    In training its output is a pair: that of the network, and that of the auxiliary classifier.
    """
    nn, sequence = torch.nn, torch.nn.Sequential

    def conv(cin: int, cout: int, k: int | tuple[int, int], s: int = 1, padding: int | None = None) -> Any:
        """Return a convolution with its normalisation; by default the image keeps its size."""
        sides = (k, k) if isinstance(k, int) else k
        around = tuple(side // 2 for side in sides) if padding is None else padding
        layers = nn.Conv2d(cin, cout, sides, s, around, bias=False), nn.BatchNorm2d(cout, eps=0.001), nn.ReLU()
        return sequence(*layers)

    class Branches(nn.Module):  # type: ignore[name-defined]
        """Several branches whose outputs are joined by channels."""

        def __init__(self, *branches: Any) -> None:
            super().__init__()
            self.branches = nn.ModuleList(branches)

        def forward(self, x: Any) -> Any:
            return torch.cat([branch(x) for branch in self.branches], 1)

    def wide(cin: int, pooled: int) -> Any:
        """Return a block of 5x5 and 3x3 convolutions, on images of 35 x 35."""
        return Branches(
            conv(cin, 64, 1),
            sequence(conv(cin, 48, 1), conv(48, 64, 5)),
            sequence(conv(cin, 64, 1), conv(64, 96, 3), conv(96, 96, 3)),
            sequence(nn.AvgPool2d(3, 1, 1), conv(cin, pooled, 1)),
        )

    def factored(inside: int) -> Any:
        """Return a block whose 7x7 convolutions are split into 1x7 and 7x1, on images of 17 x 17."""
        return Branches(
            conv(768, 192, 1),
            sequence(conv(768, inside, 1), conv(inside, inside, (1, 7)), conv(inside, 192, (7, 1))),
            sequence(
                conv(768, inside, 1),
                conv(inside, inside, (7, 1)),
                conv(inside, inside, (1, 7)),
                conv(inside, inside, (7, 1)),
                conv(inside, 192, (1, 7)),
            ),
            sequence(nn.AvgPool2d(3, 1, 1), conv(768, 192, 1)),
        )

    def split() -> Any:
        return Branches(conv(384, 384, (1, 3)), conv(384, 384, (3, 1)))

    def last(cin: int) -> Any:
        """Return a block whose branches split once more, on images of 8 x 8."""
        return Branches(
            conv(cin, 320, 1),
            sequence(conv(cin, 384, 1), split()),
            sequence(conv(cin, 448, 1), conv(448, 384, 3), split()),
            sequence(nn.AvgPool2d(3, 1, 1), conv(cin, 192, 1)),
        )

    class InceptionV3(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            of_wide = zip((192, *(224 + pooled for pooled in WIDE_BLOCKS)), WIDE_BLOCKS, strict=False)
            self.before = sequence(
                *(conv(3, 32, 3, 2, 0), conv(32, 32, 3, 1, 0), conv(32, 64, 3), nn.MaxPool2d(3, 2)),
                *(conv(64, 80, 1), conv(80, 192, 3, 1, 0), nn.MaxPool2d(3, 2)),
                *(wide(channels, pooled) for channels, pooled in of_wide),
                Branches(
                    conv(288, 384, 3, 2, 0),
                    sequence(conv(288, 64, 1), conv(64, 96, 3), conv(96, 96, 3, 2, 0)),
                    nn.MaxPool2d(3, 2),
                ),
                *(factored(inside) for inside in FACTORED_BLOCKS),
            )
            self.auxiliary = sequence(
                *(nn.AvgPool2d(5, 3), conv(768, 128, 1), conv(128, 768, 5, 1, 0)),
                *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(768, CLASSES)),
            )
            self.after = sequence(
                Branches(
                    sequence(conv(768, 192, 1), conv(192, 320, 3, 2, 0)),
                    sequence(
                        conv(768, 192, 1), conv(192, 192, (1, 7)), conv(192, 192, (7, 1)), conv(192, 192, 3, 2, 0)
                    ),
                    nn.MaxPool2d(3, 2),
                ),
                *(last(2048 if block else 1280) for block in range(LAST_BLOCKS)),
                *(nn.AdaptiveAvgPool2d(1), nn.Dropout(0.5), nn.Flatten()),
                nn.Linear(2048 if LAST_BLOCKS else 1280, CLASSES),
            )

        def forward(self, x: Any) -> Any:
            x = self.before(x)
            return (self.after(x), self.auxiliary(x)) if self.training else self.after(x)

    return InceptionV3()


def densenet121(torch: Any) -> Any:
    """Return DenseNet-121 for images of at least 32 x 32.

    A layer joins its output to all that was there before it, two tensors at a time.
    """
    nn = torch.nn

    def conv(cin: int, cout: int, k: int) -> list[Any]:
        return [nn.BatchNorm2d(cin), nn.ReLU(), nn.Conv2d(cin, cout, k, padding=k // 2, bias=False)]

    class Layer(nn.Module):  # type: ignore[name-defined]
        def __init__(self, cin: int) -> None:
            super().__init__()
            self.body = nn.Sequential(*conv(cin, 4 * GROWTH, 1), *conv(4 * GROWTH, GROWTH, 3))

        def forward(self, x: Any) -> Any:
            return torch.cat([x, self.body(x)], 1)

    channels = 2 * GROWTH
    layers = [
        *(nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    ]
    for number, block in enumerate(DENSE_BLOCKS):
        if number:
            layers += [*conv(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
        for _ in range(block):
            layers.append(Layer(channels))
            channels += GROWTH
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(channels, CLASSES))
