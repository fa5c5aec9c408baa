"""What grew before a bad end: streams with known growth, by the product's way into a session."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.core.page_set import PageSet
from memtui.core.readings import MemoryUse, Power
from memtui.core.samples import End, Process, ProcessWindow, Vma, VmaTable, Window
from memtui.core.tracer_messages import TrainingProgress
from memtui.reports.post_mortem import (
    LAST_NS,
    GrownMemory,
    GrownTensors,
    PostMortem,
    ending_forms,
    grown_memory,
    growth_sentence,
    last_line,
    post_mortem,
    post_mortem_lines,
)
from memtui.reports.report import build_report
from memtui.reports.source import Source
from memtui.session.vma_row import VmaRow
from tests.support.sessions import CODE, DATA, HEAP, MS, hello, write_session

MIB, S = 1 << 20, 1000 * MS
KILLED = "killed by the kernel (SIGKILL): cgroup /job reached its limit of 256 MiB"
VMAS = (
    Vma(HEAP, HEAP + 512 * MIB, "rw-p", "[heap]"),
    Vma(DATA, DATA + 256 * MIB, "rw-p", ""),
    Vma(DATA + 300 * MIB, DATA + 556 * MIB, "rw-p", ""),
    Vma(CODE, CODE + 2 * MIB, "r--p", "/data/set of numbers.bin"),
)


def resident(*sizes: int) -> PageSet:
    """So many MiB of each mapping, from its start."""
    parts = [np.arange(size * 256) + (vma.start >> 12) for size, vma in zip(sizes, VMAS, strict=True)]
    return PageSet.from_pages(np.concatenate(parts))


def session(path, sizes, how=KILLED, apart_ns=S, more=()):
    """One window for each of the sizes."""

    def stream():
        yield hello()
        yield Process(1, 4242, 1, 777, 0, "python train.py", "target")
        yield VmaTable(1, 0, VMAS)
        for sample, size in enumerate(sizes):
            begin = sample * apart_ns
            there = resident(*size)
            window = ProcessWindow(
                1, begin, begin + apart_ns, pages=there, resident=there, rss_bytes=sum(size) * MIB, paused_ns=MS
            )
            yield Window(sample, begin, begin + apart_ns, apart_ns, 0, (window,))
        yield from more
        if how is not None:
            yield End(len(sizes) * apart_ns, "target exited", how)

    return write_session(path, stream())


def found_in(path) -> PostMortem | None:
    reader = Source(path)
    try:
        return post_mortem(reader)
    finally:
        reader.close()


def test_growth_by_mapping_adds_up(tmp_path):
    path = session(tmp_path / "s.memtui", [(10, 20, 5, 2), (15, 40, 5, 2), (90, 60, 25, 2)])
    found = found_in(path)
    assert found == PostMortem(
        over_s=2.0,
        first_bytes=37 * MIB,
        last_bytes=177 * MIB,
        grown=(GrownMemory(4242, "[heap]", 80 * MIB), GrownMemory(4242, "anonymous memory", 60 * MIB)),
        tensors=(),
        grown_until_s=0.0,
    )
    assert sum(part.grown_bytes for part in found.grown) == found.last_bytes - found.first_bytes
    sentence = (
        "in its last 2.0 s resident memory went from 37.0 MiB to 177 MiB: [heap] by 80.0 MiB, "
        "anonymous memory by 60.0 MiB"
    )
    assert post_mortem_lines(found) == [f"grew         {sentence}"]
    assert last_line(path) == f"target {KILLED}; {sentence}"
    assert ending_forms(path) == (
        f"target {KILLED}; {sentence}", f"target {KILLED}", "target killed by the kernel (SIGKILL)"
    )  # fmt: skip
    assert build_report(path).post_mortem == found


def test_a_part_of_a_child_that_ended_is_not_more_than_the_whole():
    grown = GrownMemory(1, "anonymous memory", 80 * MIB), GrownMemory(2, "anonymous memory", 50 * MIB)
    sentence = growth_sentence(PostMortem(60.0, 20 * MIB, 110 * MIB, grown, (), grown_until_s=1.0))
    assert sentence.endswith("from 20.0 MiB to 110 MiB: anonymous memory of pid 1 by 80.0 MiB")


def test_what_was_read_after_the_last_window_counts(tmp_path):
    """The time is counted back from the end of the program, which lived on for 3 s and grew."""
    readings = [Power(memory_use=(MemoryUse(t_ns, 1, mib * MIB),)) for t_ns, mib in ((3 * S, 90), (4 * S, 200))]
    readings.append(Power(memory_use=(MemoryUse(5 * S - 1, 1, 0),)))  # it releases its memory
    end = End(5 * S, "target exited", KILLED)
    path = session(tmp_path / "s.memtui", [(10, 0, 0, 2), (40, 0, 0, 2)], None, more=[*readings, end])
    found = found_in(path)
    assert (found.over_s, found.first_bytes, found.last_bytes, found.grown_until_s) == (4.0, 12 * MIB, 200 * MIB, 3.0)
    assert last_line(path).endswith(
        "in its last 4.0 s resident memory went from 12.0 MiB to 200 MiB: [heap] by 30.0 MiB (as read 3.0 s before its "
        "end)"
    )
    unseen = replace(found, grown=())
    (line,) = post_mortem_lines(unseen)
    assert line.endswith("resident memory went from 12.0 MiB to 200 MiB")


@pytest.mark.parametrize(
    ("pss_mib", "private_mib", "named", "most", "of_child"),
    [
        (75, None, "resident memory (PSS)", "75.0 MiB", ()),
        (75, 10, "resident memory (PSS)", "75.0 MiB", ("[heap] of pid 4243 by 10.0 MiB",)),
        (None, None, "the sum of RSS (shared pages counted several times)", "122 MiB", ()),
    ],
)
def test_what_a_forked_child_shares_is_no_growth(pss_mib, private_mib, named, most, of_child, tmp_path):
    """A child begins with all 60 MiB of its parent, whose heap grows by 40 MiB meanwhile."""

    def window(process, sample, mib, **more):
        begin, there = sample * S, resident(mib, 0, 0, 0)
        return ProcessWindow(
            process, begin, begin + S, pages=there, resident=there, rss_bytes=mib * MIB, paused_ns=MS, **more
        )

    def stream():
        yield hello()
        yield Process(1, 4242, 1, 777, 0, "python train.py", "target")
        yield VmaTable(1, 0, VMAS)
        yield Window(0, 0, S, S, 0, (window(1, 0, 20),))
        yield Process(2, 4243, 4242, 778, 1, "python train.py", "child")
        yield VmaTable(2, 1, VMAS)
        read = {} if pss_mib is None else {"pss_bytes": pss_mib * MIB // 2, "pss_ns": 2 * S}
        own = {} if private_mib is None else {"private_bytes": private_mib * MIB}
        yield Window(1, S, 2 * S, S, 0, (window(1, 1, 61, **read), window(2, 1, 61, **read, **own)))
        yield End(2 * S, "target exited", KILLED)

    growth = found_in(write_session(tmp_path / "s.memtui", stream()))
    sentence = growth_sentence(growth)
    start, parts = sentence.split(": ")
    assert start == f"in its last 1.0 s {named} went from 20.0 MiB to {most}"
    assert tuple(parts.split(", ")) == ("[heap] of pid 4242 by 41.0 MiB", *of_child)


def test_shared_memory_without_a_file_is_called_so():
    rows = [
        VmaRow(n, 1, 7, n << 30, (n + 1) << 30, perms, name, 0, 9, "")
        for n, (perms, name) in enumerate((("rw-s", "/dev/zero (deleted)"), ("rw-p", "")))
    ]
    assert grown_memory(rows, {}, {0: 40 * MIB, 1: 30 * MIB}) == (
        GrownMemory(7, "shared anonymous memory", 40 * MIB),
        GrownMemory(7, "anonymous memory", 30 * MIB),
    )


def test_only_the_last_minutes_count(tmp_path):
    grows = [(10, 0, 0, 2), (210, 0, 0, 2), (211, 40, 0, 2)]
    path = session(tmp_path / "s.memtui", grows, apart_ns=LAST_NS)
    assert found_in(path).grown == (GrownMemory(4242, "anonymous memory", 40 * MIB),)
    assert found_in(path).over_s == 300


def test_a_file_has_its_name_without_its_folder(tmp_path):
    path = session(tmp_path / "s.memtui", [(1, 1, 1, 0), (1, 1, 1, 2)])
    assert found_in(path).grown == (GrownMemory(4242, "set of numbers.bin", 2 * MIB),)


@pytest.mark.parametrize("sizes", [[(40, 1, 1, 1)] * 2, [(90, 1, 1, 1), (60, 1, 1, 1)], [(40, 1, 1, 1), (41, 1, 1, 1)]])
def test_no_growth_has_no_words(tmp_path, sizes):
    """None, less than before, and 2 % of the whole."""
    path = session(tmp_path / "s.memtui", sizes)
    assert post_mortem_lines(found_in(path)) == []
    assert last_line(path) == f"target {KILLED}"


@pytest.mark.parametrize("how", ["", "exited", None])
def test_a_good_end_has_none(tmp_path, how):
    path = session(tmp_path / "s.memtui", [(10, 20, 5, 2), (90, 60, 25, 2)], how)
    assert found_in(path) is None
    assert (last_line(path), ending_forms(path)) == ("", ())
    assert post_mortem_lines(None) == []


def test_one_window_compares_with_nothing(tmp_path):
    path = session(tmp_path / "s.memtui", [(10, 20, 5, 2)], "exited with code 1")
    assert found_in(path) is None
    assert last_line(path) == "target exited with code 1"


def test_a_file_that_is_no_session_is_told_by_who_opens_it(tmp_path):
    (tmp_path / "s.memtui").write_bytes(b"no session")
    assert (last_line(tmp_path / "s.memtui"), last_line(tmp_path / "gone")) == ("", "")


def test_tensors_by_category(tmp_path):
    gradients, weights = CATEGORIES.index("gradients"), CATEGORIES.index("weights")

    def step(number: int, held: dict[int, int]) -> TrainingProgress:
        begin, end = number * S, (number + 1) * S - MS
        usage = np.zeros((4 + len(CATEGORIES), 1), np.int64)
        usage[:4, 0] = begin, end, number, -1
        for category, mib in held.items():
            usage[4 + category] = mib * MIB
        return TrainingProgress(4242, number, begin, np.array([[end]]), usage, view="all steps")

    steps = [step(0, {gradients: 10, weights: 30}), step(1, {gradients: 50, weights: 30})]
    path = session(tmp_path / "s.memtui", [(10, 20, 5, 2), (90, 60, 25, 2)], more=steps)
    found = found_in(path)
    assert found.tensors == (GrownTensors(4242, "gradients", 40 * MIB),)
    assert last_line(path).endswith(", tensors (gradients) by 40.0 MiB")


def test_several_processes_are_named(tmp_path):
    found = PostMortem(
        60.0, 10 * MIB, 210 * MIB, (GrownMemory(1, "[heap]", 150 * MIB), GrownMemory(2, "[heap]", 50 * MIB)), (), 0
    )
    (line,) = post_mortem_lines(found)
    assert line.endswith("[heap] of pid 1 by 150 MiB, [heap] of pid 2 by 50.0 MiB")
    assert post_mortem_lines(replace(found, last_bytes=10 * MIB)) == []
