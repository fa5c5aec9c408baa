"""Who else on this machine clears accessed bits, so that pages that were touched look as if they were not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

SYS = Path("/sys")
_ON = ("on", "Y", "1")


def other_observers(sys_root: Path = SYS) -> tuple[str, ...]:
    """Names of the kernel's own observers that run now: DAMON in its several forms.

    Users of page_idle and other memtuis cannot be seen from here.
    """
    return tuple(sorted(set(_running(sys_root))))


def _running(sys_root: Path) -> Iterator[str]:
    for state in sys_root.glob("kernel/mm/damon/admin/kdamonds/*/state"):
        if _read(state) in _ON:
            yield f"DAMON (kdamond {state.parent.name})"
    for enabled in sys_root.glob("module/damon_*/parameters/enabled"):
        if _read(enabled) in _ON:
            yield f"DAMON ({enabled.parent.parent.name})"


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
