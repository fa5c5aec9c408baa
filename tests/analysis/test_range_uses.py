"""What the layout of anonymous memory gives away, for layouts whose use is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.range_uses import uses_of

PAGE, KIB, MIB = 4096, 1 << 10, 1 << 20
SLOT = 128 * MIB
LIBCS = ("libc.so.6", "/lib/libc.so.6", "/lib/x86_64-linux-gnu/libc-2.31.so")
NOT_LIBCS = ("/lib/ld-musl-x86_64.so.1", "/lib/libc.so.6/other", "/lib/xlibc.so.6", "")


@dataclass
class Row:
    id: int
    process: int
    start: int
    end: int
    perms: str
    name: str
    first_sample: int = 0
    last_sample: int = 9


@dataclass
class Memory:
    """Rows of processes, and the use of each that is known; each layout lies in 128 MiB of its own."""

    rows: list[Row] = field(default_factory=list)
    slot: int = 0

    def put(self, start: int, end: int, perms: str = "rw-p", name: str = "", process: int = 1) -> Row:
        base = 0x7F00_0000_0000 + self.slot * SLOT
        row = Row(len(self.rows), process, base + start, base + end, perms, name)
        self.rows.append(row)
        return row

    def heap(self, *, size=20 * MIB, moved=0, hole=0, short=0, process=1) -> Row:
        self.slot += 1
        row = self.put(moved, size, process=process)
        self.put(size + hole, 64 * MIB - short, "---p", process=process)
        return row

    def stack(self, *, size=8 * MIB, guard=PAGE, gap=0, process=1) -> Row:
        self.slot += 1
        self.put(MIB - guard, MIB, "---p", process=process)
        return self.put(MIB + gap, MIB + gap + size, process=process)

    def libc(self, name: str = LIBCS[0], process: int = 1) -> None:
        self.slot += 1
        self.put(0, MIB, "r-xp", name, process)


POWERS = [1 << n for n in range(16, 27)]


@pytest.mark.parametrize("size", [*POWERS, *(size - PAGE for size in POWERS[1:])])
def test_a_stack_of_a_power_of_two_with_its_guard_or_without(size):
    memory = Memory()
    row = memory.stack(size=size)
    assert uses_of(memory.rows) == {row.id: "thread stack 1"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 32 * KIB},  # too small
        {"size": 64 * KIB - PAGE},  # too small without its guard
        {"size": 64 * KIB + PAGE},
        {"size": 7 * MIB},
        {"size": 8 * MIB - 2 * PAGE},
        {"guard": 2 * PAGE},
        {"guard": 0},
        {"gap": PAGE},
    ],
)
def test_what_is_not_laid_out_as_a_stack_is_none(wrong):
    memory = Memory()
    memory.stack(**wrong)
    assert uses_of(memory.rows) == {}


@pytest.mark.parametrize("libc", LIBCS)
@pytest.mark.parametrize("size", [PAGE, 132 * KIB, 20 * MIB, 64 * MIB - PAGE])
def test_a_heap_and_what_is_reserved_behind_it_are_64_mib(libc, size):
    memory = Memory()
    row = memory.heap(size=size)
    memory.libc(libc)
    assert uses_of(memory.rows) == {row.id: "malloc heap 1"}


@pytest.mark.parametrize("wrong", [{"moved": PAGE}, {"hole": PAGE}, {"short": PAGE}, {"short": -PAGE}])
def test_what_is_not_laid_out_as_a_heap_is_none(wrong):
    memory = Memory()
    memory.libc()
    memory.heap(**wrong)
    assert uses_of(memory.rows) == {}


@pytest.mark.parametrize("other", NOT_LIBCS)
def test_heaps_are_of_glibc_of_the_same_process(other):
    memory = Memory()
    memory.heap()
    memory.libc(other)
    memory.libc(process=2)
    assert uses_of(memory.rows) == {}


def test_a_heap_that_grew_into_what_was_reserved_is_still_one():
    """A row has all addresses that its mapping ever had: it may overlap what was reserved at first."""
    memory = Memory()
    memory.libc()
    row = memory.heap(hole=-MIB)
    assert uses_of(memory.rows) == {row.id: "malloc heap 1"}
    memory = Memory()
    memory.libc()
    memory.heap(hole=-20 * MIB)
    assert uses_of(memory.rows) == {}, "nothing of the heap lies below what is reserved"


@pytest.mark.parametrize(
    ("perms", "named"), [("rw-p", True), ("rw-s", True), ("rwxp", True), ("r--p", False), ("-w-p", False)]
)
def test_only_what_can_be_read_and_written_is_in_use(perms, named):
    memory = Memory()
    memory.libc()
    heap, stack = memory.heap(), memory.stack()
    heap.perms = stack.perms = perms
    assert uses_of(memory.rows) == ({heap.id: "malloc heap 1", stack.id: "thread stack 1"} if named else {})


def test_what_has_a_name_needs_no_other_and_guards_nothing():
    memory = Memory()
    memory.libc()
    heap, stack = memory.heap(), memory.stack()
    heap.name = stack.name = "[anon:mine]"
    assert uses_of(memory.rows) == {}
    memory = Memory()
    memory.libc()
    memory.heap(), memory.stack()
    for row in memory.rows:
        if row.perms == "---p":
            row.name = "/lib/libmissing.so"
    assert uses_of(memory.rows) == {}


@pytest.mark.parametrize("kind", ["heap", "stack"])
@given(st.tuples(*[st.integers(0, 3)] * 4))
def test_both_parts_were_mapped_in_one_window_at_least(kind, times):
    memory = Memory()
    memory.libc()
    row = getattr(memory, kind)()
    other = next(other for other in memory.rows if other.perms == "---p")
    (row.first_sample, row.last_sample), (other.first_sample, other.last_sample) = (
        sorted(times[:2]),
        sorted(times[2:]),
    )
    common = {*range(row.first_sample, row.last_sample + 1)} & {*range(other.first_sample, other.last_sample + 1)}
    assert (row.id in uses_of(memory.rows)) == bool(common)


@given(st.lists(st.tuples(st.sampled_from(("heap", "stack", "other")), st.sampled_from((1, 2)))), st.randoms())
def test_they_are_numbered_by_process_in_order_of_appearance(kinds, random):
    memory, expected, count = Memory(), {}, {}
    memory.libc(process=1)
    memory.libc(process=2)
    for kind, process in kinds:
        if kind == "other":
            memory.slot += 1
            memory.put(PAGE, 5 * MIB, process=process)
            continue
        row = getattr(memory, kind)(process=process)
        number = count[kind, process] = count.get((kind, process), 0) + 1
        expected[row.id] = f"{'malloc heap' if kind == 'heap' else 'thread stack'} {number}"
    random.shuffle(memory.rows)
    assert uses_of(memory.rows) == expected
