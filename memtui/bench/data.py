"""The data of an operator: one large buffer of random numbers, read sequentially, and copies of its weights.

A tensor that is used again and again lies in the cache. Here every call takes the next part of a buffer that is larger
than the cache, and after the last part the first one again; and with ``weights=rotate`` the next of several sets of
weights, which do not share memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from memtui.bench.configuration import COMPRESSED, Configuration
from memtui.bench.operators.base import Tensor

BUFFER_BYTES = 256 << 20  # at least
CACHES = 4  # times the last-level cache
COPIES = 8  # most copies of the weights that take turns; fewer where the buffer's size does not hold as many
MOST_PARTS = 16384  # a view of each is an object
ALIGN_BYTES = 512


_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}


class OutOfMemory(Exception):
    """The device cannot hold the tensors of a configuration."""


class Data:
    """The tensors of one configuration on one device.

    Attributes:
        walked_bytes: size of all inputs, until the first is used again.
        copies: number of sets of weights.
    """

    def __init__(self, torch: Any, device: str, configuration: Configuration, cache_bytes: int, seed: int) -> None:
        """Raise OutOfMemory, and what torch raises."""
        self._torch, self._device = torch, device
        self._dtype = getattr(torch, _DTYPES.get(configuration.dtype, "float32"))
        self._item_bytes = configuration.item_bytes
        self._random = torch.Generator(device).manual_seed(seed)
        self._conditions = configuration.conditions
        self._trains = configuration.both_ways
        self._nhwc = configuration.parameters.get("format") == "channels_last"
        operator, p = configuration.operator, configuration.parameters
        wanted = max(BUFFER_BYTES, CACHES * cache_bytes)
        weights = operator.weights(p)
        set_bytes = sum(t.size_bytes(self._item_bytes) for t in weights)
        rotates = self._conditions["weights"] == "rotate" and set_bytes > 0
        self.copies = max(1, min(COPIES, wanted // set_bytes)) if rotates else 1
        self.weights = [tuple(self._weight(t, "weight_zeros", 0) for t in weights) for _ in range(self.copies)]
        if len({w.data_ptr() for copy in self.weights for w in copy}) < self.copies * len(weights):
            raise RuntimeError("two sets of weights lie in the same memory")
        if configuration.compressed:
            self.weights = [(self._compressed(matrix), *rest) for matrix, *rest in self.weights]
        self.inputs = self._inputs(operator.inputs(p), wanted)
        self.walked_bytes = len(self.inputs) * sum(t.size_bytes(self._item_bytes) for t in operator.inputs(p))

    def walk(self) -> tuple[Iterator[tuple[Any, ...]], Iterator[tuple[Any, ...]]]:
        """Return the inputs and weights of one call after another, without end."""
        return itertools.cycle(self.inputs), itertools.cycle(self.weights)

    def _inputs(self, tensors: tuple[Tensor, ...], wanted: int) -> list[tuple[Any, ...]]:
        call_bytes = sum(_aligned(t.size_bytes(self._item_bytes)) for t in tensors)
        count = 1 if self._conditions["cache"] == "warm" else min(max(2, wanted // call_bytes), MOST_PARTS)
        while True:
            try:
                columns = [self._column(t, count) for t in tensors]
                return list(zip(*columns, strict=True))
            except OutOfMemory:
                if count <= 2:
                    raise
            count //= 2

    def _column(self, tensor: Tensor, count: int) -> list[Any]:
        """Return one input of each of ``count`` calls, contiguous in memory."""
        item = 8 if tensor.below else self._item_bytes
        step = _aligned(tensor.elements * item) // item
        flat = self._numbers(tensor, step * count)
        if not tensor.below:
            self._thin(flat, "input_zeros")
        tensors = []
        for start in range(0, step * count, step):
            part = self._shaped(flat[start : start + tensor.elements], tensor.shape)
            if not tensor.below:
                self._empty_channels(part, "input_zeros", 1 if len(tensor.shape) > 2 else len(tensor.shape) - 1)
                part.requires_grad_(self._trains)
            tensors.append(part)
        return tensors

    def _weight(self, tensor: Tensor, share: str, channel: int) -> Any:
        flat = self._numbers(tensor, tensor.elements)
        self._thin(flat, share)
        shaped = self._shaped(flat, tensor.shape)
        self._empty_channels(shaped, share, channel)
        return shaped.requires_grad_(self._trains)

    def _compressed(self, matrix: Any) -> Any:
        if not self._device.startswith("cuda") or self._torch.cuda.get_device_capability(self._device) < (8, 0):
            raise RuntimeError(f"zeros={COMPRESSED} needs a GPU with sparse tensor cores (compute capability 8.0)")
        return self._torch.sparse.to_sparse_semi_structured(matrix)

    def _numbers(self, tensor: Tensor, count: int) -> Any:
        torch = self._torch
        try:
            if tensor.below:
                return torch.randint(tensor.below, (count,), generator=self._random, device=self._device)
            fp8 = self._item_bytes == 1
            drawn_dtype = torch.bfloat16 if fp8 else self._dtype  # nothing makes random numbers of 8 bits
            numbers = torch.empty(count, dtype=drawn_dtype, device=self._device).normal_(generator=self._random)
            if fp8 and len(tensor.shape) > 1:  # a bias has the type of the output
                numbers = numbers.to(self._dtype)
        except RuntimeError as error:
            raise short if (short := out_of_memory(error)) else error from None
        return numbers.abs_() if tensor.positive else numbers

    def _shaped(self, flat: Any, shape: tuple[int, ...]) -> Any:
        if self._nhwc and len(shape) == 4:
            n, c, h, w = shape
            return flat.view(n, h, w, c).permute(0, 3, 1, 2)
        return flat.view(shape)

    def _thin(self, flat: Any, share: str) -> None:
        """Set percent of the numbers to 0, by chance, or two of every four neighbours."""
        percent, pattern = self._conditions[share], self._conditions["zeros"]
        if not percent or pattern == "channels":
            return
        torch, device = self._torch, self._device
        if pattern == "random":
            for part in flat.split(1 << 24):  # a mask of the whole tensor would be as large again
                part.masked_fill_(torch.rand(len(part), generator=self._random, device=device) * 100 < percent, 0)
            return
        for part in flat[: len(flat) // 4 * 4].view(-1, 4).split(1 << 22):
            order = torch.rand(part.shape, generator=self._random, device=device).argsort(1)
            part.masked_fill_(order < 2, 0)

    def _empty_channels(self, tensor: Any, share: str, channel: int) -> None:
        """Set percent of the channels to 0: the first ones, since no operator treats channels differently."""
        percent = self._conditions[share]
        if percent and self._conditions["zeros"] == "channels":
            count = round(tensor.shape[channel] * int(percent) / 100)
            tensor.narrow(channel, 0, count).zero_()


def out_of_memory(error: RuntimeError) -> OutOfMemory | None:
    """Return the error as OutOfMemory if it is one: torch has its own error for GPUs, a general one for CPUs."""
    text = str(error)
    short = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in text
    return OutOfMemory(text.splitlines()[0]) if short else None


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
