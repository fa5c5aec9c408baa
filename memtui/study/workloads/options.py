"""The command line of the bundled trainings. numpy is not imported here: thread counts must be set before it loads."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memtui.core.processes import exit_with_parent
from memtui.study.workloads import system

# every BLAS reads its own variable, once, when its library is loaded
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Data and length of a training.

    Attributes:
        images: number of images in the training set, 12 KiB each.
        validation_images: number of images that are evaluated, in order, after every epoch; 0: no validation.
        epochs: passes over the training set; 0: until the process is ended.
        threads: CPU threads; 0: the default of the library.
        progress: number of steps between two lines of output; 0: a line per epoch.
        data: folder with CIFAR-10's binary files; "": images are generated.
        huge_pages: whether the kernel may use 2 MiB pages; the default is 4 KiB pages only.
    """

    batch_size: int = 128
    images: int = 50_000
    validation_images: int = 10_000
    epochs: int = 2
    threads: int = 1
    seed: int = 0
    progress: int = 0
    data: str = ""
    huge_pages: bool = False


def at_least(minimum: int) -> Callable[[str], int]:
    """Return a converter for argparse: text to an integer of at least ``minimum``."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{value} is too small: at least {minimum}")
        return value

    return convert


def add_exit_with_parent(parser: argparse.ArgumentParser) -> None:
    """Add the option of every workload that is started by another program."""
    about = "end when the process that started this one ends; with its PID, also if it has ended already"
    parser.add_argument("--exit-with-parent", type=at_least(0), nargs="?", const=0, metavar="PID", help=about)


def run_pages(run: Callable[[argparse.Namespace], None], given: argparse.Namespace) -> int:
    """Run a workload that accesses pages, with the option of ``add_exit_with_parent``; return its exit status."""
    if given.exit_with_parent is not None:
        exit_with_parent(given.exit_with_parent)
    try:
        run(given)
    except MemoryError as error:
        print(f"{error}; try fewer --pages", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def training_parser(prog: str, description: str, defaults: TrainingOptions) -> argparse.ArgumentParser:
    """Return the options of a bundled training, with the given defaults."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=description, allow_abbrev=False)
    add = parser.add_argument
    add("--batch-size", type=at_least(1), default=defaults.batch_size, metavar="N", help="images a step (%(default)s)")
    add("--images", type=at_least(1), default=defaults.images, metavar="N", help="of 12 KiB each (%(default)s)")
    add("--validation-images", type=at_least(0), metavar="N", help="looked at after every epoch (a fifth of --images)")
    add("--epochs", type=at_least(0), default=defaults.epochs, metavar="N", help="0: for ever (%(default)s)")
    add("--threads", type=at_least(0), default=defaults.threads, metavar="N", help="CPU threads; 0: all (%(default)s)")
    add("--seed", type=at_least(0), default=defaults.seed, metavar="N", help="of data, weights and order (%(default)s)")
    add(
        "--progress",
        type=at_least(1),
        nargs="?",
        const=10,
        default=defaults.progress,
        metavar="N",
        help="a line every N steps (10 when no N is given); without it, a line per epoch",
    )
    add("--data", default="", metavar="DIR", help="CIFAR-10's binary files (default: generated images)")
    add("--huge-pages", action="store_true", help="let the kernel use 2 MiB pages (default: 4 KiB only)")
    add_exit_with_parent(parser)
    return parser


def parse_training(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> TrainingOptions:
    """Parse the arguments, and set up this process. Call before numpy or torch is imported."""
    given = parser.parse_args(arguments)
    return prepare(given)


def prepare(given: argparse.Namespace) -> TrainingOptions:
    """Set up this process by the parsed arguments: threads, page size, end with the parent."""
    options = TrainingOptions(
        batch_size=min(given.batch_size, given.images),
        images=given.images,
        validation_images=given.images // 5 if given.validation_images is None else given.validation_images,
        epochs=given.epochs,
        threads=given.threads,
        seed=given.seed,
        progress=given.progress,
        data=given.data,
        huge_pages=given.huge_pages or not system.disable_huge_pages(),
    )
    if given.exit_with_parent is not None:
        exit_with_parent(given.exit_with_parent)
    if options.threads:
        for name in _THREAD_VARIABLES:
            os.environ[name] = str(options.threads)
    return options
