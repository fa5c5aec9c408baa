"""Whole networks, called as one operator, for comparison with the sum of their operators."""

from __future__ import annotations

from typing import Any, ClassVar

from memtui.bench.decomposition.loading import NoNetwork, load
from memtui.bench.operators import resnet50
from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor
from memtui.bench.operators.convolution import Conv2d
from memtui.bench.operators.dense import Linear
from memtui.core import networks as published

PARAMETERS = 25_557_032


class ResNet50(Operator):
    """The bundled network, whose operators are known without running it."""

    name = "resnet50"
    summary = "a whole ResNet-50, with weights of its own; bench resnet50 holds it against its parts"
    defaults: ClassVar[Parameters] = {"n": 1, "size": 224}
    trains = False

    def check(self, p: Any) -> None:
        if p["size"] < 32:
            raise ValueError("size is at least 32")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["n"], 3, p["size"], p["size"])),)

    def output(self, p: Any) -> Shape:
        return p["n"], published.CLASSES

    def flops(self, p: Any) -> int:
        """Count its convolutions and its linear layer, as networks are commonly counted."""
        counted: dict[str, Operator] = {operator.name: operator for operator in (Conv2d(), Linear())}
        calls = [(counted[op], given) for op, given in resnet50.calls(p["n"], p["size"]) if op in counted]
        return sum(operator.flops(operator.resolve(given)) for operator, given in calls)

    def weight_count(self, p: Any) -> int:
        return PARAMETERS

    def moved_bytes(self, p: Any, item_bytes: int) -> int:
        """Count images, scores and parameters, without the tensors between layers."""
        return super().moved_bytes(p, item_bytes) + PARAMETERS * item_bytes

    def bind(self, torch: Any, p: Any) -> Call:
        networks: list[Any] = []  # created on the first call, for the device and type of its input

        def call(x: tuple[Any, ...], w: tuple[Any, ...]) -> Any:
            if not networks:
                networks.append(published.resnet50(torch).eval().to(x[0].device, x[0].dtype))
            return networks[0](x[0])

        return call


class Network(Operator):
    """A network of the user's or of a library, which brings its own input. Its numbers are those of its operators.

    Its parameters are its name, the input of a library's network, and what was found when it was taken apart: another
    network of the same name is another configuration.
    """

    name = "network"
    summary = "a whole network: bench FILE.py:function, bench torchvision:resnet18"
    defaults: ClassVar[Parameters] = {"name": "", "n": 1, "size": 0, "numbers": 1, "parameters": 0, "operations": 0}
    trains = False
    may_be_zero = ("size", "parameters", "operations")
    texts = ("name",)
    later = ("n", "size")
    unlabelled = ("numbers", "parameters", "operations")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        """Return one number, for its device and type; the network brings its own input, the same for all calls."""
        return (Tensor((1,)),)

    def output(self, p: Any) -> Shape:
        """Return the elements of its inputs and outputs."""
        return (p["numbers"],)

    def flops(self, p: Any) -> int:
        return int(p["operations"])

    def weight_count(self, p: Any) -> int:
        return int(p["parameters"])

    def moved_bytes(self, p: Any, item_bytes: int) -> int:
        """Count inputs, outputs and parameters, without the tensors between layers."""
        return int(p["numbers"] + p["parameters"]) * item_bytes

    def bind(self, torch: Any, p: Any) -> Call:
        loaded: list[Any] = []  # on the first call, for the device and type of its input

        def call(x: tuple[Any, ...], w: tuple[Any, ...]) -> Any:
            if not loaded:
                try:
                    loaded.append(load(torch, p["name"], p["n"], p["size"], x[0].device, x[0].dtype))
                except NoNetwork as error:
                    raise RuntimeError(str(error)) from error
            return loaded[0]()

        return call
