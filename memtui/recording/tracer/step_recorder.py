"""One training step recorded allocation by allocation, by torch's own profiler; used inside the traced process."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from memtui.analysis.allocation_trace import PHASES, StepTrace
from memtui.core.samples import MAIN_MEMORY
from memtui.recording.tracer.cuda_history import MOST_ENTRIES, History, histories, with_history
from memtui.recording.tracer.layer_labels import BY_HAND, LAYER_LABEL
from memtui.recording.tracer.tensor_registry import (
    ACTIVATIONS,
    GRADIENTS,
    INPUTS,
    TEMPORARIES,
    UNKNOWN,
    Departures,
    Known,
)
from memtui.recording.tracer.torch_private import (
    BACKWARD,
    RawEvent,
    RawSpan,
    RawStep,
    cuda_history,
    hushed,
    problem,
    raw_step,
    turns,
)

_NOTE_LABEL = "memtui.note:"
_OWN = "memtui."
_STEP = "Optimizer.step#"
_ZERO_GRAD = "Optimizer.zero_grad#"

FORWARD, IN_BACKWARD, OPTIMISER, BETWEEN = range(len(PHASES))


class ExactStep(AbstractContextManager["ExactStep"]):
    """Records what runs inside ``with`` as one step: ``trace`` tells it afterwards.

    The program goes on in any case: where torch cannot record, ``problem`` says why and ``trace`` raises.

    Args:
        step: number of the step, from 0.
        known_before: what exists now.
        departures: of what of that goes.
    """

    def __init__(self, step: int, known_before: Known, departures: Departures | None = None) -> None:
        self.step = step
        self.dropped = 0
        """Frees of blocks that nobody knew, once ``trace`` was called."""
        self.history_problem = ""
        """Why it is the profiler that tells of GPUs, where their allocator's history was asked."""
        self._histories: dict[str, History] = {}
        self.problem: str | None = problem()
        self._before = known_before
        self._gone_ns = departures.at_ns if departures is not None else {}
        self._departures = departures
        self._notes: list[Known] = []
        self._profiler: torch.profiler.profile | None = None
        self._hush = ExitStack()
        self._raw: RawStep | None = None
        self._start_ns = self._end_ns = 0

    def __enter__(self) -> ExactStep:
        if self.problem is None:
            self._hush.enter_context(hushed())
            try:
                self._profiler = turns.start(self._give_way)
                self._begin_history()
            except RuntimeError as error:
                self._hush.close()
                self.problem = f"the profiler of torch did not start: {_first_line(error)}"
        self._start_ns = self._end_ns = time.monotonic_ns()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end_ns = time.monotonic_ns()
        self._departures = None
        profiler, self._profiler = self._profiler, None  # it holds all events a second time
        if profiler is None:
            return
        try:
            turns.stop(profiler)
            self._raw = raw_step(profiler)
        except Exception as error:  # interfaces that are not public: whatever they do, the training goes on
            self.problem = f"the profiler of torch did not finish: {_first_line(error)}"
        finally:
            self._end_history()
            self._hush.close()

    def _begin_history(self) -> None:
        try:
            cuda_history.start(MOST_ENTRIES)
        except Exception as error:  # not public either: what the profiler tells of GPUs remains
            self.history_problem = f"no history of CUDA's allocator: {_first_line(error)}"

    def _end_history(self) -> None:
        try:
            found = cuda_history.stop()
            if found is not None and self._raw is not None:
                self._histories = histories(*found)
                self._raw = with_history(self._raw, self._histories)
        except Exception as error:
            self.history_problem = f"no history of CUDA's allocator: {_first_line(error)}"

    def _give_way(self) -> None:
        self.abandon("the program started its own profiler in the step")

    def abandon(self, why: str) -> None:
        """Stop within the step: what was recorded so far is no whole one."""
        self.__exit__()
        self._raw, self.problem = None, why

    def note(self, known: Known) -> None:
        """Say what the memory is used for at this moment of the step: blocks alive now at these addresses."""
        if self._profiler is None:
            return
        # A label, so that the moment is told by the same clock as the allocations.
        with torch.profiler.record_function(f"{_NOTE_LABEL}{len(self._notes)}"):
            self._notes.append(known)

    def note_gradients(self, known: Known) -> None:
        """Note gradients only; best right before the optimiser's step."""
        self.note(Known(gradients=known.gradients))

    def note_inputs(self, known: Known) -> None:
        """Note inputs only; best when the forward pass begins."""
        self.note(Known(inputs=known.inputs))

    @property
    def devices(self) -> tuple[str, ...]:
        """Whose memory the step used, main memory first."""
        seen = {event.device for event in self._raw.events} if self._raw is not None else set()
        return (MAIN_MEMORY, *sorted({*seen, *self._histories, *self._before.devices.values()} - {MAIN_MEMORY}))

    def trace(self, known_after: Known, device: str = MAIN_MEMORY) -> StepTrace:
        """Return the step as it was in the memory of one device.

        Raises:
            RuntimeError: nothing was recorded; the text says why.
        """
        if self._raw is None:
            raise RuntimeError(self.problem or "the step was not recorded")
        builder = _Builder(self._raw, self._start_ns, self._end_ns, self._notes)
        history = self._histories.get(device)
        builder.begin(self._before, device, history.before if history is not None else {})
        for event in self._raw.events:
            if event.device == device and event.size_bytes:
                builder.take(event)
        builder.finish(known_after, self._gone_ns)
        self.dropped = builder.dropped
        return builder.trace(self.step)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@dataclass(slots=True)
class _Block:
    ptr: int
    size_bytes: int
    category: int | None  # None: told at the end, from its life
    layer: str
    phase: int
    start_ns: int
    end_ns: int | None = None
    freed_in: tuple[str, ...] = ()


class _Phases:
    """Phase of a moment and the path around it."""

    def __init__(self, spans: Sequence[RawSpan]) -> None:
        decisive = [(span.end_ns, found) for span in spans if (found := _own_phase(span.path)) is not None]
        last = max((entry for entry in decisive if entry[1] in (IN_BACKWARD, OPTIMISER)), default=None)
        self._after_ns = last[0] if last is not None and last[1] == OPTIMISER else None
        self.backward_ns = [span.start_ns for span in spans if _own_phase(span.path) == IN_BACKWARD]
        self._start_ns: list[int] = []
        self._phase: list[int] = []
        for span in spans:
            if span.op or _own_phase(span.path) is not None:
                self._start_ns.append(span.start_ns)
                self._phase.append(self._of(span.path, span.start_ns))

    def at(self, t_ns: int, path: tuple[str, ...], op: str) -> int:
        """Return the phase of a row: by what is around it, or else that of what came before."""
        if op or _own_phase(path) is not None:
            return self._of(path, t_ns)
        before = bisect_right(self._start_ns, t_ns) - 1
        return self._phase[before] if before >= 0 else FORWARD

    def _of(self, path: tuple[str, ...], t_ns: int) -> int:
        found = _own_phase(path)
        if found is not None:
            return found
        return FORWARD if self._after_ns is None or t_ns < self._after_ns else BETWEEN


@lru_cache(maxsize=4096)  # a step has few distinct paths
def _own_phase(path: tuple[str, ...]) -> int | None:
    """Return the phase that the enclosing events alone tell."""
    if any(name.startswith((BACKWARD, BY_HAND)) for name in path):
        return IN_BACKWARD
    for name in reversed(path):
        if name.startswith(LAYER_LABEL):
            return FORWARD
        if name.startswith(_STEP):
            return OPTIMISER
        if name.startswith(_ZERO_GRAD):
            return BETWEEN
    return None


def place_of(path: tuple[str, ...]) -> tuple[int, str]:
    """Return (phase, layer) that the events around an operation tell, its own name last."""
    phase = _own_phase(path)
    layer = next((name for name in reversed(path) if name.startswith((LAYER_LABEL, BY_HAND))), "")
    return FORWARD if phase is None else phase, layer.partition(":")[2]


class _Layers:
    """Layer of an operation: by its label, and in backward by that of the forward operation of the same number."""

    def __init__(self, spans: Sequence[RawSpan]) -> None:
        self._by_thread: dict[tuple[int, int], str] = {}
        self._by_number: dict[int, str] = {}
        for span in spans:
            if span.sequence is not None and not any(name.startswith(BACKWARD) for name in span.path):
                # Of several operations of one number the last one made the node: the number rises with each node.
                self._by_thread[span.thread, span.sequence] = self._by_number[span.sequence] = _label(span.path)

    def of(self, event: RawEvent) -> str:
        for name in reversed(event.path):
            if name.startswith((LAYER_LABEL, BY_HAND)):
                return name.partition(":")[2]
            if name.startswith(BACKWARD):
                break
        else:
            return ""
        if event.sequence is None:
            return ""
        # Numbers are counted by thread, and backward may run in another one.
        found = self._by_thread.get((event.thread, event.sequence))
        return self._by_number.get(event.sequence, "") if found is None else found


def _label(path: tuple[str, ...]) -> str:
    return next((name.removeprefix(LAYER_LABEL) for name in reversed(path) if name.startswith(LAYER_LABEL)), "")


class _Builder:
    """Rows of a step, from what the profiler saw and what was known before and after."""

    def __init__(self, raw: RawStep, start_ns: int, end_ns: int, notes: Sequence[Known]) -> None:
        self._start_ns, self._end_ns = start_ns, end_ns
        self._phases, self._layers = _Phases(raw.spans), _Layers(raw.spans)
        self._notes = [
            (span.start_ns, notes[int(span.path[-1].removeprefix(_NOTE_LABEL))])
            for span in raw.spans
            if span.path[-1].startswith(_NOTE_LABEL)
        ]
        self._zero_grad = next((span for span in raw.spans if span.path[-1].startswith(_ZERO_GRAD)), None)
        self._blocks: list[_Block] = []
        self._live: dict[int, int] = {}  # address: number of the block
        self._rows: list[tuple[int, int, int, int, int, int]] = []  # t, delta, block, phase, op, layer
        self._names: dict[str, int] = {}
        self._existing = 0
        self.dropped = 0

    def begin(self, before: Known, device: str, more: Mapping[int, int]) -> None:
        """Take what was there: of known use, and ``more`` (address -> bytes) that the allocator knows of."""
        for category, storages in before.by_category():
            for ptr, held in storages.items():
                if ptr not in self._live and before.device(ptr) == device:
                    block = _Block(ptr, held.size_bytes, category, held.layer, BETWEEN, self._start_ns)
                    self._add(block, "", held.layer)
        for ptr, size_bytes in more.items():
            if ptr not in self._live:
                self._add(_Block(ptr, size_bytes, UNKNOWN, "", BETWEEN, self._start_ns), "", "")
        self._existing = len(self._rows)

    def take(self, event: RawEvent) -> None:
        """Take the next event in order of time."""
        phase = self._phases.at(event.t_ns, event.path, event.op)
        op = next((name for name in reversed(event.path) if not name.startswith(_OWN)), "")
        layer = self._layers.of(event)
        number = self._live.get(event.ptr)
        if event.size_bytes > 0:
            if number is not None:
                self._lost(number, event.t_ns, phase)
            self._add(_Block(event.ptr, event.size_bytes, None, layer, phase, event.t_ns), op, layer)
        elif number is None:
            self.dropped += 1
        else:
            self._free(number, event.t_ns, phase, op, layer, event.path)

    def finish(self, after: Known, gone_ns: Mapping[int, int]) -> None:
        """Add blocks that vanished without a record, and what each block was."""
        for number in range(self._existing):
            block = self._blocks[number]
            if block.end_ns is None and (t_ns := gone_ns.get(block.ptr)) is not None:
                self._free(number, t_ns, self._phases.at(t_ns, (), ""), "", block.layer, ())
            # Nothing about inputs and others is no sign that they are gone.
            asked = block.category != UNKNOWN and (block.category != INPUTS or bool(after.inputs))
            if block.end_ns is None and asked and after.find(block.ptr) is None:
                self._lost(number, self._end_ns, BETWEEN)
            elif block.category == UNKNOWN and any(
                block.ptr in known.inputs and (block.end_ns is None or t_ns < block.end_ns)
                for t_ns, known in self._notes
            ):
                block.category = INPUTS  # a data set that batches are cut from
        for block in self._blocks:
            if block.category is None:
                self._classify(block, after)

    def trace(self, step: int) -> StepTrace:
        rows = sorted(self._rows, key=lambda row: row[0])  # stable: a free stays before what took its place
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        category = np.array([self._blocks[row[2]].category for row in rows], np.int64)
        t_ns, delta, block, phase, op, layer = columns.copy()
        for row in np.flatnonzero((layer < 0) & (delta > 0)):
            # What a block turned out to be may tell its layer, where the operation did not.
            layer[row] = self._name(self._blocks[block[row]].layer)
        return StepTrace(
            step=step,
            start_ns=self._start_ns,
            end_ns=self._end_ns,
            existing=self._existing,
            t_ns=t_ns,
            delta_bytes=delta,
            block=block,
            category=category,
            phase=phase,
            op=op,
            layer=layer,
            names=tuple(self._names),
        )

    def _add(self, block: _Block, op: str, layer: str) -> None:
        number = self._live[block.ptr] = len(self._blocks)
        self._blocks.append(block)
        self._row(block.start_ns, block.size_bytes, number, block.phase, op, layer)

    def _free(self, number: int, t_ns: int, phase: int, op: str, layer: str, path: tuple[str, ...]) -> None:
        block = self._blocks[number]
        # The profiler may know the size of an older block at this address: ours counts.
        block.end_ns, block.freed_in = t_ns, path
        del self._live[block.ptr]
        self._row(t_ns, -block.size_bytes, number, phase, op, layer)

    def _lost(self, number: int, t_ns: int, phase: int) -> None:
        """Free a block by ``t_ns`` whose free was not seen: gradients go when the optimiser lets go of them."""
        block, zero_grad = self._blocks[number], self._zero_grad
        if block.category == GRADIENTS and zero_grad is not None and zero_grad.start_ns <= t_ns:
            self._free(number, zero_grad.start_ns, BETWEEN, zero_grad.path[-1], block.layer, zero_grad.path)
        else:
            self._free(number, t_ns, phase, "", block.layer, ())

    def _row(self, t_ns: int, delta_bytes: int, number: int, phase: int, op: str, layer: str) -> None:
        within_ns = min(max(t_ns, self._start_ns), self._end_ns)
        self._rows.append((within_ns, delta_bytes, number, phase, self._name(op), self._name(layer)))

    def _name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names)) if name else -1

    def _classify(self, block: _Block, after: Known) -> None:
        """Say what a block was that the step itself made, from its life alone."""
        found = after.find(block.ptr) if block.end_ns is None else None
        for t_ns, known in self._notes:
            if found is None and block.start_ns <= t_ns and (block.end_ns is None or t_ns < block.end_ns):
                found = known.find(block.ptr)
        if found is not None:
            block.category = found[0]
            block.layer = block.layer or found[1]
        elif block.end_ns is not None and any(name.startswith(_ZERO_GRAD) for name in block.freed_in):
            block.category = GRADIENTS
        elif block.phase == FORWARD and self._sees_backward(block):
            block.category = ACTIVATIONS
        else:
            block.category = UNKNOWN if block.end_ns is None else TEMPORARIES

    def _sees_backward(self, block: _Block) -> bool:
        following = bisect_right(self._phases.backward_ns, block.start_ns)
        if following == len(self._phases.backward_ns):
            return False
        return block.end_ns is None or block.end_ns > self._phases.backward_ns[following]
