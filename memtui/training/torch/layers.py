"""Layers with a forward pass, a local backward pass and the values saved in between.

``forward`` returns its result and what ``backward`` will need; nothing else is saved. ``backward`` leaves the gradients
of the layer's own parameters in their ``grad`` and returns the gradient of its input. All of it runs without autograd.
Formulas are those of the operators' own derivatives, which torch has as operators (``aten::*_backward``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

Carry: TypeAlias = Callable[["Weighted", Tensor], Tensor]
"""Carries the error at the output of a layer with weights to its input; the learning rule chooses it."""
aten = torch.ops.aten


class Layer(nn.Module):
    """A layer without weights that differ between learning rules."""

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return (result, what ``backward`` needs)."""
        raise NotImplementedError

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        """Return the gradient of the input; None where there is no ``carry`` and the layer has weights.

        Args:
            saved: what ``forward`` returned for it.
            error: gradient of the output, of its shape.
            carry: carries errors through layers with weights; None: no layer below needs the gradient.
        """
        raise NotImplementedError


class Weighted(Layer):
    """A layer with a matrix of weights, through which rules carry errors differently.

    Attributes:
        input_shape: shape of one example.
        feedback: matrix that a rule uses in place of the weights; None where the rule uses the weights.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None
    feedback: Tensor | None
    input_shape: tuple[int, ...]

    def __init__(self, input_shape: tuple[int, ...], weight: Tensor, biases: int | None) -> None:
        super().__init__()
        self.input_shape = input_shape
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = None if biases is None else nn.Parameter(torch.zeros(biases), requires_grad=False)
        self.register_buffer("feedback", None)

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        self.compute_gradients(saved, error)
        return None if carry is None else carry(self, error)

    def compute_gradients(self, saved: Any, error: Tensor) -> None:
        """Compute the gradients of weights and biases, into their ``grad``."""
        raise NotImplementedError

    def carried(self, error: Tensor, matrix: Tensor) -> Tensor:
        """Return the error at the input, were ``matrix`` the weights."""
        raise NotImplementedError


class FullyConnected(Weighted):
    """``y = x W + b``, W of shape [inputs, units]."""

    def __init__(self, input_shape: tuple[int, ...], units: int, add_biases: bool, generator: torch.Generator) -> None:
        inputs = _product(input_shape)
        super().__init__(input_shape, he_normal((inputs, units), inputs, generator), units if add_biases else None)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        x = x.flatten(1)
        return (x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)), x

    def compute_gradients(self, saved: Any, error: Tensor) -> None:
        self.weight.grad = saved.t() @ error
        if self.bias is not None:
            self.bias.grad = error.sum(0)

    def carried(self, error: Tensor, matrix: Tensor) -> Tensor:
        return (error @ matrix.t()).view(len(error), *self.input_shape)


class Convolutional(Weighted):
    """Weights of shape [filters, channels, height, width]; SAME pads by half the window on each side."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        filter_dim: tuple[int, int],
        num_of_filters: int,
        strides: tuple[int, int],
        padding: str,
        add_biases: bool,
        generator: torch.Generator,
    ) -> None:
        shape = (num_of_filters, input_shape[0], *filter_dim)
        super().__init__(
            input_shape, he_normal(shape, _product(shape[1:]), generator), num_of_filters if add_biases else None
        )
        self._strides = list(strides)
        self._padding = [(n - 1) // 2 for n in filter_dim] if padding == "SAME" else [0, 0]

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        return torch.conv2d(x, self.weight, self.bias, self._strides, self._padding), x

    def compute_gradients(self, saved: Any, error: Tensor) -> None:
        _, self.weight.grad, bias = self._backward(error, saved, self.weight, [False, True, self.bias is not None])
        if self.bias is not None:
            self.bias.grad = bias

    def carried(self, error: Tensor, matrix: Tensor) -> Tensor:
        like = error.new_empty(1).expand(len(error), *self.input_shape)  # its shape alone is needed
        return self._backward(error, like, matrix, [True, False, False])[0]

    def _backward(self, error: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]) -> tuple[Tensor, ...]:
        sizes = [len(weight)] if wanted[2] else None
        where = (self._strides, self._padding, [1, 1], False, [0, 0], 1)
        return aten.convolution_backward(error, x, weight, sizes, *where, wanted)


class MaxPool(Layer):
    def __init__(self, window: tuple[int, int], strides: tuple[int, int], padding: list[int], ceil: bool) -> None:
        super().__init__()
        self._how = (list(window), list(strides), padding, [1, 1], ceil)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        y, indices = aten.max_pool2d_with_indices(x, *self._how)
        return y, (x, indices)

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        return aten.max_pool2d_with_indices_backward(error, saved[0], *self._how, saved[1])


class AveragePool(Layer):
    """Mean of the pixels inside of the picture: padding is not part of a mean."""

    def __init__(self, window: tuple[int, int], strides: tuple[int, int], padding: list[int], ceil: bool) -> None:
        super().__init__()
        self._how = (list(window), list(strides), padding, ceil, False, None)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        return aten.avg_pool2d(x, *self._how), x.shape

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        return aten.avg_pool2d_backward(error, error.new_empty(1).expand(saved), *self._how)


class BatchNormalization(Layer):
    """Running statistics advance once an iteration: with two forward passes, in the second one only."""

    def __init__(self, channels: int, momentum: float, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(channels), requires_grad=False)
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self._rest, self._epsilon = 1 - momentum, epsilon
        self.advances = True

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        stored = (self.running_mean, self.running_var) if self.advances or not self.training else (None, None)
        result = aten.native_batch_norm(x, self.weight, self.bias, *stored, self.training, self._rest, self._epsilon)
        return result[0], (x, result[1], result[2])

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        x, mean, spread = saved
        gradient, self.weight.grad, self.bias.grad = aten.native_batch_norm_backward(
            error, x, self.weight, None, None, mean, spread, True, self._epsilon, [True, True, True]
        )
        return gradient


class Sigmoid(Layer):
    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        y = torch.sigmoid(x)
        return y, y

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        return aten.sigmoid_backward(error, saved)


class Tanh(Layer):
    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        y = torch.tanh(x)
        return y, y

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        return aten.tanh_backward(error, saved)


class ReLu(Layer):
    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        y = torch.relu(x)
        return y, y

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        return aten.threshold_backward(error, saved, 0)


class LeakyReLu(Layer):
    def __init__(self, slope: float) -> None:
        super().__init__()
        self._slope = slope

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        y = torch.nn.functional.leaky_relu(x, self._slope)
        return y, y  # its sign is that of x

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        return aten.leaky_relu_backward(error, saved, self._slope, True)


class Softmax(Layer):
    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        y = torch.softmax(x, 1)
        return y, y

    def backward(self, saved: Any, error: Tensor, carry: Carry | None) -> Tensor | None:
        return aten._softmax_backward_data(error, saved, 1, saved.dtype)


def he_normal(shape: tuple[int, ...], inputs: int, generator: torch.Generator) -> Tensor:
    """Return normal numbers of variance 2 / inputs (He et al. 2015)."""
    return torch.randn(shape, generator=generator).mul_((2 / inputs) ** 0.5)


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product
