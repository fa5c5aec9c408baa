"""Memory of a chosen kind, as mappings of this process: on a NUMA node, in huge pages, in a file.

Linux only, and without libnuma: mbind(2) is called by number.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from memtui.core.numa import NODES, nodes_of_pages, read_nodes_with_memory

HUGE_BYTES = 2 << 20
_MAP_HUGETLB = 0x40000
_MPOL_BIND = 2
_STATX_ATTR_DAX = 0x00200000
_AT_FDCWD, _STATX_BASIC = -100, 0x7FF
_MBIND = {"x86_64": 237, "aarch64": 235}  # asm/unistd.h
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


class NoMemory(Exception):
    """This machine has no such memory; the message says why, and names the memory that there is."""


def anonymous(size: int) -> mmap.mmap:
    """Return ordinary memory, with every page of it written once. Raises NoMemory."""
    return populate(_map(-1, size, _PRIVATE))


def on_node(size: int, node: int) -> mmap.mmap:
    """Return memory of one NUMA node; move_pages(2) confirmed where its pages are. Raises NoMemory."""
    check_node(node)
    mapping = _map(-1, size, _PRIVATE)
    mask = (ctypes.c_ulong * (node // 64 + 1))()
    mask[node // 64] = 1 << node % 64
    # The kernel subtracts one from the number of bits.
    most = ctypes.c_ulong(len(mask) * 64 + 1)
    call = _mbind_call()
    if _c().syscall(call, _pointer(mapping), ctypes.c_ulong(size), _MPOL_BIND, mask, most, 0):
        raise NoMemory(f"memory cannot be bound to node {node}: mbind: {os.strerror(ctypes.get_errno())}")
    populate(mapping)
    nodes = nodes_of(mapping)
    if {*nodes} != {node}:
        where = ", ".join(f"{count} on node {number}" for number, count in sorted(nodes.items()))
        raise NoMemory(f"of {sum(nodes.values())} pages bound to node {node} {where}")
    return mapping


def nodes_of(buffer: mmap.mmap | np.ndarray) -> Counter[int]:
    """Return how many pages of a mapping, or of an array, lie on each NUMA node, as move_pages(2) reports.

    A page without memory is counted under the negative of the kernel's error number. Raises NoMemory.
    """
    first = address(buffer)
    size = buffer.nbytes if isinstance(buffer, np.ndarray) else len(buffer)
    starts = np.arange(first - first % mmap.PAGESIZE, first + size, mmap.PAGESIZE, dtype=np.uint64)
    try:
        return Counter(nodes_of_pages(0, starts).tolist())
    except OSError as error:
        raise NoMemory(f"move_pages: {error.strerror}") from None
    except NotImplementedError as error:
        raise NoMemory(str(error)) from None


def nodes_with_memory() -> list[int]:
    """Return the numbers of the NUMA nodes that have memory; only 0 where the kernel has no list of nodes."""
    try:
        return read_nodes_with_memory(NODES)
    except OSError:
        return [0]


def check_node(node: int) -> None:
    """Raise NoMemory where a NUMA node has no memory."""
    there = nodes_with_memory()
    if node not in there:
        raise NoMemory(f"there is no memory on node {node}: this machine has some on {', '.join(map(str, there))}")


def in_huge_pages(size: int) -> tuple[mmap.mmap, int, str]:
    """Return a mapping with huge pages, the offset at which they start, and the kind of huge pages. Raises NoMemory.

    Reserved huge pages (vm.nr_hugepages) are tried first. Transparent ones are then requested with madvise(2) and
    counted, as the kernel may give small pages instead.
    """
    size = rounded(size, HUGE_BYTES)
    try:
        return populate(_map(-1, size, _PRIVATE | _MAP_HUGETLB)), 0, "reserved huge pages"
    except NoMemory:
        pass
    mapping = _map(-1, size + HUGE_BYTES, _PRIVATE)
    start = -address(mapping) % HUGE_BYTES
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE, 0, len(mapping))
    except OSError as error:
        raise NoMemory(f"no huge page is reserved and madvise refuses: {error.strerror}") from None
    populate(mapping)
    got = _huge_bytes(address(mapping), len(mapping))
    if got < size // 2:
        raise NoMemory(f"no huge page is reserved, and of {size} bytes the kernel put {got} into transparent ones")
    return mapping, start, "transparent huge pages"


def of_file(size: int, folder: str) -> mmap.mmap:
    """Return a mapping of an unnamed file in a folder; the file ends with the mapping. Raises NoMemory."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="memtui-") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk would be SIGBUS later
            return populate(_map(file.fileno(), size, mmap.MAP_SHARED))
    except OSError as error:
        raise NoMemory(f"{folder}: no file of {size} bytes can be had there: {error.strerror}") from None


def _is_folder(folder: str) -> bool:
    try:
        return Path(folder).is_dir()
    except OSError:  # the folder above is closed
        return False


def about_folder(folder: str) -> tuple[bool, str]:
    """Return whether files of a folder are mapped without the page cache (DAX), and a note for the user.

    Raises NoMemory where the path is not a folder.
    """
    if not _is_folder(folder):
        raise NoMemory(f"{folder} is not a folder")
    kind, options = _file_system(os.path.realpath(folder))
    if kind in _IN_MEMORY:
        return False, f"{kind}: main memory, no slow memory"
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="memtui-") as file:
            dax = _is_dax(file.name)
    except OSError as error:
        raise NoMemory(f"{folder}: no file can be made there: {error.strerror}") from None
    if dax is None:
        dax = bool({"dax", "dax=always"} & {*options})
    if dax:
        return True, f"{kind} with DAX: the memory itself"
    return False, f"page cache of {kind}: main memory, no slow memory"


def populate(mapping: mmap.mmap) -> mmap.mmap:
    """Write every page of a mapping once, and return the mapping."""
    np.frombuffer(mapping, np.uint8)[:: mmap.PAGESIZE] = 0
    return mapping


def address(buffer: mmap.mmap | np.ndarray) -> int:
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    return int(array.ctypes.data)


def rounded(size: int, to: int = mmap.PAGESIZE) -> int:
    """Return a size rounded up to whole pages, at least one page."""
    return max(1, -(-size // to)) * to


def _map(fd: int, size: int, flags: int) -> mmap.mmap:
    try:
        return mmap.mmap(fd, size, flags=flags)
    except OSError as error:
        raise NoMemory(f"{size} bytes cannot be mapped: {error.strerror}") from None
    except (ValueError, OverflowError) as error:
        raise NoMemory(f"{size} bytes cannot be mapped: {error}") from None


def _c() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _pointer(mapping: mmap.mmap) -> ctypes.c_void_p:
    return ctypes.c_void_p(address(mapping))


def _mbind_call() -> ctypes.c_long:
    try:
        return ctypes.c_long(_MBIND[platform.machine()])
    except KeyError:
        raise NoMemory(f"memory of a NUMA node cannot be asked for on {platform.machine()}") from None


def _huge_bytes(first: int, size: int) -> int:
    """Return how many bytes of a range lie in transparent huge pages, from smaps."""
    total, inside = 0, False
    with Path("/proc/self/smaps").open() as file:
        for line in file:
            head, _, rest = line.partition(" ")
            if not head.endswith(":"):
                low, high = (int(word, 16) for word in head.split("-"))
                inside = low < first + size and high > first
            elif inside and head == "AnonHugePages:":
                total += int(rest.split()[0]) << 10
    return total


def _file_system(path: str) -> tuple[str, list[str]]:
    """Return (type, mount options) of the file system of a path; proc(5), mountinfo."""
    longest, mount = -1, ("file system", [""])
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        kind, _, super_options = after.split(maxsplit=2)
        if len(point) >= longest and (path == point or path.startswith(point.rstrip("/") + "/")):
            longest, mount = len(point), (kind, f"{before.split()[5]},{super_options}".split(","))
    return mount[0], list(mount[1])


def _is_dax(path: str) -> bool | None:
    """Return whether statx(2) reports DAX for a file; None where the kernel does not report that attribute."""
    status = ctypes.create_string_buffer(256)
    try:
        failed = _c().statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BASIC, status)
    except AttributeError:  # an old C library
        return None
    if failed:
        return None
    # struct statx: stx_attributes is at offset 8, stx_attributes_mask (the attributes that are reported) at 56.
    attributes, mask = (int.from_bytes(status.raw[offset : offset + 8], "little") for offset in (8, 56))
    return bool(attributes & _STATX_ATTR_DAX) if mask & _STATX_ATTR_DAX else None
