"""Recurrent layers, in one piece, as PyTorch's kernels take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor


class _Recurrent(Operator):
    defaults: ClassVar[Parameters] = {
        "b": 8, "s": 64, "in": 256, "hidden": 256, "layers": 1, "bidirectional": False, "bias": True,
    }  # fmt: skip
    gates: ClassVar[int]  # matrices in one

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["b"], p["s"], p["in"])),)

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        """Return for each layer and direction the weights of the input and of the state, and the biases of both."""
        rows, some = self.gates * p["hidden"], []
        for width in self._widths(p):
            matrices = Tensor((rows, width)), Tensor((rows, p["hidden"]))
            some += [*matrices, *((Tensor((rows,)),) * 2 if p["bias"] else ())] * self._directions(p)
        return tuple(some)

    def _directions(self, p: Any) -> int:
        return 2 if p["bidirectional"] else 1

    def _widths(self, p: Any) -> list[int]:
        """Return the numbers that each layer reads of a token."""
        return [p["in"], *[self._directions(p) * p["hidden"]] * (p["layers"] - 1)]

    def output(self, p: Any) -> Shape:
        return p["b"], p["s"], self._directions(p) * p["hidden"]

    def flops(self, p: Any) -> int:
        """Count the products of inputs and of states with the matrices of all gates."""
        by_token = sum(2 * self.gates * p["hidden"] * (width + p["hidden"]) for width in self._widths(p))
        return p["b"] * p["s"] * self._directions(p) * by_token

    def function(self, torch: Any, p: Any) -> Any:
        return getattr(torch, self.name)

    def states(self, zeros: Any) -> Any:
        return zeros

    def bind(self, torch: Any, p: Any) -> Call:
        function, states = self.function(torch, p), self.states
        bias, layers, both = p["bias"], p["layers"], p["bidirectional"]
        shape = layers * self._directions(p), p["b"], p["hidden"]
        return lambda x, w: function(
            x[0], states(x[0].new_zeros(shape)), w, bias, layers, 0.0, torch.is_grad_enabled(), both, True
        )[0]


class Lstm(_Recurrent):
    name = "lstm"
    summary = "long short-term memory over s tokens of b sequences"
    gates = 4

    def states(self, zeros: Any) -> Any:
        return zeros, zeros


class Gru(_Recurrent):
    name = "gru"
    summary = "gated recurrent units over s tokens of b sequences"
    gates = 3


class Rnn(_Recurrent):
    name = "rnn"
    summary = "a plain recurrent layer over s tokens of b sequences"
    defaults: ClassVar[Parameters] = {**_Recurrent.defaults, "nonlinearity": "tanh"}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"nonlinearity": ("tanh", "relu")}
    gates = 1

    def function(self, torch: Any, p: Any) -> Any:
        return torch.rnn_tanh if p["nonlinearity"] == "tanh" else torch.rnn_relu
