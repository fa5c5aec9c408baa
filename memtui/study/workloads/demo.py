"""The training of ``memtui demo``: the small CNN in PyTorch where it is installed, in numpy where it is not.

Run ``python -m memtui.study.workloads.demo --help``. Imports neither until the choice is made.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from memtui.study.workloads import cnn, numpy_cnn
from memtui.study.workloads.options import TrainingOptions, prepare, training_parser

NETWORKS = ("auto", "torch", "numpy")
DEFAULTS = TrainingOptions(images=20_000, epochs=0, progress=10)


def choose_network(wanted: str = "auto") -> tuple[str, str]:
    """Return the network, ``torch`` or ``numpy``, and a sentence with the reason. Nothing is imported.

    Raises:
        LookupError: torch is wanted and not installed.
    """
    if wanted == "numpy":
        return "numpy", "numpy, as asked"
    installed = importlib.util.find_spec("torch") is not None
    if wanted == "torch":
        if not installed:
            raise LookupError("torch is not installed: pip install torch, or use --network numpy")
        return "torch", "PyTorch, as asked"
    if installed:
        return "torch", "PyTorch, which is installed"
    return "numpy", "numpy, because PyTorch is not installed (pip install torch would change that)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = training_parser("memtui.study.workloads.demo", "Train a small CNN until stopped.", DEFAULTS)
    parser.add_argument("--network", choices=NETWORKS, default="auto", help="auto: torch where installed, else numpy")
    given = parser.parse_args(arguments)
    try:
        network, why = choose_network(given.network)
    except LookupError as error:
        parser.error(str(error))
    options = prepare(given)
    try:
        print(f"training a small CNN with {why}", flush=True)
        if network == "torch":
            try:
                cnn.run(options)
                return 0
            except (ImportError, OSError) as error:  # OSError: a library that torch needs cannot be loaded
                if given.network == "torch":
                    print(f"torch is installed but cannot be imported: {error}", file=sys.stderr)
                    return 1
                print(f"torch is installed but cannot be imported ({error}): training with numpy", flush=True)
        numpy_cnn.run(options)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
