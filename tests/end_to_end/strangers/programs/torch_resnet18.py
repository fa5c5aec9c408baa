"""ResNet-18 from its configuration (He et al. 2015, table 1), which learns random images of 32 x 32 pixels."""

import hashlib
import sys
import time

import torch
from torch import nn

BLOCKS, WIDTHS = (2, 2, 2, 2), (64, 128, 256, 512)


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width_in, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or width_in != width:
            self.around = nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.around(images))


torch.manual_seed(1)
layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
width_in = 64
for stage, (blocks, width) in enumerate(zip(BLOCKS, WIDTHS, strict=True)):
    for block in range(blocks):
        layers.append(Block(width_in, width, 2 if stage and not block else 1))
        width_in = width
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range(int(sys.argv[1])):
    images, classes = torch.randn(4, 3, 32, 32), torch.randint(10, (4,))
    optimizer.zero_grad(set_to_none=False)
    nn.functional.cross_entropy(model(images), classes).backward()
    optimizer.step()
    print("step", step, "at", time.monotonic_ns(), file=sys.stderr, flush=True)
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
print(digest.hexdigest())
