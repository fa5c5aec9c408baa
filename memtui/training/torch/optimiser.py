"""Stochastic gradient descent with momentum, in place; a part of the parameters may be updated before the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


class SGD(torch.optim.Optimizer):
    """``v = momentum v + gradient``, ``p = p - learning_rate v``. Gradients go with the update.

    An iteration ends with ``step``, whichever parameters were updated before.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float, momentum: float) -> None:
        super().__init__(parameters, {"lr": learning_rate, "momentum": momentum})
        self._how = {id(p): group for group in self.param_groups for p in group["params"]}

    def update(self, parameters: Iterable[nn.Parameter]) -> None:
        """Update the parameters that have a gradient."""
        # The name that torch gives to the work of an optimiser: profilers know it.
        with torch.profiler.record_function("Optimizer.step#SGD.update"):
            for parameter in parameters:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad)
                    parameter.grad = None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters that have not been updated yet."""
        for group in self.param_groups:
            self.update(group["params"])

    def _update(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        how = self._how[id(parameter)]
        if how["momentum"]:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            gradient = state["momentum_buffer"].mul_(how["momentum"]).add_(gradient)
        parameter.add_(gradient, alpha=-how["lr"])
