"""Attention with its projections, and a whole layer of a transformer, as PyTorch has them in one piece."""

from __future__ import annotations

from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor


class MultiHeadAttention(Operator):
    name = "mha"
    summary = "multi-head self-attention of b sequences of s tokens: projections in, attention, projection out"
    defaults: ClassVar[Parameters] = {"b": 4, "s": 197, "dim": 768, "heads": 12}

    def check(self, p: Any) -> None:
        if p["dim"] % p["heads"]:
            raise ValueError(f"dim={p['dim']} cannot be shared among {p['heads']} heads")

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["b"], p["s"], p["dim"])),)

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        dim = p["dim"]
        return Tensor((3 * dim, dim)), Tensor((3 * dim,)), Tensor((dim, dim)), Tensor((dim,))

    def output(self, p: Any) -> Shape:
        return p["b"], p["s"], p["dim"]

    def flops(self, p: Any) -> int:
        """Count four projections and two products of tokens with tokens."""
        tokens = p["b"] * p["s"]
        return 8 * tokens * p["dim"] ** 2 + 4 * tokens * p["s"] * p["dim"]

    def bind(self, torch: Any, p: Any) -> Call:
        native, general = torch._native_multi_head_attention, torch.nn.functional.multi_head_attention_forward
        dim, heads = p["dim"], p["heads"]

        def call(x: tuple[Any, ...], w: tuple[Any, ...]) -> Any:
            tokens, (w_in, b_in, w_out, b_out) = x[0], w
            if not torch.is_grad_enabled():  # what nn.MultiheadAttention calls
                return native(tokens, tokens, tokens, dim, heads, w_in, b_in, w_out, b_out, None, False)[0]
            t = tokens.transpose(0, 1)
            out = general(t, t, t, dim, heads, w_in, b_in, None, None, False, 0.0, w_out, b_out, need_weights=False)[0]
            return out.transpose(0, 1)

        return call


class EncoderLayer(MultiHeadAttention):
    name = "encoderlayer"
    summary = "a layer of a transformer's encoder: attention, two norms, and a product to ff numbers and back"
    defaults: ClassVar[Parameters] = {
        "b": 4, "s": 128, "dim": 512, "heads": 8, "ff": 2048, "gelu": False, "norm_first": False,
    }  # fmt: skip
    trains = False  # in one piece there is only the way there

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        attention, norm = super().weights(p), (Tensor((p["dim"],)),) * 4
        wide = Tensor((p["ff"], p["dim"])), Tensor((p["ff"],)), Tensor((p["dim"], p["ff"])), Tensor((p["dim"],))
        return *attention, *norm, *wide

    def flops(self, p: Any) -> int:
        """Count attention and the two products."""
        return super().flops(p) + 4 * p["b"] * p["s"] * p["dim"] * p["ff"]

    def bind(self, torch: Any, p: Any) -> Call:
        layer = torch._transformer_encoder_layer_fwd
        dim, heads, gelu, norm_first = p["dim"], p["heads"], p["gelu"], p["norm_first"]
        return lambda x, w: layer(x[0], dim, heads, *w[:4], gelu, norm_first, 1e-5, *w[4:])
