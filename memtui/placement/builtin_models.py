"""The bundled models by name. This module does not import torch, so that a wrong name is reported at once."""

from __future__ import annotations

import re
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.small_file import MOST_PROGRAM_BYTES, check_readable

# Batch size of each bundled model, unless another is asked for. The published networks are given a few images: every
# tensor has room in every pool.
MODELS = {
    "mlp": 256,
    "conv": 256,
    "transformer": 256,
    "lstm": 256,
    "vgg16": 4,
    "resnet50": 4,
    "inception_v3": 4,
    "densenet121": 4,
}
IMAGE_SIDES = {"vgg16": 224, "resnet50": 224, "inception_v3": 299, "densenet121": 224}
OWN = re.compile(r"(.+\.py):([A-Za-z_]\w*)", re.ASCII)


def batch_of(name: str, wanted: int | None) -> int:
    """Return the batch size of a model; a model of the user's own brings its input, and ignores it."""
    return MODELS.get(name, MODELS["mlp"]) if wanted is None else wanted


def is_own(name: str) -> bool:
    return OWN.fullmatch(name) is not None


def check_model(name: str) -> str:
    """Return the name of a model, with the path of a file made absolute. Raises UserError."""
    if name in MODELS:
        return name
    match = OWN.fullmatch(name)
    if match is None:
        raise UserError(
            f"there is no model {name!r}: one of {', '.join(MODELS)}, or FILE.py:function "
            "with a function that returns (model, inputs, loss)"
        )
    path = Path(match[1]).absolute()
    check_readable(path, MOST_PROGRAM_BYTES)
    return f"{path}:{match[2]}"
