"""Pools as tensors: page-aligned pieces of a kind of memory. In the process that measures; imports torch."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import torch

from memtui.placement import memory
from memtui.placement.memory import HUGE_BYTES, NoMemory, rounded
from memtui.placement.pool_specs import PoolSpec
from memtui.placement.worker_protocol import MadePool

_CHUNK = HUGE_BYTES


class Pool:
    """One kind of memory.

    A tensor that was taken keeps its mapping; what nobody holds any more goes back to the kernel.

    Attributes:
        asked: what it is.
        note: what else has to be said of it.
        device: where its tensors are; ops on another device need a copy.
    """

    def __init__(self, asked: PoolSpec) -> None:
        """Raise NoMemory when there is no such memory here."""
        self.asked, self.name = asked, asked.name
        self.device = torch.device("cuda" if asked.kind == "cuda" else "cpu")
        self._chunk: torch.Tensor | None = None
        self._used = 0
        self.note = self._look()

    def _look(self) -> str:
        asked = self.asked
        if asked.kind in ("cuda", "pinned", "pageable"):
            if not torch.cuda.is_available():
                raise NoMemory(f"{asked.name}: this PyTorch ({torch.__version__}) finds no CUDA device")
            return str(torch.cuda.get_device_name()) if asked.kind == "cuda" else ""
        if asked.kind == "numa":
            assert asked.node is not None
            memory.on_node(mmap.PAGESIZE, asked.node)
            return "proved by move_pages"
        if asked.kind == "file":
            return memory.about_folder(asked.folder)[1]
        if asked.kind == "huge":
            return memory.in_huge_pages(HUGE_BYTES)[2]
        return "main memory with waits in it" if asked.emulated else ""

    def take(self, size_bytes: int) -> torch.Tensor:
        """Return memory of this size that starts at a page. Raises NoMemory."""
        room = rounded(size_bytes)
        if self._chunk is None or self._used + room > self._chunk.numel():
            self._chunk, self._used = self._more(rounded(room, _CHUNK)), 0
        found = self._chunk[self._used : self._used + size_bytes]
        self._used += room
        return found

    def _more(self, size: int) -> torch.Tensor:
        kind = self.asked.kind
        try:
            if kind == "cuda":
                return torch.zeros(size, dtype=torch.uint8, device="cuda")
            if kind == "pinned":
                return torch.zeros(size, dtype=torch.uint8).pin_memory()
        except RuntimeError as error:
            raise NoMemory(f"{self.name}: {str(error).partition(chr(10))[0]}") from None
        if kind == "huge":
            made, begin, _ = memory.in_huge_pages(size)
            return _tensor(made)[begin : begin + size]
        makers: dict[str, Callable[[], mmap.mmap]] = {
            "numa": lambda: memory.on_node(size, self.asked.node or 0),
            "file": lambda: memory.of_file(size, self.asked.folder),
        }
        return _tensor(makers.get(kind, lambda: memory.anonymous(size))())

    def read_wait_ns(self, size_bytes: float) -> float:
        """Return what reading so much takes in addition, in emulated memory."""
        return size_bytes * 1e9 / self.asked.read_bytes_per_s if self.asked.read_bytes_per_s else 0.0

    def write_wait_ns(self, size_bytes: float) -> float:
        """Return the same of writing."""
        return size_bytes * 1e9 / self.asked.write_bytes_per_s if self.asked.write_bytes_per_s else 0.0

    @property
    def made(self) -> MadePool:
        """The pool as it is reported."""
        return MadePool(self.name, self.asked.emulated, self.note)


def _tensor(made: mmap.mmap) -> torch.Tensor:
    return torch.frombuffer(made, dtype=torch.uint8)
