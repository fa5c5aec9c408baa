"""Weights in a file: plain tensors by name, and nothing that could run code."""

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
    """Take weights from a file. Those of feedback are taken where the rule has some.

    Raises:
        UserError: it is not such a file, or of another network.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # that it could be read in an unsafe way
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except Exception:  # whatever a file may hold: only tensors are taken
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
    """Write all of it or nothing. Raises UserError."""
    beside = path.with_name(f".memtui-{os.getpid()}")  # short: a name that fits needs no more room for this
    try:
        with beside.open("xb") as file:  # torch's own words for a file that cannot be opened are of its parser
            torch.save({name: tensor.clone() for name, tensor in network.state_dict().items()}, file)
        beside.replace(path)
    except (OSError, RuntimeError) as error:
        beside.unlink(missing_ok=True)
        raise refused(path, error, WRITE, code=FAILURE) from None
