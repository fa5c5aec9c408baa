"""Names of models. This module does not import torch, so that a wrong name is reported at once."""

from __future__ import annotations

import re
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.small_file import MOST_PROGRAM_BYTES, check_readable

MODELS = ("mlp", "conv", "transformer")
OWN = re.compile(r"(.+\.py):([A-Za-z_]\w*)", re.ASCII)


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
