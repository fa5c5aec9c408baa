"""The memory that the BPF programs of a walk and this process share: its inputs and its results.

The programs and their maps are loaded together with this memory. It cannot grow: a larger one is loaded in its place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.core.page_set import PageSet
from memtui.probes.pages.pagetable.bpf_loader import Program, Skeleton
from memtui.probes.pages.pagetable.walk_result import TABLE_ENTRIES, Tables, Walk, disjoint
from memtui.probes.proc_maps import MOST_MAPPINGS

# As ``struct walk_state`` of pagetable.bpf.c; the programs write the fields from "used" on.
_STATE = (
    *("tgid", "low", "high", "want_resident", "physical_mask", "search_steps", "direct_map"),
    *("second_look", "page_frames", "asked", "about", "known_address", "known_word", "known_physical"),
    *("want_tables", "tables_used", "leave_anonymous", "parts", "parts_seed", "part_read", "part_next", "users_of"),
    "one_process",
    *("used", "skipped", "tables_lost", "errors", "vmas", "foreign", "hugetlb", "changed"),
    *("anonymous", "mm", "exec_id", "next", "mappings", "users", "held", "running", "in_doubt"),
)
_FIELD = {name: index for index, name in enumerate(_STATE)}
_OUTPUTS = slice(_FIELD["used"], len(_STATE))
_SLOT_COLUMNS, _RESIDENT_COLUMNS, _QUESTION_COLUMNS, _MAPPING_COLUMNS = 9, 8, 9, 4
QUESTIONS = 2048  # blocks of one query
_MAPPINGS = MOST_MAPPINGS
_HUGETLB = 4096  # mappings of hugetlb pages that fit
_KIND_BLOCK, _KIND_HUGE, _KIND_GIANT = 0, 1, 2
_KEY_KIND, _KEY_TABLE, _KEY_SHIFT = np.uint64(3), np.uint64(4), np.uint64(3)


class WalkMemory:
    """The loaded programs and the arrays over their maps.

    Attributes:
        program: the loaded programs; they may be attached until this memory is closed.
        slots: blocks of 2 MiB for which there is room.
        questions: u8[n, 9]; number and pages of each block of a query, then the answers.
        anonymous: u8[n, 2]; start and end of mappings of private anonymous memory.
        tables: u8[n, 512]; page tables that were copied out.
    """

    def __init__(self, skeleton: Skeleton, *, slots: int, tables: int) -> None:
        """Load the programs. Raises OSError (BpfError) and KeyError.

        Args:
            skeleton: the programs.
            slots: blocks of 2 MiB for which there is to be room.
            tables: page tables for which there is to be room.
        """
        sizes = {"slots": slots, "resident": slots, "questions": QUESTIONS, "tables": tables}
        sizes |= {"mappings": _MAPPINGS, "anonymous": _MAPPINGS, "hugetlb": _HUGETLB}
        self.program, self.slots = Program(skeleton, sizes), slots
        try:
            self._state = self._array("state", 1, len(_STATE))[0]
            self._entries = self._array("slots", slots, _SLOT_COLUMNS)
            self._resident = self._array("resident", slots, _RESIDENT_COLUMNS)
            self.questions = self._array("questions", QUESTIONS, _QUESTION_COLUMNS)
            self._mappings = self._array("mappings", _MAPPINGS, _MAPPING_COLUMNS)
            self.anonymous = self._array("anonymous", _MAPPINGS, 2)
            self._hugetlb = self._array("hugetlb", _HUGETLB, 2)
            self.tables = self._array("tables", tables, TABLE_ENTRIES)
        except BaseException:
            self.program.close()
            raise

    def _array(self, name: str, rows: int, columns: int) -> NDArray[np.uint64]:
        """Return the array over a map; there may be more memory, up to whole pages."""
        values = np.frombuffer(self.program.view(name, rows * columns * 8), np.uint64)
        return values[: rows * columns].reshape(rows, columns)

    def get(self, name: str) -> int:
        """Return a field of the state."""
        return int(self._state[_FIELD[name]])

    def set(self, name: str, value: int) -> None:
        """Write a field of the state."""
        self._state[_FIELD[name]] = value

    def clear_outputs(self) -> None:
        """Forget what the last program wrote into the state."""
        self._state[_OUTPUTS] = 0

    def copy_state(self, other: WalkMemory) -> None:
        """Copy the state of another memory, in whose place this one was loaded."""
        self._state[:] = other._state

    def result(self, *, want_resident: bool, tables: slice | None) -> Walk:
        """Return the result of the last walk as copies, except for the page tables, which stay in this memory.

        Args:
            want_resident: the walk was to read present pages, too.
            tables: the page tables that this walk copied out; None: none were wanted, or there was no room.
        """
        used = self.get("used")
        keys, accessed = self._entries[:used, 0], self._entries[:used, 1:]
        numbers, no_pages = keys >> _KEY_SHIFT, np.empty(0, np.uint64)
        is_touched = np.empty(0, np.intp)
        if not want_resident and not np.bitwise_or.reduce(keys) & _KEY_KIND:
            # The common case, during a pause: the blocks are rising, and each has an accessed page.
            pages, resident = PageSet(numbers, accessed.copy(), no_pages, no_pages), None
        else:
            kinds, present = keys & _KEY_KIND, self._resident[:used]
            is_huge, is_block = kinds == _KIND_HUGE, kinds == _KIND_BLOCK
            huge, giant = numbers[is_huge], numbers[kinds == _KIND_GIANT] >> np.uint64(9)
            is_touched = np.flatnonzero(is_huge & (accessed[:, 0] != 0))
            pages = PageSet.from_blocks(numbers[is_block], accessed[is_block], numbers[is_touched])
            resident = None
            if want_resident:
                resident = PageSet.from_blocks(numbers[is_block], present[is_block], huge, giant)
        anonymous = self.anonymous[: self.get("anonymous")].copy()
        hugetlb = self._hugetlb[: self.get("hugetlb")].copy()
        return Walk(
            pages,
            resident,
            (self.get("mm"), self.get("exec_id")),
            vmas=self.get("vmas"),
            mappings=self._all_mappings(),
            changed=self.get("changed"),
            errors=self.get("errors"),
            anonymous=disjoint(anonymous[:, 0], anonymous[:, 1]),
            hugetlb=disjoint(hugetlb[:, 0], hugetlb[:, 1]),
            tables=None
            if tables is None
            else Tables(
                numbers[(keys & _KEY_TABLE) != 0],
                self.tables[tables],
                numbers[is_touched],
                accessed[is_touched, 1],
                self.get("physical_mask"),
            ),
        )

    def _all_mappings(self) -> NDArray[np.uint64] | None:
        """Return the mappings of the process; None: they are too many, or they changed during the walk."""
        count = self.get("mappings")
        mappings = self._mappings[:count].copy()
        complete = count == self.get("vmas") and (mappings[1:, 0] >= mappings[:-1, 1]).all()
        return mappings if complete else None

    def close(self) -> None:
        """Close the programs and their maps; page tables that callers still use stay."""
        self.program.close()
        # A map's memory keeps a descriptor of its own until the last array over it is gone.
        self._state = np.empty(0, np.uint64)
        self._entries = self._resident = self.questions = self._mappings = np.empty((0, 0), np.uint64)
        self.anonymous = self._hugetlb = self.tables = self._mappings
