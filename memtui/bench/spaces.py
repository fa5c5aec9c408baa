"""Sets of configurations: bundled grids, and random convolutions over the range of their use.

A grid has few values of each parameter, and a model could learn only its lines, so a model is fitted to random
configurations. The same seed gives the same configurations everywhere, so that machines can share them and databases
can be compared.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence

from memtui.bench.configuration import Configuration, make, product, unique
from memtui.bench.operators import CATALOGUE, resnet50
from memtui.bench.operators.base import Parameters, Value
from memtui.core import options

Grid = dict[str, Sequence[Value]]
# A moderate set for each operator: about a minute each.
_SMALL: dict[str, list[Grid]] = {
    "conv2d": [
        {"n": [1, 8], "cin": [64], "cout": [64, 128], "h": [28, 56], "k": [1, 3]},
        {"n": [1, 8], "cin": [256], "cout": [256], "h": [14], "k": [1, 3]},
        {"n": [8], "cin": [64], "cout": [64], "h": [56], "k": [3], "groups": ["depthwise"]},
        {"n": [8], "cin": [3], "cout": [64], "h": [112], "k": [7], "s": [2]},
        {"n": [8], "cin": [128], "cout": [128], "h": [28], "k": [3, 5], "s": [2]},
    ],
    "linear": [{"m": [1, 16, 256], "in": [512, 1024, 4096], "out": [1024]}],
    "matmul": [{"m": [128, 512, 1024], "n": [512], "k": [128, 512]}],
    "bmm": [{"b": [4, 32], "m": [64, 256], "n": [64], "k": [64]}],
    "sdpa": [{"b": [1, 4], "s": [128, 512], "d": [64], "causal": [False, True]}],
    "layernorm": [{"rows": [1024, 8192], "dim": [512, 2048]}],
    "batchnorm": [{"n": [8], "c": [64, 256], "h": [14, 56], "train": [False, True]}],
    "softmax": [{"rows": [512, 4096], "cols": [128, 4096]}],
    "embedding": [{"vocab": [1000, 32000], "dim": [64, 512], "tokens": [4096]}],
    "cross_entropy": [{"rows": [64, 1024], "classes": [1000, 32000]}],
    "maxpool": [{"n": [8], "c": [64], "h": [28, 112], "k": [2, 3], "p": [0, 1]}],
    "avgpool": [{"n": [8], "c": [64], "h": [28, 112], "k": [2, 3], "p": [0, 1]}],
    "adaptiveavgpool": [{"n": [1, 32], "c": [512, 2048], "h": [7]}],
    "resnet50": [{"n": [1, 4], "size": [64, 224]}],
    "conv1d": [{"n": [8], "cin": [64, 256], "cout": [64, 256], "l": [256, 1024], "k": [3]}],
    "conv3d": [{"n": [1], "cin": [16, 64], "cout": [64], "t": [4, 8], "h": [14, 28], "k": [1, 3]}],
    "convtranspose2d": [{"n": [1, 8], "cin": [64], "cout": [32, 64], "h": [14, 28], "k": [4]}],
    "mha": [{"b": [1, 4], "s": [64, 197], "dim": [384, 768]}],
    "encoderlayer": [{"b": [1, 4], "s": [64, 128], "dim": [256, 512]}],
    **{
        name: [{"b": [1, 16], "s": [16, 64], "in": [128], "hidden": [128, 256], "bidirectional": [False, True]}]
        for name in ("lstm", "gru", "rnn")
    },
    "rmsnorm": [{"rows": [1024, 8192], "dim": [512, 2048]}],
    "groupnorm": [{"n": [1, 8], "c": [64, 256], "h": [14, 56], "groups": [8, 32]}],
    "logsoftmax": [{"rows": [512, 4096], "cols": [128, 4096]}],
    "embedding_bag": [{"dim": [16, 64], "bags": [64, 1024], "bag": [8, 64], "reduce": ["sum", "max"]}],
    "upsample": [{"n": [1, 8], "c": [64], "h": [28], "out": [56, 112], "how": ["nearest", "bilinear", "bicubic"]}],
    "unary": [{"function": ["scale", "exp", "sqrt"], "elements": [1 << 16, 1 << 20]}],
    "binary": [{"function": ["add", "mul"], "a": [1, 8], "b": [64, 512], "c": [196, 3136]}],
    "addcmul": [{"a": [1, 8], "b": [64, 512], "c": [196, 3136]}],
    "outer": [{"a": [64, 1024], "b": [49], "c": [49, 196]}],
    "reduce": [{"function": ["mean", "amax"], "outer": [64, 2048], "reduced": [49, 3136], "inner": [1, 8]}],
    "copy": [{"b": [1, 8], "m": [1, 64], "n": [784, 3136], "run": [1, 32]}],
    "permute": [{"shape": ["8x64x8x7x8x7", "8x32x4x7x4x7", "1x64x8x7x8x7"]}],
    "cat": [{"outer": [1, 8], "inner": [50176, 200704], "parts": [2, 8]}],
    "roll": [{"n": [1, 8], "h": [28, 56], "c": [96]}],
    "pad": [{"outer": [64, 512], "rows": [28, 56], "cols": [56], "more_rows": [0, 2]}],
}
_POINTWISE: list[Grid] = [{"elements": [1 << 16, 1 << 20, 1 << 23]}]
# The shapes of ResNet, 32 images at a time, as in the thesis.
_THESIS: dict[str, list[Grid]] = {
    "conv2d": [
        {
            "n": [32],
            "cin": [64, 128, 256, 512],
            "cout": [64, 128, 256, 512],
            "h": [7, 14, 28, 56],
            "k": [1, 3],
            "s": [1, 2],
        }
    ],
    "linear": [{"m": [32], "in": [512, 1024, 2048], "out": [1000, 2048]}],
    "batchnorm": [{"n": [32], "c": [64, 128, 256, 512], "h": [7, 14, 28, 56]}],
    "maxpool": [{"n": [32], "c": [64], "h": [56, 112]}],
    "adaptiveavgpool": [{"n": [32], "c": [512, 2048], "h": [7]}],
    **{
        name: [{"elements": [32 * 64 * h * h for h in (14, 28, 56, 112)]}]
        for name in ("relu", "gelu", "silu", "sigmoid")
    },
    "layernorm": [{"rows": [32 * 197], "dim": [384, 768, 1024]}],
}
_ZEROS: Grid = {"input_zeros": [0, 50, 90], "weight_zeros": [0, 50, 90], "zeros": ["random", "channels"]}
_SPARSE: dict[str, Grid] = {
    "conv2d": {"n": [8], "cin": [128], "cout": [128], "h": [28], "k": [3]},
    "linear": {"m": [256], "in": [2048], "out": [2048]},
}


def _small(op: str, usual: Parameters) -> list[Configuration]:
    return _every(op, _SMALL.get(op, _POINTWISE), usual)


def _thesis(op: str, usual: Parameters) -> list[Configuration]:
    return _every(op, _THESIS.get(op, []), usual)


def _sparsity(op: str, usual: Parameters) -> list[Configuration]:
    if op in _SPARSE:
        half: Grid = {"weight_zeros": [50], "zeros": ["2:4"]}
        configurations = _every(op, [{**_SPARSE[op], **_ZEROS}, {**_SPARSE[op], **half}], usual)
        # Without zeros the pattern has no effect: one row of these is enough.
        without_zeros = {"input_zeros": 0, "weight_zeros": 0, "zeros": "channels"}
        return [c for c in configurations if not without_zeros.items() <= c.conditions.items()]
    if op == "matmul":
        return _every(op, [{"m": [1024], "n": [1024], "k": [1024], "input_zeros": [0, 50, 90]}], usual)
    return []


def _resnet50(op: str, usual: Parameters) -> list[Configuration]:
    return [c for c in resnet50_counts(usual=usual) if c.op == op]


def _predict(op: str, usual: Parameters) -> list[Configuration]:
    return conv2d(usual) if op == "conv2d" else []


def _every(op: str, grids: list[Grid], usual: Parameters) -> list[Configuration]:
    return unique(c for grid in grids for c in product(op, grid, usual))


# The names are those of ``options``, which the command line reads without loading any operator.
SPACES: dict[str, Callable[[str, Parameters], list[Configuration]]] = dict(
    zip(options.SPACES, (_small, _resnet50, _thesis, _sparsity, _predict), strict=True)
)


def resnet50_counts(n: int = 1, size: int = 224, usual: Parameters | None = None) -> dict[Configuration, int]:
    """Return the operators of ResNet-50, and how often a forward pass calls each.

    Insertion order is that of first calls.
    """
    return Counter(make(op, {**(usual or {}), **parameters}) for op, parameters in resnet50.calls(n, size))


def in_space(space: str, op: str, usual: Parameters) -> list[Configuration]:
    """Return the configurations of an operator in a space.

    Raises:
        ValueError: the space has no configuration of that operator, or none is valid under the usual conditions.
    """
    configurations = SPACES[space](op, usual)
    if not configurations:
        having = [name for name in CATALOGUE if SPACES[space](name, {})]
        raise ValueError(f"the space {space} has no {op}; it has {', '.join(having)}")
    return configurations


SEED = 0
OF_A_KIND = 10  # configurations of each kernel, stride and grouping: chance alone would leave some out
KERNELS, STRIDES, GROUPINGS = (1, 3, 5, 7), (1, 2), ("dense", "grouped", "depthwise")
BATCHES = (1, 2, 4, 8, 16, 32)
CHANNELS = (3, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
SIDES = (7, 8, 14, 16, 20, 28, 32, 40, 56, 64, 80, 112, 128, 160, 224)
GROUPS = (2, 4, 8)
# One call on one thread of a CPU stays below 100 ms: a dense convolution makes 10 to 50 GFLOP/s there, one in groups as
# few as 2, one with a group a channel a part of one.
MOST_FLOPS = {"dense": 10**9, "grouped": 10**8, "depthwise": 5 * 10**7}
MOST_BYTES = 64 << 20


def conv2d(usual: Parameters) -> list[Configuration]:
    """Return 240 convolutions: each kernel, stride and grouping ten times, with random batch, channels and size.

    Args:
        usual: the conditions.
    """
    chance = random.Random(SEED)
    chosen: dict[Configuration, None] = {}
    for kind in itertools.product(KERNELS, STRIDES, GROUPINGS):
        wanted = len(chosen) + OF_A_KIND
        while len(chosen) < wanted:
            if (configuration := _drawn(chance, *kind, usual)) is not None:
                chosen[configuration] = None
    return list(chosen)


def _drawn(chance: random.Random, k: int, s: int, grouping: str, usual: Parameters) -> Configuration | None:
    """Return a random configuration; None: it would take too long, or is invalid."""
    n, cin, cout, h, groups = (_choice(chance, some) for some in (BATCHES, CHANNELS, CHANNELS, SIDES, GROUPS))
    if grouping == "dense":
        groups = 1
    elif grouping == "depthwise":
        groups = cout = cin
    given: dict[str, Value] = {"n": n, "cin": cin, "cout": cout, "h": h, "k": k, "s": s, "groups": groups}
    if cin % groups or cout % groups:
        return None
    configuration = make("conv2d", {**given, **usual})
    # A forward pass of fp32 decides, whatever the conditions: they must not change what is in the space.
    operator, p = configuration.operator, configuration.parameters
    small = operator.flops(p) <= MOST_FLOPS[grouping] and operator.moved_bytes(p, 4) <= MOST_BYTES
    return configuration if small else None


def _choice(chance: random.Random, values: Sequence[int]) -> int:
    """Choose a value. Only ``random`` of Python's generator gives the same numbers in every version."""
    return values[int(chance.random() * len(values))]
