"""A network taken apart, as plain data: its operators, and what of it is not an operator here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from memtui.bench.configuration import Configuration, make
from memtui.bench.operators import NETWORK
from memtui.bench.operators.base import Parameters, Value
from memtui.core.json_fields import to_json
from memtui.core.units import percent


@dataclass(frozen=True, slots=True)
class OperatorCalls:
    """One operator with its parameters, and the number of its calls in a pass.

    Attributes:
        op: name of the operator.
        parameters: those that differ from the usual ones, or all.
        calls: number of its calls.
    """

    op: str
    parameters: dict[str, Value]
    calls: int


@dataclass(frozen=True, slots=True)
class NotCovered:
    """Calls that are not an operator here.

    Attributes:
        function: what is called, as PyTorch names it.
        module: kind of the module that calls it.
        reason: why it is not an operator.
        calls: number of calls.
        time_share: share of the time of the pass that was watched.
    """

    function: str
    module: str
    reason: str
    calls: int
    time_share: float


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A network as the operators of one pass.

    Attributes:
        name: the network.
        n: images of a library's network.
        size: their height and width; 0: the network's own.
        shapes: of the tensors that go in.
        numbers: elements of inputs and outputs.
        parameters: number of its parameters.
        operators: in the order of their first calls.
        not_covered: what is in no operator, the longest first.
        leaf_modules: modules that call no other module.
        leaf_modules_covered: those whose calls are all operators, or move and compute nothing.
        time_share: share of the time in operators, in the pass that was watched.
    """

    name: str
    n: int
    size: int
    shapes: tuple[str, ...]
    numbers: int
    parameters: int
    operators: tuple[OperatorCalls, ...]
    not_covered: tuple[NotCovered, ...]
    leaf_modules: int
    leaf_modules_covered: int
    time_share: float

    def counts(self, usual: Parameters) -> dict[Configuration, int]:
        """Return the operators under the usual conditions with the number of their calls. Raises ValueError."""
        counts: dict[Configuration, int] = {}
        for each in self.operators:
            configuration = make(each.op, {**usual, **each.parameters})
            counts[configuration] = counts.get(configuration, 0) + each.calls
        return counts

    def network(self, usual: Parameters, counts: Mapping[Configuration, int]) -> Configuration:
        """Return the whole network as one configuration. Raises ValueError."""
        facts = {"numbers": self.numbers, "parameters": self.parameters, "operations": flops(counts)}
        return make(NETWORK.name, {**usual, "name": self.name, "n": self.n, "size": self.size, **facts})

    def coverage(self) -> dict[str, Any]:
        """Return a JSON-ready object about what is covered."""
        return {
            "leaf_modules": self.leaf_modules,
            "leaf_modules_covered": self.leaf_modules_covered,
            "time_share": self.time_share,
            "not_covered": to_json(self.not_covered),
        }

    def lines(self) -> list[str]:
        """Return the lines for people about what is covered."""
        text = [
            f"operators cover {self.leaf_modules_covered} of {self.leaf_modules} leaf modules and "
            f"{percent(self.time_share)} of the time of a pass"
        ]
        for each in self.not_covered:
            share = f"{percent(each.time_share)} of the time"
            text.append(f"  not covered: {each.function} in {each.module} ({each.calls} calls, {share}): {each.reason}")
        return text


def flops(counts: Mapping[Configuration, int]) -> int:
    """Return the operations of a pass that are multiplications and additions, as networks are commonly counted."""
    return sum(c.flops * calls for c, calls in counts.items() if c.op in MULTIPLYING)


# Operators of products of matrices: others are not counted in the operations of a network.
MULTIPLYING = (
    *("conv2d", "conv1d", "conv3d", "convtranspose2d", "linear", "matmul", "bmm"),
    *("sdpa", "mha", "encoderlayer", "lstm", "gru", "rnn"),
)


def shape_text(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape)) or "1"
