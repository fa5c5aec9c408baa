"""Operators that look up by index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from memtui.bench.operators.base import Call, Operator, Parameters, Shape, Tensor


class Embedding(Operator):
    name = "embedding"
    summary = "rows of a table of vocab x dim, chosen at random"
    defaults: ClassVar[Parameters] = {"vocab": 32000, "dim": 512, "tokens": 4096}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["tokens"],), below=p["vocab"]),)

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["vocab"], p["dim"])),)

    def output(self, p: Any) -> Shape:
        return p["tokens"], p["dim"]

    def flops(self, p: Any) -> int:
        return 0

    def moved_bytes(self, p: Any, item_bytes: int) -> int:
        """Count the indices, and the rows they select, read and written; the rest of the table is not moved."""
        return self.inputs(p)[0].size_bytes(item_bytes) + 2 * p["tokens"] * p["dim"] * item_bytes

    def bind(self, torch: Any, p: Any) -> Call:
        embedding = torch.nn.functional.embedding
        return lambda x, w: embedding(x[0], w[0])


class CrossEntropy(Operator):
    name = "cross_entropy"
    summary = "mean loss of rows of scores against one class each"
    defaults: ClassVar[Parameters] = {"rows": 1024, "classes": 1000}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return Tensor((p["rows"], p["classes"])), Tensor((p["rows"],), below=p["classes"])

    def output(self, p: Any) -> Shape:
        return (1,)

    def flops(self, p: Any) -> int:
        """Count 5 a score, as for a softmax, by convention."""
        return 5 * p["rows"] * p["classes"]

    def bind(self, torch: Any, p: Any) -> Call:
        cross_entropy = torch.nn.functional.cross_entropy
        return lambda x, w: cross_entropy(x[0], x[1])


class EmbeddingBag(Operator):
    name = "embedding_bag"
    summary = "rows of a table of vocab x dim, chosen at random, and reduced to one row for each bag of them"
    defaults: ClassVar[Parameters] = {"vocab": 32000, "dim": 64, "bags": 512, "bag": 32, "reduce": "sum"}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"reduce": ("sum", "mean", "max")}

    def inputs(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["bags"], p["bag"]), below=p["vocab"]),)

    def weights(self, p: Any) -> tuple[Tensor, ...]:
        return (Tensor((p["vocab"], p["dim"])),)

    def output(self, p: Any) -> Shape:
        return p["bags"], p["dim"]

    def flops(self, p: Any) -> int:
        """Count 1 for each number that is read, by convention."""
        return p["bags"] * p["bag"] * p["dim"]

    def moved_bytes(self, p: Any, item_bytes: int) -> int:
        """Count the indices, the rows they select, and the rows of the output; the rest of the table is not moved."""
        rows = p["bags"] * p["bag"] + p["bags"]
        return self.inputs(p)[0].size_bytes(item_bytes) + rows * p["dim"] * item_bytes

    def bind(self, torch: Any, p: Any) -> Call:
        embedding_bag, mode = torch.nn.functional.embedding_bag, p["reduce"]
        return lambda x, w: embedding_bag(x[0], w[0], mode=mode)
