"""Finds the kernel's direct map of memory, through which the BPF programs read page tables.

The programs search for its start: there they find page tables that lead to a known word of this process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from memtui.probes.pages.pagetable.bpf_loader import ARM64
from memtui.probes.pages.pagetable.walk_memory import WalkMemory
from memtui.probes.pages.tracker import TrackerError

_WORD = np.frombuffer(os.urandom(8), np.uint64).copy()  # a word that is nowhere else
_MAX_SEARCH_STEPS = 1 << 16  # 64 TiB of physical address space in steps of 1 GiB


class NotOnThisKernel(TrackerError):
    """The page tables cannot be read here at all."""


def find_direct_map(memory: WalkMemory, walk_over_nothing: Callable[[], None]) -> None:
    """Write the start of the direct map into the state. The kernel has one direct map, so once is enough.

    Args:
        memory: of the programs.
        walk_over_nothing: walks this process, over an empty range of addresses.

    Raises:
        OSError: this process cannot be read.
        NotOnThisKernel: the direct map was not found, or page frame numbers are hidden.
    """
    memory.set("search_steps", _search_steps())
    for mask in 2 * physical_masks():  # the kernel may move the word's page in just that moment
        memory.set("known_word", int(_WORD[0]))
        memory.set("known_address", _WORD.ctypes.data)
        if ARM64:
            memory.set("known_physical", _physical_address())
        memory.set("physical_mask", mask)
        memory.set("direct_map", 0)
        memory.set("low", 0)
        memory.set("high", 0)
        walk_over_nothing()
        if memory.get("direct_map"):
            return
    raise NotOnThisKernel(
        "the kernel's direct map of memory was not found (a Xen PV guest, or page tables of another form)"
    )


def physical_masks() -> list[int]:
    """Return masks of the bits of a page-table entry that may hold a physical address, the likeliest first.

    Linux subtracts the memory-encryption bit from the address size that it reports; the other masks are for kernels
    that do not.
    """
    if ARM64:  # above lie attributes of the entry, or bits of addresses beyond a PiB
        return [(1 << 50) - 1 & ~0xFFF]
    match = re.search(r"address sizes\s*:\s*(\d+) bits physical", Path("/proc/cpuinfo").read_text())
    mask = (1 << int(match[1] if match else 52)) - 1 & ~0xFFF & (1 << 52) - 1
    return list(dict.fromkeys((mask, mask & ~(1 << 47), mask & ~(1 << 51))))


def _physical_address() -> int:
    """Return the physical address of the known word.

    Raises OSError, and NotOnThisKernel where page frame numbers are hidden.
    """
    address = _WORD.ctypes.data
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        entry = int.from_bytes(os.pread(pagemap.fileno(), 8, (address >> 12) * 8), "little")
    frame = entry & (1 << 55) - 1
    if not entry >> 63 or not frame:
        raise NotOnThisKernel("page frame numbers are hidden from this process (CAP_SYS_ADMIN)")
    return frame << 12 | address & 0xFFF


def _search_steps() -> int:
    """Return how many GiB below the page-global directory to search: as many as there is physical memory."""
    try:
        ends = re.findall(r"^[0-9a-f]+-([0-9a-f]+) : System RAM", Path("/proc/iomem").read_text(), re.M)
    except OSError:
        ends = []
    last = max((int(end, 16) for end in ends), default=0)
    return (last >> 30) + 2 if last else _MAX_SEARCH_STEPS
