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
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.recording.tracer.caching_allocator import AllocatorPeak, allocator_blocks, peak_as_seen
from memtui.recording.tracer.cuda_history import MOST_ENTRIES, History, histories, with_history
from memtui.recording.tracer.layer_labels import BY_HAND, LAYER_LABEL
from memtui.recording.tracer.tensor_registry import (
    ACTIVATIONS,
    GRADIENTS,
    INPUTS,
    TEMPORARIES,
    UNKNOWN,
    Departures,
    TensorRegistry,
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
    """Records what runs inside ``with`` as one step: ``trace`` returns it afterwards.

    The program goes on in any case: where torch cannot record, ``problem`` says why and ``trace`` raises.

    Args:
        step: number of the step, from 0.
        registry_before: the tensors that exist now.
        departures: notes when tensors of these are freed.
    """

    def __init__(self, step: int, registry_before: TensorRegistry, departures: Departures | None = None) -> None:
        self.step = step
        self.dropped = 0
        """Frees of unknown blocks, once ``trace`` was called."""
        self.history_problem = ""
        """Why events of GPUs are the profiler's, where their allocator's history was requested."""
        self.allocator_peaks: dict[str, AllocatorPeak] = {}
        """The peak in the allocator of each GPU that has a history."""
        self._histories: dict[str, History] = {}
        self.problem: str | None = problem()
        self._before = registry_before
        self._gone_ns = departures.freed_ns if departures is not None else {}
        self._departures = departures
        self._notes: list[TensorRegistry] = []
        self._profiler: torch.profiler.profile | None = None
        self._hush = ExitStack()
        self._raw: RawStep | None = None
        self._start_ns = self._end_ns = 0

    def __enter__(self) -> ExactStep:
        if self.problem is None:
            self._hush.enter_context(hushed())
            try:
                self._profiler = turns.start(self._give_way)
                self._start_history()
            except RuntimeError as error:
                self._hush.close()
                self.problem = f"the profiler of torch did not start: {_first_line(error)}"
        self._start_ns = self._end_ns = time.monotonic_ns()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end_ns = time.monotonic_ns()
        self._departures = None
        profiler, self._profiler = self._profiler, None  # which has all events a second time
        if profiler is None:
            return
        try:
            turns.stop(profiler)
            self._raw = raw_step(profiler)
        except Exception as error:  # interfaces that are not public: whatever they raise, the training goes on
            self.problem = f"the profiler of torch did not finish: {_first_line(error)}"
        finally:
            self._end_history()
            self._hush.close()

    def _start_history(self) -> None:
        try:
            cuda_history.start(MOST_ENTRIES)
        except Exception as error:  # not public either: the profiler's events of GPUs remain
            self.history_problem = f"no history of CUDA's allocator: {_first_line(error)}"

    def _end_history(self) -> None:
        try:
            result = cuda_history.stop()
            if result is not None and self._raw is not None:
                before, after, offset_ns = result
                self._histories = histories(after, offset_ns)
                seen = [(event.device, (event.ptr, event.size_bytes)) for event in self._raw.events]
                self._raw = with_history(self._raw, self._histories)
                self.allocator_peaks = {
                    device: peak_as_seen(blocks, (block for on, block in seen if on == device and block[1] > 0))
                    for device, blocks in allocator_blocks(before, after).items()
                }
        except Exception as error:
            self.history_problem = f"no history of CUDA's allocator: {_first_line(error)}"

    def _give_way(self) -> None:
        self.abandon("the program started its own profiler in the step")

    def abandon(self, why: str) -> None:
        """Stop within the step: what was recorded so far is not a whole step."""
        self.__exit__()
        self._raw, self.problem = None, why

    def note(self, registry: TensorRegistry) -> None:
        """Note what the memory is used for at this moment of the step: blocks alive now at these addresses."""
        if self._profiler is None:
            return
        # A label, so that the moment is taken by the same clock as the allocations.
        with torch.profiler.record_function(f"{_NOTE_LABEL}{len(self._notes)}"):
            self._notes.append(registry)

    def note_gradients(self, registry: TensorRegistry) -> None:
        """Note gradients only; best right before the optimiser's step."""
        self.note(TensorRegistry(gradients=registry.gradients))

    def note_inputs(self, registry: TensorRegistry) -> None:
        """Note inputs only; best when the forward pass begins."""
        self.note(TensorRegistry(inputs=registry.inputs))

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices whose memory the step used, main memory first."""
        seen = {event.device for event in self._raw.events} if self._raw is not None else set()
        return (MAIN_MEMORY, *sorted({*seen, *self._histories, *self._before.devices.values()} - {MAIN_MEMORY}))

    def trace(self, registry_after: TensorRegistry, device: str = MAIN_MEMORY) -> StepTrace:
        """Return the step as it was in the memory of one device.

        Raises:
            RuntimeError: nothing was recorded; the text says why.
        """
        if self._raw is None:
            raise RuntimeError(self.problem or "the step was not recorded")
        builder = _Builder(self._raw, self._start_ns, self._end_ns, self._notes)
        history = self._histories.get(device)
        builder.add_existing(self._before, device, history.before if history is not None else {})
        for event in self._raw.events:
            if event.device == device and event.size_bytes:
                builder.add_event(event)
        builder.finish(registry_after, self._gone_ns)
        self.dropped = builder.dropped
        return builder.trace(self.step)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@dataclass(slots=True)
class _Block:
    ptr: int
    size_bytes: int
    category: int | None  # None: derived at the end, from its lifetime
    layer: str
    phase: int
    start_ns: int
    end_ns: int | None = None
    freed_in: tuple[str, ...] = ()


class _Phases:
    """Phase of a moment and the path around it."""

    def __init__(self, spans: Sequence[RawSpan]) -> None:
        decisive = [(span.end_ns, phase) for span in spans if (phase := _own_phase(span.path)) is not None]
        last = max((entry for entry in decisive if entry[1] in (IN_BACKWARD, OPTIMISER)), default=None)
        self._after_ns = last[0] if last is not None and last[1] == OPTIMISER else None
        self.backward_ns = [span.start_ns for span in spans if _own_phase(span.path) == IN_BACKWARD]
        self._start_ns: list[int] = []
        self._phase: list[int] = []
        for span in spans:
            if span.op or _own_phase(span.path) is not None:
                self._start_ns.append(span.start_ns)
                self._phase.append(self._of(span.path, span.start_ns))

    def phase_at(self, t_ns: int, path: tuple[str, ...], op: str) -> int:
        """Return the phase of a row: by the events around it, or else that of the row before."""
        if op or _own_phase(path) is not None:
            return self._of(path, t_ns)
        before = bisect_right(self._start_ns, t_ns) - 1
        return self._phase[before] if before >= 0 else FORWARD

    def _of(self, path: tuple[str, ...], t_ns: int) -> int:
        phase = _own_phase(path)
        if phase is not None:
            return phase
        return FORWARD if self._after_ns is None or t_ns < self._after_ns else BETWEEN


@lru_cache(maxsize=4096)  # a step has few distinct paths
def _own_phase(path: tuple[str, ...]) -> int | None:
    """Return the phase that the enclosing events alone determine."""
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
    """Return the (phase, layer) of an operation by the events around it, its own name last."""
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
                # Of several operations of one number the last one created the node: the number rises with each node.
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
        layer = self._by_thread.get((event.thread, event.sequence))
        return self._by_number.get(event.sequence, "") if layer is None else layer


def _label(path: tuple[str, ...]) -> str:
    return next((name.removeprefix(LAYER_LABEL) for name in reversed(path) if name.startswith(LAYER_LABEL)), "")


class _Builder:
    """Builds the rows of a step, from the profiler's events and the registries before and after."""

    def __init__(self, raw: RawStep, start_ns: int, end_ns: int, notes: Sequence[TensorRegistry]) -> None:
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

    def add_existing(self, before: TensorRegistry, device: str, more: Mapping[int, int]) -> None:
        """Add blocks that exist: those of known use, and ``more`` (address -> bytes) from the allocator's history."""
        for category, storages in before.by_category():
            for ptr, storage in storages.items():
                if ptr not in self._live and before.device(ptr) == device:
                    block = _Block(ptr, storage.size_bytes, category, storage.layer, BETWEEN, self._start_ns)
                    self._add(block, "", storage.layer)
        for ptr, size_bytes in more.items():
            if ptr not in self._live:
                self._add(_Block(ptr, size_bytes, UNKNOWN, "", BETWEEN, self._start_ns), "", "")
        self._existing = len(self._rows)

    def add_event(self, event: RawEvent) -> None:
        """Add the next event in order of time."""
        phase = self._phases.phase_at(event.t_ns, event.path, event.op)
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

    def finish(self, after: TensorRegistry, gone_ns: Mapping[int, int]) -> None:
        """Add frees of blocks that vanished without a record, and classify each block."""
        for number in range(self._existing):
            block = self._blocks[number]
            if block.end_ns is None and (t_ns := gone_ns.get(block.ptr)) is not None:
                self._free(number, t_ns, self._phases.phase_at(t_ns, (), ""), "", block.layer, ())
            # Inputs and others may be missing from the registry without being freed.
            expected = block.category != UNKNOWN and (block.category != INPUTS or bool(after.inputs))
            if block.end_ns is None and expected and after.find(block.ptr) is None:
                self._lost(number, self._end_ns, BETWEEN)
            elif block.category == UNKNOWN and any(
                block.ptr in registry.inputs and (block.end_ns is None or t_ns < block.end_ns)
                for t_ns, registry in self._notes
            ):
                block.category = INPUTS  # a data set that batches are cut from
        for block in self._blocks:
            if block.category is None:
                self._classify(block, after)

    def trace(self, step: int) -> StepTrace:
        rows = sorted(self._rows, key=lambda row: row[0])  # stable: a free stays before what reused its address
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        category = np.array([self._blocks[row[2]].category for row in rows], np.int64)
        t_ns, delta, block, phase, op, layer = columns.copy()
        for row in np.flatnonzero((layer < 0) & (delta > 0)):
            # The class of a block may determine its layer, where the operation did not.
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
        # The profiler may have the size of an older block at this address: the size of this block counts.
        block.end_ns, block.freed_in = t_ns, path
        del self._live[block.ptr]
        self._row(t_ns, -block.size_bytes, number, phase, op, layer)

    def _lost(self, number: int, t_ns: int, phase: int) -> None:
        """Free a block by ``t_ns`` whose free was not seen: gradients are freed when the optimiser drops them."""
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

    def _classify(self, block: _Block, after: TensorRegistry) -> None:
        """Classify a block that the step itself allocated, from its lifetime alone."""
        use = after.find(block.ptr) if block.end_ns is None else None
        for t_ns, registry in self._notes:
            if use is None and block.start_ns <= t_ns and (block.end_ns is None or t_ns < block.end_ns):
                use = registry.find(block.ptr)
        if use is not None:
            block.category = use[0]
            block.layer = block.layer or use[1]
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
