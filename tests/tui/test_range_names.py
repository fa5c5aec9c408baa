"""What anonymous ranges are called: what their layout tells, of real programs, and nothing where it tells nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from memtui.analysis.range_uses import uses_of
from memtui.probes.proc_maps import parse_maps
from memtui.session.session import Session
from memtui.tui.presenters.range_names import name_of, short_label
from tests.support.live import needs_root, needs_tracker, start, stop, wait_for_samples

KIB, MIB = 1 << 10, 1 << 20
BASE = 0x7F00_0000_0000


def rows(*parts: tuple[int, int, str, str], process: int = 1) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(
            id=number, process=process, start=BASE + start, end=BASE + end, perms=perms, name=name,
            first_sample=0, last_sample=9,
        )
        for number, (start, end, perms, name) in enumerate(parts)
    ]  # fmt: skip


LIBC = (-MIB, 0, "r-xp", "/usr/lib/libc.so.6")


def test_heaps_of_malloc_lie_in_64_mib_of_their_own():
    heap, reserved = (0, 20 * MIB, "rw-p", ""), (20 * MIB, 64 * MIB, "---p", "")
    assert uses_of(rows(LIBC, heap, reserved)) == {1: "malloc heap 1"}
    assert uses_of(rows(heap, reserved)) == {}, "another C library has other heaps"
    assert uses_of(rows(LIBC, heap)) == {}, "nothing is reserved behind it"
    moved = (4096, 20 * MIB, "rw-p", ""), (20 * MIB, 64 * MIB + 4096, "---p", "")
    assert uses_of(rows(LIBC, *moved)) == {}


def test_a_stack_has_a_guard_and_a_size_that_was_asked_for():
    guard = (0, 4096, "---p", "")
    assert uses_of(rows(guard, (4096, 8 * MIB + 4096, "rw-p", ""))) == {1: "thread stack 1"}
    assert uses_of(rows(guard, (4096, 8 * MIB, "rw-p", ""))) == {1: "thread stack 1"}
    assert uses_of(rows(guard, (4096, 7 * MIB, "rw-p", ""))) == {}
    assert uses_of(rows((4096, 8 * MIB + 4096, "rw-p", ""))) == {}
    later = rows(guard, (4096, 8 * MIB + 4096, "rw-p", ""))
    later[0].first_sample, later[0].last_sample = 20, 30
    assert uses_of(later) == {}, "they were never there together"


PYTHON = (-4 * MIB, -3 * MIB, "r-xp", "/usr/lib/libpython3.11.so.1.0")


@pytest.mark.parametrize(
    "name", ["/usr/bin/python3.11", "/opt/libpython3.10.so.1.0", "/a b/python3.13 (deleted)", "/lib/libpython3.12.so"]
)
def test_arenas_of_python_lie_side_by_side(name):
    arenas = (4096, 5 * MIB + 4096, "rw-p", "")
    assert uses_of(rows((-4 * MIB, -3 * MIB, "r-xp", name), arenas)) == {1: "probably Python heap 1"}


@pytest.mark.parametrize(
    "name",
    ["", "/usr/bin/python3.9", "/usr/bin/python3.13t", "/usr/lib/libpython3.so", "/usr/bin/perl", "/python3.11/a"],
)
def test_without_such_a_python_there_are_no_arenas(name):
    assert uses_of(rows((-4 * MIB, -3 * MIB, "r-xp", name), (4096, 5 * MIB + 4096, "rw-p", ""))) == {}


@pytest.mark.parametrize(
    "other",
    [
        (4096, 5 * MIB + 8192, "rw-p", ""),  # malloc maps a page more than was asked for
        (0, 5 * MIB, "rw-p", ""),  # an allocator that takes huge pages
        (4096, 64 * MIB + 4096, "rw-p", ""),  # a buffer of a library
        (4096, 24 * MIB + 4096, "rw-p", ""),  # three stacks without guards between them
        (4096, 5 * MIB + 4096, "rw-s", ""),
        (4096, 5 * MIB + 4096, "r--p", ""),
        (4096, 5 * MIB + 4096, "rwxp", ""),
        (4096, 5 * MIB + 4096, "rw-p", "[anon:cpython:pymalloc]"),
        (4096, 5 * MIB + 4096, "rw-p", "/data"),
    ],
)
def test_what_others_map_is_not_called_the_heap_of_python(other):
    assert uses_of(rows(PYTHON, other)) == {}


@pytest.mark.parametrize(
    ("below", "named"),
    [
        ((0, 4096, "rw-p", ""), False),
        ((0, 4096, "---p", ""), True),  # the guard of a stack, and 5 MiB are none
        ((0, 4096, "rw-p", "/data"), True),
        ((-4096, 4096, "rw-p", ""), True),
        ((-4096, 0, "rw-p", ""), True),
    ],
)
def test_a_buffer_of_numpy_has_the_page_of_malloc_below_it(below, named):
    arenas = (4096, 5 * MIB + 4096, "rw-p", "")
    assert (2 in uses_of(rows(PYTHON, below, arenas))) is named


def test_a_real_array_of_numpy_is_not_called_the_heap_of_python():
    """Numpy wants huge pages for it where it is large, which splits the mapping of malloc."""
    code = """if 1:
        import numpy, pathlib
        array = numpy.ones(101 << 20, numpy.uint8)
        print(array.ctypes.data)
        print(pathlib.Path("/proc/self/maps").read_text(), end="")
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    address, _, maps = said.partition("\n")
    own = [
        SimpleNamespace(
            id=number, process=1, start=vma.start, end=vma.end, perms=vma.perms, name=vma.name,
            first_sample=0, last_sample=1,
        )
        for number, vma in enumerate(parse_maps(maps.encode()))
    ]  # fmt: skip
    (row,) = [row for row in own if row.start <= int(address) + MIB < row.end]
    assert row.id not in uses_of(own), uses_of(own)


def test_shared_anonymous_memory_is_called_so_and_not_by_a_file_that_nobody_has():
    (shared,) = rows((0, 64 * MIB, "rw-s", "/dev/zero (deleted)"))
    assert (name_of(shared), short_label(shared)) == (f"shared anon {BASE:012x}", "shared 64M")
    large, small = rows((0, 36 * MIB + 820_000, "rw-p", ""), (64 * MIB, 66 * MIB + 820_000, "rw-p", ""))
    assert (short_label(large), short_label(small)) == ("anon 37M", "anon 2.8M")
    (mapped,) = rows((0, 64 * MIB, "rw-p", "/dev/zero"))
    assert name_of(mapped) == "zero"


def test_what_the_kernel_names_keeps_its_name():
    named, bare = rows((0, MIB, "rw-p", "[anon:mine]"), (2 * MIB, 3 * MIB, "rw-p", ""))
    assert name_of(named, {0: "thread stack 1"}) == f"[anon:mine] {BASE:012x}"
    assert name_of(bare, {}) == f"anon {BASE + 2 * MIB:012x}"
    assert (name_of(bare, {1: "malloc heap 3"}), short_label(bare, {1: "malloc heap 3"})) == (
        "anon (malloc heap 3)",
        "malloc heap 3",
    )


TARGET = """
    import threading
    def work():
        while True:
            kept = [bytes(1000) for _ in range(20_000)]
    threading.stack_size(16 << 20)
    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    print("there", flush=True)
    for thread in threads:
        thread.join()
"""


@pytest.mark.real_clock(alone=False)
@needs_root
@needs_tracker
def test_stacks_and_heaps_of_the_threads_of_a_program_have_names(tmp_path):
    target = subprocess.Popen([sys.executable, "-c", textwrap.dedent(TARGET)], stdout=subprocess.PIPE, text=True)
    try:
        assert target.stdout.readline() == "there\n"
        session = tmp_path / "s.memtui"
        recorder = start("record", target.pid, "-o", session, "--interval", "0.3", "--max-overhead", "none")
        wait_for_samples(session, 4).close()
        code, _, errors = stop(recorder)
        assert code == 0, errors
    finally:
        target.kill()
        target.communicate()
    reader = Session(session)
    uses = uses_of(reader.vmas.rows())
    sizes = {row.id: row.end - row.start for row in reader.vmas.rows()}
    reader.close()
    stacks = [size for row, size in sizes.items() if uses.get(row, "").startswith("thread stack")]
    assert sum(abs(size - (16 << 20)) <= 4096 for size in stacks) == 3
    heaps = [size for row, size in sizes.items() if uses.get(row, "").startswith("malloc heap")]
    assert len(heaps) >= 3
    assert max(heaps) <= 64 * MIB


# The interpreter itself tells how many arenas it has.
OBJECTS = """
    import sys, time
    kept = [[number] for number in range(400_000)]
    sys._debugmallocstats()
    print("there", file=sys.stderr, flush=True)
    while True:
        for part in kept:
            part[0] += 1
        time.sleep(0.1)
"""


@pytest.mark.real_clock(alone=False)
@needs_root
@needs_tracker
@pytest.mark.parametrize("allocator", ["pymalloc", "malloc"])
def test_the_heap_of_python_has_a_name_where_python_has_one(tmp_path, allocator):
    target = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OBJECTS)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONMALLOC": allocator},
    )
    try:
        says = "".join(iter(target.stderr.readline, "there\n"))
        session = tmp_path / "s.memtui"
        recorder = start("record", target.pid, "-o", session, "--interval", "0.3", "--max-overhead", "none")
        wait_for_samples(session, 2).close()
        code, _, errors = stop(recorder)
        assert code == 0, errors
    finally:
        target.kill()
        target.communicate()
    reader = Session(session)
    every = reader.vmas.rows()
    reader.close()
    uses = uses_of(every)
    named = [row for row in every if uses.get(row.id, "").startswith("probably Python heap")]
    if allocator == "malloc":
        assert "# arenas allocated current" not in says
        assert named == []
        return
    arenas = int(re.search(r"# arenas allocated current *= *([\d,]+)", says)[1].replace(",", ""))
    # The first arenas lie beside memory of another kind.
    assert sum(row.end - row.start for row in named) <= arenas * MIB
    assert sum(row.end - row.start for row in named) >= arenas * MIB / 2
