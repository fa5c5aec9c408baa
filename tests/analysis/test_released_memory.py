"""What was given back in a window, from page faults and RSS: of a model, of a real process, and where it is told."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.released_memory import released_bytes
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import Window
from memtui.probes.usage import UsageProbe
from memtui.reports.report import build_report
from memtui.reports.text import format_report
from memtui.session.session import Session
from memtui.tui.presenters.presenter import Presenter
from tests.support.pagetable_targets import Target
from tests.support.sessions import messages, write_session

MIB = 1 << 20
PAGES = 5000
# The kernel keeps a part of RSS by CPU, and adds it up for nobody who reads it.
ROUNDING_BYTES = MIB
# What happens to a page: it comes (by a fault, alone or of a file, or beside another page of a file), is touched, goes.
ACTS = st.lists(st.tuples(st.sampled_from(["fault", "file", "beside", "touch", "go"]), st.integers(0, 7)), max_size=40)


def row(sample, process, faults, rss_bytes, faulted_in_bytes=None, major_faults=0, swap_bytes=None):
    return {
        "sample": sample,
        "process": process,
        "minor_faults": faults,
        "major_faults": major_faults,
        "rss_bytes": rss_bytes,
        "faulted_in_bytes": faulted_in_bytes,
        "swap_bytes": swap_bytes,
    }


class Pages:
    """Eight pages, and what happens to them."""

    def __init__(self) -> None:
        self.there: set[int] = set()
        self.faults = self.file_faults = 0

    def window(self, acts) -> tuple[set[int], set[int], int]:
        """Pages that were touched, those of files that came, which stay for that window, and how many others went."""
        touched, of_files, went = set(), set(), 0
        for act, page in acts:
            if act == "go" and page in self.there - of_files:
                self.there.remove(page)
                went += 1
            elif act in ("fault", "file", "beside") and page not in self.there:
                self.there.add(page)
                touched.add(page)
                self.faults += act == "fault"
                self.file_faults += act == "file"
                of_files |= set() if act == "fault" else {page}
            elif act == "touch" and page in self.there:
                touched.add(page)
        return touched, of_files, went


@given(st.lists(ACTS, min_size=1, max_size=6))
def test_it_is_what_went_and_never_less_than_what_was_touched_of_it(windows):
    """A window's look at its end sees touched pages that are there; the others are among those given back."""
    pages, known, unknown = Pages(), [row(0, 1, 0, 0)], [row(0, 1, 0, 0)]
    for sample, acts in enumerate(windows, 1):
        file_faults = pages.file_faults
        touched, of_files, went = pages.window(acts)
        rss_bytes, of_files_bytes = len(pages.there) * PAGE_BYTES, len(of_files) * PAGE_BYTES
        known.append(row(sample, 1, pages.faults, rss_bytes, of_files_bytes, pages.file_faults, 0))
        unknown.append(row(sample, 1, pages.faults + pages.file_faults, rss_bytes, of_files_bytes))
        exactly, at_most = released_bytes(known)[sample], released_bytes(unknown)[sample]
        assert exactly <= at_most <= exactly + (pages.file_faults - file_faults) * PAGE_BYTES
        assert exactly >= len(touched - pages.there) * PAGE_BYTES
        assert released_bytes(unknown, least=True)[sample] <= exactly
        assert exactly == went * PAGE_BYTES


def test_a_file_that_is_read_in_order_gives_nothing_back():
    """One fault brings 16 pages of it; 100 pages without a file come and go meanwhile."""
    first, second = row(0, 1, 0, 0), row(1, 1, 640 + 100, 40 * MIB, 40 * MIB)
    assert released_bytes([first, second]) == {1: 100 * PAGE_BYTES}
    assert released_bytes([first, second], least=True) == {1: 0}, "all faults may have been of the file"


def test_shared_memory_that_is_written_for_the_first_time_gives_perhaps_nothing_back():
    """Each of its pages has a fault of its own."""
    pages = 40 * MIB // PAGE_BYTES
    rows = [row(0, 1, 0, 0), row(1, 1, pages, 40 * MIB, 40 * MIB)]
    assert released_bytes(rows, least=True) == {1: 0}
    assert released_bytes(rows)[1] > 30 * MIB


def test_of_several_processes_and_of_windows_that_are_not_known():
    rows = [
        *(row(0, 1, 10, 10 * MIB), row(0, 2, 0, MIB)),
        *(row(1, 1, 522, 11 * MIB, major_faults=256), row(1, 2, 256, MIB)),  # 3 MiB come and 1 stays; 1 comes and goes
        row(3, 1, 600, 11 * MIB),  # the window before it is not known
        *(row(4, 1, 600, 12 * MIB), row(4, 3, 900, MIB)),  # a huge page came: no faults for it
        *(row(5, 1, None, None), row(5, 3, 901, MIB)),
    ]
    assert released_bytes(rows) == {1: 3 * MIB, 4: 0, 5: PAGE_BYTES}
    assert released_bytes([]) == {}


def test_of_a_real_process():
    """Twice 5,000 pages that come, are touched and go, and 5,000 that stay."""
    keep = f"a = anonymous({PAGES}); view(a, {PAGES})[:] = 1"
    give_back = f"{keep}; libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t({PAGES + 1} * 4096))"
    probe, rows = UsageProbe(), []
    with Target() as target:
        target.do(give_back)  # what Python itself needs for it
        for sample, act in enumerate(("pass", give_back, keep, f"{give_back}; {give_back}", "pass")):
            target.do(act)
            usage = probe.read(target.pid)
            rows.append(row(sample, 1, usage.minor_faults, usage.rss_bytes, major_faults=usage.major_faults))
    by_sample = released_bytes(rows)
    for sample, expected in {1: PAGES, 2: 0, 3: 2 * PAGES, 4: 0}.items():
        assert abs(by_sample[sample] - expected * PAGE_BYTES) <= ROUNDING_BYTES, sample


def churning(faults):
    """13 MiB are touched in a window; so many pages besides come and go."""
    for message in messages(10):
        if isinstance(message, Window):
            (one,) = message.processes
            one = replace(one, minor_faults=one.minor_faults + faults * message.sample)
            message = replace(message, processes=(one,))
        yield message


def test_the_report_says_it_where_it_matters(tmp_path):
    quiet = build_report(write_session(tmp_path / "quiet.memtui", churning(0)))
    assert quiet.given_back_bytes.max == 0
    assert "given back" not in format_report(quiet)

    busy = build_report(write_session(tmp_path / "busy.memtui", churning(512)))
    result = busy.given_back_bytes
    assert result.median == result.max == 2 * MIB
    assert result.per_s == 10 * MIB
    assert "given back   of a window up to 2.00 MiB in the mean, 2.00 MiB in one, 10.0 MiB/s" in format_report(busy)

    short = build_report(write_session(tmp_path / "short.memtui", messages(1))).given_back_bytes
    assert (short.median, short.per_s) == (None, None)
    assert short.reason


def test_the_screen_says_it_of_the_window_at_the_cursor(tmp_path):
    for faults, expected in {0: 0, 512: 2 * MIB}.items():
        reader = Session(write_session(tmp_path / f"{faults}.memtui", churning(faults)))
        presenter = Presenter(reader, follow=False)
        assert presenter.view().header.given_back_bytes == expected
        presenter.playhead.home()
        assert presenter.view().header.given_back_bytes is None, "of the first window it is not known"
        reader.close()
