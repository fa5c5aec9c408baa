"""Mean and spread of weights, activations and errors, to a CSV file (``gather_stats``)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from memtui.training.torch.iteration import Iteration
from memtui.training.torch.network import Network

COLUMNS = ("iteration", "what", "layer", "mean", "standard_deviation")


class Statistics:
    """Writer of a new CSV file. Raises OSError, also where the file exists."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("x", newline="", encoding="utf-8")
        self._rows = csv.writer(self._file)
        self._rows.writerow(COLUMNS)

    @contextmanager
    def of(self, number: int, network: Network, iteration: Iteration) -> Iterator[None]:
        """Write the rows of one iteration: activations of the last forward pass, errors at the ends of segments."""
        seen: dict[str, tuple[float, float]] = {}

        def observe(name: str, output: Tensor) -> None:
            seen[name] = float(output.mean()), float(output.std())

        with ExitStack() as stack:
            for name, layer in network.named_children():
                stack.callback(layer.register_forward_hook(_looking(observe, name)).remove)
            iteration.errors = []
            try:
                yield
            finally:
                errors, iteration.errors = iteration.errors, None
        for name, weight in network.named_parameters():
            self._rows.writerow((number, "weights", name, float(weight.mean()), float(weight.std(correction=0))))
        self._rows.writerows((number, "activations", name, *figures) for name, figures in seen.items())
        self._rows.writerows((number, "errors", *figures) for figures in errors)
        self._file.flush()


def _looking(observe: Any, name: str) -> Any:
    def hook(module: nn.Module, arguments: object, output: Any) -> None:
        observe(name, output[0])

    return hook
