"""The training loop of both networks: shuffled batches, a validation pass after every epoch, lines on stdout."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memtui.study.workloads.data import CHANNELS, IMAGE_BYTES, SIDE, make_images
from memtui.study.workloads.options import TrainingOptions

FloatArray = NDArray[np.float32]
LabelArray = NDArray[np.int64]


class Network(Protocol):
    """A classifier that can be trained on NHWC images."""

    title: str  # library and version, for the start message
    parameters: int  # number of weights

    def step(self, images: FloatArray, labels: LabelArray) -> float:
        """Make one step of gradient descent; return the mean loss of the batch before it."""

    def evaluate(self, images: FloatArray, labels: LabelArray) -> tuple[float, int]:
        """Return the summed loss and the number of right answers, without learning."""


class _Output:
    """Prints lines at once, and goes on without output when nobody reads any more."""

    def __init__(self) -> None:
        self._open = True

    def line(self, text: str) -> None:
        if not self._open:
            return
        try:
            print(text, flush=True)
        except (BrokenPipeError, OSError):
            self._open = False
            # the interpreter flushes stdout when it ends: the null device takes the rest
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def train(network: Network, options: TrainingOptions) -> None:
    """Load or generate the data and train until the epochs are done; for ever when ``options.epochs`` is 0."""
    output = _Output()
    start_s = time.monotonic()
    (images, labels), validation = _data(options)
    count, origin = len(images), "CIFAR-10, read" if options.data else "synthetic, made"
    output.line(
        f"{network.title}: {network.parameters:,} parameters, {count:,} images "
        f"({count * IMAGE_BYTES / 2**20:.0f} MiB, {origin} in {time.monotonic() - start_s:.1f} s), "
        f"batch {options.batch_size}, {options.threads or 'all'} CPU thread{'' if options.threads == 1 else 's'}, "
        f"{'2 MiB pages allowed' if options.huge_pages else '4 KiB pages'}, "
        f"{f'{options.epochs} epochs' if options.epochs else 'until stopped'}, pid {os.getpid()}"
    )
    rng = np.random.default_rng((options.seed, 1))
    batch = np.empty((options.batch_size, SIDE, SIDE, CHANNELS), np.float32)
    step = 0
    for epoch in range(1, options.epochs + 1) if options.epochs else itertools.count(1):
        epoch_start_s = line_start_s = time.monotonic()
        since_line, losses = 0, []
        order = rng.permutation(count)
        for first in range(0, count, options.batch_size):
            chosen = order[first : first + options.batch_size]
            part = batch[: len(chosen)]
            np.take(images, chosen, axis=0, out=part, mode="clip")  # any other mode takes a second copy
            loss = network.step(part, labels[chosen])
            step += 1
            since_line += len(chosen)
            losses.append(loss)
            if step == 1 or (options.progress and step % options.progress == 0):
                now_s = time.monotonic()
                rate = since_line / (now_s - line_start_s)
                output.line(f"step {step}  epoch {epoch}  loss {loss:.4f}  {rate:.1f} images/s")
                since_line, line_start_s = 0, now_s
        rate = count / (time.monotonic() - epoch_start_s)
        text = f"epoch {epoch}  steps {step}  mean loss {np.mean(losses):.4f}  {rate:.1f} images/s"
        if len(validation[0]):
            loss, right = _validate(network, *validation, options.batch_size)
            text += f"  validation loss {loss:.4f}  accuracy {100 * right:.1f} %"
        output.line(text)


def _data(options: TrainingOptions) -> tuple[tuple[FloatArray, LabelArray], tuple[FloatArray, LabelArray]]:
    """Return images and labels for training and for validation. Exits with a line where files cannot be read."""
    if not options.data:
        training_set = make_images(options.images, options.seed)
        return training_set, make_images(options.validation_images, options.seed + 1)
    from memtui.study.workloads.cifar import read_images

    folder = Path(options.data)
    try:
        return (
            read_images(folder, options.images),
            read_images(folder, options.validation_images, validation=True),
        )
    except (OSError, ValueError) as error:
        sys.exit(f"{error}")


def _validate(network: Network, images: FloatArray, labels: LabelArray, batch_size: int) -> tuple[float, float]:
    """Return mean loss and share of right answers over a data set, in order."""
    loss, right = 0.0, 0
    for first in range(0, len(images), batch_size):
        part = slice(first, first + batch_size)
        batch_loss, batch_right = network.evaluate(images[part], labels[part])
        loss, right = loss + batch_loss, right + batch_right
    return loss / len(images), right / len(images)
