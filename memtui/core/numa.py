"""NUMA nodes as the kernel lists them, and on which of them pages lie; without libnuma."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NODES = Path("/sys/devices/system/node")
_MOVE_PAGES = {"x86_64": 279, "aarch64": 239}  # asm/unistd.h
_libc = ctypes.CDLL(None, use_errno=True)


def numbers_in(text: str) -> list[int]:
    """Return the numbers of a list as the kernel writes it: ``0-1,4``. Raises ValueError."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        numbers += range(int(low), int(high or low) + 1)
    return numbers


def read_nodes_with_memory(nodes: Path = NODES) -> list[int]:
    """Return the numbers of the nodes that have memory, from the list of the kernel. Raises OSError and ValueError."""
    return numbers_in((nodes / "has_memory").read_text())


def nodes_of_pages(pid: int, addresses: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Return the node of the page at each address, i4[n], as ``move_pages(2)`` reports; it moves nothing here.

    ``pid`` 0: of this process. A page without memory has the negative of the kernel's error number.

    Raises:
        OSError: the process ended, or may not be asked.
        NotImplementedError: another machine than x86-64 and ARM64.
    """
    call = _MOVE_PAGES.get(platform.machine())
    if call is None:
        raise NotImplementedError(f"memory of a NUMA node cannot be asked for on {platform.machine()}")
    where = np.ascontiguousarray(addresses, np.uint64)
    nodes = np.full(len(where), -1, np.int32)
    pages, status = (ctypes.c_void_p(array.ctypes.data) for array in (where, nodes))
    if _libc.syscall(ctypes.c_long(call), ctypes.c_int(pid), ctypes.c_ulong(len(where)), pages, None, status, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return nodes
