"""Learning rules: which error is sent to the input of a layer with weights.

With e the gradient of the loss for the network's output, and d the gradient for the output of the layer (research:
Rumelhart 1986; Lillicrap 2016; Nøkland 2016; MEM-DFA, arXiv 2012.11745):

    BP      d W^T       chained from layer to layer
    FA      d R         chained; R is random and fixed, of the shape of W^T
    DFA     e B         B is random and fixed, [outputs of the network, inputs of the layer]
    DFAMEM  e B         in a second forward pass, so that the values of only one segment are saved at a time
"""

from __future__ import annotations

import torch
from torch import Tensor

from memtui.training.torch.composite_layers import Residual, direct_feedback, exactly, random_feedback
from memtui.training.torch.layers import Weighted


class BP:
    """Back-propagation."""

    direct = False  # the error sent comes from the layer above
    keeps_all = True  # the values of the whole forward pass are saved for the backward pass

    def sent(self, layer: Weighted | Residual, error: Tensor) -> Tensor:
        """Return the error for the input of a layer, from that of its output, or of the network if ``direct``."""
        assert isinstance(layer, Weighted)  # the chain goes through a residual layer by itself
        return exactly(layer, error)

    def prepare(self, layer: Weighted | Residual, outputs: int, generator: torch.Generator) -> None:
        """Set the random matrix of a layer that the rule needs."""


class FA(BP):
    """Feedback alignment."""

    def sent(self, layer: Weighted | Residual, error: Tensor) -> Tensor:
        assert isinstance(layer, Weighted)
        assert layer.feedback is not None
        return layer.carried(error, layer.feedback)

    def prepare(self, layer: Weighted | Residual, outputs: int, generator: torch.Generator) -> None:
        inside = [part for part in layer.modules() if isinstance(part, Weighted)]
        for part in inside:
            # The standard deviation of the initial weights.
            spread = float(part.weight.square().mean().sqrt())
            part.feedback = random_feedback(tuple(part.weight.shape), spread, generator)


class DFA(BP):
    """Direct feedback alignment."""

    direct = True

    def sent(self, layer: Weighted | Residual, error: Tensor) -> Tensor:
        return direct_feedback(layer, error)

    def prepare(self, layer: Weighted | Residual, outputs: int, generator: torch.Generator) -> None:
        inputs = int(torch.Size(layer.input_shape).numel())
        layer.feedback = random_feedback((outputs, inputs), inputs**-0.5, generator)


class DFAMEM(DFA):
    """MEM-DFA."""

    keeps_all = False


BY_NAME: dict[str, type[BP]] = {rule.__name__: rule for rule in (BP, FA, DFA, DFAMEM)}
