"""The Chrome trace of PyTorch's profiler (``export_chrome_trace`` with ``profile_memory=True``).

Its ``[memory]`` instant events have bytes, address and device, but no operator: the operator is the one that runs in
the same thread at that moment. Times are microseconds after ``baseTimeNanoseconds``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from memtui.analysis.allocation_trace import PHASES
from memtui.core.samples import MAIN_MEMORY
from memtui.core.text import storable
from memtui.formats.allocation_ledger import BETWEEN, UNKNOWN, Ledger
from memtui.formats.imported import Imported, NotImportable, Part
from memtui.formats.infer_categories import with_kinds
from memtui.session.records.imported import SINCE_BOOT, WALL, ImportedFrom

FORMAT = "Chrome trace"
_FORWARD, _BACKWARD, _OPTIMISER = (PHASES.index(name) for name in ("forward", "backward", "optimiser"))
_STEP, _MODULE, _OPTIMISE = "ProfilerStep#", "nn.Module: ", "Optimizer.step#"
_MOST_NS = 1 << 61
_ABSENT = (
    "the begin: memory that is neither allocated nor freed in the trace is not in it",
    "kinds: found by the operators around and what became of the block",
)


_Event = dict[str, Any]  # as in the file, not validated


class _Span(NamedTuple):
    start_ns: int
    end_ns: int
    name: str
    number: int


class _Change(NamedTuple):
    t_ns: int
    bytes: int
    total_bytes: int
    address: int
    thread: object
    device: str


def recognises(document: Any) -> bool:
    """Whether a JSON document is a Chrome trace: an object with ``traceEvents``, or the list of events itself."""
    if isinstance(document, dict):
        return isinstance(document.get("traceEvents"), list)
    return isinstance(document, list) and bool(document) and all(isinstance(event, dict) for event in document[:100])


def parse(document: Any) -> Imported:
    """Return the content of a trace. Raises NotImportable."""
    events = document["traceEvents"] if isinstance(document, dict) else document
    base_ns = document.get("baseTimeNanoseconds", 0) if isinstance(document, dict) else 0
    if type(base_ns) is not int or not 0 <= base_ns < _MOST_NS:
        raise NotImportable("baseTimeNanoseconds is no time")
    spans: dict[object, list[_Span]] = defaultdict(list)
    changes: dict[str, list[_Change]] = defaultdict(list)
    begins = []
    try:
        for number, event in enumerate(events):
            name = event.get("name")
            if name == "[memory]":
                change = _change(event, base_ns)
                changes[change.device].append(change)
            elif event.get("ph") == "X" and _tells(event, name):
                start_ns = _time(event, base_ns)
                thread = str(event.get("pid")), str(event.get("tid"))
                spans[thread].append(_Span(start_ns, start_ns + round(event["dur"] * 1000), name, number))
                if name.startswith(_STEP) and name[len(_STEP) :].isdecimal():
                    begins.append((start_ns, int(name[len(_STEP) :][:15])))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise NotImportable(f"an event of its trace is damaged: {type(error).__name__}: {error}") from None
    if not changes:
        raise NotImportable("its trace has no [memory] event: profile with profile_memory=True")
    begins.sort()
    parts = [_part(device, changes[device], spans, tuple(begins)) for device in sorted(changes)]
    about = ImportedFrom(FORMAT, clock=WALL if base_ns else SINCE_BOOT, absent=_ABSENT)
    return Imported(tuple(parts), about)


def _tells(event: _Event, name: Any) -> bool:
    """Whether an event is a span that memory can be attributed to: an operator, an annotation, a module."""
    kind = event.get("cat")
    return isinstance(name, str) and (kind in ("cpu_op", "user_annotation") or name.startswith(_MODULE))


def _time(event: _Event, base_ns: int) -> int:
    t_ns = base_ns + round(event["ts"] * 1000)
    if not 0 <= t_ns < _MOST_NS:
        raise ValueError("a time out of range")
    return t_ns


def _change(event: _Event, base_ns: int) -> _Change:
    args = event["args"]
    size, total = args["Bytes"], args.get("Total Allocated", 0)
    kind, number, address = args.get("Device Type", 0), args.get("Device Id", -1), args.get("Addr", 0)
    if not all(type(value) is int for value in (size, total, kind, number, address)):
        raise ValueError("a number of a memory event is none")
    device = MAIN_MEMORY if kind == 0 else f"cuda:{number}" if kind == 1 else f"device {kind}:{number}"
    thread = str(event.get("pid")), str(event.get("tid"))
    return _Change(_time(event, base_ns), size, total, address, thread, device[:64])


def _part(
    device: str, changes: list[_Change], spans: dict[object, list[_Span]], begins: tuple[tuple[int, int], ...]
) -> Part:
    changes.sort(key=lambda change: change.t_ns)
    ledger = Ledger({UNKNOWN: max(0, changes[0].total_bytes - changes[0].bytes)})
    around = _Around(spans)
    for change in changes:
        op, layer, phase = around.scope_of(change)
        if change.bytes > 0:
            ledger.free_at(change.t_ns, change.address, "", phase=phase)  # a free that the trace lacks
            ledger.allocate(change.t_ns, change.bytes, op, phase=phase, layer=layer, address=change.address)
        elif change.bytes < 0 and not ledger.free_at(change.t_ns, change.address, op, phase=phase):
            ledger.base[UNKNOWN] = max(0, ledger.base[UNKNOWN] + change.bytes)
            ledger.existing(-change.bytes, change.address)
            ledger.free_at(change.t_ns, change.address, op, phase=phase)
    trace = ledger.trace(changes[0].t_ns, changes[-1].t_ns)
    steps = sorted(
        span.start_ns for thread_spans in spans.values() for span in thread_spans if span.name.startswith(_OPTIMISE)
    )
    return Part(with_kinds(trace, steps), device, begins)


class _Around:
    """Spans around a moment in a thread; queried in the order of time."""

    def __init__(self, spans: dict[object, list[_Span]]) -> None:
        # Of two spans that begin together the longer one encloses the other; of equal spans the first in the file.
        self._waiting: dict[object, Iterator[_Span]] = {
            thread: iter(sorted(thread_spans, key=lambda span: (span.start_ns, -span.end_ns, span.number)))
            for thread, thread_spans in spans.items()
        }
        self._next = {thread: next(waiting, None) for thread, waiting in self._waiting.items()}
        self._stack: dict[object, list[_Span]] = defaultdict(list)

    def scope_of(self, change: _Change) -> tuple[str, str, int]:
        """Return (path of operators, layer, phase)."""
        stack = self._stack[change.thread]
        coming = self._next.get(change.thread)
        while coming is not None and coming.start_ns <= change.t_ns:
            while stack and stack[-1].end_ns <= coming.start_ns:  # in most traces one begins where another ends
                stack.pop()
            stack.append(coming)
            coming = self._next[change.thread] = next(self._waiting[change.thread], None)
        while stack and stack[-1].end_ns < change.t_ns:
            stack.pop()
        return _scope(tuple(span.name for span in stack))


def _scope(names: tuple[str, ...]) -> tuple[str, str, int]:
    ops = [name for name in names if not name.startswith((_MODULE, _STEP))]
    layers = [name.removeprefix(_MODULE) for name in names if name.startswith(_MODULE)]
    if any(name.startswith("autograd::engine") for name in ops):
        phase = _BACKWARD
    elif any(name.startswith(_OPTIMISE) for name in ops):
        phase = _OPTIMISER
    else:
        phase = _FORWARD if ops and not ops[0].startswith("Optimizer.") else BETWEEN
    return storable("/".join(ops)), storable(".".join(layers)), phase
