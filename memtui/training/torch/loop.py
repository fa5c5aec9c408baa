"""A training from the first epoch to the last: batches, accuracy, progress, and why the training stops."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor

from memtui.core import progress_line
from memtui.training.datasets import Data
from memtui.training.learning_curve import Curve, minimum_at, shortfall
from memtui.training.settings import Settings
from memtui.training.torch.event_files import EventFiles
from memtui.training.torch.iteration import Iteration
from memtui.training.torch.loss_functions import BY_NAME as COSTS
from memtui.training.torch.network import Network
from memtui.training.torch.optimiser import SGD
from memtui.training.torch.rules import BY_NAME as RULES
from memtui.training.torch.statistics import Statistics

TRACED = 5  # the iteration whose allocations are analysed: the first ones fill caches
_LEAST_MEASURED = 32  # examples at once, or a batch if it is larger: more would take more memory than learning


class Training:
    """One network, its data and its rule.

    Attributes:
        iterations, epochs: numbers of finished ones.
        loss: loss on the test examples, as measured last; None before.
        accuracy: percent of the test examples that are right, as measured last; None before.
        stopped: why the training stopped early; None where it did not.
    """

    def __init__(self, settings: Settings, network: Network, data: Data, print_line: Callable[[str], object]) -> None:
        self._settings, self.network, self._print_line = settings, network, print_line
        rule = RULES[settings.type]()
        self._cost = COSTS[settings.cost_function]()
        self.optimiser = SGD(network.parameters(), settings.learning_rate, settings.momentum)
        self._iteration = Iteration(network, rule, self._cost, self.optimiser)
        self._images, self._labels = torch.from_numpy(data.images), torch.from_numpy(data.labels)
        self._test = torch.from_numpy(data.test_images), torch.from_numpy(data.test_labels)
        # Batches are written in place, so that an iteration allocates only what learning needs.
        self._x = self._images.new_empty((settings.batch_size, *data.shape))
        self._y = self._labels.new_empty(settings.batch_size)
        self._order = torch.Generator().manual_seed(settings.seed)
        self.iterations = self.epochs = 0
        self.loss: float | None = None
        self.accuracy: float | None = None
        self.stopped: str | None = None

    def run(
        self,
        curve: Curve,
        statistics: Statistics | None,
        traced: Callable[[Callable[[], object]], object],
        events: EventFiles | None = None,
    ) -> None:
        """Train. ``traced`` is called after iteration ``TRACED``, with a function that repeats the iteration."""
        settings, size = self._settings, self._settings.batch_size
        progress_line.update("", "training")
        for epoch in range(1, self._last_epoch() + 1):
            order = torch.randperm(len(self._images), generator=self._order)
            for start in range(0, len(order) - size + 1, size):
                chosen = order[start : start + size]
                torch.index_select(self._images, 0, chosen, out=self._x)
                torch.index_select(self._labels, 0, chosen, out=self._y)
                loss = self._learn(statistics)
                self.iterations += 1
                curve.add(self.iterations, epoch, loss)
                progress_line.update(f"epoch {epoch} of {settings.epochs}, {start + size} of {len(order)} examples")
                if self.iterations == TRACED:
                    traced(partial(self._iteration.run, self._x, self._y))
                    if settings.memory_only:
                        return
                if not math.isfinite(loss):
                    where = f"in iteration {self.iterations}"
                    self.stopped = f"the loss is {loss} {where}: a smaller learning_rate may help"
                    self.epochs = epoch
                    return
                if self.iterations % settings.eval_period == 0:
                    loss, accuracy = self._evaluate(epoch, curve, events)
                    self._print_line(f"iteration: {self.iterations}, accuracy: {accuracy:.2f}%, loss: {loss:.4f}")
            self.epochs = epoch
            if settings.memory_only:
                continue
            loss, accuracy = self._evaluate(epoch, curve, events)
            if events is not None:
                events.add_epoch(epoch, loss, accuracy)
            self._print_line(f"finished epoch {epoch}")
            self.stopped = shortfall(settings.minimum_accuracy, epoch, accuracy)
            if self.stopped is not None:
                return

    def _last_epoch(self) -> int:
        """Return the number of epochs: with ``memory_only`` as many as the traced iteration takes."""
        settings = self._settings
        each = len(self._images) // settings.batch_size
        return max(settings.epochs, -(-TRACED // each)) if settings.memory_only else settings.epochs

    def _learn(self, statistics: Statistics | None) -> float:
        with ExitStack() as stack:
            if statistics is not None and (self.iterations + 1) % self._settings.stat_period == 0:
                stack.enter_context(statistics.of(self.iterations + 1, self.network, self._iteration))
            return self._iteration.run(self._x, self._y)

    def _evaluate(self, epoch: int, curve: Curve, events: EventFiles | None) -> tuple[float, float]:
        """Measure loss and accuracy, pass them on, and return them."""
        self.loss, self.accuracy = loss, accuracy = self._measure()
        curve.add_accuracy(self.iterations, epoch, accuracy, minimum_at(self._settings.minimum_accuracy, epoch))
        if events is not None:
            events.add_accuracy(self.iterations, loss, accuracy)
        return loss, accuracy

    @torch.no_grad()
    def _measure(self) -> tuple[float, float]:
        """Return loss and accuracy (percent) on the test examples, without learning."""
        progress_line.update(f"after iteration {self.iterations}: measuring the accuracy")
        self.network.eval()
        images, labels = self._test
        loss, right = 0.0, 0
        count = max(_LEAST_MEASURED, self._settings.batch_size)
        for start in range(0, len(images), count):
            part = slice(start, start + count)
            out = self.network(images[part])
            loss += float(self._cost.loss(out, labels[part])) * len(out)
            right += _right(out, labels[part])
        self.network.train()
        return loss / len(images), 100 * right / len(images)


def _right(out: Tensor, labels: Tensor) -> int:
    return int((out.argmax(1) == labels).sum())
