"""Rules for calls of layers: products, attention, recurrent layers, norms, lookups, pooling."""

from __future__ import annotations

from math import prod
from typing import Any

from memtui.bench.decomposition.aten_call import (
    AtenCall,
    NotAnOperator,
    Operators,
    Rule,
    images,
    is_channels_last,
    single,
)
from memtui.bench.operators.base import Value


def conv2d(call: AtenCall) -> Operators:
    x, weight = call["input"], call["weight"]
    padding = call["padding"]
    if isinstance(padding, str):
        return None  # its parts say what it pads
    if len(x.shape) != 4:
        raise NotAnOperator("its input is one image without a batch")
    (n, cin, h, w), (cout, _, k, kw) = x.shape, weight.shape
    pad, pad_wide = padding if len(padding) == 2 else (padding[0], padding[0])
    s, d = single(call["stride"], "stride"), single(call["dilation"], "dilation")
    layout = "channels_last" if is_channels_last(x) else "contiguous"
    given: dict[str, Value] = {"n": n, "cin": cin, "cout": cout, "h": h, "w": w, "k": k, "kw": kw, "s": s, "p": pad}
    given |= {"pw": pad_wide, "d": d, "groups": call["groups"], "bias": call["bias"] is not None, "format": layout}
    return [("conv2d", given)]


def conv1d(call: AtenCall) -> Operators:
    x, weight = call["input"], call["weight"]
    if len(x.shape) != 3 or isinstance(call["padding"], str):
        raise NotAnOperator("its input has no batch, or its padding is a word")
    n, cin, length = x.shape
    given: dict[str, Value] = {"n": n, "cin": cin, "cout": weight.shape[0], "l": length, "k": weight.shape[2]}
    given |= {"s": single(call["stride"], "stride"), "p": single(call["padding"], "padding")}
    given |= {"d": single(call["dilation"], "dilation"), "groups": call["groups"], "bias": call["bias"] is not None}
    return [("conv1d", given)]


def conv3d(call: AtenCall) -> Operators:
    x, weight, padding = call["input"], call["weight"], call["padding"]
    if len(x.shape) != 5 or isinstance(padding, str):
        raise NotAnOperator("its input has no batch, or its padding is a word")
    (n, cin, t, h, w), (cout, _, kt, *kernel) = x.shape, weight.shape
    stride, pad = (list(some) * 3 if len(some) == 1 else list(some) for some in (call["stride"], padding))
    given: dict[str, Value] = {"n": n, "cin": cin, "cout": cout, "t": t, "h": h, "w": w, "kt": kt}
    given |= {"k": single(kernel, "kernel"), "st": stride[0], "s": single(stride[1:], "stride")}
    given |= {"pt": pad[0], "p": single(pad[1:], "padding"), "d": single(call["dilation"], "dilation")}
    return [("conv3d", {**given, "groups": call["groups"], "bias": call["bias"] is not None})]


def conv_transpose2d(call: AtenCall) -> Operators:
    x, weight = call["input"], call["weight"]
    if len(x.shape) != 4:
        raise NotAnOperator("its input is one image without a batch")
    (n, cin, h, w), groups = x.shape, call["groups"]
    given: dict[str, Value] = {"n": n, "cin": cin, "cout": weight.shape[1] * groups, "h": h, "w": w, "groups": groups}
    given |= {"k": single(weight.shape[2:], "kernel"), "s": single(call["stride"], "stride")}
    given |= {"p": single(call["padding"], "padding"), "op": single(call["output_padding"], "output padding")}
    given |= {"d": single(call["dilation"], "dilation"), "bias": call["bias"] is not None}
    return [("convtranspose2d", given)]


def convolution(call: AtenCall) -> Operators:
    """Convolution as it is called where it is not named by its sides."""
    if call["transposed"]:
        if len(call["input"].shape) != 4:
            raise NotAnOperator("a transposed convolution that is not of images")
        return conv_transpose2d(call)
    rule = {3: conv1d, 4: conv2d, 5: conv3d}.get(len(call["input"].shape))
    if rule is None:
        raise NotAnOperator(f"its input has {len(call['input'].shape)} sides")
    return rule(call)


def linear(call: AtenCall) -> Operators:
    x, weight = call["input"], call["weight"]
    if len(weight.shape) != 2:
        return None
    out, width = weight.shape
    return [("linear", {"m": prod(x.shape) // width, "in": width, "out": out, "bias": call["bias"] is not None})]


def addmm(call: AtenCall) -> Operators:
    (m, width), out = call["mat1"].shape, call["mat2"].shape[1]
    return [("linear", {"m": m, "in": width, "out": out, "bias": True})]


def matmul(call: AtenCall) -> Operators:
    """Products of matrices; None: vectors, and shapes of which one is repeated, are seen in their parts."""
    first, second = (call[a] if call[a] is not None else call[b] for a, b in (("self", "input"), ("other", "mat2")))
    a, b = tuple(first.shape), tuple(second.shape)
    if len(a) < 2 or len(b) < 2:
        return None
    if len(b) == 2:
        if call.is_weight(second):
            return [("linear", {"m": prod(a[:-1]), "in": b[0], "out": b[1], "bias": False})]
        return [("matmul", {"m": prod(a[:-1]), "n": b[1], "k": b[0]})]
    if a[:-2] == b[:-2]:
        return [("bmm", {"b": prod(a[:-2]), "m": a[-2], "n": b[-1], "k": a[-1]})]
    return None


def attention(call: AtenCall) -> Operators:
    query, key, value = call["query"], call["key"], call["value"]
    if len(query.shape) != 4 or key.shape[-1] != value.shape[-1]:
        raise NotAnOperator("queries, keys and values are not of b x heads x s x d")
    (b, heads, s, d), (_, kv, t, _) = query.shape, key.shape
    if heads != kv and not call["enable_gqa"]:
        raise NotAnOperator("its heads are repeated")
    mask, causal = call["attn_mask"] is not None, bool(call["is_causal"])
    return [("sdpa", {"b": b, "heads": heads, "s": s, "d": d, "t": t, "kv": kv, "causal": causal, "mask": mask})]


def native_attention(call: AtenCall) -> Operators:
    query = call["query"]
    if call["mask"] is not None or not (_same(query, call["key"]) and _same(query, call["value"])):
        raise NotAnOperator("it is not a self-attention, or has a mask")
    b, s, dim = query.shape
    return [("mha", {"b": b, "s": s, "dim": dim, "heads": call["num_head"]})]


def _same(first: Any, second: Any) -> bool:
    return bool(first.data_ptr() == second.data_ptr() and first.shape == second.shape)


def encoder_layer(call: AtenCall) -> Operators:
    if call["mask"] is not None:
        raise NotAnOperator("it has a mask")
    b, s, dim = call["src"].shape
    given: dict[str, Value] = {"b": b, "s": s, "dim": dim, "heads": call["num_heads"]}
    given |= {"ff": call["ffn_weight_1"].shape[0], "gelu": call["use_gelu"], "norm_first": call["norm_first"]}
    return [("encoderlayer", given)]


def recurrent(op: str, gates: int, **more: Value) -> Rule:
    def rule(call: AtenCall) -> Operators:
        if call["params"] is None or call["batch_first"] is None:
            raise NotAnOperator("its sequences are packed")
        x, params, biased = call["input"], call["params"], call["has_biases"]
        if len(x.shape) != 3:
            raise NotAnOperator("its input has no batch")
        hidden = params[1].shape[1]
        each = len(params) // (call["num_layers"] * (2 if call["bidirectional"] else 1))
        if each != (4 if biased else 2) or params[1].shape[0] != gates * hidden:
            raise NotAnOperator("its states are projected")
        b, s = x.shape[:2] if call["batch_first"] else (x.shape[1], x.shape[0])
        given: dict[str, Value] = {"b": b, "s": s, "in": x.shape[2], "hidden": hidden, "layers": call["num_layers"]}
        return [(op, {**given, "bidirectional": call["bidirectional"], "bias": biased, **more})]

    return rule


def batch_norm(call: AtenCall) -> Operators:
    if call["weight"] is None:
        raise NotAnOperator("it has no scale and shift")
    n, c, h, w = images(call["input"].shape)
    return [("batchnorm", {"n": n, "c": c, "h": h, "w": w, "train": bool(call["training"])})]


def rows_norm(op: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        dim = prod(call["normalized_shape"])
        given: dict[str, Value] = {"rows": prod(call["input"].shape) // dim, "dim": dim}
        return [(op, {**given, "affine": call["weight"] is not None})]

    return rule


def group_norm(call: AtenCall) -> Operators:
    n, c, h, w = images(call["input"].shape)
    given: dict[str, Value] = {"n": n, "c": c, "h": h, "w": w, "groups": call["num_groups"]}
    return [("groupnorm", {**given, "affine": call["weight"] is not None})]


def softmax(op: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        shape = call["self"].shape or (1,)
        inner = prod(shape[call["dim"] % len(shape) :][1:])
        cols = shape[call["dim"]]
        return [(op, {"rows": prod(shape) // cols, "cols": cols, "inner": inner})]

    return rule


def embedding(call: AtenCall) -> Operators:
    vocab, dim = call["weight"].shape
    return [("embedding", {"vocab": vocab, "dim": dim, "tokens": prod(call["indices"].shape)})]


def index(call: AtenCall) -> Operators:
    """Rows of a table, as ``table[indices]``."""
    table, indices = call["self"], call["indices"]
    if len(indices) != 1 or indices[0] is None or not str(indices[0].dtype).startswith("torch.int"):
        raise NotAnOperator("it takes more than rows of a table")
    vocab, *dims = table.shape
    return [("embedding", {"vocab": vocab, "dim": prod(dims), "tokens": prod(indices[0].shape)})]


def embedding_bag(call: AtenCall) -> Operators:
    (vocab, dim), indices = call["weight"].shape, call["indices"]
    bags = call["offsets"].shape[0] - bool(call["include_last_offset"])
    if call["per_sample_weights"] is not None:
        raise NotAnOperator("its rows have weights")
    if bags < 1 or prod(indices.shape) % bags:
        raise NotAnOperator("its bags are of several sizes")
    given: dict[str, Value] = {"vocab": vocab, "dim": dim, "bags": bags, "bag": prod(indices.shape) // bags}
    return [("embedding_bag", {**given, "reduce": ("sum", "mean", "max")[call["mode"]]})]


def pool(op: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        if len(call["self"].shape) != 4:
            raise NotAnOperator("its input is one image without a batch")
        (n, c, h, w), k = call["self"].shape, single(call["kernel_size"], "kernel")
        if call["dilation"] is not None and single(call["dilation"], "dilation") != 1:
            raise NotAnOperator("its kernel has holes")
        given: dict[str, Value] = {"n": n, "c": c, "h": h, "w": w, "k": k, "s": single(call["stride"], "stride") or k}
        return [(op, {**given, "p": single(call["padding"], "padding"), "ceil": bool(call["ceil_mode"])})]

    return rule


def adaptive_pool(call: AtenCall) -> Operators:
    n, c, h, w = (1, *call["self"].shape)[-4:]
    return [("adaptiveavgpool", {"n": n, "c": c, "h": h, "w": w, "out": single(call["output_size"], "output")})]


def upsample(how: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        x = call["input"] if call["input"] is not None else call["self"]
        (n, c, h, w), (high, wide) = x.shape, call.result.shape[2:]
        return [("upsample", {"n": n, "c": c, "h": h, "w": w, "out": high, "out_w": wide, "how": how})]

    return rule
