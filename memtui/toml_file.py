"""TOML files that a user wrote."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from memtui.errors import UserError
from memtui.small_file import read_small


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file says. Raises UserError, with the line where it is not TOML."""
    try:
        return tomllib.loads(read_small(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: is not TOML: {error}") from None
