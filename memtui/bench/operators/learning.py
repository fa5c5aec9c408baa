"""Steps of optimisers, which change their weights, given a gradient."""

from __future__ import annotations

from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor

RATE, MOMENTUM, DECAY = 1e-6, 0.9, 1e-2  # a rate so small that a million steps on random gradients do not overflow


class _Step(Operator):
    defaults: ClassVar[Parameters] = {"elements": 1 << 20}
    trains = False

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        """Return the gradient."""
        return (Tensor((p["elements"],)),)

    def output(self, p: Any) -> Shape:
        return (p["elements"],)


class SgdStep(_Step):
    name = "sgd"
    summary = "a step of stochastic gradient descent with momentum"

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        """Return the parameters and momentum."""
        return (Tensor((p["elements"],)),) * 2

    def flops(self, p: Any) -> int:
        """Count two multiplications with an addition an element."""
        return 4 * p["elements"]

    def moved_bytes(self, p: Any, item_bytes: int) -> int:
        """Count three tensors read, two written."""
        return 5 * p["elements"] * item_bytes

    def bind(self, torch: Any, p: Any) -> Call:
        def step(x: tuple[Any, ...], w: tuple[Any, ...]) -> Any:
            parameters, momentum = w
            momentum.mul_(MOMENTUM).add_(x[0])
            return parameters.add_(momentum, alpha=-RATE)

        return step


class AdamWStep(_Step):
    name = "adamw"
    summary = "a step of AdamW"

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        """Return the parameters, and the running means of the gradient and of its square."""
        shape = (p["elements"],)
        return Tensor(shape), Tensor(shape), Tensor(shape, positive=True)

    def flops(self, p: Any) -> int:
        """Count 12 an element, by convention."""
        return 12 * p["elements"]

    def moved_bytes(self, p: Any, item_bytes: int) -> int:
        """Count four tensors read, three written."""
        return 7 * p["elements"] * item_bytes

    def bind(self, torch: Any, p: Any) -> Call:
        def step(x: tuple[Any, ...], w: tuple[Any, ...]) -> Any:
            parameters, first, second = w
            parameters.mul_(1 - RATE * DECAY)
            first.lerp_(x[0], 0.1)
            second.mul_(0.999).addcmul_(x[0], x[0], value=0.001)
            return parameters.addcdiv_(first, second.sqrt().add_(1e-8), value=-RATE)

        return step
