"""The networks are the published ones: parameters, operations and layers, which were held against torchvision 0.28."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from memtui.core import networks
from tests.support.networks import library

torch = pytest.importorskip("torch", reason="torch is not installed")

# Image, parameters, buffers, multiply-accumulates of a forward pass, layers: as torchvision has them. The digest is of
# the parameters' shapes in their order, made from torchvision's own.
PUBLISHED = {
    "vgg16": (224, 138_357_544, 0, 15_470_264_320, {"Conv2d": 13, "Linear": 3, "MaxPool2d": 5}, "5ec665fd178b7feb"),
    "resnet50": (
        224,
        25_557_032,
        53_173,
        4_089_184_256,
        {"Conv2d": 53, "BatchNorm2d": 53, "Linear": 1},
        "94bf2e8b7f481c35",
    ),
    "inception_v3": (
        299,
        27_161_264,
        36_320,
        5_713_216_096,
        {"Conv2d": 96, "BatchNorm2d": 96, "Linear": 2},
        "cdc81e9c901939e5",
    ),
    "densenet121": (
        224,
        7_978_856,
        83_769,
        2_834_161_664,
        {"Conv2d": 120, "BatchNorm2d": 121, "Linear": 1},
        "e6984d1589e0d9db",
    ),
}


def network(name):
    with torch.device("meta"):
        return getattr(networks, name)(torch)


def forward(name, training):
    """Run a network on two images without data; return its output and the operations for each."""
    from torch.utils.flop_counter import FlopCounterMode

    side = PUBLISHED[name][0]
    with FlopCounterMode(display=False) as counter:
        out = network(name).train(training)(torch.empty(2, 3, side, side, device="meta"))
    return out, counter.get_total_flops() // 2 // 2


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_layers_and_operations(name):
    _, parameters, buffers, macs, layers, digest = PUBLISHED[name]
    built = network(name)
    shapes = [tuple(parameter.shape) for parameter in built.parameters()]
    assert sum(parameter.numel() for parameter in built.parameters()) == parameters
    assert sum(buffer.numel() for buffer in built.buffers()) == buffers
    kinds = Counter(type(module).__name__ for module in built.modules())
    assert {kind: kinds[kind] for kind in layers} == layers
    assert hashlib.sha256(repr(shapes).encode()).hexdigest()[:16] == digest
    out, counted = forward(name, False)
    assert tuple(out.shape) == (2, networks.CLASSES)
    assert counted == macs


def test_inception_has_an_auxiliary_classifier_in_training_alone():
    out, counted = forward("inception_v3", True)
    assert [tuple(each.shape) for each in out] == [(2, networks.CLASSES)] * 2
    assert counted == 5_718_899_296
    auxiliary = network("inception_v3").auxiliary
    assert PUBLISHED["inception_v3"][1] - sum(p.numel() for p in auxiliary.parameters()) == 23_834_568


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_layers_are_those_of_torchvision(name):
    models = library(torch, "torchvision").models
    with torch.device("meta"):
        other = getattr(models, name)(**({} if name in ("resnet50", "densenet121") else {"init_weights": False}))
    own = network(name)
    assert [p.shape for p in own.parameters()] == [p.shape for p in other.parameters()]
    assert _calls(own, PUBLISHED[name][0]) == _calls(other, PUBLISHED[name][0])


def _calls(built, side):
    """Return what the layers with parameters read and write in a forward pass, with their settings."""
    seen = Counter()

    def note(module, inputs, output):
        settings = [getattr(module, name, None) for name in ("kernel_size", "stride", "padding", "eps")]
        seen[type(module).__name__, str(settings), tuple(inputs[0].shape), tuple(output.shape)] += 1

    for module in built.modules():
        if type(module) in (torch.nn.Conv2d, torch.nn.BatchNorm2d, torch.nn.Linear):
            module.register_forward_hook(note)
    built.train()(torch.empty(2, 3, side, side, device="meta"))
    return seen
