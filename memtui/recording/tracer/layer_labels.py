"""Labels in torch's profile that name the layer of an operation, in the forward pass and in backward passes by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from memtui.recording.tracer.tensor_registry import named_modules
from memtui.recording.tracer.torch_private import uncompiled

LAYER_LABEL = "memtui.layer:"
BY_HAND = "memtui.backward:"  # a backward pass that the program computes itself, and the layer it is of


def layer_names(root_modules: Iterable[nn.Module]) -> dict[int, str]:
    """Return the names by identity of the module."""
    return {id(module): name for name, module in named_modules(root_modules)}


@contextmanager
def layer_labels(root_modules: Iterable[nn.Module]) -> Iterator[None]:
    """Label the operations of each module's forward pass with its name, for the profiler.

    To be in force only while an exact step is recorded; afterwards the modules are as before.
    """
    local = threading.local()

    def push(name: str, module: nn.Module, args: object) -> None:
        label: Any = torch.profiler.record_function(LAYER_LABEL + name)
        label.__enter__()
        if not hasattr(local, "open"):
            local.open = []
        local.open.append((module, label))

    def pop(module: nn.Module, args: object, output: object) -> None:
        labels = getattr(local, "open", [])
        if not any(holder is module for holder, _ in labels):
            return
        # Forward passes inside that ended with an exception leave their labels to the one around them.
        while True:
            holder, label = labels.pop()
            label.__exit__(None, None, None)
            if holder is module:
                return

    entered, left = uncompiled(push), uncompiled(pop)
    with ExitStack() as stack:
        for name, module in named_modules(root_modules):
            stack.callback(module.register_forward_pre_hook(partial(entered, name), prepend=True).remove)
            stack.callback(module.register_forward_hook(left, always_call=True).remove)
        try:
            yield
        finally:
            for _, label in reversed(getattr(local, "open", [])):
                label.__exit__(None, None, None)


class HandLabels:
    """Labels backward passes by hand with the name of their module, for the profiler."""

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        self.names = names or {}
        """Names of modules by identity; other modules are named by their class."""
        self._open: list[Any] = []

    @property
    def inside(self) -> bool:
        """Whether a backward pass by hand has not ended."""
        return bool(self._open)

    def enter_backward(self, module: nn.Module) -> None:
        """Label a backward pass that begins."""
        label: Any = torch.profiler.record_function(BY_HAND + self.names.get(id(module), type(module).__name__))
        label.__enter__()
        self._open.append(label)

    def leave_backward(self, module: nn.Module) -> None:
        """End the backward pass that began last."""
        self._open.pop().__exit__(None, None, None)
