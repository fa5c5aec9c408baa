"""Copies that forked workers made before anybody read twice what they have."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.core.samples import End, Process, ProcessWindow, Target, Vma, VmaTable, Window
from memtui.reports.redact import open_source
from memtui.reports.source import Source
from memtui.reports.verdict.fork_copies import fork_copies
from memtui.reports.verdict.recent import Recent
from memtui.reports.verdict.verdict import last_verdict
from tests.support.growing_sessions import GIB, MIB, PAGES, START_S, VMAS, S, pages
from tests.support.sessions import CODE, hello, write_session
from tests.support.verdicts import checks_of

LATER = Vma(CODE + 4 * GIB, CODE + 5 * GIB, "rw-p", "")  # what each of them mapped after the fork, at one address
IN_LATER = PageSet.from_pages(np.arange(400 * PAGES) + (LATER.start >> 12))
FORKED_S = START_S + 3.5


def workers_of(
    path,
    private,
    *,
    forked_s=FORKED_S,
    generation=0,
    parent_mib=lambda n: 600,
    vmas=VMAS,
    role="loader RANK=0",
    shared_mib=0,
    read=True,
):
    """Record a parent, and two workers from the fourth window on, read once by mapping: (start, MIB) of each."""

    def stream():
        yield hello(target=Target(4242, (START_S - 5) * 100, "python train.py", "alice"))
        yield Process(1, 4242, 1, (START_S - 5) * 100, 0, "python train.py", "target")
        yield VmaTable(1, 0, VMAS)
        for n in range(30):
            begin_ns = (START_S + n) * S
            if n == 3:
                for key in (2, 3):
                    yield Process(key, 4241 + key, 4242, round(forked_s * 100), generation, "python train.py", role)
                    yield VmaTable(key, n, vmas)
                yield VmaTable(1, n, (*VMAS, LATER))
            by_vma = tuple((start, mib * MIB) for start, mib in private)
            worker = {
                "rss_bytes": 620 * MIB,
                "pss_bytes": (shared_mib + sum(mib for _, mib in private)) * MIB,
                "private_bytes": sum(mib for _, mib in private) * MIB,
                "pss_ns": begin_ns,
            }
            of_parent = {"rss_bytes": 620 * MIB, "pss_bytes": 20 * MIB, "private_bytes": 0, "pss_ns": begin_ns}
            there = pages((0, parent_mib(n), 0)).union(IN_LATER if n >= 4 else PageSet.empty())
            windows = [ProcessWindow(1, begin_ns, begin_ns + S, resident=there, **of_parent)]
            windows += [
                ProcessWindow(
                    key, begin_ns, begin_ns + S, vma_private_bytes=by_vma if read and n == 8 else None, **worker
                )
                for key in (2, 3)
                if n >= 3
            ]
            yield Window(n, begin_ns, begin_ns + S, S, 0, tuple(windows))
        yield End((START_S + 30) * S, "stopped")

    return write_session(path, stream())


def test_workers_that_copied_all_before_the_second_reading_are_found(tmp_path):
    path = workers_of(tmp_path / "s.memtui", [(VMAS[1].start, 400), (VMAS[0].start, 30), (LATER.start, 50)])
    finding = checks_of(path)["unsharing"].finding
    assert finding.sentence == "Its DataLoader workers copied memory that they shared: 800 MiB since they were forked."
    assert finding.short == "Its DataLoader workers copied memory that they shared."
    assert "numpy array" in finding.action
    assert finding.evidence == tuple(
        f"pid {pid} (DataLoader worker): copies of 400 MiB (at least 400 MiB in memory of an allocator (no file)), of "
        "600 MiB that its parent has had since"
        for pid in (4243, 4244)
    )
    with closing(open_source(path, redact=True)) as source:
        assert last_verdict(source).findings[0].short == finding.short
    assert checks_of(workers_of(tmp_path / "t.memtui", [(VMAS[1].start, 400)], role="child"))[
        "unsharing"
    ].finding.sentence.startswith("Its processes copied")


@pytest.mark.parametrize(
    ("private", "how"),
    [
        ([(VMAS[1].start, 100)], {}),  # little
        ([(VMAS[1].start, 300)], {"shared_mib": 1000}),  # little of what all of them have
        ([(LATER.start, 400)], {"vmas": (*VMAS, LATER)}),  # what each mapped for itself, at the same address
        ([(VMAS[2].start, 400)], {}),  # a file
        ([(VMAS[1].start, 400)], {"forked_s": START_S - 1}),  # the fork was not seen
        ([(VMAS[1].start, 400)], {"generation": 1}),  # it runs another program
        ([(VMAS[1].start, 400)], {"parent_mib": lambda n: 600 if n < 20 else 100}),  # the parent has freed it
        ([(VMAS[1].start, 400)], {"parent_mib": lambda n: 100 if n < 6 else 600}),  # the parent got it later
        ([(VMAS[1].start, 400)], {"read": False}),  # it is not known where
    ],
)
def test_what_is_no_copy_of_what_was_shared(private, how, tmp_path):
    assert checks_of(workers_of(tmp_path / "s.memtui", private, **how))["unsharing"].finding is None


def test_no_more_is_a_copy_than_the_parent_had(tmp_path):
    path = workers_of(tmp_path / "s.memtui", [(VMAS[1].start, 700)], parent_mib=lambda n: 350)
    with closing(Source(path)) as source:
        copies = fork_copies(Recent(source, len(source.samples) - 1))
    assert [(of.process.pid, of.copied_bytes // MIB, of.parent_bytes // MIB) for of in copies] == [
        (4243, 350, 350),
        (4244, 350, 350),
    ]
