"""What to say of a word that means nothing here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, names: Iterable[str], otherwise: str = "") -> str:
    """The names that were perhaps meant; where none is near, ``otherwise``, or all names."""
    names = tuple(names)
    near = difflib.get_close_matches(word, names, 3, 0.5)
    return f"did you mean {' or '.join(near)}?" if near else otherwise or f"there are {', '.join(names)}"
