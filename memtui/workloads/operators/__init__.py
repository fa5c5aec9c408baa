"""The operators that can be measured, by name."""

from __future__ import annotations

from memtui.workloads.operators.base import Operator
from memtui.workloads.operators.dense import Bmm, Conv2d, Linear, Matmul, ScaledDotProductAttention
from memtui.workloads.operators.learning import AdamWStep, SgdStep
from memtui.workloads.operators.lookup import CrossEntropy, Embedding
from memtui.workloads.operators.networks import ResNet50
from memtui.workloads.operators.normal import BatchNorm, LayerNorm, Softmax
from memtui.workloads.operators.pointwise import Add, Dropout, Gelu, Relu, Sigmoid, Silu
from memtui.workloads.operators.pooling import AdaptiveAveragePool, AveragePool, MaxPool

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
