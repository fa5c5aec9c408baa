"""The training steps that can be captured: the bundled models, and the models of the user's files. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from memtui.core import networks
from memtui.core.user_function import NoFunction, load_function
from memtui.placement.builtin_models import IMAGE_SIDES, OWN, is_own

LEARNING_RATE = 0.1


class NoStep(Exception):
    """The model cannot be built, or its step cannot be captured; the message says why."""


@dataclass(frozen=True)
class TrainingStep:
    """A forward pass, a backward pass and an update by gradient descent.

    Attributes:
        model: the model to train.
        inputs: inputs of one call of the model.
        loss: function from the model's output to a tensor of one number.
    """

    model: nn.Module
    inputs: Sequence[torch.Tensor]
    loss: Callable[[Any], torch.Tensor]

    def __call__(
        self, parameters: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor], inputs: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return the parameters after the step; buffers are changed in place. Raises NoStep."""
        loss = self.loss(torch.func.functional_call(self.model, {**parameters, **buffers}, tuple(inputs)))
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            what = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise NoStep(f"the loss has to be a tensor of one number, and is {what}")
        if not loss.requires_grad:
            raise NoStep("nothing to train: the loss does not depend on any parameter")
        learning = [p for p in parameters.values() if p.requires_grad]
        gradients = torch.autograd.grad(loss, learning, allow_unused=True)
        return [p - LEARNING_RATE * g for p, g in zip(learning, gradients, strict=True) if g is not None]

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], list[torch.Tensor]]:
        """Return the arguments of the step: parameters, buffers and inputs."""
        return dict(self.model.named_parameters()), dict(self.model.named_buffers()), list(self.inputs)

    @property
    def names(self) -> list[str]:
        """Names of the tensors of ``state``, in their order."""
        parameters, buffers, inputs = self.state()
        return [*parameters, *buffers, *(f"input {number}" for number in range(len(inputs)))]


def build(name: str, batch: int, seed: int) -> TrainingStep:
    """Return the step of a model by its name. Raises NoStep."""
    torch.manual_seed(seed)
    if is_own(name):
        return _own(name)
    return BUNDLED[name](batch)


def _mlp(batch: int) -> TrainingStep:
    model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 30), nn.ReLU(), nn.Linear(30, 10))
    return _classifier(model, torch.randn(batch, 784))


def _conv(batch: int) -> TrainingStep:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 10),
    )  # fmt: skip
    return _classifier(model, torch.randn(batch, 1, 28, 28))


class _Block(nn.Module):
    """A transformer block; attention is written out, because its scores are the large tensors."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.query_key_value(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.softmax(query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        x = x + self.out((scores @ value).transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


def _transformer(batch: int) -> TrainingStep:
    target = torch.randn(batch, 64, 64)
    return TrainingStep(_Block(64, 4), [torch.randn(batch, 64, 64)], lambda out: functional.mse_loss(out, target))


def _classifier(model: nn.Module, x: torch.Tensor) -> TrainingStep:
    target = torch.randint(0, 10, (len(x),))
    return TrainingStep(model, [x], lambda out: functional.cross_entropy(out, target))


class _Rows(nn.Module):
    """Reads an image row by row, and classifies what is left of it at its end."""

    def __init__(self, side: int, width: int) -> None:
        super().__init__()
        self.recurrent, self.out = nn.LSTM(side, width, batch_first=True), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        every: torch.Tensor = self.recurrent(x)[0]
        out: torch.Tensor = self.out(every[:, -1])
        return out


def _lstm(batch: int) -> TrainingStep:
    return _classifier(_Rows(28, 64), torch.randn(batch, 28, 28))


def _network(name: str, batch: int) -> TrainingStep:
    """Return the step of a published classifier of images."""
    side = IMAGE_SIDES[name]
    target = torch.randint(0, networks.CLASSES, (batch,))

    def loss(out: torch.Tensor | tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        if isinstance(out, torch.Tensor):
            return functional.cross_entropy(out, target)
        # Inception's auxiliary classifier weighs 0.4, as in TF-Slim.
        return functional.cross_entropy(out[0], target) + 0.4 * functional.cross_entropy(out[1], target)

    return TrainingStep(getattr(networks, name)(torch), [torch.randn(batch, 3, side, side)], loss)


BUNDLED: dict[str, Callable[[int], TrainingStep]] = {
    "mlp": _mlp,
    "conv": _conv,
    "transformer": _transformer,
    "lstm": _lstm,
    **{name: partial(_network, name) for name in IMAGE_SIDES},
}


def _own(name: str) -> TrainingStep:
    """Return the step of ``FILE.py:function``, which returns (model, inputs, loss). Raises NoStep."""
    match = OWN.fullmatch(name)
    assert match is not None
    path, function = Path(match[1]), match[2]
    if not path.is_file():
        raise NoStep(f"{path} is not a file")
    try:
        returned = load_function(path, function, f"memtui_placed_{path.stem}")()
    except NoFunction as error:
        raise NoStep(str(error)) from None
    except Exception as error:
        from memtui.placement.torch.capture_errors import where

        line = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise NoStep(f"{name}: {line}{where(error.__traceback__)}") from error
    try:
        model, inputs, loss = returned
        inputs = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    except (TypeError, ValueError):
        raise NoStep(f"{name} has to return (model, inputs, loss)") from None
    right = isinstance(model, nn.Module) and callable(loss) and all(isinstance(i, torch.Tensor) for i in inputs)
    if not right:
        raise NoStep(
            f"{name} has to return a torch.nn.Module, its input tensors, and a function from its output to the loss"
        )
    return TrainingStep(model, inputs, loss)
