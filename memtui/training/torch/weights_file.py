"""Weights in a file: tensors by name, without anything that could run code."""

from __future__ import annotations

import os
import warnings
import zipfile
from pathlib import Path
from typing import BinaryIO

import torch

from memtui.core.errors import FAILURE, UserError
from memtui.core.os_errors import READ, WRITE, refused
from memtui.core.small_file import open_regular
from memtui.core.units import size
from memtui.training.datasets import CLASSES
from memtui.training.torch.network import Network

FEEDBACK = "feedback"
_VALUE_BYTES = 8  # of the longest type of a number
_TENSOR_BYTES = 4096  # of the name of a tensor and what a file says of it
_ARCHIVE = b"PK\x03\x04"  # how a file of torch.save begins, of version 1.6 and later


def restore(network: Network, path: Path) -> None:
    """Load weights from a file. Feedback matrices are loaded where the rule has them.

    Raises:
        UserError: the file cannot be read, is not a file of weights, or is of another network.
    """
    try:
        with open_regular(path) as file:
            tensors = _load(file, path, _most_bytes(network))
    except OSError as error:
        raise refused(path, error, READ) from None
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


def _load(file: BinaryIO, path: Path, most_bytes: int) -> object:
    """Return what a file of ``torch.save`` holds. Raises UserError, also where it is, or would become, too large."""
    if os.fstat(file.fileno()).st_size > most_bytes:
        raise _too_large(path, most_bytes)
    try:
        if file.read(len(_ARCHIVE)) != _ARCHIVE:
            raise ValueError  # torch would take other formats, which say nothing of their size
        with zipfile.ZipFile(file) as archive:  # torch inflates what is deflated: a thousand times its size in the file
            unpacked_bytes = sum(entry.file_size for entry in archive.infolist())
        if unpacked_bytes <= most_bytes:
            file.seek(0)
            with warnings.catch_warnings(action="ignore"):  # about unsafe loading
                return torch.load(file, map_location="cpu", weights_only=True)
    except Exception:  # of any content of a file: only tensors are accepted
        raise UserError(f"{path}: holds no weights that can be read safely; save_model writes such files") from None
    raise _too_large(path, most_bytes)


def _too_large(path: Path, most_bytes: int) -> UserError:
    return UserError(f"{path}: is of another network: the weights of this one have at most {size(most_bytes)}")


def _most_bytes(network: torch.nn.Module) -> int:
    """Return how large a file with weights of this network, and feedback of any rule, can be."""
    values = [tensor.numel() for name, tensor in network.state_dict().items() if not name.endswith(FEEDBACK)]
    for layer in network.modules():
        if (shape := getattr(layer, "input_shape", None)) is not None:  # see ``prepare`` of the rules
            values.append(max(CLASSES.values()) * torch.Size(shape).numel())
    # Feedback of the rule FA has the shape of the weights.
    return (1 << 20) + _VALUE_BYTES * 2 * sum(values) + _TENSOR_BYTES * 2 * len(values)


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
