"""Names of layers and operators that a stranger may read: those of PyTorch itself, and labels for all others."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.tensor_pages import TensorMap
from memtui.core.call_stacks import Frame
from memtui.formats.mxnet_tags import split_tag

_OWN = ("aten::", "autograd::", "torch::", "prims::", "c10d::", "memtui.")
_OWN_FUNCTION = re.compile(
    r"(?:at|aten|autograd|c10|c10d|torch)::[\w:~]+", re.ASCII
)  # in C++, without what it is given
_PARTS = frozenset((
    *("weight", "bias", "running_mean", "running_var", "num_batches_tracked", "in_proj_weight", "in_proj_bias"),
    *("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "sum"),
))  # fmt: skip
_STEP, _ZERO_GRAD = "Optimizer.step", "Optimizer.zero_grad"


class ModelNames:
    """Gives the same name the same label."""

    def __init__(self) -> None:
        self._labels: dict[str, dict[str, str]] = {
            kind: {} for kind in ("layer", "operator", "part", "function", "source")
        }

    def layer(self, name: str) -> str:
        """Return the label of a layer."""
        return self._label("layer", name) if name else ""

    def op(self, path: str) -> str:
        """Return an operator with those around it; the class of an optimiser may be the user's."""
        return "/".join(self._op(part) for part in path.split("/")) if path else ""

    def _op(self, name: str) -> str:
        for method in (_STEP, _ZERO_GRAD):
            if name.startswith(f"{method}#"):
                return method
        if name.startswith(_OWN):
            return name
        kind, tagged = split_tag(name)
        return kind + self._label("operator", tagged) if tagged else kind

    def _label(self, kind: str, name: str) -> str:
        labels = self._labels[kind]
        return labels.setdefault(name, f"{kind}-{len(labels) + 1}")

    def raw_tag(self, raw: str) -> str:
        """Return a tag as an MXNet analysis has it, with its brackets."""
        return f"({self._op(raw.strip().removeprefix('(').removesuffix('.').removesuffix(')'))}).\n"

    def in_step(self, trace: StepTrace) -> StepTrace:
        """Return the step with such names; a name that is of a layer and of an operator becomes two."""
        ops, layers = {*trace.op.tolist()}, {*trace.layer.tolist()}
        names = [self.op(name) if index in ops else "" for index, name in enumerate(trace.names)]
        names += [self.layer(name) if index in layers else "" for index, name in enumerate(trace.names)]
        layer = np.where(trace.layer < 0, -1, trace.layer + len(trace.names))
        return replace(trace, layer=layer, names=tuple(names))

    def in_frame(self, frame: Frame) -> dict[str, Any]:
        """Return a call's function and file as such names, and no line."""
        own = _OWN_FUNCTION.match(frame.function)
        return {
            "function": own[0] if own else frame.function and self._label("function", frame.function),
            "file": frame.file and self._label("source", frame.file),
            "line": 0,
        }

    def in_map(self, tensors: TensorMap) -> TensorMap:
        """Return the map with labels of layers, and of parts that are not PyTorch's own."""
        layers, parts = tuple(map(self.layer, tensors.names)), tuple(map(self._part, tensors.parts))
        return replace(tensors, names=layers, parts=parts)

    def _part(self, part: str) -> str:
        return " ".join(word if word in _PARTS else self._label("part", word) for word in part.split())
