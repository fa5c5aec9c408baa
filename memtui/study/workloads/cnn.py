"""The small convolutional network of Keras' ``cifar10_cnn`` example, in PyTorch on the CPU.

Run ``python -m memtui.study.workloads.cnn --help``. torch is imported only when a network is created.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from memtui.core.frozen_imports import frozen_imports
from memtui.study.workloads.options import TrainingOptions, prepare, training_parser

LEARNING_RATE = 1e-4
DECAY = 1e-6  # Keras: the rate of step n is LEARNING_RATE / (1 + DECAY * n)
RHO = 0.9
EPSILON = 1e-7


def small_model() -> Any:
    """Return Conv32 Conv32 pool, Conv64 Conv64 pool, Dense512, Dense10, with dropout."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(64 * 6 * 6, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10)),
    )


class TorchNetwork:
    """A model that learns by RMSprop. See ``training.Network``."""

    def __init__(
        self,
        *,
        threads: int = 1,
        seed: int = 0,
        torch_optimizer: bool = False,
        model: Callable[[], Any] = small_model,
    ) -> None:
        with frozen_imports():
            import torch
            from torch import nn

        self._torch = torch
        if threads:
            torch.set_num_threads(threads)
        torch.manual_seed(seed)
        self.title = f"PyTorch {torch.__version__}"
        self.model = model()
        self.parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self._loss = nn.CrossEntropyLoss()
        self._optimizer = None
        if torch_optimizer:
            self._optimizer = torch.optim.RMSprop(self.model.parameters(), LEARNING_RATE, alpha=RHO, eps=EPSILON)
        self._squares = [torch.zeros_like(parameter) for parameter in self.model.parameters()]
        self._steps = 0

    def step(self, images: Any, labels: Any) -> float:
        """Make one step of gradient descent on NHWC images; return the loss before it."""
        self.model.train()
        self.model.zero_grad()
        loss = self._loss(self.model(self._input(images)), self._torch.from_numpy(labels))
        loss.backward()
        self._rmsprop()
        return float(loss.detach())

    def _rmsprop(self) -> None:
        """Update as torch.optim.RMSprop does, which loads torch's compiler: 1.6 s and 80 MiB before the first step."""
        rate = LEARNING_RATE / (1 + DECAY * self._steps)
        self._steps += 1
        if self._optimizer is not None:
            self._optimizer.param_groups[0]["lr"] = rate
            self._optimizer.step()
            return
        with self._torch.no_grad():
            for weight, square in zip(self.model.parameters(), self._squares, strict=True):
                gradient = weight.grad
                assert gradient is not None  # after backward
                square.mul_(RHO).addcmul_(gradient, gradient, value=1 - RHO)
                weight.addcdiv_(gradient, square.sqrt().add_(EPSILON), value=-rate)

    def evaluate(self, images: Any, labels: Any) -> tuple[float, int]:
        """Return the summed loss and the number of right answers."""
        self.model.eval()
        with self._torch.inference_mode():
            scores, truth = self.model(self._input(images)), self._torch.from_numpy(labels)
            right = int((scores.argmax(1) == truth).sum())
            return float(self._loss(scores, truth)) * len(labels), right

    def _input(self, images: Any) -> Any:
        # NHWC in memory seen as NCHW is torch's channels_last: no copy
        return self._torch.from_numpy(images).permute(0, 3, 1, 2)


def run(options: TrainingOptions, *, torch_optimizer: bool = False, model: Callable[[], Any] = small_model) -> None:
    """Train with these options. Raises ImportError without torch."""
    network = TorchNetwork(threads=options.threads, seed=options.seed, torch_optimizer=torch_optimizer, model=model)
    from memtui.study.workloads.training import train

    train(network, options)


def main(
    arguments: Sequence[str] | None = None,
    name: str = "memtui.study.workloads.cnn",
    summary: str = "Train a small CNN with PyTorch.",
    model: Callable[[], Any] = small_model,
) -> int:
    """Run the command line and return the exit status.

    Args:
        arguments: those of the command line; None: of this process.
        name: module that is run, for its help.
        summary: one line for its help.
        model: creates the network.
    """
    parser = training_parser(name, summary, TrainingOptions())
    about = "RMSprop as PyTorch has it, whose steps memtui trace finds (slower to start, 80 MiB more)"
    parser.add_argument("--torch-optimizer", action="store_true", help=about)
    given = parser.parse_args(arguments)
    options = prepare(given)
    try:
        run(options, torch_optimizer=given.torch_optimizer, model=model)
    except ImportError as error:
        print(f"torch cannot be imported ({error}): pip install torch, or run numpy_cnn instead", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
