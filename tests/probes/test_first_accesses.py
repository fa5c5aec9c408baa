"""Pages first accessed in a window, of which another observer took the accessed bit."""

from __future__ import annotations

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.core.samples import Status
from memtui.probes.competing_observers import other_observers
from memtui.probes.pages.pagetable import first_accesses
from memtui.probes.pages.pagetable.first_accesses import MOST_PAGES, FirstAccessReader
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.pagetable.walk_result import Walk
from tests.support.pagetable_targets import Observer, Target, assert_exactly, need_pagetable, need_root, within

pytestmark = pytest.mark.real_clock

FIRST = 1 << 20  # number of the first page of the memory
NONE = PageSet.empty()


def pages(*numbers) -> PageSet:
    return PageSet.from_pages(np.asarray(numbers, np.uint64))


def walk(resident: PageSet | None, *anonymous: tuple[int, int], accessed: PageSet = NONE) -> Walk:
    """Of a process with private anonymous memory from page to page."""
    extents = np.array(anonymous, np.uint64).reshape(-1, 2) << np.uint64(12)
    return Walk(
        accessed,
        resident,
        (1, 1),
        vmas=1,
        mappings=None,
        changed=0,
        errors=0,
        anonymous=(extents[:, 0], extents[:, 1]),
        hugetlb=(extents[:0, 0], extents[:0, 1]),
    )


class Notes:
    """In the place of a walker: pages that another observer has noted."""

    def __init__(self, *noted: int) -> None:
        self.all, self.asked = set(noted), NONE

    def noted(self, _pid: int, asked: PageSet) -> PageSet:
        self.asked = asked
        return pages(*sorted(self.all & set(asked.pages().tolist())))

    def take_doubts(self) -> int:
        return 0


@pytest.fixture
def alone(monkeypatch):
    """No other process maps any page."""
    monkeypatch.setattr(first_accesses, "_only_mapped_by", lambda pid, noted: noted)


def test_all_pages_of_private_memory_are_asked_about_where_they_are_few(alone):
    resident = pages(*range(FIRST, FIRST + 100))
    of = walk(resident, (FIRST + 10, FIRST + 90), accessed=pages(FIRST + 11))
    reader, notes = FirstAccessReader(walk(resident, (FIRST + 10, FIRST + 90))), Notes(FIRST + 50, FIRST + 95)
    reader.record_clear()
    assert reader.wants_resident
    result = reader.read(notes, 1, of, pages(FIRST + 20))
    assert set(notes.asked.pages().tolist()) == set(range(FIRST + 10, FIRST + 90)) - {FIRST + 11, FIRST + 20}
    assert result.pages.pages().tolist() == [FIRST + 50]
    assert (result.unsure.page_count, result.doubtful_pages) == (0, 0)


def test_a_page_that_came_in_the_window_is_asked_about(alone):
    reader, notes = FirstAccessReader(walk(pages(FIRST), (FIRST, FIRST + 9))), Notes(FIRST + 5)
    reader.record_clear()
    assert reader.read(notes, 1, walk(pages(FIRST, FIRST + 5), (FIRST, FIRST + 9)), NONE).pages.page_count == 1


def test_a_note_is_of_this_window_where_all_earlier_ones_were_cleared(alone):
    of = walk(pages(*range(FIRST, FIRST + 10)), (FIRST, FIRST + 10))
    reader = FirstAccessReader(of)
    old = reader.read(Notes(FIRST), 1, of, NONE)
    assert old.unsure.pages().tolist() == old.pages.pages().tolist() == [FIRST], "nothing was cleared before"
    assert reader.read(Notes(FIRST), 1, of, NONE).unsure.page_count == 0, "what was found is cleared with the window"


def test_a_page_that_others_map_is_a_doubt_until_all_notes_are_cleared(monkeypatch):
    of = walk(pages(*range(FIRST, FIRST + 10)), (FIRST, FIRST + 10))
    reader, notes = FirstAccessReader(of), Notes(FIRST + 1, FIRST + 2)
    reader.record_clear()
    monkeypatch.setattr(first_accesses, "_only_mapped_by", lambda pid, noted: pages(FIRST + 2))
    shared = reader.read(notes, 1, of, NONE)
    assert (shared.pages.pages().tolist(), shared.unsure.page_count, shared.doubtful_pages) == ([FIRST + 2], 0, 1)
    monkeypatch.setattr(first_accesses, "_only_mapped_by", lambda pid, noted: noted)
    left = reader.read(notes, 1, of, NONE)
    assert left.unsure.pages().tolist() == [FIRST + 1], "its note may be older than this window"
    reader.record_clear()
    assert reader.read(notes, 1, of, NONE).unsure.page_count == 0


@pytest.mark.parametrize("times", [2, 16])
def test_of_many_pages_a_random_part_tells_how_many_are_missing(alone, times, monkeypatch):
    count = times * MOST_PAGES
    of = walk(pages(*range(FIRST, FIRST + count)), (FIRST, FIRST + count))
    reader, none, half = FirstAccessReader(of), Notes(), Notes(*range(FIRST, FIRST + count, 2))
    random = np.random.default_rng(times)  # the same at every run: a limit of 97.5 % is missed now and then
    monkeypatch.setattr(first_accesses, "random_words", lambda count: random.integers(0, 1 << 64, count, np.uint64))
    assert not reader.wants_resident
    of = walk(None, (FIRST, FIRST + count))
    queries = []
    for _ in range(2):
        reader.record_clear()
        reader.draw()
        result = reader.read(none, 1, of, NONE)
        assert abs(none.asked.page_count - MOST_PAGES) < 10 * MOST_PAGES**0.5
        assert result.doubtful_pages == 3 * times, "no note among so many leaves few"
        queries.append(none.asked)
    assert queries[0].difference(queries[1]).page_count, "the same pages again would never tell of the others"
    enough = 0
    for _ in range(40):
        reader.record_clear()
        result = reader.read(half, 1, of, NONE)  # without a draw before
        assert result.unsure.page_count == 0
        missing = count // 2 - result.pages.page_count
        enough += missing <= result.doubtful_pages
        assert 0.9 * missing <= result.doubtful_pages <= 1.1 * missing
    assert enough >= 37
    assert reader.read(half, 1, of, NONE).unsure.page_count, "those that were not asked about keep their notes"


def test_memory_that_grows_is_too_large_for_all(alone):
    count = MOST_PAGES + 512
    reader = FirstAccessReader(walk(pages(FIRST), (FIRST, FIRST + count)))
    assert reader.read(Notes(), 1, walk(pages(*range(FIRST, FIRST + count)), (FIRST, FIRST + count)), NONE)
    assert not reader.wants_resident


def test_pages_that_a_child_maps_too_are_told_from_others():
    need_root()
    with Target() as target:
        address = target.do("a = anonymous(600); v = view(a, 600); v[:] = 1; answer = a")
        first = address // 4096
        every = pages(*range(first, first + 600))
        assert within(first_accesses._only_mapped_by(target.pid, every), address, 600) == list(range(600))
        target.do("child = os.fork() or time.sleep(1000)")
        assert within(first_accesses._only_mapped_by(target.pid, every), address, 600) == []
        target.do("v[100:200] = 2")
        assert within(first_accesses._only_mapped_by(target.pid, every), address, 600) == list(range(100, 200))
        target.do("os.kill(child, 9); os.waitpid(child, 0)")
    assert first_accesses._only_mapped_by(target.pid, every).page_count == 0, "not known of a process that ended"


def test_a_window_is_exact_whoever_asks_for_it_and_whatever_is_touched_first(monkeypatch):
    """Against the DAMON of this machine, by a caller that neither notes other observers nor begins rounds."""
    need_pagetable()
    if not other_observers():
        pytest.skip("no DAMON runs on this machine")
    count, given_back = 12_000, []
    real = FirstAccessReader.read

    def counting(reader, *of):
        result = real(reader, *of)
        given_back.append(result.pages.page_count)
        return result

    monkeypatch.setattr(FirstAccessReader, "read", counting)
    with Target() as target, PageTableTracker("auto") as tracker:
        address = target.do(f"a = anonymous({count}); v = view(a, {count}); v[:] = 1; answer = a")
        observer = Observer(tracker, notices=False)
        observer.start(target.pid)
        draw = np.random.default_rng(1)
        for number in range(80):
            touched = np.sort(draw.choice(count, 1000, replace=False))
            target.do(f"v[np.random.default_rng({number}).permutation({touched.tolist()})].sum(); time.sleep(0.1)")
            window = observer.window(target.pid)
            assert_exactly(window.pages, address, count, touched)
            assert window.status is Status.OK
            assert window.resident is None, "it was not asked for"
            if number >= 20 and sum(given_back) >= 5:
                break
        observer.close()
    if not sum(given_back):
        pytest.skip("the DAMON of this machine took no accessed bits of this process")
