"""Layers made of layers, and chains of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from memtui.recording.tracer.manual_backward import Backward
from memtui.training.torch.layers import Carry, Convolutional, Layer, Weighted

Kept = list[tuple[Layer, Any]]


def forward(layers: Sequence[Layer], x: Tensor, kept: Kept | None) -> Tensor:
    """Go through all layers; what their backward passes need is added to ``kept``, or let go."""
    for layer in layers:
        x, inside = layer(x)
        if kept is not None:
            kept.append((layer, inside))
        del inside
    return x


def backward(kept: Kept, error: Tensor, carry: Carry, wanted: bool = True) -> Tensor | None:
    """Go back through a chain, releasing what was kept as it was used. None where no input error is ``wanted``."""
    found: Tensor | None = error
    del error
    while kept:
        layer, inside = kept.pop()
        assert found is not None
        with Backward(layer):
            found = layer.backward(inside, found, carry if kept or wanted else None)
        del inside
    return found


def exactly(layer: Weighted, error: Tensor) -> Tensor:
    """Return the error at the input as it is: through the weights."""
    return layer.carried(error, layer.weight)


class Block(Layer):
    """A layer with weights and those behind it; in a chain it is what its parts would be."""

    def __init__(self, parts: Sequence[tuple[str, Layer]]) -> None:
        super().__init__()
        for name, layer in parts:
            self.add_module(name, layer)
        self._layers = [layer for _, layer in parts]

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        kept: Kept = []
        return forward(self._layers, x, kept), kept

    def backward(self, kept: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        return backward(kept, error, carry or exactly, carry is not None)


class Residual(Block):
    """``y = F(x) + x``; where the shapes differ, x goes through a 1x1 convolution.

    For the direct rules it is one layer with weights: inside of it errors are carried as they are.
    """

    feedback: Tensor | None

    def __init__(self, parts: Sequence[tuple[str, Layer]], shortcut: Convolutional | None, input_shape: Any) -> None:
        super().__init__(parts)
        self.shortcut = shortcut
        self.input_shape = input_shape
        self.register_buffer("feedback", None)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        kept: Kept = []
        y = forward(self._layers, x, kept)
        beside = x if self.shortcut is None else self.shortcut(x)[0]
        return y + beside, (kept, x if self.shortcut is not None else None)

    def backward(self, kept: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        chain, x = kept
        beside: Tensor | None = error
        if self.shortcut is not None:
            with Backward(self.shortcut):
                beside = self.shortcut.backward(x, error, carry)
        found = backward(chain, error, carry or exactly, carry is not None)
        return None if found is None or beside is None else found + beside


def begins_segment(layer: nn.Module) -> bool:
    """Whether a layer has weights of which a rule may carry errors; a segment reaches to the next such layer."""
    return isinstance(layer, (Weighted, Residual))


def direct_feedback(layer: Weighted | Residual, error: Tensor) -> Tensor:
    """Return the network's error, sent to the input of a layer by its own fixed random matrix."""
    assert layer.feedback is not None
    return (error @ layer.feedback).view(len(error), *layer.input_shape)


def random_feedback(shape: tuple[int, ...], spread: float, generator: torch.Generator) -> Tensor:
    """Return normal numbers of that standard deviation."""
    return torch.randn(shape, generator=generator).mul_(spread)
