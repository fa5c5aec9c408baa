"""Finds the steps of a training and records every allocation of some of them, from inside its process.

A step ends when the optimiser that steps first does so again; no line of the program is changed. Between the recorded
steps there is one hook of the optimiser and nothing else. The program's own errors pass through; those of the tracer
end the tracing, with one line on standard error.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optimizer_hooks

from memtui.samples import AllocationStep, TensorRanges
from memtui.trace import torch_private
from memtui.trace.exact import ExactStep, Known, known_of, layer_labels
from memtui.trace.inject import EVERY, SOCKET
from memtui.trace.sender import Sender

FIRST = 2  # the first steps fill caches and make the state of the optimiser


class Tracer:
    """Lives as long as the process."""

    def __init__(self, every: int, open_sender: Callable[[], Sender]) -> None:
        self._every, self._open_sender = every, open_sender
        self._sender: Sender | None = None
        self._clock: weakref.ref[Any] | None = None  # the optimiser whose steps are counted
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._roots: weakref.WeakSet[Any] = weakref.WeakSet()  # modules that are called by no other one
        self._inside = 0
        self._inputs: list[Any] = []
        self._steps = 0
        self._window = ExitStack()
        self._recorded: ExactStep | None = None
        self._cost_ns = 0
        self._said = False
        self._inputs_before: dict[int, tuple[int, str]] = {}
        self._told: tuple[tuple[int, int, int, str], ...] = ()
        self._pid = os.getpid()
        self._looking = ExitStack()
        self._look_for_roots()
        self._watched = [
            optimizer_hooks.register_optimizer_step_pre_hook(self._guarded(self._before_step)),
            optimizer_hooks.register_optimizer_step_post_hook(self._guarded(self._after_step)),
        ]

    def close(self) -> None:
        """Take every hook back and send what waits. A step that is half recorded is dropped."""
        for handle in self._watched:
            handle.remove()
        self._watched = []
        self._looking.close()
        self._window.close()
        self._recorded = None
        if self._sender is not None:
            self._sender.close()

    def _guarded(self, work: Callable[[Any], None]) -> Callable[..., None]:
        def hook(optimizer: Any, *_: Any) -> None:
            if os.getpid() != self._pid:
                return  # a child that inherited the hooks
            try:
                work(optimizer)
            except Exception as error:
                print(f"memtui: tracing of process {self._pid} ended: {error}", file=sys.stderr)
                self.close()

        return hook

    def _before_step(self, optimizer: Any) -> None:
        if self._recorded is not None and self._is_clock(optimizer):
            begin = time.perf_counter_ns()
            self._recorded.note_gradients(self._known())
            self._cost_ns += time.perf_counter_ns() - begin

    def _after_step(self, optimizer: Any) -> None:
        self._optimizers.add(optimizer)
        if self._clock is None or self._clock() is None:
            self._clock = weakref.ref(optimizer)
        if not self._is_clock(optimizer):
            return
        self._end_recorded()
        self._steps += 1
        if self._steps >= FIRST and (self._steps - FIRST) % self._every == 0:
            self._begin_recorded()

    def _is_clock(self, optimizer: Any) -> bool:
        return self._clock is not None and self._clock() is optimizer

    def _begin_recorded(self) -> None:
        if self._sender is None:
            self._sender = self._open_sender()
        begin = time.perf_counter_ns()
        self._inputs = []
        self._look_for_roots()
        known = self._known()
        self._window.enter_context(layer_labels(tuple(self._roots)))
        self._recorded = self._window.enter_context(ExactStep(self._steps, known))
        self._cost_ns = time.perf_counter_ns() - begin

    def _end_recorded(self) -> None:
        if self._recorded is None:
            self._looking.close()
            return
        begin = time.perf_counter_ns()
        recorded, self._recorded = self._recorded, None
        self._window.close()
        self._looking.close()
        if recorded.problem:
            self._say_once(f"step {recorded.step} is not recorded: {recorded.problem}")
            return
        known = self._known()
        trace = recorded.trace(known)
        self._inputs = []
        cost_ns = self._cost_ns + time.perf_counter_ns() - begin
        assert self._sender is not None
        self._sender.send(
            AllocationStep(
                self._pid,
                trace.step,
                trace.start_ns,
                trace.end_ns,
                trace.existing,
                trace.names,
                trace.to_columns(),
                cost_ns,
                recorded.dropped,
                self._sender.lost,
            )
        )
        self._send_ranges(known)

    def _send_ranges(self, known: Known) -> None:
        """Where the tensors lie that outlive a step, when that has changed."""
        # A batch that is made anew for every step will soon be something else: what lasts is a data set it is cut from.
        lasting = {ptr: found for ptr, found in known.inputs.items() if self._inputs_before.get(ptr) == found}
        self._inputs_before = dict(known.inputs)
        rows: dict[int, tuple[int, int, str]] = {}
        for category, storages in replace(known, inputs=lasting).by_category():
            for ptr, (size_bytes, layer) in storages.items():
                rows.setdefault(ptr, (size_bytes, category, layer))
        told = tuple((ptr, *found) for ptr, found in sorted(rows.items()))
        if told == self._told or self._sender is None:
            return
        self._told = told
        columns = np.array([row[:3] for row in told], np.int64).reshape(-1, 3).T
        ranges = TensorRanges(self._pid, time.monotonic_ns(), columns, tuple(row[3] for row in told))
        self._sender.send(ranges)

    def _say_once(self, what: str) -> None:
        if not self._said:
            print(f"memtui: process {self._pid}: {what}", file=sys.stderr)
        self._said = True

    def _known(self) -> Known:
        return known_of(tuple(self._roots), tuple(self._optimizers), self._inputs)

    # Which modules are models: those that are called while no other module is.

    def _look_for_roots(self) -> None:
        self._inside = 0
        for handle in (
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ):
            self._looking.callback(handle.remove)

    def _enter(self, module: Any, arguments: tuple[Any, ...]) -> None:
        if self._inside == 0 and os.getpid() == self._pid:
            self._roots.add(module)
            if self._recorded is not None:
                self._inputs += _tensors(arguments)
                self._recorded.note_inputs(known_of((), (), self._inputs))
        self._inside += 1

    def _leave(self, module: Any, arguments: Any, output: Any) -> None:
        self._inside = max(0, self._inside - 1)


def _tensors(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
        elif isinstance(value, dict):
            found += _tensors(value.values())
    return found


def begin() -> None:
    """Trace this process as its environment says. Raises RuntimeError with the reason where that cannot be."""
    if why := torch_private.problem():
        raise RuntimeError(why)
    path, every = Path(os.environ[SOCKET]), int(os.environ[EVERY])
    tracer = Tracer(every, lambda: Sender(path))
    atexit.register(tracer.close)
