"""A step in the memory of GPUs as PyTorch's allocator recorded it: every block, whoever requested it, on every stream.

The history is that of ``torch.cuda.memory._record_memory_history``, whose entries have a time and an address but no
operator; the profiler's spans show which operator ran at that time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memtui.recording.tracer.torch_private import RawEvent, RawSpan, RawStep

MOST_ENTRIES = 1 << 18  # of one step on one device
_US = 1000  # nanoseconds
_SEARCHED_SPANS = 64  # spans that began before a moment, of which one may still be open


@dataclass(frozen=True, slots=True)
class History:
    """What happened in the memory of one device.

    Attributes:
        before: address -> bytes of the blocks that were in use when it began.
        changes: (CLOCK_MONOTONIC, address, bytes; negative when it can be used again), in order.
    """

    before: dict[int, int]
    changes: tuple[tuple[int, int, int], ...]


def histories(snapshot: Mapping[str, Any], monotonic_minus_epoch_ns: int) -> dict[str, History]:
    """Return the history of each device that has one, by name.

    Args:
        snapshot: as ``torch.cuda.memory._snapshot`` has it, taken at the end of a history that began empty.
        monotonic_minus_epoch_ns: converts its times to CLOCK_MONOTONIC.

    Raises:
        ValueError: the snapshot has another form, or the start of the history is lost.
    """
    result: dict[str, History] = {}
    try:
        for device, entries in enumerate(snapshot["device_traces"]):
            segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
            if entries or segments:
                result[f"cuda:{device}"] = _history(entries, segments, monotonic_minus_epoch_ns)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the allocator's history has another form: {type(error).__name__}: {error}") from None
    return result


def _history(entries: Sequence[Mapping[str, Any]], segments: list[Mapping[str, Any]], offset_ns: int) -> History:
    if len(entries) >= MOST_ENTRIES:
        raise ValueError(f"the allocator's history of a step has more than {MOST_ENTRIES} entries")
    before: dict[int, int] = {}
    live: dict[int, int] = {}
    changes: list[tuple[int, int, int]] = []
    for entry in entries:
        action = entry["action"]
        if action not in ("alloc", "free_completed"):
            continue
        t_ns, address, size_bytes = entry["time_us"] * _US + offset_ns, entry["addr"], entry["size"]
        if action == "alloc":
            live[address] = size_bytes
            changes.append((t_ns, address, size_bytes))
        else:
            if address not in live:
                before[address] = size_bytes
            changes.append((t_ns, address, -live.pop(address, size_bytes)))
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            address = block.get("address", address)
            if block["state"].startswith("active") and address not in live:
                before[address] = block.get("requested_size", block["size"])
            address += block["size"]
    return History(before, tuple(changes))


def with_history(raw: RawStep, by_device: Mapping[str, History]) -> RawStep:
    """Return the step with the events of the histories in place of the profiler's for these devices."""
    events = [event for event in raw.events if event.device not in by_device]
    starts = [span.start_ns for span in raw.spans]
    for device, history in by_device.items():
        for t_ns, address, size_bytes in history.changes:
            span = _around(raw.spans, starts, t_ns)
            path, op, sequence, thread = ((), "", None, 0) if span is None else _origin(span)
            events.append(RawEvent(t_ns, address, size_bytes, None, path, op, sequence, thread, device))
    events.sort(key=lambda event: event.t_ns)
    return replace(raw, events=events)


def _around(spans: Sequence[RawSpan], starts: list[int], t_ns: int) -> RawSpan | None:
    """Return the innermost span at a moment: of the open spans, the one that began last."""
    # Times of the history are truncated to microseconds: the operator may have begun in the same one.
    last = bisect_right(starts, t_ns + _US - 1)
    for number in range(last - 1, max(-1, last - 1 - _SEARCHED_SPANS), -1):
        if spans[number].end_ns >= t_ns:
            return spans[number]
    return None


def _origin(span: RawSpan) -> tuple[tuple[str, ...], str, int | None, int]:
    return span.path, span.op, span.sequence, span.thread
