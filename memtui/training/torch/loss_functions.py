"""Cost functions: the loss of a batch, and its gradient for the network's output."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Cost(nn.Module):
    """``labels``: i8[examples]. Losses are means, as TensorFlow's are: over examples, or over all numbers."""

    def loss(self, out: Tensor, labels: Tensor) -> Tensor:
        """Return a number, f4[]."""
        raise NotImplementedError

    def error(self, out: Tensor, labels: Tensor, root: Tensor) -> Tensor:
        """Return the gradient for ``out``, f4[examples, classes], where that of the loss is ``root``."""
        raise NotImplementedError


class SoftmaxCrossEntropy(Cost):
    """``-mean(log softmax(out)[label])``; its gradient is ``(softmax(out) - one_hot) / examples``."""

    def loss(self, out: Tensor, labels: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(out, labels)

    def error(self, out: Tensor, labels: Tensor, root: Tensor) -> Tensor:
        return _less_targets(torch.softmax(out, 1), labels).mul_(root).div_(len(out))


class SigmoidCrossEntropy(Cost):
    """Mean over examples and classes; its gradient is ``(sigmoid(out) - one_hot) / (examples classes)``."""

    def loss(self, out: Tensor, labels: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(out, _one_hot(out, labels))

    def error(self, out: Tensor, labels: Tensor, root: Tensor) -> Tensor:
        return _less_targets(torch.sigmoid(out), labels).mul_(root).div_(out.numel())


class MeanSquaredError(Cost):
    """Mean over examples and classes; its gradient is ``2 (out - one_hot) / (examples classes)``."""

    def loss(self, out: Tensor, labels: Tensor) -> Tensor:
        return _less_targets(out.clone(), labels).square_().mean()

    def error(self, out: Tensor, labels: Tensor, root: Tensor) -> Tensor:
        return _less_targets(out.clone(), labels).mul_(root).mul_(2 / out.numel())


BY_NAME: dict[str, type[Cost]] = {
    "mean_squared_error": MeanSquaredError,
    "sigmoid_cross_entropy": SigmoidCrossEntropy,
    "softmax_cross_entropy": SoftmaxCrossEntropy,
}


def _less_targets(out: Tensor, labels: Tensor) -> Tensor:
    """Return ``out`` less a one for each label, in place."""
    return out.scatter_add_(1, labels[:, None], out.new_full((len(out), 1), -1.0))


def _one_hot(out: Tensor, labels: Tensor) -> Tensor:
    return torch.zeros_like(out).scatter_(1, labels[:, None], 1.0)
