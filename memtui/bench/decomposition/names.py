"""Names of networks on the command line: ``FILE.py:function``, ``torchvision:NAME``, ``timm:NAME``. No torch here."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memtui.bench.operators.base import Value
from memtui.core.errors import UserError
from memtui.core.small_file import MOST_PROGRAM_BYTES, check_readable

LIBRARIES = ("torchvision", "timm")
_FILE = re.compile(r"(.+\.py):([A-Za-z_]\w*)", re.ASCII)
_LIBRARY = re.compile(rf"({'|'.join(LIBRARIES)}):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NetworkName:
    """A network and its input.

    Attributes:
        text: the name, with the path of a file made absolute.
        n: images of a library's network.
        size: their height and width; 0: the network's own.
    """

    text: str
    n: int = 1
    size: int = 0


def is_network(text: str) -> bool:
    """Whether a word of the command line names a network by its file or library."""
    return _FILE.fullmatch(text) is not None or _LIBRARY.fullmatch(text) is not None


def network_name(text: str, grid: Mapping[str, Sequence[Value]]) -> NetworkName:
    """Return the network of a word and of the values of ``--grid n=... --grid size=...``.

    Raises UserError: the file cannot be read, the library is not installed, or the grid is not an input of it.
    """
    if (match := _FILE.fullmatch(text)) is not None:
        path = Path(match[1]).absolute()
        check_readable(path, MOST_PROGRAM_BYTES)
        if grid:
            raise UserError(f"{text} brings its own input; --grid n=... and size=... are for torchvision: and timm:")
        return NetworkName(f"{path}:{match[2]}")
    match = _LIBRARY.fullmatch(text)
    assert match is not None  # ``is_network`` comes first
    if not match[2]:
        raise UserError(f"name a network: {text}resnet18")
    if importlib.util.find_spec(match[1]) is None:
        raise UserError(f"{text} needs {match[1]}, which is not installed: pip install {match[1]}")
    return NetworkName(text, **_input_of(grid))


def _input_of(grid: Mapping[str, Sequence[Value]]) -> dict[str, int]:
    """Return ``n`` and ``size`` of the grid. Raises UserError."""
    given = {}
    for key, some in grid.items():
        if key not in ("n", "size"):
            raise UserError(f"a network has n and size, not {key}")
        if len(some) != 1 or isinstance(some[0], bool) or not isinstance(some[0], int) or some[0] < 1:
            raise UserError(f"{key} of a network is one whole number above 0")
        given[key] = some[0]
    return given
