"""Weights in a file: tensors by name, without anything that could run code."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import torch

from memtui.core.errors import FAILURE, UserError
from memtui.core.os_errors import WRITE, refused
from memtui.training.torch.network import Network

FEEDBACK = "feedback"


def restore(network: Network, path: Path) -> None:
    """Load weights from a file. Feedback matrices are loaded where the rule has them.

    Raises:
        UserError: the file is not a file of weights, or of another network.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # about unsafe loading
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except Exception:  # of any content of a file: only tensors are accepted
        raise UserError(f"{path}: holds no weights that can be read safely; save_model writes such files") from None
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in tensors.items()
    ):
        raise UserError(f"{path}: holds no tensors by name")
    own = network.state_dict()
    for name in own.keys() | tensors.keys():
        if name.endswith(FEEDBACK):
            continue
        if name not in own or name not in tensors:
            raise UserError(
                f"{path}: is of another network: {name} is only in {'it' if name in tensors else 'this one'}"
            )
    taken = {name: tensor for name, tensor in tensors.items() if name in own}
    for name, tensor in taken.items():
        if tensor.shape != own[name].shape:
            raise UserError(f"{path}: is of another network: {name} has other dimensions")
    network.load_state_dict(taken, strict=False)


def save(network: Network, path: Path) -> None:
    """Write the weights, whole or not at all. Raises UserError."""
    draft = path.with_name(f".memtui-{os.getpid()}")  # short: it fits wherever the name of the file fits
    try:
        with draft.open("xb") as file:  # torch's own message for a file that cannot be opened is about its parser
            torch.save({name: tensor.clone() for name, tensor in network.state_dict().items()}, file)
        draft.replace(path)
    except (OSError, RuntimeError) as error:
        draft.unlink(missing_ok=True)
        raise refused(path, error, WRITE, code=FAILURE) from None
