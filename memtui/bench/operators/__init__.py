"""The operators that can be measured, by name."""

from __future__ import annotations

from memtui.bench.operators.arithmetic import Addcmul, Binary, Compare, MaskedFill, Outer, Reduce, Unary
from memtui.bench.operators.attention import EncoderLayer, MultiHeadAttention
from memtui.bench.operators.base import Operator
from memtui.bench.operators.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose2d
from memtui.bench.operators.dense import Bmm, Linear, Matmul, ScaledDotProductAttention
from memtui.bench.operators.layout import Concatenate, Copy, Fill, Pad, Permute, Roll
from memtui.bench.operators.learning import AdamWStep, SgdStep
from memtui.bench.operators.lookup import CrossEntropy, Embedding, EmbeddingBag
from memtui.bench.operators.networks import Network, ResNet50
from memtui.bench.operators.normal import BatchNorm, GroupNorm, LayerNorm, LogSoftmax, RmsNorm, Softmax
from memtui.bench.operators.pointwise import (
    Add,
    Dropout,
    Elu,
    Gelu,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyRelu,
    Mish,
    Relu,
    Sigmoid,
    Silu,
    Softplus,
    Tanh,
)
from memtui.bench.operators.pooling import AdaptiveAveragePool, AveragePool, MaxPool, Upsample
from memtui.bench.operators.recurrent import Gru, Lstm, Rnn

_ALL: tuple[Operator, ...] = (
    *(Conv2d(), Conv1d(), Conv3d(), ConvTranspose2d(), Linear(), Matmul(), Bmm()),
    *(ScaledDotProductAttention(), MultiHeadAttention(), EncoderLayer(), Lstm(), Gru(), Rnn()),
    *(LayerNorm(), RmsNorm(), BatchNorm(), GroupNorm(), Softmax(), LogSoftmax()),
    *(Embedding(), EmbeddingBag(), CrossEntropy()),
    *(MaxPool(), AveragePool(), AdaptiveAveragePool(), Upsample()),
    *(Relu(), Gelu(), Silu(), Sigmoid(), Hardswish(), Hardsigmoid(), Hardtanh(), LeakyRelu(), Elu(), Tanh(), Mish()),
    *(Softplus(), Add(), Dropout(), Unary(), Binary(), Addcmul(), Outer(), Reduce(), Compare(), MaskedFill()),
    *(Copy(), Permute(), Concatenate(), Roll(), Pad(), Fill()),
    *(SgdStep(), AdamWStep()),
    ResNet50(),
)
CATALOGUE: dict[str, Operator] = {operator.name: operator for operator in _ALL}
# A network of the user's is named by its file or library, so it is not an operator of the command line.
NETWORK = Network()
EVERY: dict[str, Operator] = {**CATALOGUE, NETWORK.name: NETWORK}
