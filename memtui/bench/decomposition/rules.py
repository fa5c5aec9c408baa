"""From a call of PyTorch's library (ATen) to the operator that it is, with its parameters.

A rule takes a call and returns operators; it raises ``NotAnOperator`` where the operator here does not have that form.
Tensors are asked for shape and strides only, so nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping

from memtui.bench.decomposition import elementwise_rules as elementwise
from memtui.bench.decomposition import layer_rules as layers
from memtui.bench.decomposition.aten_call import AtenCall, Operators, Rule

RULES: Mapping[str, Rule] = {
    "conv1d": layers.conv1d,
    "conv2d": layers.conv2d,
    "conv3d": layers.conv3d,
    "conv_transpose2d": layers.conv_transpose2d,
    "convolution": layers.convolution,
    "linear": layers.linear,
    "addmm": layers.addmm,
    **dict.fromkeys(("matmul", "mm", "bmm"), layers.matmul),
    "scaled_dot_product_attention": layers.attention,
    "_native_multi_head_attention": layers.native_attention,
    "_transformer_encoder_layer_fwd": layers.encoder_layer,
    "lstm": layers.recurrent("lstm", 4),
    "gru": layers.recurrent("gru", 3),
    "rnn_tanh": layers.recurrent("rnn", 1, nonlinearity="tanh"),
    "rnn_relu": layers.recurrent("rnn", 1, nonlinearity="relu"),
    "batch_norm": layers.batch_norm,
    "layer_norm": layers.rows_norm("layernorm"),
    "rms_norm": layers.rows_norm("rmsnorm"),
    "group_norm": layers.group_norm,
    **dict.fromkeys(("softmax", "_softmax"), layers.softmax("softmax")),
    **dict.fromkeys(("log_softmax", "_log_softmax"), layers.softmax("logsoftmax")),
    "embedding": layers.embedding,
    "embedding_bag": layers.embedding_bag,
    "index": layers.index,
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), layers.pool("maxpool")),
    "avg_pool2d": layers.pool("avgpool"),
    **dict.fromkeys(("adaptive_avg_pool2d", "_adaptive_avg_pool2d"), layers.adaptive_pool),
    "upsample_nearest2d": layers.upsample("nearest"),
    "upsample_bilinear2d": layers.upsample("bilinear"),
    "upsample_bicubic2d": layers.upsample("bicubic"),
    **{
        name: elementwise.pointwise(name)
        for name in ("relu", "gelu", "silu", "sigmoid", "hardswish", "hardsigmoid", "hardtanh")
    },
    **{name: elementwise.pointwise(name) for name in ("elu", "tanh", "mish", "softplus")},
    "relu6": elementwise.pointwise("hardtanh"),
    "leaky_relu": elementwise.pointwise("leakyrelu"),
    **{
        name: elementwise.unary(name)
        for name in ("abs", "clamp", "cos", "erf", "exp", "log", "neg", "reciprocal", "rsqrt", "sin")
    },
    **{name: elementwise.unary(name) for name in ("sqrt", "square")},
    **dict.fromkeys(("clamp_min", "clamp_max"), elementwise.unary("clamp")),
    "pow": elementwise.power,
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), elementwise.compare),
    "masked_fill": elementwise.masked_fill,
    **{name: elementwise.arithmetic(name) for name in ("add", "sub", "mul", "div", "maximum", "minimum")},
    **{name: elementwise.reduce(name) for name in ("mean", "sum", "amax", "amin", "var")},
    "linalg_vector_norm": elementwise.norm,
    "cat": elementwise.cat,
    "stack": elementwise.stack,
    "repeat": elementwise.repeat,
    "addcmul": elementwise.addcmul,
    **dict.fromkeys(("clone", "copy", "_to_copy"), elementwise.copy),
    "roll": elementwise.roll,
    "constant_pad_nd": elementwise.pad,
    **dict.fromkeys(
        ("zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "zero", "fill", "arange"), elementwise.fill
    ),
}


def operators_of(call: AtenCall) -> Operators:
    """Return the operators of a call; None: there is no rule for it. Raises NotAnOperator."""
    rule = RULES.get(call.name)
    return None if rule is None else rule(call)
