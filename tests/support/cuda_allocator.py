"""A stand-in for the history of PyTorch's CUDA allocator, as ``torch/cuda/memory.py`` of torch 2.13 describes it.

``allocate`` and ``free`` are what operators would do. Sizes are rounded to 512 bytes, the free of a block that another
stream uses completes later, and the history is a ring.
"""

from __future__ import annotations

import time
from typing import Any

FIRST = 0x7F00_0000_0000
ROUND = 512


class CudaAllocator:
    """Of one device with one large segment."""

    def __init__(self) -> None:
        self.enabled: str | None = None
        self.calls: list[tuple[Any, ...]] = []
        self._entries: list[dict[str, Any]] = []
        self._most = 0
        self._blocks: dict[int, tuple[int, int, str]] = {}  # address: requested, stream, state
        self._next = FIRST

    def install(self, monkeypatch, torch: Any) -> CudaAllocator:
        """In the place of CUDA."""
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: self.enabled is not None, raising=False)
        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history_impl", self.record)
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", self.snapshot)
        return self

    def record(self, enabled=None, context="all", stacks="all", max_entries=2**62, device=None, clear_history=False):
        self.calls.append((enabled, context, max_entries, clear_history))
        self.enabled, self._most = enabled, max_entries
        if clear_history or enabled is None:
            self._entries = []

    def allocate(self, size_bytes: int, stream: int = 0) -> int:
        address, self._next = self._next, self._next + -(-size_bytes // ROUND) * ROUND
        self._blocks[address] = size_bytes, stream, "active_allocated"
        self._note("alloc", address)
        return address

    def free(self, address: int, *, waits: bool = False) -> None:
        """``waits``: another stream still uses it, until ``complete``."""
        size_bytes, stream, _ = self._blocks[address]
        self._note("free_requested", address)
        self._blocks[address] = size_bytes, stream, "active_awaiting_free"
        if not waits:
            self.complete(address)

    def complete(self, address: int) -> None:
        self._note("free_completed", address)
        del self._blocks[address]

    def snapshot(self, device: Any = None) -> dict[str, Any]:
        blocks = [
            {
                "address": address,
                "size": -(-size_bytes // ROUND) * ROUND,
                "requested_size": size_bytes,
                "state": state,
                "frames": [],
            }
            for address, (size_bytes, _, state) in sorted(self._blocks.items())
        ]
        segment = {"device": 0, "address": FIRST, "total_size": 1 << 30, "stream": 0, "blocks": blocks}
        return {"segments": [segment], "device_traces": [list(self._entries)]}

    def _note(self, action: str, address: int) -> None:
        if self.enabled != "all":
            return
        size_bytes, stream, _ = self._blocks[address]
        entry = {"action": action, "addr": address, "size": size_bytes, "stream": stream, "frames": []}
        self._entries = [*self._entries, entry | {"time_us": time.time_ns() // 1000}][-self._most :]
