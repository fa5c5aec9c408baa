"""Which access tracker to use: the first of an order that proves itself here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memtui.probes.pages.base import PageTracker, TrackerError
from memtui.probes.pages.own_pages import other_pages
from memtui.samples import Capability

AUTO_ORDER = ("pagetable", "idle", "referenced", "rss")


class NoTracker(Exception):
    """The asked tracker or flush does not work here; the text says why and what would."""


@dataclass(frozen=True, slots=True)
class _Entry:
    prove: Callable[[], Capability]
    create: Callable[[str, str, bool], PageTracker]  # flush, rearm, whether the target is paused


def _pagetable() -> _Entry:
    from memtui.probes.pages import pagetable

    return _Entry(
        pagetable.prove,
        lambda flush, rearm, paused: pagetable.PageTableTracker(flush, rearm=rearm, paused=paused),
    )


def _idle() -> _Entry:
    from memtui.probes.pages import idle

    return _Entry(idle.prove, lambda flush, _rearm, _paused: idle.IdleTracker(flush))


def _referenced() -> _Entry:
    from memtui.probes.pages import referenced

    return _Entry(referenced.prove, lambda flush, _rearm, _paused: referenced.ReferencedTracker(flush))


def _damon() -> _Entry:
    from memtui.probes.pages import damon

    return _Entry(damon.prove, lambda flush, _rearm, _paused: damon.DamonTracker(flush))


def _rss() -> _Entry:
    from memtui.probes.pages.rss import RssTracker

    return _Entry(lambda: Capability("rss", True), lambda _flush, _rearm, _paused: RssTracker())


_TRACKERS: dict[str, Callable[[], _Entry]] = {
    "pagetable": _pagetable,
    "idle": _idle,
    "damon": _damon,
    "referenced": _referenced,
    "rss": _rss,
}
NAMES = ("auto", *_TRACKERS)


def capability(name: str) -> Capability:
    """Whether one tracker works here, proven by trying."""
    if name != "rss" and (lacks := other_pages()):
        return Capability(name, False, *lacks)
    return _TRACKERS[name]().prove()


def capabilities() -> list[Capability]:
    """Every tracker of the contract, each tried."""
    return [capability(name) for name in NAMES if name != "auto"]


def choose(
    asked: str, flush: str, rearm: str = "auto", *, paused: bool = True
) -> tuple[PageTracker, tuple[Capability, ...]]:
    """Open the asked tracker, or for ``auto`` the first that proves itself.

    Returns it and the capabilities that were rejected on the way. Raises NoTracker when the asked one, or the flush
    asked of it, does not work here.
    """
    rejected: list[Capability] = []
    for name in AUTO_ORDER if asked == "auto" else (asked,):
        found = capability(name)
        if found.ok:
            try:
                return _TRACKERS[name]().create(flush, rearm, paused), tuple(rejected)
            except TrackerError as error:
                raise NoTracker(str(error)) from error
        rejected.append(found)
    working = [c.name for c in capabilities() if c.ok]
    others = sorted(working, key=lambda name: (*AUTO_ORDER, name).index(name))
    cause = rejected[-1]
    remedy = f" ({cause.remedy})" if cause.remedy else ""
    would = f"these would: {', '.join(others)} (best first)"
    raise NoTracker(f"tracker {asked} does not work here: {cause.reason}{remedy}; {would}")


def page_views(tracker: PageTracker, rejected: tuple[Capability, ...]) -> Capability:
    """Whether there will be page sets: for the heat map, reuse distances and miss ratios. If not, what would help."""
    found = tracker.pages
    if found.ok:
        return found
    better = next((c for c in rejected if c.name == AUTO_ORDER[0]), None)
    why = f"{found.reason}; {better.name} is out: {better.reason}" if better else found.reason
    return Capability("pages", False, why, better.remedy if better else found.remedy)
