"""One training iteration under a learning rule, which saves only what its backward pass needs."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from memtui.recording.tracer.manual_backward import Backward
from memtui.training.torch.composite_layers import Saved, backward
from memtui.training.torch.loss_functions import Cost
from memtui.training.torch.network import Network, Segment
from memtui.training.torch.optimiser import SGD
from memtui.training.torch.rules import BP


class Iteration:
    """Trains on one batch after another.

    The first segment that learns is the lowest that an error is sent to.
    """

    def __init__(self, network: Network, rule: BP, cost: Cost, optimiser: SGD) -> None:
        self._network, self._rule, self._cost, self._optimiser = network, rule, cost, optimiser
        self._lowest = next(n for n, segment in enumerate(network.segments) if segment.learns)
        # The layer that the error for the end of a segment passes first; the error of the last comes from the cost.
        self._above = {
            id(segment): above for segment, above in zip(network.segments, [*network.segments[1:], None], strict=True)
        }
        self.errors: list[tuple[str, float, float]] | None = None
        """Unless None, collects (layer, mean, standard deviation) of the errors at the ends of segments."""

    @torch.no_grad()
    def run(self, x: Tensor, labels: Tensor) -> float:
        """Learn from a batch: f4[examples, ...], i8[examples]; return the loss before the update."""
        if not self._rule.direct:
            loss = self._chained(x, labels)
        elif self._rule.keeps_all:
            loss = self._direct(x, labels)
        else:
            loss = self._twice(x, labels)
        self._optimiser.step()
        return loss

    def _chained(self, x: Tensor, labels: Tensor) -> float:
        """Return the loss; the cost is the first link of the backward chain, as with autograd."""
        saved: list[tuple[Segment, Saved]] = []
        out = self._network(x, lambda segment, inside: saved.append((segment, inside)))
        loss = self._cost.loss(out, labels)
        with Backward(self._cost):
            root = torch.ones_like(loss)
            error: Tensor | None = self._cost.error(out, labels, root)
        del out
        while len(saved) > self._lowest:
            segment, inside = saved.pop()
            wanted = len(saved) > self._lowest
            self._record_error(segment, error)
            assert error is not None
            waiting = [error]
            del error  # the chain alone has it now
            error = backward(inside, waiting.pop(), self._rule.sent, wanted)
        return float(loss)

    def _direct(self, x: Tensor, labels: Tensor) -> float:
        saved: list[tuple[Segment, Saved]] = []
        out = self._network(x, lambda segment, inside: saved.append((segment, inside)))
        loss, error = self._judged(out, labels)
        del out
        saved.reverse()  # no error waits for another one: in the order of MEM-DFA
        while saved:
            self._learn(error, *saved.pop())
        return loss

    def _twice(self, x: Tensor, labels: Tensor) -> float:
        """Return the loss; a second pass computes the input of each segment again, before the one below has changed."""
        self._network.advance(False)
        loss, error = self._judged(self._network(x), labels)
        self._network.advance(True)
        self._network(x, partial(self._learn, error))
        return loss

    def _judged(self, out: Tensor, labels: Tensor) -> tuple[float, Tensor]:
        loss = float(self._cost.loss(out, labels))
        with Backward(self._cost):
            return loss, self._cost.error(out, labels, out.new_ones(()))

    def _learn(self, error: Tensor, segment: Segment, saved: Saved) -> None:
        """Update a segment at once, from the error that the rule sends to its end."""
        if not segment.learns:
            return
        above = self._above[id(segment)]
        sent = error
        if above is not None and above.head is not None:
            with Backward(above.head):
                sent = self._rule.sent(above.head, error)
        self._record_error(segment, sent)
        gradient: Tensor | None = sent
        while saved:
            layer, inside = saved.pop()
            assert gradient is not None
            with Backward(layer):
                gradient = layer.backward(inside, gradient, None)
            del inside
        self._optimiser.update(p for layer in segment.layers for p in layer.parameters())

    def _record_error(self, segment: Segment, error: Tensor | None) -> None:
        if self.errors is not None and error is not None:
            self.errors.append((segment.names[0], float(error.mean()), float(error.std())))
