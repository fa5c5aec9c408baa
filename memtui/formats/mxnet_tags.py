"""The meaning of tags of an MXNet memory log, by two sets of rules, and the tag for an allocation of a trace.

The tags are those of ``memprofilerv12.patch`` of github.com/tbd-ai/tbd-tools, for MXNet 0.12. ``compat_key`` returns
the key that its ``memory_analysis.py`` finds: the first match of an ordered list of substrings, its mistakes included.
"""

from __future__ import annotations

import re
from functools import lru_cache

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.formats.category_rules import Subject, bundled

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
_PREFIXES = ("optimizer_weight_update_", "optimizer_grad_update_", "aux_state:", "aux_state_re:", "workspace:")
_OF_KIND = {
    "weights": "in_arg:{layer}",
    "gradients": "arg_grad:{layer}",
    "activations": "forward_features:{call}",
    "optimiser state": "optimizer_weight_update_{layer}",
    "inputs": "data",
    "buffers": "aux_state:{layer}",
    "temporaries": "workspace:{call}",
    "unknown": "untagged",
}
_TYPES = {"GRU": "rnn", "LSTM": "rnn", "RNN": "rnn", "BatchNorm": "bn", "Linear": "fullyconnected"}  # MXNet's words
_BLANK = re.compile(r"[\s()]+")


def raw_tag(tag: str) -> str:
    r"""Return the word that the original script finds on a line: ``(in_arg:weight).\n``."""
    return f"({tag}).\n"


@lru_cache(1 << 16)
def compat_key(raw: str) -> str | None:
    """Return the category of a raw tag; None where the original drops the tag."""
    rule = bundled("compat").rule_of(Subject("", "", "", "", (), raw))
    return rule.key if rule else None


def compat_keys() -> tuple[str, ...]:
    """Return all categories of the original, in the order in which it tries them."""
    return tuple(rule.key for rule in bundled("compat").rules)


@lru_cache(1 << 16)
def kind_of_tag(tag: str) -> int:
    """Return the index into CATEGORIES, by the prefix of a tag. A tag that is one bare name is an input array."""
    for prefix, kind in _KINDS:
        if tag.startswith(prefix):
            return CATEGORIES.index(kind)
    if ":" in tag or "," in tag or tag == "unknown":
        return CATEGORIES.index("unknown")
    return CATEGORIES.index("temporaries" if tag.endswith("workspace") else "inputs")


def split_tag(tag: str) -> tuple[str, str]:
    """Return the prefix of a tag, which is MXNet's own, and the rest, which is a name out of the model."""
    for prefix in (*_PREFIXES, *(prefix for prefix, _ in _KINDS)):
        if tag.startswith(prefix):
            return prefix, tag.removeprefix(prefix)
    return "", tag


def kind_of_key(key: str) -> int:
    """Return the index into CATEGORIES of a category of the original, as far as its name tells."""
    names = {"in_arg": "weights", "arg_grad": "gradients", "aux_state": "buffers", "optimizer": "optimiser state"}
    names |= {"workspace": "temporaries"} | dict.fromkeys(COMPAT_UNKNOWN, "unknown")
    names |= dict.fromkeys(("(source)", "(target)", "(target_label)", "(data)"), "inputs")
    return CATEGORIES.index(names.get(key, "activations" if key in compat_keys() else "unknown"))


def tag_for(category: int, layer: str, op: str, layer_type: str = "") -> str:
    """Return the tag that the patch would have given an allocation: one word.

    Operations of MXNet have names with that of their layer in it, and by default with its type: ``encoder_rnn_l0``.
    """
    named = next((name for word, name in _TYPES.items() if word in layer_type), layer_type.lower())
    call = ":".join(filter(None, (layer, named, op.rpartition("/")[2]))) or "unknown"
    tag = _OF_KIND[CATEGORIES[category]].format(layer=layer or call, call=call)
    return _BLANK.sub("_", tag)
