"""A stand-in for PyTorch's CUDA allocator and its history, as ``torch/cuda/memory.py`` of torch 2.13 describes it.

``allocate`` and ``free`` are what operators would do. Blocks are rounded, split and merged in segments as in
``c10/cuda/CUDACachingAllocator.cpp``, the free of a block that another stream uses completes later, and the history is
a ring.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

FIRST = 0x7F00_0000_0000
ROUND = 512
MIB = 1 << 20
RESERVED = 1 << 40  # addresses of an expandable segment
NO_LIMIT = 1 << 62


@dataclass
class Block:
    address: int
    size: int
    state: str = "inactive"  # or "active_allocated", "active_pending_free", "unmapped"
    requested: int = 0


@dataclass
class Segment:
    """Its blocks in order; those of an expandable one end with addresses that are not mapped."""

    stream: int
    small: bool
    blocks: list[Block] = field(default_factory=list)


class CudaAllocator:
    """Of one device."""

    def __init__(self, *, expandable: bool = False, most_split: int = NO_LIMIT, divisions: int = 0) -> None:
        self.enabled: str | None = None
        self.calls: list[tuple[Any, ...]] = []
        self.segments: list[Segment] = []
        self.given: list[tuple[int, int]] = []  # address and size of the block of each allocation
        self.most_allocated = self.most_reserved = 0
        self._expandable, self._most_split, self._divisions = expandable, most_split, divisions
        self._entries: list[dict[str, Any]] = []
        self._most = 0
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

    def sum_of(self, *states: str) -> int:
        return sum(block.size for segment in self.segments for block in segment.blocks if block.state in states)

    def reset_peaks(self) -> None:
        self.most_allocated, self.most_reserved = self.sum_of("active_allocated"), self._reserved

    def allocate(self, size_bytes: int, stream: int = 0) -> int:
        size = self._rounded(size_bytes)
        small = size <= MIB
        segment, block = self._free_block(size, stream, small) or self._new_block(size, stream, small)
        rest = block.size - size
        if rest >= ROUND if small or self._expandable else rest > MIB and size < self._most_split:
            segment.blocks.insert(segment.blocks.index(block) + 1, Block(block.address + size, rest))
            block.size = size
        block.state, block.requested = "active_allocated", size_bytes
        self.given.append((block.address, block.size))
        self.most_allocated = max(self.most_allocated, self.sum_of("active_allocated"))
        self._note("alloc", block.address, size_bytes, stream)
        return block.address

    def free(self, address: int, *, waits: bool = False) -> None:
        """``waits``: another stream still uses it, until ``complete``."""
        segment, block = self._at(address)
        self._note("free_requested", address, block.requested, segment.stream)
        block.state = "active_pending_free"
        if not waits:
            self.complete(address)

    def complete(self, address: int) -> None:
        segment, block = self._at(address)
        self._note("free_completed", address, block.requested, segment.stream)
        block.state, block.requested = "inactive", 0
        self._merge(segment)

    def empty_cache(self) -> None:
        for segment in list(self.segments):
            if self._expandable:
                for block in [block for block in segment.blocks if block.state == "inactive"]:
                    self._unmap(segment, block)
            elif len(segment.blocks) == 1 and segment.blocks[0].state == "inactive":
                block = segment.blocks[0]
                self._note("segment_free", block.address, block.size, segment.stream)
                self.segments.remove(segment)

    def snapshot(self, device: Any = None) -> dict[str, Any]:
        segments = []
        for segment in self.segments:
            runs: list[list[Block]] = [[]]
            for block in segment.blocks:
                if block.state == "unmapped":
                    runs.append([])
                else:
                    runs[-1].append(block)
            segments += [self._described(segment, run) for run in runs if run]
        settings = {
            "expandable_segments": self._expandable,
            "max_split_size": -1 if self._most_split == NO_LIMIT else self._most_split,
            "roundup_power2_divisions": {str(1 << power): self._divisions for power in range(16)},
        }
        traces = [list(self._entries)]
        self._note("snapshot", 0, self.sum_of("active_allocated", "active_pending_free"), 0)
        return {"segments": segments, "device_traces": traces, "allocator_settings": settings}

    def _described(self, segment: Segment, run: list[Block]) -> dict[str, Any]:
        return {
            "device": 0,
            "address": run[0].address,
            "total_size": sum(block.size for block in run),
            "stream": segment.stream,
            "segment_type": "small" if segment.small else "large",
            "is_expandable": self._expandable,
            "blocks": [
                {"address": b.address, "size": b.size, "requested_size": b.requested, "state": b.state, "frames": []}
                for b in run
            ],
        }

    @property
    def _reserved(self) -> int:
        return self.sum_of("inactive", "active_allocated", "active_pending_free")

    def _rounded(self, size_bytes: int) -> int:
        if self._divisions > 1 and size_bytes > ROUND * self._divisions:
            floor = 1 << (size_bytes.bit_length() - 1)
            return min(
                size
                for step in range(self._divisions + 1)
                if (size := floor + floor * step // self._divisions) >= size_bytes
            )
        return max(1, -(-size_bytes // ROUND)) * ROUND

    def _free_block(self, size: int, stream: int, small: bool) -> tuple[Segment, Block] | None:
        fitting = [
            (block.size, block.address)
            for segment in self.segments
            if (segment.stream, segment.small) == (stream, small)
            for block in segment.blocks
            if block.state == "inactive"
            and block.size >= size
            and (self._expandable or size >= self._most_split or block.size < self._most_split)
        ]
        return self._at(min(fitting)[1]) if fitting else None

    def _new_block(self, size: int, stream: int, small: bool) -> tuple[Segment, Block]:
        if self._expandable:
            return self._expanded(size, stream, small)
        room = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        segment = Segment(stream, small, [Block(self._next, room)])
        self._next += room  # side by side with the one before
        self.segments.append(segment)
        self._note("segment_alloc", segment.blocks[0].address, room, stream)
        self.most_reserved = max(self.most_reserved, self._reserved)
        return segment, segment.blocks[0]

    def _expanded(self, size: int, stream: int, small: bool) -> tuple[Segment, Block]:
        """Map memory behind a free block, or where nothing is mapped, until it is large enough."""
        segment = next((one for one in self.segments if (one.stream, one.small) == (stream, small)), None)
        if segment is None:
            segment = Segment(stream, small, [Block(self._next, RESERVED, "unmapped")])
            self._next += RESERVED
            self.segments.append(segment)
        blocks = segment.blocks
        for number, block in enumerate(blocks):
            before = blocks[number - 1] if number and blocks[number - 1].state == "inactive" else None
            have = before.size if before else 0
            if block.state == "unmapped" and have + block.size >= size:
                granule = 2 * MIB if small else 20 * MIB
                room = min(block.size, -(-(size - have) // granule) * granule)
                blocks[number : number + 1] = [Block(block.address, room)] + (
                    [Block(block.address + room, block.size - room, "unmapped")] if room < block.size else []
                )
                self._note("segment_map", block.address, room, stream)
                self.most_reserved = max(self.most_reserved, self._reserved)
                start = before.address if before else block.address
                self._merge(segment)
                return self._at(start)
        raise AssertionError("the addresses of a segment do not end")

    def _unmap(self, segment: Segment, block: Block) -> None:
        granule = 2 * MIB if segment.small else 20 * MIB
        base = segment.blocks[0].address
        start = base + -(-(block.address - base) // granule) * granule
        end = base + (block.address + block.size - base) // granule * granule
        if start < end:
            pieces = (
                (block.address, start, "inactive"),
                (start, end, "unmapped"),
                (end, block.address + block.size, "inactive"),
            )
            number = segment.blocks.index(block)
            segment.blocks[number : number + 1] = [Block(a, z - a, state) for a, z, state in pieces if a < z]
            self._note("segment_unmap", start, end - start, segment.stream)
            self._merge(segment)

    def _merge(self, segment: Segment) -> None:
        merged: list[Block] = []
        for block in segment.blocks:
            if merged and merged[-1].state == block.state and block.state in ("inactive", "unmapped"):
                merged[-1].size += block.size
            else:
                merged.append(block)
        segment.blocks = merged

    def _at(self, address: int) -> tuple[Segment, Block]:
        return next((s, b) for s in self.segments for b in s.blocks if b.address == address)

    def _note(self, action: str, address: int, size: int, stream: int) -> None:
        if self.enabled != "all":
            return
        entry = {"action": action, "addr": address, "size": size, "stream": stream, "frames": []}
        self._entries = [*self._entries, entry | {"time_us": time.time_ns() // 1000}][-self._most :]
