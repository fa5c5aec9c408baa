"""Networks as a user writes them, for tests that take them apart: ``FILE.py:function`` returns (model, inputs)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from memtui.bench.decomposition.loading import library_of

SOURCE = '''
from collections import namedtuple

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A residual block, whose addition and ReLU are not modules."""

    def __init__(self, c):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(2, c)

    def forward(self, x):
        return F.relu(x + self.norm(self.conv(x)))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        conv = nn.Conv2d(3, 8, (1, 7), 2, (0, 3))
        self.stem = nn.Sequential(conv, nn.BatchNorm2d(8), nn.Hardswish(), nn.MaxPool2d(2))
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.unused = nn.Linear(3, 3)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        print("a network may print")
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True)
        self.gru, self.rnn = nn.GRU(16, 8), nn.RNN(8, 4, nonlinearity="relu")
        self.bag = nn.EmbeddingBag(50, 4, mode="mean")

    def forward(self, tokens):
        x, _ = self.lstm(self.words(tokens))
        x, _ = self.rnn(self.gru(x)[0])
        return x.amax(1) + self.bag(tokens)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(16, 4, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x):
        x = self.layer(self.mha(x, x, x, need_weights=False)[0])
        q = x.view(2, 6, 4, 4).transpose(1, 2)
        x = F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).reshape(2, 6, 16)
        return torch.softmax(x @ x.transpose(1, 2), -1)


class Strange(nn.Module):
    """A leaf of which a part is not an operator."""

    def __init__(self):
        super().__init__()
        self.sort, self.linear = Sorting(), nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(self.sort(x))


class Sorting(nn.Module):
    def forward(self, x):
        return torch.sort(torch.relu(x))[0]


def small():
    return Small(), torch.randn(2, 3, 16, 24)


def recurrent():
    return Recurrent(), [torch.randint(50, (3, 7))]


def attention():
    return Attention(), {"x": torch.randn(2, 6, 16)}


def strange():
    return Strange(), torch.randn(4, 8), None


class Empty(nn.Module):
    """A leaf whose operator has no such numbers, and one that has."""

    def __init__(self):
        super().__init__()
        self.relu, self.linear = nn.ReLU(), nn.Linear(8, 8)

    def forward(self, x):
        self.relu(x[:0])
        return self.linear(x)


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, pair, given):
        return self.linear(pair.first + given[0]["second"])


Pair = namedtuple("Pair", "first number")


def empty():
    return Empty(), torch.randn(4, 8)


def nested():
    return Nested(), (Pair(torch.randn(4, 8), 1), ({"second": torch.randn(4, 8)},))


def nothing():
    return nn.Identity(), torch.randn(3)


def no_model():
    return 3


def wrong_input():
    return nn.Linear(3, 3), torch.randn(2, 5)


def no_input():
    return nn.Linear(3, 3), 5


def fails():
    raise KeyError("weights of mine")
'''


def write_networks(folder: Path) -> Path:
    """Write the file and return its path."""
    path = folder / "net.py"
    path.write_text(SOURCE)
    return path


def library(torch: ModuleType, name: str) -> ModuleType:
    """Return torchvision or timm; the test skips without it."""
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return library_of(torch, name)
