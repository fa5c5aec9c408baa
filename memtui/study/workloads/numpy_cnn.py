"""The network of ``cnn`` in plain numpy, for machines without torch.

Run ``python -m memtui.study.workloads.numpy_cnn --help``. numpy is imported after the thread count is set.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from memtui.study.workloads.options import TrainingOptions, parse_training, training_parser


def run(options: TrainingOptions) -> None:
    """Train with these options."""
    from memtui.study.workloads.numpy_network import NumpyNetwork
    from memtui.study.workloads.training import train

    train(NumpyNetwork(seed=options.seed), options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = training_parser(
        "memtui.study.workloads.numpy_cnn", "Train a small CNN with numpy alone.", TrainingOptions()
    )
    options = parse_training(parser, arguments)
    try:
        run(options)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
