"""Which access tracker to use: the first of an order that proves itself here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memtui.probes.pages.base import PageTracker
from memtui.samples import Capability

AUTO_ORDER = ("pagetable", "rss")


class NoTracker(Exception):
    """The asked tracker or flush does not work here; the text says why and what would."""


@dataclass(frozen=True, slots=True)
class _Entry:
    prove: Callable[[], Capability]
    create: Callable[[str], PageTracker]


def _pagetable() -> _Entry:
    from memtui.probes.pages import pagetable

    return _Entry(pagetable.prove, pagetable.PageTableTracker)


def _rss() -> _Entry:
    from memtui.probes.pages.rss import RssTracker

    return _Entry(lambda: Capability("rss", True), lambda flush: RssTracker())


_TRACKERS: dict[str, Callable[[], _Entry]] = {"pagetable": _pagetable, "rss": _rss}
_PLANNED = ("idle", "damon", "referenced")  # names of the command-line contract that this version lacks
NAMES = ("auto", *_TRACKERS, *_PLANNED)


def capability(name: str) -> Capability:
    """Whether one tracker works here, proven by trying."""
    if name in _PLANNED:
        return Capability(name, False, "this version of memtui does not have it", "use --tracker auto")
    return _TRACKERS[name]().prove()


def capabilities() -> list[Capability]:
    """Every tracker of the contract, each tried."""
    return [capability(name) for name in NAMES if name != "auto"]


def choose(asked: str, flush: str) -> tuple[PageTracker, tuple[Capability, ...]]:
    """Open the asked tracker, or for ``auto`` the first that proves itself.

    Returns it and the capabilities that were rejected on the way. Raises NoTracker when the asked one, or the flush
    asked of it, does not work here.
    """
    rejected: list[Capability] = []
    for name in AUTO_ORDER if asked == "auto" else (asked,):
        found = capability(name)
        if found.ok:
            return _TRACKERS[name]().create(flush), tuple(rejected)
        rejected.append(found)
    others = [c.name for c in capabilities() if c.ok]
    cause = rejected[-1]
    remedy = f" ({cause.remedy})" if cause.remedy else ""
    raise NoTracker(f"tracker {asked} does not work here: {cause.reason}{remedy}; these would: {', '.join(others)}")
