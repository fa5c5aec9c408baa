"""masim (https://github.com/sjp38/masim) as a target: phases in which it touches just so many bytes, over and over.

masim is not part of memtui: ``benchmarks.programs`` finds it. The configurations are written here in its grammar, after
its ``stairs.cfg`` and ``zigzag.cfg``, so that a test can have shorter phases. Its regions come from malloc, which maps
each for itself; the kernel joins neighbours into one mapping.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.programs import find

STAIR_BYTES, ZIGZAG_BYTES = 10_000_000, 100_000_000
_PAGE_BYTES = 4096
_MALLOC_BYTES = 16  # before the memory that malloc hands out


@dataclass(frozen=True, slots=True)
class Config:
    """Regions of one size, all swept in a first phase and then one after the other."""

    regions: int
    region_bytes: int
    order: tuple[int, ...]  # the region of each phase
    first_s: float
    phase_s: float

    @property
    def touched_bytes(self) -> int:
        """Known size of each phase but the first: every page of a region has a byte that is swept."""
        return -(-(self.region_bytes + _MALLOC_BYTES) // _PAGE_BYTES) * _PAGE_BYTES

    def text(self) -> str:
        """In masim's grammar: regions (name, bytes); phases: name, ms, lines of region, random, stride and weight."""
        names = [f"r{i}" for i in range(self.regions)]
        phases = [("first", self.first_s, names)]
        phases += [(f"phase {i}", self.phase_s, [names[region]]) for i, region in enumerate(self.order)]
        parts = ["\n".join(f"{name}, {self.region_bytes}" for name in names)]
        for name, seconds, touched in phases:
            lines = [f"{region}, 0, {_PAGE_BYTES}, 1" for region in touched]
            parts.append("\n".join([name, str(round(seconds * 1000)), *lines]))
        return "\n\n".join(parts) + "\n"


def stairs(*, steps: int = 10, first_s: float = 10, phase_s: float = 5) -> Config:
    """One region after the other; by default as long as masim's own ``stairs.cfg``."""
    return Config(steps, STAIR_BYTES, tuple(range(steps)), first_s, phase_s)


def zigzag(*, phases: int = 12, first_s: float = 10, phase_s: float = 5) -> Config:
    """Two regions in turn; by default as long as masim's own ``zigzag.cfg``."""
    return Config(2, ZIGZAG_BYTES, tuple(i % 2 for i in range(phases)), first_s, phase_s)


def command(config: Config, folder: Path) -> list[str]:
    """What runs masim with it. Raises Skip where there is none."""
    program = find("masim")
    path = folder / "masim.cfg"
    path.write_text(config.text())
    return [str(program), "--quiet", str(path)]


@contextmanager
def masim(config: Config, folder: Path) -> Iterator[int]:
    """The pid of a masim that has just begun."""
    with subprocess.Popen(command(config, folder), stdin=subprocess.DEVNULL) as child:
        try:
            yield child.pid
        finally:
            child.kill()
