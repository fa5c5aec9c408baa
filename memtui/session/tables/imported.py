"""Origin of a session that memtui did not record itself. It lies in the table ``meta``, so in JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

LINES, NO_CLOCK, WALL, SINCE_BOOT = "lines", "none", "wall", "boot"
"""What times are: numbers of lines, numbers of rows, nanoseconds since 1970, nanoseconds of some clock."""
CLOCKS = (LINES, NO_CLOCK, WALL, SINCE_BOOT)
MOST_TAGS = 1 << 20
MAX_SUM = float(1 << 52)  # bytes: whole numbers up to here are exact in a float

Sums = dict[str, tuple[float, tuple[str, ...]]]
"""Of an analysis file: total bytes and tags of each category, in its order."""


class DriverMemory(NamedTuple):
    """What a driver reported of the memory of a GPU at one moment, of all programs together."""

    t_ns: int
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class ImportedFrom:
    """A file of another tool.

    Attributes:
        format: what the file is ("MXNet log").
        file: its name, without folders.
        clock: one of ``CLOCKS``.
        driver: sizes are those requested from the driver: more than tensors take, and frees are not logged.
        absent: what the file lacks, and why.
        warnings: what is wrong with it.
        coarse: tags of allocations that the log has in whole MB only, each as often as it occurs.
        sums: of an analysis file, which has no single allocations.
    """

    format: str
    file: str = ""
    clock: str = WALL
    driver: bool = False
    absent: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    coarse: tuple[str, ...] = ()
    sums: Sums | None = None

    @property
    def counts(self) -> bool:
        """Whether times are numbers of lines or rows: there is no clock."""
        return self.clock in (LINES, NO_CLOCK)

    def to_dict(self) -> dict[str, Any]:
        """Return the origin for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> ImportedFrom:
        """Undo ``to_dict``, of data that may be anybody's. Raises ValueError."""
        if not isinstance(values, dict) or set(values) != {field.name for field in fields(cls)}:
            raise ValueError("where it was imported from is told in other words")
        if not all(isinstance(values[name], str) for name in ("format", "file")) or values["clock"] not in CLOCKS:
            raise ValueError("where it was imported from is not a text")
        lists = {name: values[name] for name in ("absent", "warnings", "coarse")}
        if not all(map(_is_texts, lists.values())) or not isinstance(values["driver"], bool):
            raise ValueError("what is told of its import is not a list of texts")
        sums = None if values["sums"] is None else checked_sums(values["sums"])
        return cls(**{**values, **{name: tuple(texts) for name, texts in lists.items()}, "sums": sums})


def checked_sums(values: Any) -> Sums:
    r"""Return the categories of an analysis file: ``{"in_arg": [1048608.0, ["(in_arg:weight).\n"]]}``.

    Raises ValueError.
    """
    if not isinstance(values, dict):
        raise ValueError("its categories are not an object")
    sums: Sums = {}
    for key, value in values.items():
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise ValueError(f"category {key!r} is not a total and a list of tags")
        total, tags = value
        if isinstance(total, bool) or not isinstance(total, (int, float)) or not 0 <= total < MAX_SUM:
            raise ValueError(f"the total of category {key!r} is not a number of bytes")
        if total != int(total):
            raise ValueError(f"the total of category {key!r} is not a whole number of bytes")
        if not _is_texts(tags):
            raise ValueError(f"the tags of category {key!r} are not a list of texts")
        sums[key] = float(total), tuple(tags)
    if sum(total for total, _ in sums.values()) >= MAX_SUM:
        raise ValueError("its totals are too large to be true")
    return sums


def _is_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) <= MOST_TAGS and all(isinstance(item, str) for item in value)
