"""The syntax of pools on the command line: ``dram,numa:1,emulated:29,12``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memtui.core.errors import UserError

ON_GPU = ("cuda", "pinned", "pageable")  # pools that an op on a GPU can have its tensors in
WITHOUT_PARAMETERS = ("dram", "huge", *ON_GPU)
_HOW = f"a pool is one of {', '.join(WITHOUT_PARAMETERS)}, numa:NODE, file:FOLDER, emulated:READ,WRITE (GB/s)"
_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """One pool, as it was requested.

    Attributes:
        name: the whole text, which is the name of the pool everywhere.
        kind: the part before the colon.
        node: number of the NUMA node, for ``numa``.
        folder: for ``file``.
        read_bytes_per_s: for ``emulated``: reading a byte takes one over this longer than in fast memory.
        write_bytes_per_s: the same for writing.
    """

    name: str
    kind: str
    node: int | None = None
    folder: str = ""
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None

    @property
    def emulated(self) -> bool:
        return self.kind == "emulated"


def parse_pools(text: str) -> tuple[PoolSpec, ...]:
    """Return the pools of a list with commas, the fast one first. Raises UserError."""
    names: list[str] = []
    for word in (word.strip() for word in text.split(",")):
        # The comma in emulated:29,12 does not end the pool.
        if names and re.fullmatch(r"emulated:[^,]*", names[-1]) and _NUMBER.fullmatch(word):
            names[-1] += f",{word}"
        else:
            names.append(word)
    pools = tuple(parse_pool(word) for word in names)
    for word in names:
        if names.count(word) > 1:
            raise UserError(f"pool {word} is named twice")
    if len(pools) < 2:
        raise UserError("name two pools or more, the fast one first, such as --pools dram,emulated:29,12")
    kinds = {pool.kind for pool in pools}
    if kinds & {*ON_GPU} and pools[0].kind != "cuda":
        (first, *_) = [pool.name for pool in pools if pool.kind in ON_GPU]
        raise UserError(f"{first}: with it ops run on a GPU, whose memory is the fast pool: say cuda first")
    if "cuda" in kinds and kinds - {*ON_GPU}:
        (first, *_) = [pool.name for pool in pools if pool.kind not in ON_GPU]
        raise UserError(f"{first}: beside cuda only pinned and pageable can be measured")
    return pools


def parse_pool(word: str) -> PoolSpec:
    """Return one pool. Raises UserError."""
    kind, colon, rest = word.partition(":")
    if word in WITHOUT_PARAMETERS:
        return PoolSpec(word, word)
    if kind == "numa" and re.fullmatch(r"\d{1,6}", rest, re.ASCII):
        return PoolSpec(f"numa:{int(rest)}", kind, node=int(rest))
    if kind == "file" and rest:
        return PoolSpec(word, kind, folder=rest)
    if kind == "emulated" and colon:
        speeds = rest.split(",")
        if len(speeds) == 2 and all(_NUMBER.fullmatch(speed) and 0 < float(speed) < 1e6 for speed in speeds):
            read, write = (float(speed) * 1e9 for speed in speeds)
            return PoolSpec(word, kind, read_bytes_per_s=read, write_bytes_per_s=write)
        raise UserError(f"{word!r}: an emulated pool has two speeds above 0 in GB/s, as emulated:29,12 (read, write)")
    raise UserError(f"there is no pool {word!r}: {_HOW}")
