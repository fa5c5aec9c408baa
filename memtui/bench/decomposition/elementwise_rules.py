"""Rules for calls between layers: functions of each element, arithmetic, sums, copies."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from memtui.bench.decomposition.aten_call import (
    AtenCall,
    FoundOperator,
    NotAnOperator,
    Operators,
    Rule,
)
from memtui.bench.operators.base import Value


def pointwise(op: str, argument: str = "self") -> Rule:
    def rule(call: AtenCall) -> Operators:
        return [(op, {"elements": prod(_floating(call[argument]).shape)})]

    return rule


def unary(function: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        return [("unary", {"function": function, "elements": prod(_floating(call["self"]).shape)})]

    return rule


def power(call: AtenCall) -> Operators:
    functions = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    base, exponent = call["self"], call["exponent"]
    if _is_number(base) or not _is_number(exponent):
        raise NotAnOperator("its exponent is a tensor")
    return unary(functions.get(exponent, "pow") if isinstance(exponent, int | float) else "pow")(call)


def compare(call: AtenCall) -> Operators:
    if not _is_number(call["other"]):
        raise NotAnOperator("it compares two tensors")
    return pointwise("compare")(call)


def masked_fill(call: AtenCall) -> Operators:
    if tuple(call["self"].shape) != tuple(call["mask"].shape) or not _is_number(call["value"]):
        raise NotAnOperator("its mask is of another shape, or its value is a tensor")
    return pointwise("masked_fill")(call)


def _floating(x: Any) -> Any:
    if not x.is_floating_point():
        raise NotAnOperator("it is of whole numbers")
    return x


def arithmetic(function: str) -> Rule:
    """Return the rule of a function of two tensors, or of a tensor and a number."""

    def rule(call: AtenCall) -> Operators:
        first, second = call["self"], call["other"]
        if _is_number(second):
            return unary("shift" if function in ("add", "sub") else "scale")(call)
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
    left, right = ((1,) * (count - len(some)) + tuple(some) for some in (first, second))
    sides = [  # whose each is, of both, of the first or of the second, and its size
        ("a", size) if size == of_other else ("b", size) if of_other == 1 else ("c", of_other)
        for size, of_other in zip(left, right, strict=True)
        if (size, of_other) != (1, 1)
    ]
    kinds = [kind for kind, _ in sides]
    turns = "".join(kind for kind, before in zip(kinds, [" ", *kinds], strict=False) if kind != before)
    if turns not in ("abc", "bc", "acb", "cb"):
        raise NotAnOperator("both of its tensors are repeated, along several sides")
    sizes = {kind: prod(size for own, size in sides if own == kind) for kind in "abc"}
    return {"a": sizes["a"], **dict(zip("bc", (sizes[kind] for kind in turns[-2:]), strict=True))}


def reduce(function: str) -> Rule:
    def rule(call: AtenCall) -> Operators:
        shape = _floating(call["self"]).shape or (1,)
        dims = call["dim"]
        sides = range(len(shape)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
        reduced = sorted(side % len(shape) for side in sides)
        if reduced != list(range(reduced[0], reduced[-1] + 1)):
            raise NotAnOperator("it reduces sides that are not beside each other")
        outer, inner = prod(shape[: reduced[0]]), prod(shape[reduced[-1] + 1 :])
        size = prod(shape[side] for side in reduced)
        return [("reduce", {"function": function, "outer": outer, "reduced": size, "inner": inner})]

    return rule


def norm(call: AtenCall) -> Operators:
    if call["ord"] != 2:
        raise NotAnOperator("it is no Euclidean norm")
    return reduce("norm")(call)


def cat(call: AtenCall) -> Operators:
    tensors = [t for t in call["tensors"] if prod(t.shape)]
    if not tensors:
        return []
    shape = call.result.shape
    inner = prod(shape[call["dim"] % len(shape) :])
    return [("cat", {"outer": prod(shape) // inner, "inner": inner, "parts": len(tensors)})]


def stack(call: AtenCall) -> Operators:
    shape = call.result.shape
    if not prod(shape):
        return []
    outer = prod(shape[: call["dim"] % len(shape)])
    return [("cat", {"outer": outer, "inner": prod(shape) // outer, "parts": len(call["tensors"])})]


def repeat(call: AtenCall) -> Operators:
    return [("copy", {"b": 1, "m": 1, "n": 1, "run": prod(call.result.shape)})]


def addcmul(call: AtenCall) -> Operators:
    """Return the operator: one of the factors is as large as the result, the other and what is added are small."""
    added, left, right = (call[key] for key in ("self", "tensor1", "tensor2"))
    large, small = (left, right) if prod(left.shape) >= prod(right.shape) else (right, left)
    if tuple(large.shape) != tuple(call.result.shape):
        raise NotAnOperator("both of its factors are repeated")
    sides = _repeated(large.shape, small.shape)
    if _repeated(large.shape, added.shape) != sides:
        raise NotAnOperator("its factor is repeated otherwise than what is added")
    return [("addcmul", sides)]


def copy(call: AtenCall) -> Operators:
    """Return the copy: the order of its numbers follows from the strides of both sides."""
    source = call["src"] if call["src"] is not None else call["self"]
    target = call["self"] if call["src"] is not None else call.result
    return [_exchanged(source, target)]


def _exchanged(source: Any, target: Any) -> FoundOperator:
    """Return a copy: with sides in the order of the target, of which two groups are exchanged, or in any order."""
    copied: FoundOperator = "copy", {"b": 1, "m": 1, "n": 1, "run": prod(target.shape)}
    if len(source.shape) != len(target.shape):
        return copied
    sides = [
        (to, of, size)
        for to, of, size in zip(target.stride(), source.stride(), target.shape, strict=True)
        if size > 1 and of > 0
    ]
    if prod(source.shape) != prod(target.shape) or len(sides) < sum(size > 1 for size in target.shape):
        return copied  # something is repeated
    sides.sort(key=lambda side: -side[0])  # as they lie in the target
    order = sorted(range(len(sides)), key=lambda index: -sides[index][1])  # as they lie in the source
    sizes = [size for _, _, size in sides]
    count = len(sides)
    first = next((i for i in range(count) if order[i] != i), count)
    last = next((i for i in range(count, first, -1) if order[i - 1] != i - 1), first)
    middle = order[first:last]
    if not middle:
        return copied
    cut = middle.index(first)  # in the source come those that the target has behind
    if middle != [*range(first + len(middle) - cut, last), *range(first, first + len(middle) - cut)]:
        shape, places = [sizes[i] for i in order], [order.index(i) for i in range(count)]
        return "permute", {"shape": "x".join(map(str, shape)), "order": ",".join(map(str, places))}
    m, n = prod(sizes[i] for i in middle[:cut]), prod(sizes[i] for i in middle[cut:])
    return "copy", {"b": prod(sizes[:first]), "m": m, "n": n, "run": prod(sizes[last:])}


def roll(call: AtenCall) -> Operators:
    x, shifts, dims = call["self"], call["shifts"], call["dims"]
    if len(x.shape) != 4 or [d % 4 for d in dims] != [1, 2]:
        raise NotAnOperator("it is not of the rows and columns of n x h x w x c")
    n, h, w, c = x.shape
    return [("roll", {"n": n, "h": h, "w": w, "c": c, "shift": max(1, abs(shifts[0]))})]


def pad(call: AtenCall) -> Operators:
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


def fill(call: AtenCall) -> Operators:
    elements = prod(call.result.shape)
    return [("fill", {"elements": elements})] if elements else []
