"""Who else clears accessed bits: found in sysfs, and made good for."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.probes.pages.observers import other_observers
from memtui.probes.pages.pagetable import PageTableTracker
from memtui.probes.pages.walk import Walker
from tests.pagetable_targets import Observer, Target, need_pagetable, within

DAMON = Path("/sys/kernel/mm/damon/admin/kdamonds")


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_nobody(tmp_path):
    assert other_observers(tmp_path) == ()
    put(tmp_path / "kernel/mm/damon/admin/kdamonds/0/state", "off")
    put(tmp_path / "module/damon_stat/parameters/enabled", "N")
    assert other_observers(tmp_path) == ()


def test_damon_in_all_its_forms(tmp_path):
    put(tmp_path / "kernel/mm/damon/admin/kdamonds/0/state", "off")
    put(tmp_path / "kernel/mm/damon/admin/kdamonds/1/state", "on")
    put(tmp_path / "module/damon_stat/parameters/enabled", "Y")
    put(tmp_path / "module/damon_reclaim/parameters/enabled", "N")
    assert other_observers(tmp_path) == ("DAMON (damon_stat)", "DAMON (kdamond 1)")


def test_the_user_is_told_once_per_change(monkeypatch):
    need_pagetable()
    found: list[tuple[str, ...]] = [(), (), ("DAMON (kdamond 0)",), ("DAMON (kdamond 0)",), ()]
    monkeypatch.setattr("memtui.probes.pages.pagetable.other_observers", lambda: found.pop(0))
    with PageTableTracker("soft-dirty") as tracker:
        told = [tracker.notice() for _ in range(5)]
    assert [bool(text) for text in told] == [False, False, True, False, True]
    assert "kdamond 0" in told[2]


@pytest.fixture
def target():
    with Target() as target:
        yield target


def test_pages_that_another_observer_took_are_read_back(target, monkeypatch):
    """Against the DAMON of this machine: with the second look nothing is missing; that it answers at all is counted."""
    need_pagetable()
    if not other_observers():
        pytest.skip("no DAMON runs on this machine")
    pages = 60_000
    address = target.touch_for_ever(pages, pages, seed=3)
    with PageTableTracker("auto") as tracker:
        observer, given_back = Observer(tracker), []
        real = Walker.noted

        def counting(walker, pid, asked):
            answer = real(walker, pid, asked)
            given_back.append(answer.page_count)
            return answer

        monkeypatch.setattr(Walker, "noted", counting)
        observer.begin(target.pid)
        for count in range(200):
            if count >= 40 and sum(given_back):  # DAMON looks at this process when it comes to it
                break
            target.let_run(0.1)
            window = observer.window(target.pid)
            assert within(window.pages, address, pages) == list(range(pages))
        assert tracker._walker.knows_page_frames
        observer.close()
    assert sum(given_back) > 0
