"""A network built from its description: layers, and the segments that rules work with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from memtui.training.network_specs import LayerSpec, Shape, shape_after
from memtui.training.torch import layers as made_of
from memtui.training.torch.composite_layers import Block, Residual, Saved, begins_segment, forward
from memtui.training.torch.layers import BatchNormalization, Convolutional, FullyConnected, Layer, Weighted
from memtui.training.torch.rules import BP

_SIMPLE = ("Sigmoid", "Tanh", "ReLu", "Softmax")


@dataclass(frozen=True, slots=True)
class Segment:
    """A layer with weights, and the layers without weights behind it. ``head`` is None before the first such layer."""

    head: Weighted | Residual | None
    layers: tuple[Layer, ...]
    names: tuple[str, ...]

    @property
    def learns(self) -> bool:
        """Whether any of its layers has parameters."""
        return any(True for layer in self.layers for _ in layer.parameters())


class Network(nn.Module):
    """Takes batches of examples and returns one number for each class.

    Args:
        description: layers as ``network_specs.layers_of`` returns them.
        shape: shape of one example.
        outputs: the number of classes.
        rule: prepares what learning needs besides the weights.
        seed: seed of the weights, and of another generator for feedback: weights are the same under all rules.
    """

    def __init__(self, description: Sequence[LayerSpec], shape: Shape, outputs: int, rule: BP, seed: int) -> None:
        super().__init__()
        weights, feedback = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)
        for n, spec in enumerate(description):
            self.add_module(f"{spec['layer']}_{n}", build(spec, shape, weights))
            shape = shape_after(spec, shape)
        self.segments = _segments([(name, layer) for name, layer in self.named_children() if isinstance(layer, Layer)])
        learning = [segment for segment in self.segments if segment.learns]
        for segment in learning[1:]:  # layers below the first one do not learn
            if segment.head is not None:
                rule.prepare(segment.head, outputs, feedback)
        first = learning[0].head
        if isinstance(first, Residual):
            rule.prepare(first, outputs, feedback)

    def forward(self, x: Tensor, after: Callable[[Segment, Saved], object] | None = None) -> Tensor:
        """Return the numbers by class, before any softmax of the cost.

        Args:
            x: f4[examples, ...].
            after: called when a segment was computed, with what its backward pass needs; None: nothing is saved.
        """
        for segment in self.segments:
            saved: Saved | None = [] if after is not None else None
            x = forward(segment.layers, x, saved)
            if after is not None and saved is not None:
                after(segment, saved)
            del saved
        return x

    def advance(self, advances: bool) -> None:
        """Set whether forward passes advance running statistics."""
        for module in self.modules():
            if isinstance(module, BatchNormalization):
                module.advances = advances


def build(spec: LayerSpec, shape: Shape, generator: torch.Generator) -> Layer:
    """Return a layer for examples of a shape."""
    name = spec["layer"]
    if name == "FullyConnected":
        return FullyConnected(shape, spec["units"], spec["add_biases"], generator)
    if name == "Convolutional":
        how = (spec["filter_dim"], spec["num_of_filters"], spec["strides"], spec["padding"], spec["add_biases"])
        return Convolutional(shape, *how, generator)
    if name in ("MaxPool", "AveragePool"):
        return _pool(spec, shape)
    if name == "BatchNormalization":
        return BatchNormalization(shape[0], spec["momentum"], spec["epsilon"])
    if name == "LeakyReLu":
        return made_of.LeakyReLu(spec["slope"])
    if name in _SIMPLE:
        return getattr(made_of, name)()
    inside = [spec["head"], *spec["tail"]] if name == "Block" else spec["layers"]
    before, parts = shape, []
    for n, part in enumerate(inside):
        parts.append((f"{part['layer']}_{n}", build(part, shape, generator)))
        shape = shape_after(part, shape)
    return Block(parts) if name == "Block" else Residual(parts, _shortcut(before, shape, generator), before)


def _shortcut(before: Shape, after: Shape, generator: torch.Generator) -> Convolutional | None:
    if before == after:
        return None
    strides = (-(-before[1] // after[1]), -(-before[2] // after[2]))
    return Convolutional(before, (1, 1), after[0], strides, "SAME", False, generator)


def _pool(spec: LayerSpec, shape: Shape) -> Layer:
    """Pad as TensorFlow does: SAME covers every pixel, with the padding divided between both sides."""
    kind = getattr(made_of, spec["layer"])
    window = spec["kernel_size"] or shape[1:]
    strides = spec["strides"] or window
    if spec["padding"] == "VALID" or spec["kernel_size"] is None:
        return kind(window, strides, [0, 0], False)
    missing = [max((-(-n // s) - 1) * s + w - n, 0) for n, w, s in zip(shape[1:], window, strides, strict=True)]
    return kind(window, strides, [n // 2 for n in missing], any(n % 2 for n in missing))


def _segments(named: list[tuple[str, Layer]]) -> list[Segment]:
    groups: list[list[tuple[str, Layer]]] = [[]]
    for name, layer in _unpacked(named):
        if begins_segment(layer):
            groups.append([])
        groups[-1].append((name, layer))
    return [_segment(part) for part in groups if part]


def _unpacked(named: list[tuple[str, Layer]]) -> list[tuple[str, Layer]]:
    """Return the layers, with the parts of blocks in place of the blocks."""
    layers: list[tuple[str, Layer]] = []
    for name, layer in named:
        if isinstance(layer, Block) and not isinstance(layer, Residual):
            inner = [(part, item) for part, item in layer.named_children() if isinstance(item, Layer)]
            layers += _unpacked([(f"{name}.{part}", item) for part, item in inner])
        else:
            layers.append((name, layer))
    return layers


def _segment(parts: list[tuple[str, Layer]]) -> Segment:
    names, layers = zip(*parts, strict=True)
    head = layers[0] if begins_segment(layers[0]) else None
    return Segment(head, tuple(layers), tuple(names))
