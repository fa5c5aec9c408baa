"""Finds the steps of a training and records every allocation of some of them, from inside its process.

A step ends when the optimiser that steps first does so again; no line of the program is changed. Between the recorded
steps there are two hooks of the optimiser and, in as many steps as is affordable, the cheap monitor. The program's own
errors pass through; those of the tracer end the tracing, with one line on standard error.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim import optimizer as optimizer_hooks

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.tensor_usage import stretches
from memtui.core.tracer_messages import MAIN_MEMORY, AllocationStep, TensorRanges, TracerMessage
from memtui.recording.tracer import manual_backward, torch_private
from memtui.recording.tracer.caching_allocator import AllocatorPeak
from memtui.recording.tracer.inject import EVERY, QUIET_ENVIRONMENT, SOCKET
from memtui.recording.tracer.layer_labels import HandLabels, layer_labels, layer_names
from memtui.recording.tracer.overhead import Expense
from memtui.recording.tracer.progress_batch import ProgressLog, Seen
from memtui.recording.tracer.sender import Sender
from memtui.recording.tracer.step_recorder import ExactStep
from memtui.recording.tracer.storage_monitor import TensorWatch
from memtui.recording.tracer.tensor_registry import (
    Departures,
    LastingTensors,
    Storages,
    TensorRegistry,
    build_registry,
    named_modules,
    tensors_in,
)

FIRST = 2  # the first steps fill caches and make the state of the optimiser
MOST_PASSES = 256  # of a model in a step that is recorded


class Tracer:
    """Lives as long as the process."""

    def __init__(
        self,
        every: int,
        open_sender: Callable[[], Sender | _NullSender],
        modules: Iterable[Any] = (),
        optimizers: Iterable[Any] = (),
    ) -> None:
        """Trace ``modules`` and ``optimizers`` and those found later. Steps are those of the first optimiser."""
        self._every, self._open_sender = every, open_sender
        self._sender: Sender | _NullSender | None = None
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet(optimizers)
        self._clock = next(map(weakref.ref, self._optimizers), None)  # the optimiser whose steps are counted
        self._roots: weakref.WeakSet[Any] = weakref.WeakSet(modules)  # that are called by no other module
        self._inputs: list[Any] = []
        self._by_hand = HandLabels()
        self._layer_types: dict[str, str] = {}
        self.also: Callable[[TracerMessage], object] | None = None
        """Gets the messages to the recorder, too, in this thread."""
        self._passes = 0  # of a model in the step that is recorded
        self._steps = 0
        self._window = ExitStack()
        self._recorded: ExactStep | None = None
        self._cost_ns = 0
        self._watch, self._expense = TensorWatch(), Expense()
        self._step_ns = 0  # when the step began
        self._watching = False
        self._log: ProgressLog | None = None
        self._warned, self._forked = False, 0
        self._lasting = LastingTensors()
        self._loose_before: Storages = {}
        self._sent_rows: tuple[tuple[int, int, int, str, str], ...] = ()
        self._pid = os.getpid()
        self._watched = [
            optimizer_hooks.register_optimizer_step_pre_hook(self._guarded(self._before_step)),
            optimizer_hooks.register_optimizer_step_post_hook(self._guarded(self._after_step)),
        ]
        manual_backward.listeners.append(self)

    @property
    def closed(self) -> bool:
        return not self._watched

    def close(self) -> None:
        """Remove every hook and send queued messages. A step that is half recorded is dropped."""
        for handle in self._watched:
            handle.remove()
        self._watched = []
        if self in manual_backward.listeners:
            manual_backward.listeners.remove(self)
        self._window.close()
        self._recorded = None
        self._watch.close()
        if self._log is not None:
            self._log.flush()
        if self._sender is not None:
            self._sender.close()

    def _guarded(self, work: Callable[..., None]) -> Callable[..., None]:
        """Return a hook of the program's calls: whatever goes wrong in it must not reach the program."""
        hidden = work

        def hook(first: Any, *more: Any) -> None:
            nonlocal hidden
            if os.getpid() != self._pid:
                self._warn_forked()
                return  # a child that inherited the hooks
            try:
                if hidden is work:  # the compiler was not loaded yet
                    hidden = torch_private.uncompiled(work)
                hidden(first, *more)
            except Exception as error:
                self._warn_once(f"tracing ended: {type(error).__name__}: {error}")
                with suppress(Exception):
                    self.close()

        hook._torchdynamo_disable = True  # type: ignore[attr-defined]  # the compiler leaves it alone
        return hook

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        if not self._is_clock(optimizer):
            return
        if self._recorded is not None:
            start_ns = time.perf_counter_ns()
            self._recorded.note_gradients(self._registry())
            self._cost_ns += time.perf_counter_ns() - start_ns
        elif self._watching:
            self._watch.add_gradients(self._parameters())

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        self._optimizers.add(optimizer)
        if self._clock is None or self._clock() is None:
            self._clock = weakref.ref(optimizer)
        if not self._is_clock(optimizer):
            return
        self._end_step()
        self._steps += 1
        if self._steps < FIRST:
            self._lasting.now()
            return
        if (self._steps + 1 - FIRST) % self._every == 0:
            self._lasting.now()  # what lasts until the step that is recorded next
        if (self._steps - FIRST) % self._every == 0:
            self._find_roots()
            if torch_private.problem():
                self._send_ranges(self._full_registry(self._lasting.now()))  # as much as can be reported
            elif self._expense.recording_affordable:
                self._start_recording()
                return
        self._start_watching()

    def _end_step(self) -> None:
        """Report everything that was seen of the step that ends now."""
        if self._sender is None:
            self._sender = self._open_sender()
        watched, self._watching = self._watching, False
        seen = self._watch.end(self._steps) if watched else None
        now_ns = time.monotonic_ns()
        if self._recorded is not None:
            seen = self._end_recording()
            # The part of ``_cost_ns`` at the start is in the length of the step already, to a good approximation.
            self._expense.add_recorded_step(now_ns - self._step_ns, time.monotonic_ns() - now_ns)
        elif self._log is not None:
            self._expense.add_step(now_ns - self._step_ns, watched, self._watch.cost_ns)
        self._window.close()
        if self._log is None:
            self._log = ProgressLog(self._pid, self._steps + 1, now_ns, self._sender.send)
        else:
            self._log.add_step(now_ns, seen, self._watch.problem(), self._expense.cost_ns)
        self._step_ns = time.monotonic_ns()

    def _start_watching(self) -> None:
        """Watch the next step, if that is affordable; the program's own modes and compilers come first."""
        if not self._expense.affordable or self._watch.problem():
            return
        self._watching = self._watch.start(self._registry)
        if self._watching:
            self._watch.add_gradients(self._parameters())
            self._hook_inputs()

    def enter_backward(self, module: Any) -> None:
        """Begin a backward pass that the program computes itself, of a module's parameters."""
        self._watch.by_hand += 1
        if self._recorded is not None and self._recorded.problem is None:
            self._by_hand.enter_backward(module)

    def leave_backward(self, module: Any) -> None:
        """Note the gradients of a backward pass by hand, which ends."""
        self._watch.by_hand -= 1
        if self._by_hand.inside:
            self._by_hand.leave_backward(module)
            if self._recorded is not None:
                self._recorded.note_gradients(build_registry((module,), ()))
        elif self._watching:
            self._watch.add_gradients(module.parameters())

    def _is_clock(self, optimizer: Any) -> bool:
        return self._clock is not None and self._clock() is optimizer

    def _start_recording(self) -> None:
        start_ns = time.perf_counter_ns()
        self._inputs, self._passes = [], 0
        lasting = self._lasting.now()
        registry = self._full_registry(lasting)
        departures = Departures(lasting, registry.others)
        self._hook_models()
        self._recorded = self._window.enter_context(ExactStep(self._steps, registry, departures))
        self._cost_ns = time.perf_counter_ns() - start_ns

    def _end_recording(self) -> dict[str, Seen] | None:
        start_ns = time.perf_counter_ns()
        recorded, self._recorded = self._recorded, None
        assert recorded is not None
        self._window.close()
        if recorded.problem:
            self._warn_once(f"step {recorded.step} is not recorded: {recorded.problem}")
            return None
        if recorded.history_problem:
            self._warn_once(recorded.history_problem)
        registry = self._full_registry(self._lasting.now())
        traces = {device: (recorded.trace(registry, device), recorded.dropped) for device in recorded.devices}
        self._inputs = []
        cost_ns = self._cost_ns + time.perf_counter_ns() - start_ns
        for device, (trace, dropped) in traces.items():
            self._send_step(trace, device, cost_ns, dropped, recorded.allocator_peaks.get(device))
        self._send_ranges(registry)
        return {device: seen for device, (trace, _) in traces.items() if (seen := _seen(trace)) is not None}

    def _send_step(self, trace: StepTrace, device: str, cost_ns: int, dropped: int, peak: AllocatorPeak | None) -> None:
        assert self._sender is not None
        self._send(
            AllocationStep(
                self._pid,
                trace.step,
                trace.start_ns,
                trace.end_ns,
                trace.existing,
                trace.names,
                trace.to_columns(),
                cost_ns,
                dropped,
                self._sender.lost,
                device,
                None if peak is None else peak.allocated_bytes,
                None if peak is None else peak.reserved_bytes,
                "" if peak is None else peak.reason,
                {name: self._layer_types[name] for name in trace.names if name in self._layer_types},
            )
        )

    def _send_ranges(self, registry: TensorRegistry) -> None:
        """Send where the tensors lie that outlive a step, when that has changed."""
        # A batch is allocated anew for every step; what lasts is the data set it is cut from.
        before, self._loose_before = self._loose_before, {**registry.others, **registry.inputs}
        inputs, others = (
            {
                ptr: storage
                for ptr, storage in some.items()
                if ptr in before and before[ptr].size_bytes == storage.size_bytes
            }
            for some in (registry.inputs, registry.others)
        )
        rows: dict[int, tuple[int, int, str, str]] = {}
        for category, storages in replace(registry, inputs=inputs, others=others).by_category():
            for ptr, storage in storages.items():
                if registry.device(ptr) == MAIN_MEMORY:  # pages are of main memory
                    rows.setdefault(ptr, (storage.size_bytes, category, storage.layer, storage.part))
        sorted_rows = tuple((ptr, *row) for ptr, row in sorted(rows.items()))
        if sorted_rows == self._sent_rows or self._sender is None:
            return
        self._sent_rows = sorted_rows
        columns = np.array([row[:3] for row in sorted_rows], np.int64).reshape(-1, 3).T
        layers, parts = tuple(row[3] for row in sorted_rows), tuple(row[4] for row in sorted_rows)
        ranges = TensorRanges(self._pid, time.monotonic_ns(), columns, layers, parts)
        self._send(ranges)

    def _send(self, message: TracerMessage) -> None:
        assert self._sender is not None
        self._sender.send(message)
        if self.also is not None:
            self.also(message)

    def report(self, message: TracerMessage) -> bool:
        """Send the recorder a message about this process; False before its first step."""
        if self._sender is not None:
            self._sender.send(message)
        return self._sender is not None

    def _warn_forked(self) -> None:
        """Warn in a child that steps an optimiser, too; a copy of the parent's memory, so once in each."""
        if self._forked != os.getpid():
            self._forked = os.getpid()
            print(f"memtui: process {self._forked}: forked from a traced one, its steps are not seen", file=sys.stderr)

    def _warn_once(self, what: str) -> None:
        if not self._warned:
            print(f"memtui: process {self._pid}: {what}", file=sys.stderr)
        self._warned = True

    def _registry(self) -> TensorRegistry:
        return build_registry(tuple(self._roots), tuple(self._optimizers), self._inputs)

    def _full_registry(self, lasting: list[torch.Tensor]) -> TensorRegistry:
        """Return all tensors, also those that belong to no model and no optimiser, which takes longer."""
        self._watch.add_others(lasting)
        holders = self._lasting.holders()
        return build_registry(tuple(self._roots), tuple(self._optimizers), self._inputs, lasting, holders)

    def _hook_models(self) -> None:
        """Note layers and inputs of what is about to be recorded, by hooks of the models.

        Not where something was compiled: the compiler traces through hooks, and a new hook makes it compile again, or
        fail.
        """
        if torch_private.compiled_frames():
            return
        roots = tuple(self._roots)
        self._by_hand.names = layer_names(roots)
        self._layer_types = {name: type(module).__name__ for name, module in named_modules(roots)}
        self._window.enter_context(layer_labels(roots))
        self._hook_inputs()

    def _hook_inputs(self) -> None:
        """Note inputs by hooks of the models, for the step that begins."""
        for root in tuple(self._roots):
            self._window.callback(root.register_forward_pre_hook(self._guarded(self._called)).remove)

    def _called(self, module: Any, arguments: tuple[Any, ...]) -> None:
        if self._recorded is not None and self._recorded.problem is None:
            self._passes += 1
            if self._passes > MOST_PASSES:  # the profiler keeps all it sees: a validation would fill the memory
                self._recorded.abandon(f"more than {MOST_PASSES} passes of the model before the optimiser stepped")
                return
            self._inputs += tensors_in(arguments)
            self._recorded.note_inputs(build_registry((), (), self._inputs))
        elif self._watching:
            self._watch.add_inputs(tensors_in(arguments))

    def _find_roots(self) -> None:
        """Find modules with parameters of the optimisers that no other module contains, where some are unknown."""
        wanted = {id(parameter) for parameter in self._parameters()}
        if wanted <= {id(parameter) for root in self._roots for parameter in root.parameters()}:
            return
        modules = [obj for obj in gc.get_objects() if issubclass(type(obj), torch.nn.Module)]
        holders = [m for m in modules if any(id(parameter) in wanted for parameter in m.parameters())]
        inner = {id(child) for holder in holders for child in holder.modules() if child is not holder}
        self._roots = weakref.WeakSet(holder for holder in holders if id(holder) not in inner)

    def _parameters(self) -> Iterator[Any]:
        for optimizer in tuple(self._optimizers):
            for group in optimizer.param_groups:
                yield from group["params"]


def _seen(trace: StepTrace) -> Seen | None:
    """Return a step that was recorded whole in the form of the log."""
    if not len(trace):
        return None
    rows = slice(max(0, trace.existing - 1), None)  # all existing blocks together are one row
    columns = (trace.t_ns[rows], trace.by_category()[rows], trace.op[rows])
    return stretches(*columns, trace.start_ns, trace.end_ns, trace.step), trace.names


_running: weakref.ref[Tracer] | None = None


def running() -> bool:
    """Whether this process is traced."""
    return current() is not None


def current() -> Tracer | None:
    """Return the tracer of this process, if there is one."""
    tracer = _running() if _running is not None else None
    return tracer if tracer is not None and not tracer.closed else None


def start(path: Path, every: int, modules: Iterable[Any] = (), optimizers: Iterable[Any] = ()) -> Tracer:
    """Trace this process for the recorder that listens at ``path``, as far as this torch allows; print its limits."""
    global _running
    if why := torch_private.problem():
        more = torch_private.watching_problem()
        rest = f"steps are timed, tensors not seen: {more}" if more else "steps are timed and tensors seen all the same"
        print(f"memtui: process {os.getpid()}: {why}; {rest}", file=sys.stderr)
    _hush_profiler()
    tracer = Tracer(every, lambda: Sender(path), modules, optimizers)
    _running = weakref.ref(tracer)
    return tracer


def _hush_profiler() -> None:
    """Keep the profiler quiet, where none has run yet."""
    for name, value in QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


class _NullSender:
    """In place of a recorder, where ``Tracer.also`` alone gets the messages."""

    lost = 0

    def send(self, message: TracerMessage) -> None:
        """Do nothing: ``Tracer.also`` has the message already."""

    def close(self) -> None:
        """Do nothing: nothing is queued."""


def quietly(every: int, modules: Iterable[Any], optimizers: Iterable[Any]) -> Tracer | None:
    """Trace this process for itself, without a recorder; None where this torch cannot."""
    if torch_private.problem():
        return None
    _hush_profiler()
    return Tracer(every, _NullSender, modules, optimizers)


def checked(model: Any, optimizer: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return modules and optimisers as tuples: given are None, one, or for modules several. Raises TypeError."""
    modules = () if model is None else tuple(model) if isinstance(model, (list, tuple)) else (model,)
    optimizers = () if optimizer is None else (optimizer,)
    for objects, kind, what in (
        (modules, torch.nn.Module, "torch.nn.Module"),
        (optimizers, torch.optim.Optimizer, "torch.optim.Optimizer"),
    ):
        for obj in objects:
            if not isinstance(obj, kind):
                raise TypeError(f"a {type(obj).__name__} is not a {what}")
    return modules, optimizers


def start_from_environment() -> None:
    """Trace this process as its environment variables say."""
    tracer = start(Path(os.environ[SOCKET]), int(os.environ[EVERY]))
    atexit.register(tracer.close)
