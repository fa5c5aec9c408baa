"""From a call of PyTorch's library (ATen) to the operator that it is, with its parameters.

A rule takes a call and returns operators; it raises ``NotAnOperator`` where the operator here does not have that form.
Tensors are asked for shape and strides only, so nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from memtui.bench.operators.base import Value

Found = tuple[str, dict[str, Value]]
MISSING = "there is no such operator"


class NotAnOperator(Exception):
    """The call is no operator here; the message says why."""


@dataclass(frozen=True)
class AtenCall:
    """One call.

    Attributes:
        name: of the function, without overload and without the underscore of one that works in place.
        arguments: by name, defaults included.
        result: what it returned.
        is_weight: whether a tensor is a parameter or buffer of the network.
    """

    name: str
    arguments: Mapping[str, Any]
    result: Any
    is_weight: Callable[[Any], bool]

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)


Operators = Sequence[Found] | None  # None: the call is seen in its parts
Rule = Callable[[AtenCall], Operators]


def operators_of(call: AtenCall) -> Operators:
    """Return the operators of a call; None: there is no rule for it. Raises NotAnOperator."""
    rule = RULES.get(call.name)
    return None if rule is None else rule(call)


def _one(value: Any, what: str, count: int = 2) -> int:
    """Return the number of a list in which all are alike, as ``[3, 3]``."""
    values = [value] if isinstance(value, int) else list(value)
    if len(set(values)) > 1:
        raise NotAnOperator(f"its {what} is {'x'.join(map(str, values))}")
    return int(values[0]) if values else 0


def _images(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return n, c, h, w of a tensor with any number of sides behind its channels."""
    n, c, *sides = shape
    return n, c, prod(sides[:-1]), sides[-1] if sides else 1


def _is_channels_last(x: Any) -> bool:
    strides, (_, c, h, w) = x.stride(), x.shape
    return bool(c > 1 and h * w > 1 and strides[1] == 1)


def _conv2d(call: AtenCall) -> Operators:
    x, weight = call["input"], call["weight"]
    if len(x.shape) != 4:
        raise NotAnOperator("its input is one image without a batch")
    (n, cin, h, w), (cout, _, k, kw) = x.shape, weight.shape
    padding = call["padding"]
    if isinstance(padding, str):
        padding = [k // 2, kw // 2] if padding == "same" else [0, 0]
    pad, pad_wide = padding if len(padding) == 2 else (padding[0], padding[0])
    s, d = _one(call["stride"], "stride"), _one(call["dilation"], "dilation")
    layout = "channels_last" if _is_channels_last(x) else "contiguous"
    given: dict[str, Value] = {"n": n, "cin": cin, "cout": cout, "h": h, "w": w, "k": k, "kw": kw, "s": s, "p": pad}
    given |= {"pw": pad_wide, "d": d, "groups": call["groups"], "bias": call["bias"] is not None, "format": layout}
    return [("conv2d", given)]


def _conv1d(call: AtenCall) -> Operators:
    x, weight = call["input"], call["weight"]
    if len(x.shape) != 3 or isinstance(call["padding"], str):
        raise NotAnOperator("its input has no batch, or its padding is a word")
    n, cin, length = x.shape
    given: dict[str, Value] = {"n": n, "cin": cin, "cout": weight.shape[0], "l": length, "k": weight.shape[2]}
    given |= {"s": _one(call["stride"], "stride"), "p": _one(call["padding"], "padding")}
    given |= {"d": _one(call["dilation"], "dilation"), "groups": call["groups"], "bias": call["bias"] is not None}
    return [("conv1d", given)]


def _conv3d(call: AtenCall) -> Operators:
    x, weight, padding = call["input"], call["weight"], call["padding"]
    if len(x.shape) != 5 or isinstance(padding, str):
        raise NotAnOperator("its input has no batch, or its padding is a word")
    (n, cin, t, h, w), (cout, _, kt, *kernel) = x.shape, weight.shape
    stride, pad = (list(some) * 3 if len(some) == 1 else list(some) for some in (call["stride"], padding))
    given: dict[str, Value] = {"n": n, "cin": cin, "cout": cout, "t": t, "h": h, "w": w, "kt": kt}
    given |= {"k": _one(kernel, "kernel"), "st": stride[0], "s": _one(stride[1:], "stride")}
    given |= {"pt": pad[0], "p": _one(pad[1:], "padding"), "d": _one(call["dilation"], "dilation")}
    return [("conv3d", {**given, "groups": call["groups"], "bias": call["bias"] is not None})]


def _conv_transpose2d(call: AtenCall) -> Operators:
    x, weight = call["input"], call["weight"]
    if len(x.shape) != 4:
        raise NotAnOperator("its input is one image without a batch")
    (n, cin, h, w), groups = x.shape, call["groups"]
    given: dict[str, Value] = {"n": n, "cin": cin, "cout": weight.shape[1] * groups, "h": h, "w": w, "groups": groups}
    given |= {"k": _one(weight.shape[2:], "kernel"), "s": _one(call["stride"], "stride")}
    given |= {"p": _one(call["padding"], "padding"), "op": _one(call["output_padding"], "output padding")}
    given |= {"d": _one(call["dilation"], "dilation"), "bias": call["bias"] is not None}
    return [("convtranspose2d", given)]


def _convolution(call: AtenCall) -> Operators:
    """Convolution as it is called where it is not named by its sides."""
    if call["transposed"]:
        if len(call["input"].shape) != 4:
            raise NotAnOperator("a transposed convolution that is not of images")
        return _conv_transpose2d(call)
    rule = {3: _conv1d, 4: _conv2d, 5: _conv3d}.get(len(call["input"].shape))
    if rule is None:
        raise NotAnOperator(f"its input has {len(call['input'].shape)} sides")
    return rule(call)


def _linear(call: AtenCall) -> Operators:
    x, (out, width) = call["input"], call["weight"].shape
    return [("linear", {"m": prod(x.shape) // width, "in": width, "out": out, "bias": call["bias"] is not None})]


def _addmm(call: AtenCall) -> Operators:
    (m, width), out = call["mat1"].shape, call["mat2"].shape[1]
    return [("linear", {"m": m, "in": width, "out": out, "bias": True})]


def _matmul(call: AtenCall) -> Operators:
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


def _attention(call: AtenCall) -> Operators:
    query, key, value = call["query"], call["key"], call["value"]
    if len(query.shape) != 4 or key.shape[-1] != value.shape[-1]:
        raise NotAnOperator("queries, keys and values are not of b x heads x s x d")
    (b, heads, s, d), (_, kv, t, _) = query.shape, key.shape
    if heads != kv and not call["enable_gqa"]:
        raise NotAnOperator("its heads are repeated")
    mask, causal = call["attn_mask"] is not None, bool(call["is_causal"])
    return [("sdpa", {"b": b, "heads": heads, "s": s, "d": d, "t": t, "kv": kv, "causal": causal, "mask": mask})]


def _native_attention(call: AtenCall) -> Operators:
    query = call["query"]
    if call["mask"] is not None or not (_same(query, call["key"]) and _same(query, call["value"])):
        raise NotAnOperator("it is no self-attention, or has a mask")
    b, s, dim = query.shape
    return [("mha", {"b": b, "s": s, "dim": dim, "heads": call["num_head"]})]


def _same(first: Any, second: Any) -> bool:
    return bool(first.data_ptr() == second.data_ptr() and first.shape == second.shape)


def _encoder_layer(call: AtenCall) -> Operators:
    if call["mask"] is not None:
        raise NotAnOperator("it has a mask")
    b, s, dim = call["src"].shape
    given: dict[str, Value] = {"b": b, "s": s, "dim": dim, "heads": call["num_heads"]}
    given |= {"ff": call["ffn_weight_1"].shape[0], "gelu": call["use_gelu"], "norm_first": call["norm_first"]}
    return [("encoderlayer", given)]


def _recurrent(op: str, gates: int, **more: Value) -> Rule:
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


def _batch_norm(call: AtenCall) -> Operators:
    if call["weight"] is None:
        raise NotAnOperator("it has no scale and shift")
    n, c, h, w = _images(call["input"].shape)
    return [("batchnorm", {"n": n, "c": c, "h": h, "w": w, "train": bool(call["training"])})]


def _rows_norm(op: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        dim = prod(call["normalized_shape"])
        given: dict[str, Value] = {"rows": prod(call["input"].shape) // dim, "dim": dim}
        return [(op, {**given, "affine": call["weight"] is not None})]

    return rule


def _group_norm(call: AtenCall) -> Operators:
    n, c, h, w = _images(call["input"].shape)
    given: dict[str, Value] = {"n": n, "c": c, "h": h, "w": w, "groups": call["num_groups"]}
    return [("groupnorm", {**given, "affine": call["weight"] is not None})]


def _softmax(op: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        shape = call["self"].shape
        inner = prod(shape[call["dim"] % len(shape) :][1:])
        cols = shape[call["dim"]]
        return [(op, {"rows": prod(shape) // cols, "cols": cols, "inner": inner})]

    return rule


def _embedding(call: AtenCall) -> Operators:
    vocab, dim = call["weight"].shape
    return [("embedding", {"vocab": vocab, "dim": dim, "tokens": prod(call["indices"].shape)})]


def _index(call: AtenCall) -> Operators:
    """Rows of a table, as ``table[indices]``."""
    table, indices = call["self"], call["indices"]
    if len(indices) != 1 or indices[0] is None or not str(indices[0].dtype).startswith("torch.int"):
        raise NotAnOperator("it takes more than rows of a table")
    vocab, *dims = table.shape
    return [("embedding", {"vocab": vocab, "dim": prod(dims), "tokens": prod(indices[0].shape)})]


def _embedding_bag(call: AtenCall) -> Operators:
    (vocab, dim), indices = call["weight"].shape, call["indices"]
    bags = call["offsets"].shape[0] - bool(call["include_last_offset"])
    if call["per_sample_weights"] is not None:
        raise NotAnOperator("its rows have weights")
    if bags < 1 or prod(indices.shape) % bags:
        raise NotAnOperator("its bags are of several sizes")
    given: dict[str, Value] = {"vocab": vocab, "dim": dim, "bags": bags, "bag": prod(indices.shape) // bags}
    return [("embedding_bag", {**given, "reduce": ("sum", "mean", "max")[call["mode"]]})]


def _pool(op: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        if len(call["self"].shape) != 4:
            raise NotAnOperator("its input is one image without a batch")
        (n, c, h, w), k = call["self"].shape, _one(call["kernel_size"], "kernel")
        if call["dilation"] is not None and _one(call["dilation"], "dilation") != 1:
            raise NotAnOperator("its kernel has holes")
        given: dict[str, Value] = {"n": n, "c": c, "h": h, "w": w, "k": k, "s": _one(call["stride"], "stride") or k}
        return [(op, {**given, "p": _one(call["padding"], "padding"), "ceil": bool(call["ceil_mode"])})]

    return rule


def _adaptive_pool(call: AtenCall) -> Operators:
    n, c, h, w = (1, *call["self"].shape)[-4:]
    return [("adaptiveavgpool", {"n": n, "c": c, "h": h, "w": w, "out": _one(call["output_size"], "output")})]


def _upsample(how: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        (n, c, h, w), (high, wide) = call["input"].shape, call.result.shape[2:]
        return [("upsample", {"n": n, "c": c, "h": h, "w": w, "out": high, "out_w": wide, "how": how})]

    return rule


def _pointwise(op: str, argument: str = "self") -> Rule:
    def rule(call: AtenCall) -> Operators:
        return [(op, {"elements": prod(_floating(call[argument]).shape)})]

    return rule


def _unary(function: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        return [("unary", {"function": function, "elements": prod(_floating(call["self"]).shape)})]

    return rule


def _power(call: AtenCall) -> Operators:
    functions = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    base, exponent = call["self"], call["exponent"]
    if _is_number(base) or not _is_number(exponent):
        raise NotAnOperator("its exponent is a tensor")
    return _unary(functions.get(exponent, "pow") if isinstance(exponent, int | float) else "pow")(call)


def _compare(call: AtenCall) -> Operators:
    if not _is_number(call["other"]):
        raise NotAnOperator("it compares two tensors")
    return _pointwise("compare")(call)


def _masked_fill(call: AtenCall) -> Operators:
    if tuple(call["self"].shape) != tuple(call["mask"].shape) or not _is_number(call["value"]):
        raise NotAnOperator("its mask is of another shape, or its value is a tensor")
    return _pointwise("masked_fill")(call)


def _floating(x: Any) -> Any:
    if not x.is_floating_point():
        raise NotAnOperator("it is of whole numbers")
    return x


def _arithmetic(function: str) -> Rule:
    """A function of two tensors, or of a tensor and a number."""

    def rule(call: AtenCall) -> Operators:
        first, second = call["self"], call["other"]
        if _is_number(second):
            return _unary("shift" if function in ("add", "sub") else "scale")(call)
        if _is_number(first):
            return [("unary", {"function": "scale" if function == "mul" else "shift", "elements": prod(second.shape)})]
        _floating(first), _floating(second)
        if tuple(first.shape) == tuple(second.shape):
            elements = prod(first.shape)
            sides = {"a": 1, "b": elements, "c": 1, "d": 1}
            return [
                ("add", {"elements": elements}) if function == "add" else ("binary", {"function": function, **sides})
            ]
        large, small = (first, second) if prod(first.shape) >= prod(second.shape) else (second, first)
        if tuple(call.result.shape) != tuple(large.shape):
            return [("outer", {"function": function, **_both_repeated(first.shape, second.shape)})]
        return [("binary", {"function": function, **_repeated(large.shape, small.shape)})]

    return rule


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (hasattr(value, "shape") and len(value.shape) == 0)


def _repeated(large: Sequence[int], small: Sequence[int]) -> dict[str, Value]:
    """Return a, b, c, d of two shapes: sides that are repeated and sides that are not, in turns."""
    own = (1,) * (len(large) - len(small)) + tuple(small)
    runs: list[tuple[bool, int]] = []  # whether the side is repeated, and its size
    for size, part in zip(large, own, strict=True):
        if size == 1:
            continue
        repeated = part == 1
        if runs and runs[-1][0] == repeated:
            runs[-1] = repeated, runs[-1][1] * size
        else:
            runs.append((repeated, size))
    if runs and not runs[0][0]:
        runs.insert(0, (True, 1))
    if len(runs) > 4:
        raise NotAnOperator("one of its tensors is repeated along several sides")
    sizes = [size for _, size in runs] + [1] * (4 - len(runs))
    return dict(zip("abcd", sizes, strict=True))


def _both_repeated(first: Sequence[int], second: Sequence[int]) -> dict[str, Value]:
    """Return a, b, c of shapes as a x b x 1 and a x 1 x c."""
    count = max(len(first), len(second))
    pairs = list(zip(*((1,) * (count - len(some)) + tuple(some) for some in (first, second)), strict=True))
    kinds = ["a" if one == other else "b" if other == 1 else "c" for one, other in pairs if max(one, other) > 1]
    turns = "".join(kind for kind, before in zip(kinds, [" ", *kinds], strict=False) if kind != before)
    if turns not in ("abc", "bc", "acb", "cb"):
        raise NotAnOperator("both of its tensors are repeated, along several sides")
    sizes = {kind: prod(max(pair) for pair, own in _kinds(pairs) if own == kind) for kind in "abc"}
    return {"a": sizes["a"], **dict(zip("bc", (sizes[kind] for kind in turns[-2:]), strict=True))}


def _kinds(pairs: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], str]]:
    """Return the pairs of sizes with whose side it is: of both, of the first, of the second."""
    return [(pair, "a" if pair[0] == pair[1] else "b" if pair[1] == 1 else "c") for pair in pairs]


def _reduce(function: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        shape = _floating(call["self"]).shape
        dims = call["dim"]
        sides = range(len(shape)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
        reduced = sorted(side % len(shape) for side in sides)
        if reduced != list(range(reduced[0], reduced[-1] + 1)):
            raise NotAnOperator("it reduces sides that are not beside each other")
        outer, inner = prod(shape[: reduced[0]]), prod(shape[reduced[-1] + 1 :])
        size = prod(shape[side] for side in reduced)
        return [("reduce", {"function": function, "outer": outer, "reduced": size, "inner": inner})]

    return rule


def _norm(call: AtenCall) -> Operators:
    if call["ord"] != 2:
        raise NotAnOperator("it is no Euclidean norm")
    return _reduce("norm")(call)


def _cat(call: AtenCall) -> Operators:
    tensors = [t for t in call["tensors"] if prod(t.shape)]
    shape = call.result.shape
    inner = prod(shape[call["dim"] % len(shape) :])
    return [("cat", {"outer": prod(shape) // inner, "inner": inner, "parts": len(tensors)})]


def _stack(call: AtenCall) -> Operators:
    shape = call.result.shape
    outer = prod(shape[: call["dim"] % len(shape)])
    return [("cat", {"outer": outer, "inner": prod(shape) // outer, "parts": len(call["tensors"])})]


def _repeat(call: AtenCall) -> Operators:
    return [("copy", {"b": 1, "m": 1, "n": 1, "run": prod(call.result.shape)})]


def _addcmul(call: AtenCall) -> Operators:
    """What is added and one of the factors are small, the other factor is as large as the result."""
    added, one, other = (call[key] for key in ("self", "tensor1", "tensor2"))
    large, small = (one, other) if prod(one.shape) >= prod(other.shape) else (other, one)
    if tuple(large.shape) != tuple(call.result.shape):
        raise NotAnOperator("both of its factors are repeated")
    sides = _repeated(large.shape, small.shape)
    if _repeated(large.shape, added.shape) != sides:
        raise NotAnOperator("its factor is repeated otherwise than what is added")
    return [("addcmul", sides)]


def _copy(call: AtenCall) -> Operators:
    """A copy: the order of its numbers follows from the strides of both sides."""
    source = call["src"] if call["src"] is not None else call["self"]
    target = call["self"] if call["src"] is not None else call.result
    return [_exchanged(source, target)]


def _exchanged(source: Any, target: Any) -> Found:
    """Return a copy: with sides in the order of the target, of which two groups are exchanged, or in any order."""
    plain: Found = "copy", {"b": 1, "m": 1, "n": 1, "run": prod(target.shape)}
    if len(source.shape) != len(target.shape):
        return plain
    sides = [
        (to, of, size)
        for to, of, size in zip(target.stride(), source.stride(), target.shape, strict=True)
        if size > 1 and of > 0
    ]
    if prod(source.shape) != prod(target.shape) or len(sides) < sum(size > 1 for size in target.shape):
        return plain  # something is repeated
    sides.sort(key=lambda side: -side[0])  # as they lie in the target
    order = sorted(range(len(sides)), key=lambda index: -sides[index][1])  # as they lie in the source
    sizes = [size for _, _, size in sides]
    count = len(sides)
    first = next((i for i in range(count) if order[i] != i), count)
    last = next((i for i in range(count, first, -1) if order[i - 1] != i - 1), first)
    middle = order[first:last]
    if not middle:
        return plain
    cut = middle.index(first)  # in the source come those that the target has behind
    if middle != [*range(first + len(middle) - cut, last), *range(first, first + len(middle) - cut)]:
        shape, places = [sizes[i] for i in order], [order.index(i) for i in range(count)]
        return "permute", {"shape": "x".join(map(str, shape)), "order": ",".join(map(str, places))}
    m, n = prod(sizes[i] for i in middle[:cut]), prod(sizes[i] for i in middle[cut:])
    return "copy", {"b": prod(sizes[:first]), "m": m, "n": n, "run": prod(sizes[last:])}


def _roll(call: AtenCall) -> Operators:
    x, shifts, dims = call["self"], call["shifts"], call["dims"]
    if len(x.shape) != 4 or [d % 4 for d in dims] != [1, 2]:
        raise NotAnOperator("it is not of the rows and columns of n x h x w x c")
    n, h, w, c = x.shape
    return [("roll", {"n": n, "h": h, "w": w, "c": c, "shift": max(1, abs(shifts[0]))})]


def _pad(call: AtenCall) -> Operators:
    shape, pad = list(call["self"].shape), list(call["pad"])
    more = [a + b for a, b in zip(pad[::2], pad[1::2], strict=True)][::-1]
    more = [0] * (len(shape) - len(more)) + more
    padded = [side for side, by in enumerate(more) if by]
    if min(more, default=0) < 0 or len(padded) > 2 or (len(padded) == 2 and padded[1] - padded[0] != 1):
        raise NotAnOperator("it pads other than two sides beside each other")
    cols = padded[-1] if padded else len(shape) - 1
    rows = cols - 1
    given: dict[str, Value] = {"outer": prod(shape[: max(rows, 0)]), "rows": shape[rows] if rows >= 0 else 1}
    given |= {"cols": shape[cols], "inner": prod(shape[cols + 1 :]), "more_rows": more[rows] if rows >= 0 else 0}
    return [("pad", {**given, "more_cols": more[cols]})]


def _fill(call: AtenCall) -> Operators:
    elements = prod(call.result.shape)
    return [("fill", {"elements": elements})] if elements else []


RULES: Mapping[str, Rule] = {
    "conv1d": _conv1d,
    "conv2d": _conv2d,
    "conv3d": _conv3d,
    "conv_transpose2d": _conv_transpose2d,
    "convolution": _convolution,
    "linear": _linear,
    "addmm": _addmm,
    **dict.fromkeys(("matmul", "mm", "bmm"), _matmul),
    "scaled_dot_product_attention": _attention,
    "_native_multi_head_attention": _native_attention,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "lstm": _recurrent("lstm", 4),
    "gru": _recurrent("gru", 3),
    "rnn_tanh": _recurrent("rnn", 1, nonlinearity="tanh"),
    "rnn_relu": _recurrent("rnn", 1, nonlinearity="relu"),
    "batch_norm": _batch_norm,
    "layer_norm": _rows_norm("layernorm"),
    "rms_norm": _rows_norm("rmsnorm"),
    "group_norm": _group_norm,
    **dict.fromkeys(("softmax", "_softmax"), _softmax("softmax")),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _softmax("logsoftmax")),
    "embedding": _embedding,
    "embedding_bag": _embedding_bag,
    "index": _index,
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), _pool("maxpool")),
    "avg_pool2d": _pool("avgpool"),
    **dict.fromkeys(("adaptive_avg_pool2d", "_adaptive_avg_pool2d"), _adaptive_pool),
    "upsample_nearest2d": _upsample("nearest"),
    "upsample_bilinear2d": _upsample("bilinear"),
    "upsample_bicubic2d": _upsample("bicubic"),
    **{name: _pointwise(name) for name in ("relu", "gelu", "silu", "sigmoid", "hardswish", "hardsigmoid", "hardtanh")},
    **{name: _pointwise(name) for name in ("elu", "tanh", "mish", "softplus")},
    "relu6": _pointwise("hardtanh"),
    "leaky_relu": _pointwise("leakyrelu"),
    **{
        name: _unary(name) for name in ("abs", "clamp", "cos", "erf", "exp", "log", "neg", "reciprocal", "rsqrt", "sin")
    },
    **{name: _unary(name) for name in ("sqrt", "square")},
    **dict.fromkeys(("clamp_min", "clamp_max"), _unary("clamp")),
    "pow": _power,
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _compare),
    "masked_fill": _masked_fill,
    **{name: _arithmetic(name) for name in ("add", "sub", "mul", "div", "maximum", "minimum")},
    **{name: _reduce(name) for name in ("mean", "sum", "amax", "amin", "var")},
    "linalg_vector_norm": _norm,
    "cat": _cat,
    "stack": _stack,
    "repeat": _repeat,
    "addcmul": _addcmul,
    **dict.fromkeys(("clone", "copy", "_to_copy"), _copy),
    "roll": _roll,
    "constant_pad_nd": _pad,
    **dict.fromkeys(("zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "zero", "fill", "arange"), _fill),
}
