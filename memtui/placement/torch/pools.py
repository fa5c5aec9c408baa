"""Pools as tensors: page-aligned pieces of a kind of memory, in the process that measures. Imports torch."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import torch

from memtui.placement import memory
from memtui.placement.memory import HUGE_BYTES, NoMemory, rounded
from memtui.placement.pool_specs import PoolSpec
from memtui.placement.worker_protocol import CreatedPool

_CHUNK = HUGE_BYTES


class Pool:
    """One kind of memory.

    A tensor of the pool keeps its mapping alive; a mapping without tensors is released.

    Attributes:
        spec: what was requested.
        name: name of the pool.
        note: a remark for the user.
        device: device of its tensors; ops on another device need a copy.
    """

    def __init__(self, spec: PoolSpec) -> None:
        """Raise NoMemory where this machine has no such memory."""
        self.spec, self.name = spec, spec.name
        self.device = torch.device("cuda" if spec.kind == "cuda" else "cpu")
        self._chunk: torch.Tensor | None = None
        self._used = 0
        self.note = self._inspect()

    def _inspect(self) -> str:
        spec = self.spec
        if spec.kind in ("cuda", "pinned", "pageable"):
            if not torch.cuda.is_available():
                raise NoMemory(f"{spec.name}: this PyTorch ({torch.__version__}) finds no CUDA device")
            return str(torch.cuda.get_device_name()) if spec.kind == "cuda" else ""
        if spec.kind == "numa":
            assert spec.node is not None
            memory.on_node(mmap.PAGESIZE, spec.node)
            return "proved by move_pages"
        if spec.kind == "file":
            return memory.about_folder(spec.folder)[1]
        if spec.kind == "huge":
            return memory.in_huge_pages(HUGE_BYTES)[2]
        return "main memory with waits in it" if spec.emulated else ""

    def take(self, size_bytes: int) -> torch.Tensor:
        """Return memory of this size that starts at a page. Raises NoMemory."""
        room = rounded(size_bytes)
        if self._chunk is None or self._used + room > self._chunk.numel():
            self._chunk, self._used = self._more(rounded(room, _CHUNK)), 0
        piece = self._chunk[self._used : self._used + size_bytes]
        self._used += room
        return piece

    def _more(self, size: int) -> torch.Tensor:
        kind = self.spec.kind
        try:
            if kind == "cuda":
                return torch.zeros(size, dtype=torch.uint8, device="cuda")
            if kind == "pinned":
                return torch.zeros(size, dtype=torch.uint8).pin_memory()
        except RuntimeError as error:
            raise NoMemory(f"{self.name}: {str(error).partition(chr(10))[0]}") from None
        if kind == "huge":
            mapping, start, _ = memory.in_huge_pages(size)
            return _tensor(mapping)[start : start + size]
        makers: dict[str, Callable[[], mmap.mmap]] = {
            "numa": lambda: memory.on_node(size, self.spec.node or 0),
            "file": lambda: memory.of_file(size, self.spec.folder),
        }
        return _tensor(makers.get(kind, lambda: memory.anonymous(size))())

    def read_wait_ns(self, size_bytes: float) -> float:
        """Return the time that emulated memory adds to reading this number of bytes."""
        return size_bytes * 1e9 / self.spec.read_bytes_per_s if self.spec.read_bytes_per_s else 0.0

    def write_wait_ns(self, size_bytes: float) -> float:
        """Return the time that emulated memory adds to writing this number of bytes."""
        return size_bytes * 1e9 / self.spec.write_bytes_per_s if self.spec.write_bytes_per_s else 0.0

    @property
    def report(self) -> CreatedPool:
        """The pool as it is reported."""
        return CreatedPool(self.name, self.spec.emulated, self.note)


def _tensor(mapping: mmap.mmap) -> torch.Tensor:
    return torch.frombuffer(mapping, dtype=torch.uint8)
