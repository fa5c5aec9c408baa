"""Which configurations are nearly the same one.

A model that saw a convolution of 8 images is right about the same one of 16, and that says nothing of how it does on
shapes it never saw. So these are in one group, and a group is never on both sides of a split.
"""

from __future__ import annotations

from collections.abc import Mapping

from memtui.bench.configuration import Configuration, canonical

# The parameter that only says how often the same work is repeated; None: there is none beside.
BATCH: Mapping[str, str | None] = {
    **dict.fromkeys(("conv2d", "batchnorm", "maxpool", "avgpool", "adaptiveavgpool", "resnet50"), "n"),
    **dict.fromkeys(("linear", "matmul"), "m"),
    **dict.fromkeys(("bmm", "sdpa"), "b"),
    **dict.fromkeys(("layernorm", "softmax", "cross_entropy"), "rows"),
    "embedding": "tokens",
    **dict.fromkeys(("relu", "gelu", "silu", "sigmoid", "add", "dropout", "sgd", "adamw"), None),
}


def group_of(configuration: Configuration) -> str:
    """Name of its group: operator and shape, whatever the batch, the type of the numbers and the other conditions."""
    batch = BATCH.get(configuration.op)
    shape = {key: value for key, value in configuration.parameters.items() if key != batch}
    return canonical([configuration.op, shape])
