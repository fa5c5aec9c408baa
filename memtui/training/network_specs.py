"""Networks as lists of layers, the shapes that go through them, and the validation of a list. Without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memtui.core.errors import UserError
from memtui.core.text import nearest

Shape = tuple[int, ...]  # of one example: (features,) or (channels, height, width)
LayerSpec = dict[str, Any]  # {"layer": name, parameter: value, ...} with every parameter
_NEEDED = object()

# Parameters in the order in which a call may give them, and their defaults. Names are those of ZPP-MEM.
LAYERS: dict[str, dict[str, Any]] = {
    "FullyConnected": {"units": _NEEDED, "flatten": False, "add_biases": True},
    "Convolutional": {
        "filter_dim": _NEEDED,
        "num_of_filters": _NEEDED,
        "strides": (1, 1),
        "padding": "SAME",
        "add_biases": False,
    },
    "MaxPool": {"kernel_size": _NEEDED, "strides": None, "padding": "SAME"},
    "AveragePool": {"kernel_size": None, "strides": None, "padding": "SAME"},
    "BatchNormalization": {"momentum": 0.9, "epsilon": 1e-3},
    "Sigmoid": {},
    "Tanh": {},
    "ReLu": {},
    "LeakyReLu": {"slope": 0.2},
    "Softmax": {},
    "Block": {"head": _NEEDED, "tail": ()},
    "Residual": {"layers": _NEEDED},
}
ALSO_CALLED = {"ConvolutionalLayer": "Convolutional", "ResidualLayer": "Residual"}
WEIGHTS = ("FullyConnected", "Convolutional")  # have a matrix, and feedback of their own
_WINDOWED = ("Convolutional", "MaxPool", "AveragePool")  # move a window over an image
OUTPUTS = "outputs"  # as ``units``: as many as there are classes
_MOST_LAYERS = 10_000
_MOST_UNITS = 1 << 24


def _fc(units: int | str, flatten: bool = False) -> LayerSpec:
    return {"layer": "FullyConnected", "units": units, "flatten": flatten}


def _conv(size: int, filters: int, stride: int = 1, padding: str = "SAME") -> LayerSpec:
    dims = {"filter_dim": (size, size), "strides": (stride, stride), "padding": padding}
    return {"layer": "Convolutional", "num_of_filters": filters, **dims}


def _pool(kind: str, size: int, stride: int, padding: str = "SAME") -> LayerSpec:
    return {"layer": f"{kind}Pool", "kernel_size": (size, size), "strides": (stride, stride), "padding": padding}


_RELU, _SIGMOID, _BN = {"layer": "ReLu"}, {"layer": "Sigmoid"}, {"layer": "BatchNormalization"}


def _long(count: int, between: Sequence[LayerSpec], layer: Callable[[bool], LayerSpec]) -> list[LayerSpec]:
    return [part for n in range(count) for part in (layer(n == 0), *between)]


def _liao_mnist(norm: Sequence[LayerSpec]) -> list[LayerSpec]:
    first = [_conv(5, 20, padding="VALID"), _pool("Max", 2, 2, "VALID"), _RELU, *norm]
    second = [_conv(5, 50, padding="VALID"), _pool("Max", 2, 2, "VALID"), _RELU, *norm]
    return [*first, *second, _fc(500, True), _RELU, *norm, _fc(OUTPUTS)]


def _liao_cifar(norm: Sequence[LayerSpec]) -> list[LayerSpec]:
    """Return the network; without normalisation there is no ReLU behind the second pool."""
    first = [_conv(5, 32), _pool("Max", 3, 2), _RELU, *norm]
    second = [_conv(5, 64), _pool("Average", 3, 2), *((_RELU, *norm) if norm else ())]
    third = [_conv(5, 64), _pool("Average", 3, 2), _RELU, *norm]
    return [*first, *second, *third, _fc(128, True), _RELU, *norm, _fc(OUTPUTS)]


def _vgg_16() -> list[LayerSpec]:
    layers: list[LayerSpec] = []
    for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        layers += [part for _ in range(count) for part in (_conv(3, filters), _RELU)]
        layers.append(_pool("Max", 2, 2))
    return [*layers, _fc(4096, True), _RELU, _fc(4096), _RELU, _fc(OUTPUTS)]


def _resnet(counts: Sequence[int], bottleneck: bool) -> list[LayerSpec]:
    """Return the network of He et al. 2015, with the 3x3 convolution for images of 32x32 first."""
    layers: list[LayerSpec] = [_conv(3, 64), _BN, _RELU]
    for stage, count in enumerate(counts):
        filters = 64 << stage
        for n in range(count):
            stride = 2 if stage and not n else 1
            if bottleneck:
                inside = [_conv(1, filters), _BN, _RELU, _conv(3, filters, stride), _BN, _RELU]
                inside += [_conv(1, 4 * filters), _BN]
            else:
                inside = [_conv(3, filters, stride), _BN, _RELU, _conv(3, filters), _BN]
            layers += [{"layer": "Residual", "layers": inside}, _RELU]
    return [*layers, {"layer": "AveragePool"}, _fc(OUTPUTS, True)]


_VECTOR, _DIGIT, _PHOTO = (64,), (1, 28, 28), (3, 32, 32)
# Name -> (layers, the shape of data that is generated for it).
SEQUENCES: dict[str, tuple[list[LayerSpec], Shape]] = {
    "fcReLu": ([_fc(100, True), _RELU, _fc(30), _RELU, _fc(OUTPUTS)], _VECTOR),
    "fcSigmoid": ([_fc(50, True), _SIGMOID, _fc(30), _SIGMOID, _fc(OUTPUTS), _SIGMOID], _VECTOR),
    "long_fc": ([*_long(30, (_BN, _SIGMOID), lambda first: _fc(500, first)), _fc(OUTPUTS), _SIGMOID], _VECTOR),
    "long_fc2": ([*_long(20, (_SIGMOID,), lambda first: _fc(500, first)), _fc(OUTPUTS), _SIGMOID], _VECTOR),
    "long_conv": ([*_long(30, (_BN, _SIGMOID), lambda _: _conv(5, 5)), _fc(OUTPUTS, True), _SIGMOID], _DIGIT),
    "liao_mnist": (_liao_mnist(()), _DIGIT),
    "liao_mnist_bn": (_liao_mnist((_BN,)), _DIGIT),
    "liao_cifar": (_liao_cifar(()), _PHOTO),
    "liao_cifar_bn": (_liao_cifar((_BN,)), _PHOTO),
    "vgg_16": (_vgg_16(), _PHOTO),
    "resnet_18": (_resnet((2, 2, 2, 2), False), _PHOTO),
    "resnet_34": (_resnet((3, 4, 6, 3), False), _PHOTO),
    "resnet_50": (_resnet((3, 4, 6, 3), True), _PHOTO),
    "resnet_101": (_resnet((3, 4, 23, 3), True), _PHOTO),
    "resnet_152": (_resnet((3, 8, 36, 3), True), _PHOTO),
}


def layers_of(sequence: str | Sequence[Mapping[str, Any]], outputs: int) -> list[LayerSpec]:
    """Return the layers of a network, complete and validated.

    Args:
        sequence: a name of ``SEQUENCES``, or layers that are written out.
        outputs: number of classes.

    Raises:
        UserError: an unknown name, layer or parameter (with the nearest known name), an invalid value.
    """
    if isinstance(sequence, str):
        if sequence not in SEQUENCES:
            raise UserError(f"there is no sequence {sequence}; {nearest(sequence, SEQUENCES)}")
        sequence = SEQUENCES[sequence][0]
    layers = [_whole(layer, outputs, str(n)) for n, layer in enumerate(sequence)]
    if not any(map(has_weights, layers)):
        raise UserError("the sequence has no layer with weights (FullyConnected, Convolutional)")
    return layers


def has_weights(layer: LayerSpec) -> bool:
    """Whether a layer, or a layer inside of it, has a matrix of weights."""
    inside = layer.get("layers", ()) or [part for part in (layer.get("head"),) if part]
    return layer["layer"] in WEIGHTS or any(map(has_weights, inside))


def data_shape(sequence: str | Sequence[Mapping[str, Any]]) -> Shape:
    """Return the shape of the examples that are generated for a network."""
    if isinstance(sequence, str) and sequence in SEQUENCES:
        return SEQUENCES[sequence][1]
    first = sequence[0] if sequence and not isinstance(sequence, str) else {}
    return _VECTOR if first.get("layer") == "FullyConnected" else _PHOTO


def _whole(given: object, outputs: int, where: str) -> LayerSpec:
    """Return one layer with all its parameters, each converted to its type. Raises UserError."""
    if not isinstance(given, Mapping) or not isinstance(given.get("layer"), str):
        raise UserError(f"layer {where} is not a table with a layer in it: {{layer = 'ReLu'}}")
    name: str = ALSO_CALLED.get(given["layer"]) or given["layer"]
    if name not in LAYERS:
        raise UserError(f"layer {where}: there is no layer {name}; {nearest(name, LAYERS)}")
    parameters = LAYERS[name]
    for key in given:
        if key != "layer" and key not in parameters:
            raise UserError(f"layer {where}: {name} has no parameter {key}; {nearest(key, parameters or ('none',))}")
    layer: LayerSpec = {"layer": name}
    for key, default in parameters.items():
        value = given.get(key, default)
        if value is _NEEDED:
            raise UserError(f"layer {where}: {name} needs {key}")
        try:
            layer[key] = _CHECKS[key](value, outputs, f"{where}.{key}")
        except (ValueError, TypeError):
            raise UserError(f"layer {where}: {key} of {name} cannot be {value!r}") from None
    return layer


def _units(value: Any, outputs: int, _: str) -> int:
    return outputs if value == OUTPUTS else _count(value, outputs, "")


def _count(value: Any, *_: Any) -> int:
    if type(value) is not int or not 1 <= value <= _MOST_UNITS:
        raise ValueError
    return value


def _flag(value: Any, *_: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _number(value: Any, *_: Any) -> float:
    if isinstance(value, bool) or not 0 <= float(value) < 1:
        raise ValueError
    return float(value)


def _pair(value: Any, *_: Any) -> tuple[int, int]:
    """Return (height, width); one number is both. Of four numbers, as in TensorFlow's strides, the middle two count."""
    parts = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
    parts = parts[1:3] if len(parts) == 4 else parts
    if len(parts) != 2:
        raise ValueError
    return _count(parts[0]), _count(parts[1])


def _maybe_pair(value: Any, *_: Any) -> tuple[int, int] | None:
    return None if value is None else _pair(value)


def _padding(value: Any, *_: Any) -> str:
    if value not in ("SAME", "VALID"):
        raise ValueError
    return str(value)


def _layers(value: Any, outputs: int, where: str) -> list[LayerSpec]:
    if not isinstance(value, (list, tuple)) or len(value) > _MOST_LAYERS:
        raise ValueError
    return [_whole(layer, outputs, f"{where}[{n}]") for n, layer in enumerate(value)]


def _head(value: Any, outputs: int, where: str) -> LayerSpec:
    layer = _whole(value, outputs, where)
    if layer["layer"] not in WEIGHTS:
        raise ValueError
    return layer


_CHECKS: dict[str, Callable[[Any, int, str], Any]] = {
    "units": _units,
    "flatten": _flag,
    "add_biases": _flag,
    "filter_dim": _pair,
    "num_of_filters": _count,
    "strides": _maybe_pair,
    "padding": _padding,
    "kernel_size": _maybe_pair,
    "momentum": _number,
    "epsilon": _number,
    "slope": _number,
    "head": _head,
    "tail": _layers,
    "layers": _layers,
}


def shape_after(layer: LayerSpec, shape: Shape, where: str = "") -> Shape:
    """Return the output shape of a layer for an input shape. Raises UserError where the layer cannot take the input."""
    name = layer["layer"]
    title = f"layer {where} ({name})"
    if name == "FullyConnected":
        if len(shape) > 1 and not layer["flatten"]:
            raise UserError(f"{title} gets {_shape_text(shape)}: flatten=true makes a vector of it")
        return (layer["units"],)
    if name == "Block":
        return _shape_after_all((layer["head"], *layer["tail"]), shape, where)
    if name == "Residual":
        after = _shape_after_all(layer["layers"], shape, where)
        if after != shape and len(after) != 3:
            raise UserError(f"{title} makes {_shape_text(after)} of {_shape_text(shape)}: there is no sum of both")
        return after
    return _shape_after_window(layer, shape, title) if name in _WINDOWED else shape


def _shape_after_all(layers: Sequence[LayerSpec], shape: Shape, where: str) -> Shape:
    """Return the output shape of a chain of layers inside of another layer. Raises UserError."""
    for n, layer in enumerate(layers):
        shape = shape_after(layer, shape, f"{where}.{n}")
    return shape


def _shape_after_window(layer: LayerSpec, shape: Shape, title: str) -> Shape:
    """Return the output shape of a convolution or a pool. Raises UserError, whose message begins with ``title``."""
    if len(shape) != 3:
        raise UserError(f"{title} needs channels, height and width, and gets {_shape_text(shape)}")
    window = layer.get("filter_dim") or layer.get("kernel_size")
    if window is None:
        return (shape[0], 1, 1)
    strides = layer["strides"] or window
    if layer["padding"] == "SAME":
        size = tuple(-(-n // s) for n, s in zip(shape[1:], strides, strict=True))
    else:
        size = tuple((n - w) // s + 1 for n, w, s in zip(shape[1:], window, strides, strict=True))
    if min(size) < 1:
        raise UserError(f"{title}: a window of {window[0]}x{window[1]} does not fit into {_shape_text(shape)}")
    return (layer.get("num_of_filters", shape[0]), *size)


def check_shapes(layers: Sequence[LayerSpec], shape: Shape, outputs: int) -> None:
    """Raise UserError unless the layers accept examples of a shape and return one number for each class."""
    for n, layer in enumerate(layers):
        shape = shape_after(layer, shape, str(n))
    if shape != (outputs,):
        raise UserError(f"the sequence ends with {_shape_text(shape)}, and there are {outputs} classes")


def _shape_text(shape: Shape) -> str:
    return "x".join(map(str, shape)) if len(shape) > 1 else f"a vector of {shape[0]}"
