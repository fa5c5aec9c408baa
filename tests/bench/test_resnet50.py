"""ResNet-50: parameters and operations are the published ones; the list of operators is what torch really calls."""

from __future__ import annotations

from collections import Counter
from math import prod

import pytest

from memtui.bench.operators import CATALOGUE, resnet50
from memtui.bench.spaces import resnet50_counts
from memtui.core import networks

# in, out, k, s, h in, how often, MACs of one: counted by hand on the paper's table 1, and by PyTorch's counter.
CONVOLUTIONS = """
3 64 7 2 224 1 118013952
64 64 1 1 56 1 12845056
64 64 3 1 56 3 115605504
64 256 1 1 56 4 51380224
256 64 1 1 56 2 51380224
256 128 1 1 56 1 102760448
128 128 3 2 56 1 115605504
128 512 1 1 28 4 51380224
256 512 1 2 56 1 102760448
512 128 1 1 28 3 51380224
128 128 3 1 28 3 115605504
512 256 1 1 28 1 102760448
256 256 3 2 28 1 115605504
256 1024 1 1 14 6 51380224
512 1024 1 2 28 1 102760448
1024 256 1 1 14 5 51380224
256 256 3 1 14 5 115605504
1024 512 1 1 14 1 102760448
512 512 3 2 14 1 115605504
512 2048 1 1 7 3 51380224
1024 2048 1 2 14 1 102760448
2048 512 1 1 7 2 51380224
512 512 3 1 7 2 115605504
"""


def test_the_convolutions_are_those_of_the_table():
    expected = {
        tuple(row[:5]): tuple(row[5:]) for row in (list(map(int, r.split())) for r in CONVOLUTIONS.split("\n")[1:-1])
    }
    result = {}
    for configuration, count in resnet50_counts().items():
        if configuration.op == "conv2d":
            p = configuration.parameters
            result[p["cin"], p["cout"], p["k"], p["s"], p["h"]] = count, configuration.flops // 2
    assert result == expected
    assert len(result) == 23
    assert sum(count for count, _ in result.values()) == 53


def test_operations_and_operators():
    counts = resnet50_counts()
    macs = sum(
        configuration.flops // 2 * count
        for configuration, count in counts.items()
        if configuration.op in ("conv2d", "linear")
    )
    assert macs == 4_089_184_256
    calls = Counter()
    for configuration, count in counts.items():
        calls[configuration.op] += count
    assert calls == {
        "conv2d": 53, "batchnorm": 53, "relu": 49, "add": 16, "maxpool": 1, "adaptiveavgpool": 1, "linear": 1
    }  # fmt: skip
    assert Counter(configuration.op for configuration in counts)["add"] == 4


@pytest.mark.parametrize(("n", "size"), [(1, 224), (2, 65)])
def test_the_network_calls_them_in_this_order(n, size):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from torch import nn

    network = networks.resnet50(torch).eval()
    assert sum(p.numel() for p in network.parameters()) == 25_557_032
    assert sum(b.numel() for b in network.buffers()) == 53_173
    names = {
        nn.Conv2d: "conv2d", nn.BatchNorm2d: "batchnorm", nn.ReLU: "relu", nn.Linear: "linear", nn.MaxPool2d: "maxpool",
        nn.AdaptiveAvgPool2d: "adaptiveavgpool",
    }  # fmt: skip
    seen = []
    for module in network.modules():
        if type(module) in names:
            module.register_forward_hook(
                lambda m, x, y: seen.append((names[type(m)], tuple(x[0].shape), tuple(y.shape)))
            )
    with torch.inference_mode():
        assert network(torch.randn(n, 3, size, size)).shape == (n, 1000)

    # Modules do not show the additions. A ReLU is listed by its elements alone.
    expected = []
    for op, given in resnet50.calls(n, size):
        p = CATALOGUE[op].resolve(given)
        if op != "add":
            expected.append((op, CATALOGUE[op].inputs(p)[0].elements, CATALOGUE[op].output(p)))
    result = [(op, prod(x), (prod(y),) if op == "relu" else y) for op, x, y in seen]
    assert result == expected
