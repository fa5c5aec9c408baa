"""The Chrome trace of PyTorch's profiler (``export_chrome_trace`` with ``profile_memory=True``).

Its ``[memory]`` instant events have bytes, address and device, but no operator: the operator is the one that runs in
the same thread at that moment. With ``with_stack=True`` calls in Python are spans, too. Times are microseconds after
``baseTimeNanoseconds``.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import PHASES, StepTrace
from memtui.core.call_stacks import MOST_LINE, CallStacks, Frame
from memtui.core.text import printable, utf8_safe
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.formats import reading
from memtui.formats.allocation_ledger import BETWEEN, UNKNOWN, Ledger
from memtui.formats.call_paths import MOST_CALL, CallPaths, path_of
from memtui.formats.certainty import share_of
from memtui.formats.imported import Imported, NotImportable, Part
from memtui.formats.infer_categories import with_kinds
from memtui.formats.reading import FileSummary, Usage, summarize
from memtui.session.tables.imported import SINCE_BOOT, WALL, ImportedFrom

FORMAT = "Chrome trace"
_FORWARD, _BACKWARD, _OPTIMISER = (PHASES.index(name) for name in ("forward", "backward", "optimiser"))
KEYS = ("traceEvents", "baseTimeNanoseconds")  # of the document, those that are used
_STEP, _MODULE, _OPTIMISE = "ProfilerStep#", "nn.Module: ", "Optimizer.step#"
_PYTHON = "\0"  # before the name of a call in Python, among the names of spans
_CALL = re.compile(r"(.*)\((\d{1,10})\): (.*)", re.DOTALL)  # file(line): function
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{1,16}(?=>)")  # of the object of a method that is built in
_MOST_NS = 1 << 61
_YEAR_2001_NS = 10**18  # no machine is up for that long
_NEVER = (2 * _MOST_NS, 2 * _MOST_NS, -1)  # a span
_MOST_ADDRESS = 1 << 63
_ABSENT = (
    "the beginning: memory that is neither allocated nor freed in the trace is not in it",
    "kinds: found by the operators around and what became of the block",
)
_MOST_TITLE = 200  # characters of the name of a session
_MOST_PATHS = 1 << 15  # kept to be found again
_NAME_BITS = 32
_CALL_IN_PYTHON, _LAYER, _STEP_OF_PROFILER, _OPERATOR = range(4)  # kinds of spans
_NO_ROOM = _NOT_ASKED = -2  # in place of the number of a call stack, and of a frame

_Chain: TypeAlias = "tuple[str, _Chain] | None"  # a name, and those around it
_Event = dict[str, Any]  # as in the file, not validated


class _Spans:
    """The spans of one thread, in the order of the file: times, and the numbers of their names."""

    def __init__(self) -> None:
        self.start_ns, self.end_ns, self.name = array("q"), array("q"), array("i")

    def sort(self) -> None:
        """Sort by time. Of two that begin together the longer one encloses the other; of equal ones the first stays."""
        start_ns, end_ns = np.array(self.start_ns), np.array(self.end_ns)
        order = np.lexsort((-end_ns, start_ns))
        self.start_ns, self.end_ns = _array("q", start_ns[order]), _array("q", end_ns[order])
        self.name = _array("i", np.array(self.name)[order])


class _Changes:
    """The memory events of one device, in the order of the file."""

    def __init__(self) -> None:
        self.t_ns, self.bytes, self.address, self.thread = array("q"), array("q"), array("q"), array("i")
        self.usage = Usage()
        self.first_ns, self.before_bytes = _MOST_NS, 0  # what was allocated before the first of them in time

    def sort(self) -> None:
        """Sort by time."""
        order = np.argsort(np.array(self.t_ns), kind="stable")
        for name, kind in (("t_ns", "q"), ("bytes", "q"), ("address", "q"), ("thread", "i")):
            setattr(self, name, _array(kind, np.array(getattr(self, name))[order]))


def _array(kind: str, values: NDArray[np.int64]) -> array[int]:
    """Return numbers as an array that is quick to go through one by one."""
    return array(kind, values.tobytes())


class Events:
    """What memory can be explained with of the events of a trace, in columns; times are since its base.

    Attributes:
        spans: by thread.
        changes: by device.
        names: of the spans, by number.
        begins: (time, number) of the steps of the profiler.
        calls: whether there are calls in Python.
        certainty: that they are events, by the first ones.
    """

    def __init__(self) -> None:
        self.spans: dict[int, _Spans] = defaultdict(_Spans)
        self.changes: dict[str, _Changes] = defaultdict(_Changes)
        self.names: dict[str, int] = {}
        self.begins: list[tuple[int, int]] = []
        self.calls = False
        self.certainty = 0.0
        self._threads: dict[tuple[str, str], int] = {}

    def add_first(self, events: list[Any]) -> None:
        """Take in the first events, as ``add`` does."""
        self.certainty = share_of(events, lambda event: isinstance(event, dict) and {"ph", "name"} <= event.keys())
        self.add(events)

    def add(self, events: Iterable[Any]) -> None:
        """Take in events as in the file. Raises NotImportable."""
        names, spans = self.names, self.spans
        try:
            for event in events:
                name = event.get("name")
                if name == "[memory]":
                    self._change(event)
                elif event.get("ph") == "X" and _tells(event, name):
                    start_ns, thread = _time(event), spans[self._thread(event)]
                    thread.start_ns.append(start_ns)
                    thread.end_ns.append(min(start_ns + _ns(event["dur"]), _MOST_NS))
                    if event.get("cat") == "python_function" and not name.startswith(_MODULE):
                        name, self.calls = f"{_PYTHON}{name}", True
                    thread.name.append(names.setdefault(name, len(names)))
                    if name.startswith(_STEP) and name[len(_STEP) :].isdecimal():
                        self.begins.append((start_ns, int(name[len(_STEP) :][:15])))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise _damaged(error) from None

    def so_far(self) -> FileSummary:
        """Return what the file tells of so far."""
        for changes in self.changes.values():
            changes.usage.add(np.array(changes.bytes[changes.usage.seen :]))
        return summarize(FORMAT, [changes.usage for changes in self.changes.values()])

    def _thread(self, event: _Event) -> int:
        return self._threads.setdefault((str(event.get("pid")), str(event.get("tid"))), len(self._threads))

    def _change(self, event: _Event) -> None:
        args = event["args"]
        size, total = args["Bytes"], args.get("Total Allocated", 0)
        kind, number, address = args.get("Device Type", 0), args.get("Device Id", -1), args.get("Addr", 0)
        if not all(type(value) is int for value in (size, total, kind, number, address)):
            raise ValueError("a number of a memory event is not a whole number")
        device = MAIN_MEMORY if kind == 0 else f"cuda:{number}" if kind == 1 else f"device {kind}:{number}"
        changes, t_ns = self.changes[device[:64]], _time(event)
        changes.t_ns.append(t_ns)
        changes.bytes.append(size)
        changes.address.append(address if address < _MOST_ADDRESS else address - 2 * _MOST_ADDRESS)
        changes.thread.append(self._thread(event))
        if t_ns < changes.first_ns:
            changes.first_ns, changes.before_bytes = t_ns, max(0, total - size)


def certainty(document: Any) -> float:
    """Return 1 for an object with ``traceEvents``; for a list the share of its first elements that are events; else 0.

    Either is in the place of ``Events`` what their list was.
    """
    if isinstance(document, dict):
        return float(isinstance(document.get("traceEvents"), Events))
    return document.certainty if isinstance(document, Events) else 0.0


def parse(document: Any) -> Imported:
    """Return the content of a trace, whose events are ``Events``. Raises NotImportable."""
    events: Events = document["traceEvents"] if isinstance(document, dict) else document
    base_ns = document.get("baseTimeNanoseconds", 0) if isinstance(document, dict) else 0
    if type(base_ns) is not int or not 0 <= base_ns < _MOST_NS:
        raise NotImportable("baseTimeNanoseconds is not a time")
    if not events.changes:
        _refuse_own_export(document)
        raise NotImportable("its trace has no [memory] event: profile with profile_memory=True")
    _check_times(events, base_ns)
    names = tuple(events.names)
    for spans in events.spans.values():
        spans.sort()
    begins = tuple(sorted((base_ns + t_ns, number) for t_ns, number in events.begins))
    steps_ns = _steps(events.spans.values(), names) + base_ns
    parts, stacks = [], CallStacks() if events.calls else None
    for device in sorted(events.changes):
        reading.start(f"{reading.MATCHING} on {device}")
        trace = _trace(events.changes.pop(device), _Around(events.spans, names, stacks), base_ns)
        parts.append(Part(with_kinds(trace, steps_ns), device, begins))
    warnings = () if stacks is None else stacks.warnings()
    # Until 2.2 PyTorch wrote microseconds since 1970, without a base.
    wall = base_ns or min(part.trace.start_ns for part in parts) > _YEAR_2001_NS
    about = ImportedFrom(FORMAT, clock=WALL if wall else SINCE_BOOT, absent=_ABSENT, warnings=warnings)
    return Imported(tuple(parts), about, stacks=stacks)


def _refuse_own_export(document: Any) -> None:
    """Raise NotImportable for what ``memtui export --to chrome`` writes of a whole session."""
    about = document.get("otherData") if isinstance(document, dict) else None
    if isinstance(about, dict) and "memtui_version" in about:
        session = printable(str(about.get("session")))[:_MOST_TITLE]
        why = "is for viewers of traces; open the session itself (memtui replay)"
        raise NotImportable(f"is what memtui exported of {session} (--to chrome), which {why}")


def _tells(event: _Event, name: Any) -> bool:
    """Whether an event is a span that memory can be attributed to: an operator, an annotation, a module, a call."""
    kind = event.get("cat")
    return isinstance(name, str) and (
        kind in ("cpu_op", "user_annotation", "python_function") or name.startswith(_MODULE)
    )


def _time(event: _Event) -> int:
    t_ns = _ns(event["ts"])
    if not -_MOST_NS < t_ns < _MOST_NS:
        raise _out_of_range()
    return t_ns


def _ns(us: Any) -> int:
    if type(us) not in (int, float):  # a text or a list would be repeated
        raise TypeError("a time is not a number")
    return round(us * 1000)


def _check_times(events: Events, base_ns: int) -> None:
    for times in (changes.t_ns for changes in events.changes.values()), (s.start_ns for s in events.spans.values()):
        for t_ns in map(np.array, times):
            if not 0 <= base_ns + int(t_ns.min()) <= base_ns + int(t_ns.max()) < _MOST_NS:
                raise _damaged(_out_of_range())


def _out_of_range() -> ValueError:
    return ValueError("a time out of range")


def _damaged(error: Exception) -> NotImportable:
    return NotImportable(f"an event of its trace is damaged: {type(error).__name__}: {error}")


def _steps(threads: Iterable[_Spans], names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return when the optimiser's steps began, rising."""
    optimises = np.array([name.startswith(_OPTIMISE) for name in names], bool)
    begins = [np.array(spans.start_ns)[optimises[np.array(spans.name)]] for spans in threads]
    return np.sort(np.concatenate([np.empty(0, np.int64), *begins]))


def _trace(changes: _Changes, around: _Around, base_ns: int) -> StepTrace:
    changes.sort()
    ledger = Ledger({UNKNOWN: changes.before_bytes})
    rows = reading.rows(changes.t_ns, changes.bytes, changes.address, changes.thread)
    for since_ns, size, address, thread in rows:
        t_ns, (op, layer, phase, stack) = base_ns + since_ns, around.scope_of(thread, since_ns)
        if size > 0:
            ledger.free_at(t_ns, address, "", phase=phase)  # a free that the trace lacks
            ledger.allocate(t_ns, size, op, phase=phase, layer=layer, address=address, stack=stack)
        elif size < 0 and not ledger.free_at(t_ns, address, op, phase=phase, stack=stack):
            ledger.base[UNKNOWN] = max(0, ledger.base[UNKNOWN] + size)
            ledger.existing(-size, address)
            ledger.free_at(t_ns, address, op, phase=phase, stack=stack)
    return ledger.trace(base_ns + changes.t_ns[0], base_ns + changes.t_ns[-1])


class _Scope(NamedTuple):
    op: str  # path of operators
    layer: str
    phase: int
    stack: int  # number of the call stack; -1: calls in Python are not in the file


class _Path:
    """Spans that enclose one another, as what the innermost one adds to those around it.

    Attributes:
        number: of this path, by which the paths inside it are found again.
        ops: name of the innermost operator, and the operators around it; None: there is none.
        layers: of modules, likewise.
        phase: of the training step.
        call: number of the call stack; -1: there is none; ``_NO_ROOM``: it, or a caller, did not fit in.
        scope: what is stored about it, once it was asked for.
    """

    __slots__ = ("call", "layers", "number", "ops", "phase", "scope")

    def __init__(self, number: int, ops: _Chain, layers: _Chain, phase: int, call: int) -> None:
        self.number, self.ops, self.layers, self.phase, self.call = number, ops, layers, phase, call
        self.scope: _Scope | None = None


class _Paths:
    """The paths of a device's memory events: each distinct one is worked out once, from the one around it."""

    def __init__(self, names: tuple[str, ...], stacks: CallStacks | None) -> None:
        self.outermost = _Path(0, None, None, BETWEEN, -1)
        self._names, self._stacks = names, stacks
        self._inner: dict[int, _Path] = {}  # by the number of the path around it, and that of its name
        self._count = 0  # of the paths inside
        self._ops, self._layers = CallPaths(), CallPaths()
        self._kinds = bytes(map(_kind, names))
        self._frame = array("i", [_NOT_ASKED]) * len(names)  # number of the frame of each name

    def extend(self, path: list[_Path], names: list[int]) -> None:
        """Extend a list of paths, each inside of the one before, to as many as there are names of their spans."""
        outer = path[-1]
        for name in names[len(path) :]:
            key = outer.number << _NAME_BITS | name
            inner = self._inner.get(key)
            if inner is None:
                if len(self._inner) >= _MOST_PATHS:
                    self._inner.clear()
                inner = self._inner[key] = self._inside(outer, name)
            path.append(inner)
            outer = inner

    def _inside(self, outer: _Path, name: int) -> _Path:
        ops, layers, phase, call, kind = outer.ops, outer.layers, outer.phase, outer.call, self._kinds[name]
        if kind == _LAYER:
            layers = self._names[name].removeprefix(_MODULE), layers
        elif kind == _OPERATOR:
            phase = _phase(outer, self._names[name])
            ops = self._names[name], ops
        if self._stacks is not None and kind != _STEP_OF_PROFILER:
            frame = self._frame[name]
            if frame == _NOT_ASKED:
                frame = self._frame[name] = self._stacks.add_frame(_frame(self._names[name]))
            if call == _NO_ROOM or frame < 0:
                self._stacks.dropped += 1
                call = _NO_ROOM
            elif (call := self._stacks.add_call(call, frame)) < 0:
                call = _NO_ROOM
        self._count += 1
        return _Path(self._count, ops, layers, phase, call)

    def scope(self, path: _Path) -> _Scope:
        """Return what is stored about a path, and keep it there."""
        op, layer = _fit(self._ops, path.ops, "/"), _fit(self._layers, path.layers, ".")
        path.scope = _Scope(op, layer, path.phase, max(path.call, -1))
        return path.scope


class _Thread:
    """The spans of a thread around a moment, which only moves on. Each span is entered and left once."""

    def __init__(self, spans: _Spans, paths: _Paths) -> None:
        self._paths = paths
        self._waiting = zip(spans.start_ns, spans.end_ns, spans.name, strict=True)
        self._coming = next(self._waiting, _NEVER)
        # Of the spans around the moment, after all of time; an inner one never ends after an outer one.
        self._end_ns, self._name = [2 * _MOST_NS], [-1]
        self._path = [paths.outermost]  # of the outer ones of them, those that were asked for

    def path_at(self, t_ns: int) -> _Path:
        """Return the path of the spans around a moment."""
        ends, names, path, coming = self._end_ns, self._name, self._path, self._coming
        depth = len(path)
        while coming[0] <= t_ns:
            start_ns, end_ns, name = coming
            # A span that ends after the one it begins in has times that are off, by rounding, as a rule: if it shares
            # more time with that one than it has after it, it is inside, else it comes next.
            while (outer_ns := ends[-1]) <= start_ns or end_ns - outer_ns > outer_ns - start_ns:
                ends.pop()
                names.pop()
            if len(names) < depth:
                depth = len(names)
            ends.append(end_ns if end_ns < outer_ns else outer_ns)
            names.append(name)
            coming = next(self._waiting, _NEVER)
        self._coming = coming
        while ends[-1] < t_ns:
            ends.pop()
            names.pop()
        del path[min(depth, len(names)) :]
        self._paths.extend(path, names)
        return path[-1]


class _Around:
    """Spans around a moment in a thread; queried in the order of time."""

    def __init__(self, spans: dict[int, _Spans], names: tuple[str, ...], stacks: CallStacks | None) -> None:
        self._paths = _Paths(names, stacks)
        self._threads = {thread: _Thread(of_thread, self._paths) for thread, of_thread in spans.items()}

    def scope_of(self, thread: int, t_ns: int) -> _Scope:
        """Return what runs in a thread at a moment."""
        of_thread = self._threads.get(thread)
        path = self._paths.outermost if of_thread is None else of_thread.path_at(t_ns)
        return path.scope or self._paths.scope(path)


def _kind(name: str) -> int:
    """Return what a span of a name says."""
    if name.startswith(_PYTHON):
        return _CALL_IN_PYTHON
    if name.startswith(_MODULE):
        return _LAYER
    return _STEP_OF_PROFILER if name.startswith(_STEP) else _OPERATOR


def _phase(outer: _Path, name: str) -> int:
    """Return the phase of an operator in a path."""
    if outer.phase == _BACKWARD or name.startswith("autograd::engine"):
        return _BACKWARD
    if outer.phase == _OPTIMISER or name.startswith(_OPTIMISE):
        return _OPTIMISER
    if outer.ops is not None:
        return outer.phase
    return BETWEEN if name.startswith("Optimizer.") else _FORWARD


def _fit(paths: CallPaths, names: _Chain, separator: str) -> str:
    innermost = next(_innermost_first(names), "")
    return paths.fit(path_of(_innermost_first(names), separator), innermost)


def _innermost_first(names: _Chain) -> Iterator[str]:
    while names is not None:
        name, names = names
        yield utf8_safe(name[:MOST_CALL])[:MOST_CALL]


def _frame(name: str) -> Frame:
    """Return the frame that a span stands for; an operator has no file."""
    call = _CALL.fullmatch(name.removeprefix(_PYTHON)) if name.startswith(_PYTHON) else None
    if call is None:
        return Frame(_ADDRESS.sub("", name.removeprefix(_PYTHON)), "", 0)
    line = int(call[2])
    return Frame(call[3], call[1], line if line < MOST_LINE else 0)
