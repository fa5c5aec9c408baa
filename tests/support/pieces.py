"""A file that arrives in pieces, with a border wherever a test wants one."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable

from memtui.formats.input_file import Input


class InPieces(Input):
    """An input that is read piece by piece; ``borders``: where a piece ends, rising."""

    def __init__(self, data: bytes, borders: Iterable[int]) -> None:
        super().__init__(io.BytesIO(data))
        edges = [0, *borders, len(data)]
        self._pieces = [piece for low, high in itertools.pairwise(edges) if (piece := data[low:high])]

    def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""
