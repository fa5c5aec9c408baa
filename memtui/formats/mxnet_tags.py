"""What the tags of an MXNet memory log stand for, by two sets of rules, and the tag for an allocation of a trace.

The tags are those of ``memprofilerv12.patch`` of github.com/tbd-ai/tbd-tools, for MXNet 0.12. ``compat_key`` is what
its ``memory_analysis.py`` makes of them: the first of an ordered list of substrings, with what that gets wrong.
"""

from __future__ import annotations

import re
from functools import lru_cache

from memtui.analysis.allocation_trace import CATEGORIES

COMPAT = {
    "in_arg": "Weights",
    "arg_grad": "Weight Gradients",
    "aux_state": "Auxiliary State",
    "optimizer": "Optimizer State",
    "workspace": "Workspace",
    "rnn": "RNN Layer",
    "embed": "Embedding Layer",
    ":_mul": "Multiplication Op",
    "rsqrt": "Sqrt Op",
    ":mean": "Mean Op",
    "att": "Attention Layer",
    ":split": "Split Op",
    "logit": "Logit",
    "swapaxes": "SwapAxes Op",
    "square": "Square Op",
    "softmax": "SoftMax",
    "sequencereverse": "SequenceReverse Op",
    "dot": "Dot Op",
    ":broadcast": "Broadcast Op",
    "zeros": "Zero Op",
    "sum": "Sum Op",
    "transpose": "Transpose Op",
    ":dropout": "Dropout",
    "slice": "Slice Op",
    "cnn": "CNN Layer",
    "arange": "Arange Op",
    "fullyconnected": "FullyConnected",
    "sequencemask": "SequenceMask",
    "conv": "Convolutional Unit",
    "activation": "Activation",
    "reshape": "Reshape Op",
    "transformer": "Transformer Layer",
    "relu": "Relu",
    "pool": "Pooling",
    "bn": "Batch Norm",
    ":id": "Id",
    ":fc": "Fully Connected",
    "_sc": "SC unit",
    "_equal_scalar": "Equal Scalar Op",
    "(source)": "Source",
    "(target)": "Target",
    "(target_label)": "Target Label",
    "(data)": "Data",
    "dropout": "Dropout",
    "untagged": "Unknown (From Python Side)",
    "warning!,ctx_source_unclear": "Unknown (From C++ side)",
}
"""The substrings in the order in which they are tried, and what the original calls them."""
COMPAT_WEIGHTS = ("in_arg", "arg_grad")
COMPAT_UNKNOWN = ("untagged", "warning!,ctx_source_unclear")

PADDING_BYTES = 32  # that MXNet's pooled storage adds to each request
_KINDS = (
    ("in_arg:", "weights"),
    ("arg_grad:", "gradients"),
    ("aux_state", "buffers"),
    ("optimizer", "optimiser state"),
    ("forward_features:", "activations"),
    ("workspace", "temporaries"),
    ("cpu_workspace", "temporaries"),
    ("untagged", "unknown"),
    ("warning!", "unknown"),
)
_BEGINS = ("optimizer_weight_update_", "optimizer_grad_update_", "aux_state:", "aux_state_re:", "workspace:")
_OF_KIND = {
    "weights": "in_arg:{layer}",
    "gradients": "arg_grad:{layer}",
    "activations": "forward_features:{op}",
    "optimiser state": "optimizer_weight_update_{layer}",
    "inputs": "data",
    "buffers": "aux_state:{layer}",
    "temporaries": "workspace:{op}",
    "unknown": "untagged",
}
_BLANK = re.compile(r"[\s()]+")


def raw_tag(tag: str) -> str:
    r"""Return the word that the original script finds on a line: ``(in_arg:weight).\n``."""
    return f"({tag}).\n"


@lru_cache(1 << 16)
def compat_key(raw: str) -> str | None:
    """Return the category of a raw tag; None: the original knows none, and drops it."""
    return next((key for key in COMPAT if key in raw), None)


@lru_cache(1 << 16)
def kind_of_tag(tag: str) -> int:
    """Return the index into CATEGORIES, by what a tag begins with. A tag that is one bare name is an input array."""
    for begin, kind in _KINDS:
        if tag.startswith(begin):
            return CATEGORIES.index(kind)
    if ":" in tag or "," in tag or tag == "unknown":
        return CATEGORIES.index("unknown")
    return CATEGORIES.index("temporaries" if tag.endswith("workspace") else "inputs")


def split_tag(tag: str) -> tuple[str, str]:
    """Return what a tag begins with, which is MXNet's own, and the rest, which is a name out of the model."""
    for begin in (*_BEGINS, *(begin for begin, _ in _KINDS)):
        if tag.startswith(begin):
            return begin, tag.removeprefix(begin)
    return "", tag


def kind_of_key(key: str) -> int:
    """Return what a category of the original adds up, as far as its name tells."""
    names = {"in_arg": "weights", "arg_grad": "gradients", "aux_state": "buffers", "optimizer": "optimiser state"}
    names |= {"workspace": "temporaries"} | dict.fromkeys(COMPAT_UNKNOWN, "unknown")
    names |= dict.fromkeys(("(source)", "(target)", "(target_label)", "(data)"), "inputs")
    return CATEGORIES.index(names.get(key, "activations" if key in COMPAT else "unknown"))


def tag_for(category: int, layer: str, op: str) -> str:
    """Return what the patch would have called an allocation: one word."""
    op = op.rpartition("/")[2]
    words = _OF_KIND[CATEGORIES[category]].format(layer=layer or op or "unknown", op=op or layer or "unknown")
    return _BLANK.sub("_", words)
