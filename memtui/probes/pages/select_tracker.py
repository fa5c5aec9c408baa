"""Selects the access tracker: the first, in a fixed order, that proves itself here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memtui.core.block_sample import BlockSample
from memtui.core.samples import Capability
from memtui.probes.pages.self_test import other_pages
from memtui.probes.pages.tracker import PageTracker, TrackerError

AUTO_ORDER = ("pagetable", "idle", "referenced", "rss")


class NoTracker(Exception):
    """The requested tracker or flush does not work here; the text says why, and which would."""


@dataclass(frozen=True, slots=True)
class _Entry:
    prove: Callable[[], Capability]
    # Arguments: flush, rearm, whether the target is paused, and how a part of the memory is sampled.
    create: Callable[[str, str, bool, BlockSample | None], PageTracker]
    close: Callable[[], None] = lambda: None  # what the proof has left for ``create``, where that is not called


def _pagetable() -> _Entry:
    from memtui.probes.pages.pagetable import proof
    from memtui.probes.pages.pagetable.tracker import PageTableTracker
    from memtui.probes.pages.pagetable.walk import Walker

    proved: list[Walker] = []

    def prove() -> Capability:
        capability, walker = proof.prove_walker()
        proved.extend([walker] if walker else [])
        return capability

    def create(flush: str, rearm: str, paused: bool, sample: BlockSample | None) -> PageTracker:
        walker = proved.pop() if proved else None
        return PageTableTracker(flush, rearm=rearm, paused=paused, sample=sample, walker=walker)

    def close() -> None:
        while proved:
            proved.pop().close()

    return _Entry(prove, create, close)


def _idle() -> _Entry:
    from memtui.probes.pages.idle import tracker as idle

    return _Entry(idle.prove, lambda flush, *_: idle.IdleTracker(flush))


def _referenced() -> _Entry:
    from memtui.probes.pages import referenced

    return _Entry(referenced.prove, lambda flush, *_: referenced.ReferencedTracker(flush))


def _damon() -> _Entry:
    from memtui.probes.pages.damon import tracker as damon

    return _Entry(damon.prove, lambda flush, *_: damon.DamonTracker(flush))


def _rss() -> _Entry:
    from memtui.probes.pages.rss import RssTracker

    return _Entry(lambda: Capability("rss", True), lambda *_: RssTracker())


# By the names of --tracker (core/options.py).
_TRACKERS: dict[str, Callable[[], _Entry]] = {
    "pagetable": _pagetable,
    "idle": _idle,
    "damon": _damon,
    "referenced": _referenced,
    "rss": _rss,
}
_SAMPLING = "pagetable"  # can read a part of the memory alone
NAMES = ("auto", *_TRACKERS)


def capability(name: str) -> Capability:
    """Return whether a tracker works here, proved by trying it."""
    entry = _TRACKERS[name]()
    try:
        return _prove(name, entry)
    finally:
        entry.close()


def _prove(name: str, entry: _Entry) -> Capability:
    if name != "rss" and (lacks := other_pages()):
        return Capability(name, False, *lacks)
    return entry.prove()


def capabilities() -> list[Capability]:
    """Return the capabilities of all trackers, each proved by trying it."""
    return [capability(name) for name in NAMES if name != "auto"]


def choose(
    requested: str, flush: str, rearm: str = "auto", *, paused: bool = True, sample: BlockSample | None = None
) -> tuple[PageTracker, tuple[Capability, ...]]:
    """Open the requested tracker, or for ``auto`` the first that proves itself.

    Returns the tracker and the capabilities that were rejected on the way. Raises NoTracker when the requested tracker
    or flush does not work here, and where a ``sample`` of the memory is requested of one that reads all of it.
    """
    if sample is not None and requested not in ("auto", _SAMPLING):
        raise NoTracker(f"--pages sampled: only the {_SAMPLING} tracker reads parts of the memory, not {requested}")
    rejected: list[Capability] = []
    for name in (_SAMPLING,) if sample is not None else AUTO_ORDER if requested == "auto" else (requested,):
        entry = _TRACKERS[name]()
        result = _prove(name, entry)
        if result.ok:
            try:
                return entry.create(flush, rearm, paused, sample), tuple(rejected)
            except TrackerError as error:
                raise NoTracker(str(error)) from error
        rejected.append(result)
    working = [c.name for c in capabilities() if c.ok]
    others = sorted(working, key=lambda name: (*AUTO_ORDER, name).index(name))
    cause = rejected[-1]
    remedy = f" ({cause.remedy})" if cause.remedy else ""
    would = f"these would: {', '.join(others)} (best first)"
    if sample is not None:
        raise NoTracker(f"--pages sampled needs the {_SAMPLING} tracker: {cause.reason}{remedy}")
    raise NoTracker(f"tracker {requested} does not work here: {cause.reason}{remedy}; {would}")


def page_views(tracker: PageTracker, rejected: tuple[Capability, ...]) -> Capability:
    """Return whether windows will have page sets (for heat map, reuse distances, miss ratios); if not, the remedy."""
    result = tracker.pages
    if result.ok:
        return result
    better = next((c for c in rejected if c.name == AUTO_ORDER[0]), None)
    why = f"{result.reason}; {better.name} is out: {better.reason}" if better else result.reason
    return Capability("pages", False, why, better.remedy if better else result.remedy)
