"""TOML files that a user wrote."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from memtui.errors import UserError


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file says. Raises UserError, with the line where it is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or 'is not text'}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: is not TOML: {error}") from None
