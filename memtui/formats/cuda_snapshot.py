"""The snapshot of PyTorch's CUDA allocator (``torch.cuda.memory._dump_snapshot``), a pickle.

``{"segments": [...], "device_traces": [[{"action", "addr", "size", "time_us", "frames"}, ...], ...]}``, as
``torch/cuda/_memory_viz.py`` reads it. A block is freed when the free is completed; the trace is a ring, so its start
may be missing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from memtui.core.call_stacks import MOST_LINE, CallStacks, Frame
from memtui.core.samples import Event
from memtui.core.tracer_messages import PINNED_MEMORY
from memtui.core.units import size
from memtui.formats import reading
from memtui.formats.allocation_ledger import Ledger
from memtui.formats.call_paths import CallPaths, call_path
from memtui.formats.imported import Imported, NotImportable, Part
from memtui.formats.reading import FileSummary, Usage, summarize
from memtui.session.tables.imported import NO_CLOCK, WALL, ImportedFrom

FORMAT = "CUDA memory snapshot"
_MOST_US = (1 << 61) // 1000
_ABSENT = (
    "operators and layers: in their place stand the calls outside of PyTorch, where frames were kept",
    "kinds: the allocator does not know what a block is for",
    "the beginning: what was there and stayed is known from the segments; what the trace was too short for is not",
)


_ALLOC, _REQUESTED, _COMPLETED, _OOM, _OTHER = range(5)
_ACTIONS = {"alloc": _ALLOC, "free_requested": _REQUESTED, "free_completed": _COMPLETED, "oom": _OOM}
_MOST_ADDRESS = 1 << 63
_NO_SNAPSHOT = "is not a snapshot of CUDA memory: "
_MOST_STACKS = 1 << 16  # kept to be found again
_NO_FILE = "??"  # of a frame in C++ without symbols

_Object = dict[str, Any]  # a segment, an event or a frame as in the file, not validated


class _Events:
    """The events of one device in columns."""

    def __init__(self) -> None:
        self.action, self.t_us, self.name, self.stack = array("b"), array("q"), array("i"), array("i")
        self.address, self.size_bytes = array("q"), array("q")
        self.timed = True  # every one of them
        self.usage = Usage()
        self.damaged: NotImportable | None = None
        self.free_bytes: dict[int, int] = {}  # of the device when there was too little of it, by number of the event


class Events:
    """Takes the events of the traces of a snapshot while it is read; what stays of them are columns.

    Attributes:
        stacks: the call stacks with all frames.
    """

    keys = ("device_traces", "host_traces")

    def __init__(self) -> None:
        self._paths = CallPaths()
        self._by_list: dict[int, tuple[list[Any], _Events]] = {}  # by identity of the list they were in
        self.stacks = CallStacks()
        # By identity, name and stack, and the number of a frame; the references keep the identities valid.
        self._cached_stacks: dict[int, tuple[Any, int, int]] = {}
        self._cached_frames: dict[int, tuple[Any, int]] = {}

    @property
    def names(self) -> dict[str, int]:
        """The names that stand for call stacks, by number."""
        return self._paths.names

    def take(self, owner: list[Any], elements: list[Any]) -> None:
        """Take in some events of a list. What is wrong with them is told when their list is asked for."""
        _, events = self._by_list.setdefault(id(owner), (owner, _Events()))
        try:
            with _read_here():
                self._add(events, elements)
        except NotImportable as error:
            events.damaged = events.damaged or error

    def of(self, owner: list[Any]) -> _Events:
        """Return the events of a list; those that were not taken while it was read are taken now.

        Raises NotImportable.
        """
        events = self._by_list.pop(id(owner), (owner, _Events()))[1]
        if events.damaged is not None:
            raise events.damaged
        self._add(events, owner)
        return events

    def so_far(self) -> FileSummary:
        """Return what the file tells of so far."""
        usages = []
        for _, events in self._by_list.values():
            usage, sizes = events.usage, np.array(events.size_bytes[events.usage.seen :])
            action = np.array(events.action[usage.seen :])
            usage.add(sizes * ((action == _ALLOC).astype(np.int64) - (action == _COMPLETED)))
            usages.append(usage)
        return summarize(FORMAT, usages)

    def _add(self, events: _Events, elements: list[Any]) -> None:
        for event in elements:
            if type(event["action"]) is not str:  # to hash a tuple takes a stack of any depth
                raise TypeError("an action is not a text")
            action = _ACTIONS.get(event["action"], _OTHER)
            if "time_us" in event:
                events.t_us.append(_time_us(event))
            else:
                events.timed = False
                events.t_us.append(0)
            if action < _OOM:
                address, size_bytes = _whole(event["addr"]), _whole(event["size"])
                name, stack = self.call_stack(event.get("frames"))
            else:
                address, size_bytes, name, stack = 0, _whole(event["size"]) if action == _OOM else 0, 0, -1
                if action == _OOM and "device_free" in event:
                    events.free_bytes[len(events.action)] = _whole(event["device_free"])
            events.action.append(action)
            events.address.append(_signed(address))
            events.size_bytes.append(size_bytes)
            events.name.append(name)
            events.stack.append(stack)

    def call_stack(self, frames: Any) -> tuple[int, int]:
        """Return the number of the name that stands for some frames, and that of their stack."""
        if not frames:
            return self._paths.number(""), -1
        cached = self._cached_stacks.get(id(frames))
        if cached is None:
            if len(self._cached_stacks) >= _MOST_STACKS:
                self._cached_stacks.clear()
            stack = self.stacks.add_numbers([self._frame(frame) for frame in frames])
            cached = self._cached_stacks[id(frames)] = frames, self._paths.number(_path(frames)), stack
        return cached[1:]

    def _frame(self, frame: _Object) -> int:
        cached = self._cached_frames.get(id(frame))
        if cached is None:
            if len(self._cached_frames) >= _MOST_STACKS:
                self._cached_frames.clear()
            file, line = str(frame["filename"]), frame["line"]
            line = line if type(line) is int and 0 <= line < MOST_LINE else 0
            number = self.stacks.add_frame(Frame(str(frame["name"]), "" if file == _NO_FILE else file, line))
            cached = self._cached_frames[id(frame)] = frame, number
        return cached[1]


@contextmanager
def _read_here() -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise NotImportable(f"{_NO_SNAPSHOT}{type(error).__name__}: {error}") from None


def certainty(snapshot: Any) -> float:
    """Return 1 for an unpickled CUDA memory snapshot, else 0."""
    return float(isinstance(snapshot, dict) and isinstance(snapshot.get("device_traces"), list))


def parse(snapshot: Any, events: Events) -> Imported:
    """Return the content of a snapshot. ``events``: what was taken of it while it was read. Raises NotImportable."""
    devices = _Devices(snapshot.get("segments", []), events)
    with _read_here():
        for device, trace in enumerate(snapshot["device_traces"]):
            devices.add(f"cuda:{device}", trace, device)
    warnings = []
    try:
        with _read_here():
            _add_pinned(devices, snapshot)
    except NotImportable as error:  # what PyTorch writes there is new, and no part of a snapshot of the devices
        warnings.append(f"its pinned host memory is left out: {str(error).removeprefix(_NO_SNAPSHOT)}")
    if not devices.parts:
        raise NotImportable("its snapshot has neither blocks nor a trace: torch.cuda.memory._record_memory_history()")
    stacks = events.stacks
    warnings += stacks.warnings()
    devices.oom_events.sort(key=lambda event: event.t_ns)
    about = ImportedFrom(FORMAT, clock=devices.clock, absent=_ABSENT, warnings=tuple(warnings))
    return Imported(tuple(devices.parts), about, tuple(devices.oom_events), stacks=stacks if len(stacks) else None)


def _add_pinned(devices: _Devices, snapshot: _Object) -> None:
    """Add what PyTorch 2.14 records with ``record_pinned_host_memory``: its history is one list, or several."""
    devices.segments, traces = snapshot.get("host_segments", []), snapshot.get("host_traces", [])
    if not isinstance(traces, list):
        raise TypeError(type(traces).__name__)
    several = traces if traces and all(isinstance(trace, list) for trace in traces) else [traces]
    for number, trace in enumerate(several):
        name = PINNED_MEMORY if number == 0 else f"{PINNED_MEMORY} {number + 1}"
        devices.add(name, trace, number if len(several) > 1 else None)


class _Devices:
    """The devices of a snapshot, and what its traces say of memory that ran out.

    Attributes:
        segments: of the next parts.
    """

    def __init__(self, segments: list[_Object], events: Events) -> None:
        self.segments = segments
        self.parts: list[Part] = []
        self.oom_events: list[Event] = []
        self.clock = NO_CLOCK
        self._events = events

    def add(self, name: str, trace: list[Any], device: int | None) -> None:
        """Add a device, unless there is nothing about it. ``device``: of its segments; None: all are of it."""
        events, alive = self._events.of(trace), self._alive(device)
        if events.action or alive:
            self.parts.append(_part(name, events, tuple(self._events.names), alive, self.oom_events))
            self.clock = WALL if events.timed and events.action else self.clock

    def _alive(self, device: int | None) -> dict[int, tuple[int, int]]:
        """Return size and call stack of the blocks in use when the snapshot was taken, by address."""
        alive = {}
        for segment in self.segments:
            if device is not None and segment.get("device", 0) != device:
                continue
            address = _whole(segment["address"])
            for block in segment["blocks"]:
                address = _whole(block.get("address", address))
                if str(block["state"]).startswith("active"):
                    # Events have the requested size, too; its rounding is the allocator's.
                    origin = _origin(block)
                    size_bytes = _whole(origin.get("requested_size", block["size"]))
                    alive[_signed(address)] = size_bytes, self._events.call_stack(origin.get("frames"))[1]
                address += _whole(block["size"])
        return alive


def _origin(block: _Object) -> _Object:
    """Return the frames and the requested size of a block; up to PyTorch 2.0 they are in the first of its history."""
    history = block.get("history")
    if not history:
        return block
    return {"frames": history[0].get("frames"), "requested_size": history[0]["real_size"]}


def _part(
    device: str, events: _Events, names: tuple[str, ...], alive: dict[int, tuple[int, int]], oom_events: list[Event]
) -> Part:
    ledger = Ledger()
    gone = _COMPLETED if _COMPLETED in events.action else _REQUESTED
    ours: set[int] = set()  # addresses that the trace has the last word about
    t_ns = first_ns = 0
    reading.start(f"{reading.MATCHING} on {device}")
    rows = reading.rows(events.action, events.t_us, events.address, events.size_bytes, events.name, events.stack)
    for number, (action, t_us, address, size_bytes, name, stack) in enumerate(rows):
        t_ns = max(t_ns, t_us * 1000 if events.timed else number)
        first_ns = first_ns if number else t_ns
        if action == _ALLOC:
            ledger.free_at(t_ns, address, "")  # a free that the trace lacks
            ledger.allocate(t_ns, size_bytes, names[name], address=address, stack=stack)
            ours.add(address)
        elif action == gone:
            ours.add(address)
            if not ledger.free_at(t_ns, address, names[name], stack=stack) and size_bytes:
                ledger.existing(size_bytes, address)
                ledger.free_at(t_ns, address, names[name], stack=stack)
        elif action == _OOM:
            free = f", {size(events.free_bytes[number])} were free" if number in events.free_bytes else ""
            oom_events.append(Event(t_ns, "mark", f"out of memory: {size(size_bytes)} asked for{free}"))
    for address, (size_bytes, stack) in alive.items():
        if address not in ours:
            ledger.existing(size_bytes, stack=stack)
    return Part(ledger.trace(first_ns, t_ns), device)


def _time_us(event: _Object) -> int:
    t_us = event["time_us"]
    if not 0 <= t_us < _MOST_US:
        raise ValueError("a time out of range")
    return int(t_us)


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{type(value).__name__} in place of a number")
    return value


def _signed(address: int) -> int:
    """Return an address as it fits into a signed number of 64 bits."""
    return address if address < _MOST_ADDRESS else address - 2 * _MOST_ADDRESS


def _path(frames: list[_Object]) -> str:
    """Return the calls outside of PyTorch, ``main (train.py:9)/forward (model.py:42)``; empty without frames.

    Where all of them are inside of it, the innermost one in Python, else the innermost one.
    """
    python = [frame for frame in frames if str(frame["filename"]).endswith(".py")]
    own = [frame for frame in python if "/torch/" not in str(frame["filename"])]
    return call_path(map(_call, own or python[:1] or frames[:1]))


def _call(frame: _Object) -> str:
    where = str(frame["filename"]).rpartition("/")[2]
    return f"{frame['name']} ({where}:{frame['line']})"
