"""Operators of multiplications and additions: matrix products, attention."""

from __future__ import annotations

from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor


class Linear(Operator):
    name = "linear"
    summary = "m rows of in features times a matrix of in x out"
    defaults: ClassVar[Parameters] = {"m": 64, "in": 1024, "out": 1024, "bias": True}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["m"], p["in"])),)

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        matrix = Tensor((p["out"], p["in"]))
        return (matrix, Tensor((p["out"],))) if p["bias"] else (matrix,)

    def output(self, p: Any) -> Shape:
        return p["m"], p["out"]

    def flops(self, p: Any) -> int:
        return 2 * p["m"] * p["in"] * p["out"]

    def bind(self, torch: Any, p: Any) -> Call:
        linear = torch.nn.functional.linear
        return lambda x, w: linear(x[0], *w)

    def moved_bytes(self, p: Any, item_bytes: int) -> int:
        """Return the least bytes that a forward pass moves. Output and bias of fp8 are bf16."""
        wide = p["m"] * p["out"] + (p["out"] if p["bias"] else 0)
        return (p["m"] + p["out"]) * p["in"] * item_bytes + wide * max(2, item_bytes)

    def check_fp8(self, p: Any) -> None:
        if p["in"] % 16 or p["out"] % 16:
            raise ValueError("fp8: in and out are multiples of 16")

    def check_compressed(self, p: Any) -> None:
        if p["out"] % 32 or p["in"] % 64 or p["m"] % 8:
            raise ValueError("semi_structured: out is a multiple of 32, in one of 64, m one of 8")

    def bind_fp8(self, torch: Any, p: Any, device: str) -> Call:
        functional = torch.nn.functional
        if not hasattr(functional, "scaled_mm"):
            raise RuntimeError(f"fp8 needs PyTorch 2.10 or newer; this is {torch.__version__}")
        multiply, scale = functional.scaled_mm, torch.ones((), device=device)
        how = functional.ScalingType.TensorWise
        if p["bias"]:
            return lambda x, w: multiply(x[0], w[0].t(), scale, how, scale, how, bias=w[1])
        return lambda x, w: multiply(x[0], w[0].t(), scale, how, scale, how)


class Matmul(Operator):
    name = "matmul"
    summary = "a matrix of m x k times one of k x n, both new with every call"
    defaults: ClassVar[Parameters] = {"m": 512, "n": 512, "k": 512}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return Tensor((p["m"], p["k"])), Tensor((p["k"], p["n"]))

    def output(self, p: Any) -> Shape:
        return p["m"], p["n"]

    def flops(self, p: Any) -> int:
        return 2 * p["m"] * p["n"] * p["k"]

    def bind(self, torch: Any, p: Any) -> Call:
        matmul = torch.matmul
        return lambda x, w: matmul(x[0], x[1])


class Bmm(Operator):
    name = "bmm"
    summary = "b products of m x k times k x n"
    defaults: ClassVar[Parameters] = {"b": 16, "m": 128, "n": 128, "k": 64}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return Tensor((p["b"], p["m"], p["k"])), Tensor((p["b"], p["k"], p["n"]))

    def output(self, p: Any) -> Shape:
        return p["b"], p["m"], p["n"]

    def flops(self, p: Any) -> int:
        return 2 * p["b"] * p["m"] * p["n"] * p["k"]

    def bind(self, torch: Any, p: Any) -> Call:
        bmm = torch.bmm
        return lambda x, w: bmm(x[0], x[1])


class ScaledDotProductAttention(Operator):
    name = "sdpa"
    summary = "scaled dot-product attention of b sequences of s tokens, to t tokens with kv heads, also with a mask"
    defaults: ClassVar[Parameters] = {
        "b": 4, "heads": 8, "s": 256, "d": 64, "causal": False, "t": "s", "kv": "heads", "mask": False,
    }  # fmt: skip
    later = ("t", "kv", "mask")

    def check(self, p: Any) -> None:
        if p["heads"] % p["kv"]:
            raise ValueError(f"{p['heads']} heads cannot be shared among {p['kv']} of keys and values")
        if p["causal"] and p["mask"]:
            raise ValueError("attention is causal or has a mask")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        """Return queries, keys and values, and a mask that is added to the scores of every sequence and head."""
        keys = Tensor((p["b"], p["kv"], p["t"], p["d"]))
        mask = (Tensor((p["s"], p["t"])),) if p["mask"] else ()
        return Tensor((p["b"], p["heads"], p["s"], p["d"])), keys, keys, *mask

    def output(self, p: Any) -> Shape:
        return p["b"], p["heads"], p["s"], p["d"]

    def flops(self, p: Any) -> int:
        """Count two products, masked ones of a causal mask included, as PyTorch's counter does."""
        return 4 * p["b"] * p["heads"] * p["s"] * p["t"] * p["d"]

    def bind(self, torch: Any, p: Any) -> Call:
        attention, causal = torch.nn.functional.scaled_dot_product_attention, p["causal"]
        if p["kv"] != p["heads"]:
            return lambda x, w: attention(*x, is_causal=causal, enable_gqa=True)
        return lambda x, w: attention(*x, is_causal=causal)
