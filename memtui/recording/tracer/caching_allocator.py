"""Blocks of PyTorch's caching allocator for CUDA, replayed from its history between two snapshots.

A history has the bytes that were requested. ``torch.cuda.max_memory_allocated`` counts the blocks that the allocator
gave for them: rounded, and the whole of a free block where too little of it would be left. Where free blocks lie, the
first snapshot says, so only two rules of the allocator are repeated here (``_rounded`` and ``_Replay._splits``, of
``c10/cuda/CUDACachingAllocator.cpp`` of torch 2.4 to 2.13). What comes of them is compared with the last snapshot:
where it differs, the blocks are not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

_LEAST = 512  # a block, and what is worth splitting off in the pool of small blocks
_SMALL = 1 << 20  # the largest block of that pool, and more than this is worth splitting off in the other one
_INTERVALS = 16  # powers of two from 1 MiB on that have a rounding of their own
_LISTED = 3  # blocks that a reason names

_FREE, _ALLOCATED, _WAITING = "inactive", "active_allocated", "active_pending_free"


@dataclass(frozen=True, slots=True)
class AllocatorPeak:
    """The most memory of one device at once, between two snapshots.

    Attributes:
        requested_bytes: what was requested, until it can be used again.
        allocated_bytes: blocks until they are freed, as ``torch.cuda.max_memory_allocated`` counts; None: not known.
        reserved_bytes: segments, as ``torch.cuda.max_memory_reserved`` counts; None: not known.
        reason: why they are not known.
    """

    requested_bytes: int
    allocated_bytes: int | None
    reserved_bytes: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of one device.

    Attributes:
        given: address and bytes of the block of each allocation, in order; empty where they are not known.
        peak: the most memory at once.
    """

    given: tuple[tuple[int, int], ...]
    peak: AllocatorPeak


def allocator_peaks(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, AllocatorPeak]:
    """Return the peaks of each device that has memory, by name.

    Args:
        before: as ``torch.cuda.memory._snapshot`` has it, when the history is on and nothing was allocated yet.
        after: the same at the end; its history goes back to ``before``.

    Raises:
        ValueError: a snapshot has another form.
    """
    return {device: blocks.peak for device, blocks in allocator_blocks(before, after).items()}


def allocator_blocks(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Blocks]:
    """Return the same with the block of each allocation. Raises ValueError."""
    result = {}
    try:
        for device, entries in enumerate(after["device_traces"]):
            first, last = (_segments_of(snapshot, device) for snapshot in (before, after))
            if entries or first or last:
                earlier = _entries_of(before, device)
                start = len(earlier) if list(entries[: len(earlier)]) == list(earlier) else 0
                settings = after.get("allocator_settings") or {}
                result[f"cuda:{device}"] = _blocks(first, entries, start, last, settings)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"the allocator's history has another form: {type(error).__name__}: {error}") from None
    return result


def _segments_of(snapshot: Mapping[str, Any], device: int) -> list[Mapping[str, Any]]:
    return [segment for segment in snapshot["segments"] if segment["device"] == device]


def _entries_of(snapshot: Mapping[str, Any], device: int) -> Sequence[Mapping[str, Any]]:
    traces: Sequence[Sequence[Mapping[str, Any]]] = snapshot["device_traces"]
    return traces[device] if device < len(traces) else ()


def _blocks(
    first: Sequence[Mapping[str, Any]],
    entries: Sequence[Mapping[str, Any]],
    start: int,
    last: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
) -> Blocks:
    replay = _Replay(first, settings)
    try:
        for entry in entries[start:]:
            replay.apply(entry)
        reason = _difference(replay.active, _Replay(last, settings).active)
        if not reason and replay.reserved_bytes != (there := sum(segment["total_size"] for segment in last)):
            reason = f"segments of {replay.reserved_bytes} bytes are expected at the end, and {there} are there"
    except _Contradiction as error:
        reason = str(error)
    requested_bytes = _peak_requested_bytes(first, entries[start:])
    if reason:
        return Blocks((), AllocatorPeak(requested_bytes, None, None, reason))
    peak = AllocatorPeak(requested_bytes, replay.peak_allocated_bytes, replay.peak_reserved_bytes)
    return Blocks(tuple(replay.given), peak)


def peak_as_seen(blocks: Blocks, seen: Iterable[tuple[int, int]]) -> AllocatorPeak:
    """Return the peak of blocks, unless others were seen.

    ``seen``: address and bytes of blocks of some of the allocations, as the profiler has those of its threads.
    """
    others = Counter(seen) - Counter(blocks.given)
    if not others or blocks.peak.reason:
        return blocks.peak
    address, size_bytes = min(others)
    reason = f"the profiler saw {others.total()} blocks that are not those expected: {size_bytes} bytes at {address:#x}"
    return replace(blocks.peak, allocated_bytes=None, reserved_bytes=None, reason=reason)


def _peak_requested_bytes(first: Sequence[Mapping[str, Any]], entries: Sequence[Mapping[str, Any]]) -> int:
    live = {
        address: about.get("requested_size", about["size"])
        for segment in first
        for address, about in _addresses(segment)
        if about["state"].startswith("active")
    }
    now = peak = sum(live.values())
    for entry in entries:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"]
            now += entry["size"]
            peak = max(peak, now)
        elif entry["action"] == "free_completed":
            now -= live.pop(entry["addr"], 0)
    return peak


def _addresses(segment: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the blocks of a segment with their addresses, which old versions leave to be added up."""
    address = segment["address"]
    for about in segment["blocks"]:
        address = about.get("address", address)
        yield address, about
        address += about["size"]


def _difference(expected: Mapping[int, int], there: Mapping[int, int]) -> str:
    """Return how the blocks in use differ from those expected; empty where they do not."""
    wrong = sorted(address for address in {*expected, *there} if expected.get(address) != there.get(address))
    if not wrong:
        return ""
    examples = ", ".join(f"{there.get(a, 0)} bytes at {a:#x} for {expected.get(a, 0)}" for a in wrong[:_LISTED])
    return f"{len(wrong)} blocks at the end are not those expected: {examples}"


class _Contradiction(ValueError):
    """The history is not one of the blocks that were derived so far."""


class _Block:
    """A block of a segment with its neighbours, as the allocator has it."""

    __slots__ = ("address", "expandable", "next", "previous", "size_bytes", "state", "stream")

    def __init__(self, address: int, size_bytes: int, stream: int, *, expandable: bool) -> None:
        self.address, self.size_bytes, self.stream, self.expandable = address, size_bytes, stream, expandable
        self.state = _FREE
        self.previous: _Block | None = None
        self.next: _Block | None = None

    @property
    def end(self) -> int:
        return self.address + self.size_bytes


class _Replay:
    """The blocks of one device, and the most of them so far."""

    def __init__(self, segments: Iterable[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._expandable = bool(settings.get("expandable_segments"))
        most = settings.get("max_split_size", -1)
        self._most_split_bytes = most if most > 0 else 1 << 63  # -1: no limit
        self._by_address: dict[int, _Block] = {}
        self._by_end: dict[int, _Block] = {}
        self._allocated_bytes = self.reserved_bytes = 0
        self.given: list[tuple[int, int]] = []
        for segment in segments:
            self._add_segment(segment)
        self.peak_allocated_bytes, self.peak_reserved_bytes = self._allocated_bytes, self.reserved_bytes

    @property
    def blocks(self) -> list[_Block]:
        return list(self._by_address.values())

    @property
    def active(self) -> dict[int, int]:
        """The blocks that are in use or wait for another stream: address -> bytes."""
        return {block.address: block.size_bytes for block in self.blocks if block.state != _FREE}

    def apply(self, entry: Mapping[str, Any]) -> None:
        """Repeat an entry. Raises _Contradiction."""
        match entry["action"]:
            case "alloc":
                self.given.append((entry["addr"], self._allocate(entry["addr"], entry["size"])))
            case "free_requested":
                self._request_free(entry["addr"])
            case "free_completed":
                self._complete_free(entry["addr"])
            case "segment_alloc" | "segment_map" as action:
                self._map(entry["addr"], entry["size"], entry["stream"], expandable=action == "segment_map")
            case "segment_free" | "segment_unmap":
                self._unmap(entry["addr"], entry["size"])

    def _add_segment(self, segment: Mapping[str, Any]) -> None:
        expandable = bool(segment.get("is_expandable"))
        self.reserved_bytes += segment["total_size"]
        previous = None
        for address, about in _addresses(segment):
            block = _Block(address, about["size"], segment["stream"], expandable=expandable)
            if about["state"].startswith("active"):
                block.state = _ALLOCATED if about["state"] == _ALLOCATED else _WAITING
                self._allocated_bytes += block.size_bytes if block.state == _ALLOCATED else 0
            self._link(previous, block)
            self._enter(block)
            previous = block

    def _allocate(self, address: int, requested_bytes: int) -> int:
        block = self._by_address.get(address)
        size_bytes = _rounded(requested_bytes, self._settings.get("roundup_power2_divisions") or {})
        if block is None or block.state != _FREE or block.size_bytes < size_bytes:
            raise _Contradiction(f"no free block of {size_bytes} bytes is expected at {address:#x}")
        if self._splits(block, size_bytes):
            rest = _Block(
                address + size_bytes, block.size_bytes - size_bytes, block.stream, expandable=block.expandable
            )
            self._resize(block, size_bytes)
            self._link(rest, block.next)
            self._link(block, rest)
            self._enter(rest)
        block.state = _ALLOCATED
        self._allocated_bytes += block.size_bytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self._allocated_bytes)
        return block.size_bytes

    def _splits(self, block: _Block, size_bytes: int) -> bool:
        """Whether the allocator splits a free block: the pool of small blocks is that of small sizes."""
        rest_bytes = block.size_bytes - size_bytes
        if size_bytes <= _SMALL or self._expandable or block.expandable:
            return rest_bytes >= _LEAST
        return size_bytes < self._most_split_bytes and rest_bytes > _SMALL

    def _request_free(self, address: int) -> None:
        block = self._block_at(address, _ALLOCATED)
        block.state = _WAITING
        self._allocated_bytes -= block.size_bytes

    def _complete_free(self, address: int) -> None:
        block = self._block_at(address, _WAITING)
        block.state = _FREE
        self._merge(block)

    def _map(self, address: int, size_bytes: int, stream: int, *, expandable: bool) -> None:
        block = _Block(address, size_bytes, stream, expandable=expandable)
        self._enter(block)
        if expandable:  # segments of their own may lie side by side, but are not merged
            for left, right in ((self._by_end.get(address), block), (block, self._by_address.get(block.end))):
                if left is not None and right is not None and _of_one_segment(left, right):
                    self._link(left, right)
            self._merge(block)
        self.reserved_bytes += size_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _unmap(self, address: int, size_bytes: int) -> None:
        """Take memory out of a free block: all of it, or where segments are expandable, a part."""
        end = address + size_bytes
        block = self._by_address.get(address)
        if block is None:
            block = next((candidate for candidate in self.blocks if candidate.address < address < candidate.end), None)
        if block is None or block.state != _FREE or block.end < end:
            raise _Contradiction(f"no free block of {size_bytes} bytes is expected at {address:#x}")
        self._leave(block)
        self._link(block.previous, self._piece(block, block.address, address))
        self._link(self._piece(block, end, block.end), block.next)
        self.reserved_bytes -= size_bytes

    def _piece(self, block: _Block, start: int, end: int) -> _Block | None:
        """Return what is left of a block between two addresses; None where nothing is."""
        if start == end:
            return None
        piece = _Block(start, end - start, block.stream, expandable=block.expandable)
        self._enter(piece)
        return piece

    def _block_at(self, address: int, state: str) -> _Block:
        block = self._by_address.get(address)
        if block is None or block.state != state:
            raise _Contradiction(f"no block that can be freed is expected at {address:#x}")
        return block

    def _merge(self, block: _Block) -> None:
        """Merge a free block with the free ones beside it."""
        left = block.previous
        if left is not None and left.state == _FREE:
            block, following = left, block
            self._absorb(block, following)
        if block.next is not None and block.next.state == _FREE:
            self._absorb(block, block.next)

    def _absorb(self, block: _Block, following: _Block) -> None:
        self._leave(following)
        self._resize(block, block.size_bytes + following.size_bytes)
        self._link(block, following.next)

    def _resize(self, block: _Block, size_bytes: int) -> None:
        self._leave(block)
        block.size_bytes = size_bytes
        self._enter(block)

    def _enter(self, block: _Block) -> None:
        if block.address in self._by_address or block.end in self._by_end:
            raise _Contradiction(f"memory at {block.address:#x} is there already")
        self._by_address[block.address] = self._by_end[block.end] = block

    def _leave(self, block: _Block) -> None:
        del self._by_address[block.address], self._by_end[block.end]

    @staticmethod
    def _link(left: _Block | None, right: _Block | None) -> None:
        if left is not None:
            left.next = right
        if right is not None:
            right.previous = left


def _of_one_segment(left: _Block, right: _Block) -> bool:
    return left.expandable and right.expandable and left.stream == right.stream


def _rounded(requested_bytes: int, divisions_by_mib: Mapping[str, int]) -> int:
    """Return the size of the smallest block for a request.

    ``divisions_by_mib``: "1", "2", "4" ... MiB -> steps between that power of two and the next, as the program set them
    (``roundup_power2_divisions``); 0 or 1: no steps.
    """
    if requested_bytes < _LEAST:
        return _LEAST
    power = requested_bytes.bit_length() - 1
    interval = min(max(power - (_SMALL.bit_length() - 1), 0), _INTERVALS - 1)
    divisions = divisions_by_mib.get(str(1 << interval), 0)
    if divisions > 1 and requested_bytes > _LEAST * divisions:
        if requested_bytes == 1 << power:
            return requested_bytes
        step = (1 << power) >> (divisions.bit_length() - 1)
        return -(-requested_bytes // step) * step if step else 2 << power
    return -(-requested_bytes // _LEAST) * _LEAST
