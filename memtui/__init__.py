"""memtui: a terminal monitor for the memory, time and energy of machine-learning training."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from memtui._version import __version__ as __version__

if TYPE_CHECKING:
    import os


def trace(
    model: Any = None, optimizer: Any = None, *, every: int = 20, output: str | os.PathLike[str] | None = None
) -> AbstractContextManager[None]:
    """Record the tensors of a PyTorch training from inside, for as long as ``with memtui.trace(...):`` lasts.

    All steps are timed, between them a cheap look says what tensors hold, and of one step in ``every`` each allocation
    is recorded. It goes to the recording that observes this process (``memtui attach``, ``memtui record PID``); where
    there is none, or with ``output``, one of its own begins, which takes about a second and ends with the block.

    A step ends with a step of ``optimizer``; without one, of the first optimiser that steps twice. ``model`` gives
    layers their names; without one it is found by its parameters. A program that ``memtui trace`` started is traced
    already: nothing is added. Where nothing can be recorded, a line on
    standard error says why, and the training goes on.

    Args:
        model: a ``torch.nn.Module``, or several.
        optimizer: a ``torch.optim.Optimizer``.
        every: steps from one that is recorded whole to the next.
        output: the session file; it must not exist. By default a name in your state directory.

    Raises:
        ValueError: ``every`` is not a whole number from 1 on.
        TypeError: ``model`` or ``optimizer`` is something else.
    """
    from memtui.recording.tracer.context import tracing

    return tracing(model, optimizer, every, output)


def backward(module: Any) -> AbstractContextManager[None]:
    """Say where a program computes the gradients of a ``torch.nn.Module`` itself, without autograd.

    What is allocated ``with memtui.backward(layer):`` is of the backward pass of that layer, and what lies in the
    ``grad`` of its parameters afterwards are gradients. Without a recording it does nothing.
    """
    from memtui.recording.tracer.manual_backward import Backward

    return Backward(module)


def mark(text: str) -> None:
    """Put a mark (an epoch, a phase) on the time axis of a recording.

    It goes to the recording that observes this process or what started it; where none does, to the only recording of
    yours that runs on this machine. It does nothing where none runs, or several of which none observes this process.
    It never raises and never waits; a mark costs a fraction of a millisecond (the first one some tens, for imports),
    and of more than 50 a second the rest is left out. At most 500 characters are kept.
    """
    try:
        from memtui.recording.client import put

        put(text)
    except Exception:
        pass  # the program that marks matters more than its marks
