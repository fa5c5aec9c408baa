"""The operators that can be measured, by name."""

from __future__ import annotations

from memtui.bench.operators.base import Operator
from memtui.bench.operators.dense import Bmm, Conv2d, Linear, Matmul, ScaledDotProductAttention
from memtui.bench.operators.learning import AdamWStep, SgdStep
from memtui.bench.operators.lookup import CrossEntropy, Embedding
from memtui.bench.operators.networks import ResNet50
from memtui.bench.operators.normal import BatchNorm, LayerNorm, Softmax
from memtui.bench.operators.pointwise import Add, Dropout, Gelu, Relu, Sigmoid, Silu
from memtui.bench.operators.pooling import AdaptiveAveragePool, AveragePool, MaxPool

_ALL: tuple[Operator, ...] = (
    *(Conv2d(), Linear(), Matmul(), Bmm(), ScaledDotProductAttention()),
    *(LayerNorm(), BatchNorm(), Softmax()),
    *(Embedding(), CrossEntropy()),
    *(MaxPool(), AveragePool(), AdaptiveAveragePool()),
    *(Relu(), Gelu(), Silu(), Sigmoid(), Add(), Dropout()),
    *(SgdStep(), AdamWStep()),
    ResNet50(),
)
CATALOGUE: dict[str, Operator] = {operator.name: operator for operator in _ALL}
