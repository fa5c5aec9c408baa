"""Ops that are recorded as several smaller ones, because a plan has a configuration for each choice of their tensors.

An op with n tensors that may be placed has pools ** n configurations. Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

MOST_JOINED = 4  # tensors that one op joins, as Inception's blocks do


@contextmanager
def lstm_in_steps() -> Iterator[None]:
    """Record the steps of an LSTM, and not one op for a whole layer.

    PyTorch runs a layer as one op of oneDNN, whose backward pass has 14 tensors that may be placed: 16384
    configurations. Its steps have the same few ops again and again, which share their times.
    """
    before = torch._C._get_mkldnn_enabled()  # the public setter warns of GPUs on every call
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """Join many tensors by a copy of each to its place, as ``torch.cat`` does."""
    joined = [tensor for tensor in tensors if tensor.shape != (0,)]  # torch.cat leaves these out, whatever dim is
    if not _may_be_copied(joined):
        return NotImplemented
    lengths = [tensor.shape[dim] for tensor in joined]
    shape = list(joined[0].shape)
    shape[dim] = sum(lengths)
    first = joined[0]
    result = torch.empty(shape, dtype=first.dtype, device=first.device, memory_format=_memory_format(tensors))
    for part, tensor in zip(result.split(lengths, dim), joined, strict=True):
        part.copy_(tensor)
    return result


def _stack(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """Join many tensors in a new dimension by a copy of each to its place, as ``torch.stack`` does."""
    if not _may_be_copied(tensors) or _memory_format(tensors) != torch.contiguous_format:
        return NotImplemented  # torch.stack joins channels_last tensors in strides of its own
    dim %= tensors[0].dim() + 1
    shape = list(tensors[0].shape)
    shape.insert(dim, len(tensors))
    result = tensors[0].new_empty(shape)
    for part, tensor in zip(result.unbind(dim), tensors, strict=True):
        part.copy_(tensor)
    return result


def _may_be_copied(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether tensors are many, and of one type: the result of several types has another type."""
    return len(tensors) > MOST_JOINED and len({tensor.dtype for tensor in tensors}) == 1


def _memory_format(tensors: Sequence[torch.Tensor]) -> torch.memory_format:
    """Return the memory format of the result of ``torch.cat``: that of all tensors, or else the default."""
    formats = {suggest_memory_format(tensor) for tensor in tensors}
    return formats.pop() if len(formats) == 1 else torch.contiguous_format


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.cat.default: _cat,
    torch.ops.aten.stack.default: _stack,
}
