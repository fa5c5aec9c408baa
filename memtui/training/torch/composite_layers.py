"""Layers composed of other layers, and chains of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from memtui.recording.tracer.manual_backward import Backward
from memtui.training.torch.layers import Carry, Convolutional, Layer, Weighted

Saved = list[tuple[Layer, Any]]


def forward(layers: Sequence[Layer], x: Tensor, saved: Saved | None) -> Tensor:
    """Run the forward pass of all layers; add what their backward passes need to ``saved``, unless it is None."""
    for layer in layers:
        x, inside = layer(x)
        if saved is not None:
            saved.append((layer, inside))
        del inside
    return x


def backward(saved: Saved, error: Tensor, carry: Carry, wanted: bool = True) -> Tensor | None:
    """Run the backward pass of a chain, releasing saved values once used. None where no input error is ``wanted``."""
    gradient: Tensor | None = error
    del error
    while saved:
        layer, inside = saved.pop()
        assert gradient is not None
        with Backward(layer):
            gradient = layer.backward(inside, gradient, carry if saved or wanted else None)
        del inside
    return gradient


def exactly(layer: Weighted, error: Tensor) -> Tensor:
    """Return the exact error at the input: through the weights."""
    return layer.carried(error, layer.weight)


class Block(Layer):
    """A layer with weights and the layers behind it; in a chain a block behaves as its parts would."""

    def __init__(self, parts: Sequence[tuple[str, Layer]]) -> None:
        super().__init__()
        for name, layer in parts:
            self.add_module(name, layer)
        self._layers = [layer for _, layer in parts]

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        saved: Saved = []
        return forward(self._layers, x, saved), saved

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        return backward(saved, error, carry or exactly, carry is not None)


class Residual(Block):
    """``y = F(x) + x``; where the shapes differ, x goes through a 1x1 convolution.

    For the direct rules a residual layer is one layer with weights: inside of it errors are carried exactly.
    """

    feedback: Tensor | None

    def __init__(self, parts: Sequence[tuple[str, Layer]], shortcut: Convolutional | None, input_shape: Any) -> None:
        super().__init__(parts)
        self.shortcut = shortcut
        self.input_shape = input_shape
        self.register_buffer("feedback", None)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        saved: Saved = []
        y = forward(self._layers, x, saved)
        identity = x if self.shortcut is None else self.shortcut(x)[0]
        return y + identity, (saved, x if self.shortcut is not None else None)

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        chain, x = saved
        skip_gradient: Tensor | None = error
        if self.shortcut is not None:
            with Backward(self.shortcut):
                skip_gradient = self.shortcut.backward(x, error, carry)
        gradient = backward(chain, error, carry or exactly, carry is not None)
        return None if gradient is None or skip_gradient is None else gradient + skip_gradient


def begins_segment(layer: nn.Module) -> bool:
    """Whether a layer has weights through which a rule carries errors; a segment reaches to the next such layer."""
    return isinstance(layer, (Weighted, Residual))


def direct_feedback(layer: Weighted | Residual, error: Tensor) -> Tensor:
    """Return the network's error, sent to the input of a layer by its own fixed random matrix."""
    assert layer.feedback is not None
    return (error @ layer.feedback).view(len(error), *layer.input_shape)


def random_feedback(shape: tuple[int, ...], spread: float, generator: torch.Generator) -> Tensor:
    """Return normal numbers of the standard deviation ``spread``."""
    return torch.randn(shape, generator=generator).mul_(spread)
