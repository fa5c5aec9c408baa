"""The snapshot of PyTorch's CUDA allocator (``torch.cuda.memory._dump_snapshot``), a pickle.

``{"segments": [...], "device_traces": [[{"action", "addr", "size", "time_us", "frames"}, ...], ...]}``, as
``torch/cuda/_memory_viz.py`` reads it. A block is freed when the free is completed; the trace is a ring, so its start
may be missing.
"""

from __future__ import annotations

from typing import Any

from memtui.core.samples import Event
from memtui.core.text import storable
from memtui.core.units import size
from memtui.formats.allocation_ledger import Ledger
from memtui.formats.imported import Imported, NotImportable, Part
from memtui.session.records.imported import NO_CLOCK, WALL, ImportedFrom

FORMAT = "CUDA memory snapshot"
_MOST_US = (1 << 61) // 1000
_ABSENT = (
    "operators and layers: in their place stands the innermost Python frame outside of PyTorch, where frames were kept",
    "kinds: the allocator does not know what a block is for",
    "the begin: what was there and stayed is known from the segments; what the trace was too short for is not",
)


_Object = dict[str, Any]  # a segment, an event or a frame as in the file, not validated


def recognises(snapshot: Any) -> bool:
    """Whether an unpickled object is a CUDA memory snapshot."""
    return isinstance(snapshot, dict) and isinstance(snapshot.get("device_traces"), list)


def parse(snapshot: Any) -> Imported:
    """Return the content of a snapshot. Raises NotImportable."""
    try:
        oom_events: list[Event] = []
        clock = NO_CLOCK
        parts = []
        for device, events in enumerate(snapshot["device_traces"]):
            timed = all("time_us" in event for event in events)
            clock = WALL if timed and events else clock
            part = _part(device, events, _alive(snapshot.get("segments", []), device), timed, oom_events)
            if part is not None:
                parts.append(part)
    except NotImportable:
        raise
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise NotImportable(f"is no snapshot of CUDA memory: {type(error).__name__}: {error}") from None
    if not parts:
        raise NotImportable("its snapshot has neither blocks nor a trace: torch.cuda.memory._record_memory_history()")
    oom_events.sort(key=lambda event: event.t_ns)
    return Imported(tuple(parts), ImportedFrom(FORMAT, clock=clock, absent=_ABSENT), tuple(oom_events))


def _alive(segments: list[_Object], device: int) -> dict[int, int]:
    """Return the sizes of the blocks in use when the snapshot was taken, by address."""
    sizes = {}
    for segment in segments:
        if segment.get("device", 0) != device:
            continue
        address = _whole(segment["address"])
        for block in segment["blocks"]:
            address = _whole(block.get("address", address))
            if str(block["state"]).startswith("active"):
                # Entries of the history have the requested size, too; its rounding is the allocator's.
                sizes[address] = _whole(block.get("requested_size", block["size"]))
            address += _whole(block["size"])
    return sizes


def _part(
    device: int, events: list[_Object], alive: dict[int, int], timed: bool, oom_events: list[Event]
) -> Part | None:
    if not events and not alive:
        return None
    ledger, names = Ledger(), _Names()
    actions = {event["action"] for event in events}
    gone = "free_completed" if "free_completed" in actions else "free_requested"
    ours: set[int] = set()  # addresses that the trace has the last word about
    t_ns = first_ns = 0
    for number, event in enumerate(events):
        t_ns = max(t_ns, _time(event) if timed else number)
        first_ns = first_ns or t_ns
        action = event["action"]
        if action == "alloc":
            address = _whole(event["addr"])
            ledger.free_at(t_ns, address, "")  # a free that the trace lacks
            ledger.allocate(t_ns, _whole(event["size"]), names.of(event), address=address)
            ours.add(address)
        elif action == gone:
            address, op = _whole(event["addr"]), names.of(event)
            ours.add(address)
            if not ledger.free_at(t_ns, address, op) and event["size"]:
                ledger.existing(_whole(event["size"]), address)
                ledger.free_at(t_ns, address, op)
        elif action == "oom":
            free = f", {size(_whole(event['device_free']))} were free" if "device_free" in event else ""
            oom_events.append(Event(t_ns, "mark", f"out of memory: {size(_whole(event['size']))} asked for{free}"))
    for address, size_bytes in alive.items():
        if address not in ours:
            ledger.existing(size_bytes)
    return Part(ledger.trace(first_ns, t_ns), f"cuda:{device}")


def _time(event: _Object) -> int:
    t_us = event["time_us"]
    if not 0 <= t_us < _MOST_US:
        raise ValueError("a time out of range")
    return int(t_us) * 1000


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{type(value).__name__} in place of a number")
    return value


class _Names:
    """Names for the stack frames of allocations, in place of operators; equal stacks share one list object."""

    def __init__(self) -> None:
        self._cached: dict[int, tuple[Any, str]] = {}  # by identity; the reference to the frames keeps their id valid

    def of(self, event: _Object) -> str:
        """Return ``forward (model.py:42)``; empty without frames."""
        frames = event.get("frames") or []
        if id(frames) not in self._cached:
            self._cached[id(frames)] = frames, _name(frames)
        return self._cached[id(frames)][1]


def _name(frames: list[_Object]) -> str:
    python = [frame for frame in frames if str(frame["filename"]).endswith(".py")]
    own = [frame for frame in python if "/torch/" not in str(frame["filename"])]
    chosen = (own or python or frames)[:1]
    return "".join(
        storable(f"{frame['name']} ({str(frame['filename']).rpartition('/')[2]}:{frame['line']})") for frame in chosen
    )[:500]
