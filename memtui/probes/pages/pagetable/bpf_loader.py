"""Loads BPF iterators from their light skeleton with raw ``bpf()`` system calls: no libbpf, no compiler at run time.

A light skeleton is a *loader program* and its data. The kernel runs the loader, which creates the maps, adapts the
real programs to this kernel's types and loads them; it leaves the file descriptors in its context.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import json
import mmap
import os
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

ARM64 = platform.machine() == "aarch64"
SHIPPED_SKELETON = Path(__file__).with_name("pagetable.arm64.lskel.json" if ARM64 else "pagetable.lskel.json")
SKELETON_VARIABLE = "MEMTUI_SKELETON"  # a path here replaces the shipped skeleton (tests of a fresh build)

_SYS_BPF = 280 if ARM64 else 321
_ATTRIBUTE_BYTES = 160
_MAP_CREATE, _MAP_UPDATE, _PROGRAM_LOAD, _PROGRAM_RUN, _LINK_CREATE, _ITERATOR_CREATE = 0, 2, 5, 10, 28, 33
_MAP_TYPE_ARRAY, _PROGRAM_TYPE_SYSCALL, _ATTACH_TRACE_ITERATOR, _SLEEPABLE = 2, 31, 28, 16
# struct bpf_loader_ctx: size, flags, log level, log size, log buffer; then 16 bytes a map and 4 a program.
_LOADER_HEAD = struct.Struct("<IIIIQ")
_LOADER_MAP = struct.Struct("<iIQ")  # fd, max_entries, initial value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class BpfError(OSError):
    """A ``bpf()`` call was refused; ``strerror`` says which one."""


def _bpf(command: int, attribute: bytes, what: str) -> tuple[int, bytes]:
    """Call ``bpf()``. Returns its result and the attribute as the kernel left it."""
    buffer = ctypes.create_string_buffer(attribute.ljust(_ATTRIBUTE_BYTES, b"\0"), _ATTRIBUTE_BYTES)
    result = _libc.syscall(_SYS_BPF, command, buffer, _ATTRIBUTE_BYTES)
    if result < 0:
        code = ctypes.get_errno()
        raise BpfError(code, f"bpf() refused to {what}: {os.strerror(code)} ({errno.errorcode.get(code, code)})")
    return result, buffer.raw


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The loader program, its data and the names of what it creates, in order."""

    maps: tuple[str, ...]
    programs: tuple[str, ...]
    instructions: bytes
    data: bytes

    @classmethod
    def read(cls, path: Path | str | None = None) -> Skeleton:
        """Read a file, else the one at the path in ``MEMTUI_SKELETON``, else the one that is shipped."""
        raw = json.loads(Path(path or os.environ.get(SKELETON_VARIABLE) or SHIPPED_SKELETON).read_text())
        if raw.get("format") != 1:
            raise ValueError(f"unknown skeleton format {raw.get('format')}")
        code, data = base64.b64decode(raw["instructions"]), base64.b64decode(raw["data"])
        return cls(tuple(raw["maps"]), tuple(raw["programs"]), code, data)


class Program:
    """The maps and the iterator programs of a skeleton, loaded. Closes every file descriptor it opened."""

    def __init__(self, skeleton: Skeleton, sizes: Mapping[str, int]) -> None:
        """Load; ``sizes`` gives the entries of the maps whose compiled size does not fit."""
        self.maps: dict[str, int] = {}
        self.programs: dict[str, int] = {}
        # Keep every buffer alive over the calls that name its address.
        key = ctypes.c_uint32(0)
        data = ctypes.create_string_buffer(skeleton.data, len(skeleton.data))
        code = ctypes.create_string_buffer(skeleton.instructions, len(skeleton.instructions))
        licence = ctypes.create_string_buffer(b"Dual BSD/GPL")
        context = ctypes.create_string_buffer(self._context(skeleton, sizes))
        data_fd = loader_fd = -1
        try:
            data_fd, _ = _bpf(_MAP_CREATE, struct.pack("<5I", _MAP_TYPE_ARRAY, 4, len(data), 1, 0), "create a map")
            update = struct.pack("<I4xQQQ", data_fd, ctypes.addressof(key), ctypes.addressof(data), 0)
            _bpf(_MAP_UPDATE, update, "fill a map")
            fds = (ctypes.c_int * 1)(data_fd)
            load = bytearray(_ATTRIBUTE_BYTES)
            struct.pack_into("<IIQQ", load, 0, _PROGRAM_TYPE_SYSCALL, len(code) // 8, ctypes.addressof(code),
                             ctypes.addressof(licence))  # fmt: skip
            struct.pack_into("<I16s", load, 44, _SLEEPABLE, b"memtui_loader")
            struct.pack_into("<Q", load, 120, ctypes.addressof(fds))
            loader_fd, _ = _bpf(_PROGRAM_LOAD, bytes(load), "load the loader program")
            run = struct.pack("<4IQQ4IQQ", loader_fd, 0, 0, 0, 0, 0, 0, 0, len(context) - 1, 0,
                              ctypes.addressof(context), 0)  # fmt: skip
            _, after = _bpf(_PROGRAM_RUN, run, "run the loader program")
            code_returned = struct.unpack_from("<i", after, 4)[0]
            self._adopt(skeleton, context.raw)
            if code_returned < 0:
                text = f"{os.strerror(-code_returned)} ({errno.errorcode.get(-code_returned, -code_returned)})"
                raise BpfError(-code_returned, f"the kernel refused the page-table program: {text}")
        except BaseException:
            self.close()
            raise
        finally:
            for fd in (data_fd, loader_fd):
                if fd >= 0:
                    os.close(fd)

    @staticmethod
    def _context(skeleton: Skeleton, sizes: Mapping[str, int]) -> bytes:
        size = _LOADER_HEAD.size + _LOADER_MAP.size * len(skeleton.maps) + 4 * len(skeleton.programs)
        maps = (_LOADER_MAP.pack(0, sizes.get(name, 0), 0) for name in skeleton.maps)
        return (_LOADER_HEAD.pack(size, 0, 0, 0, 0) + b"".join(maps)).ljust(size, b"\0")

    def _adopt(self, skeleton: Skeleton, context: bytes) -> None:
        """Take over the file descriptors that the loader left in its context (0 or less: none was created)."""
        offset = _LOADER_HEAD.size
        for name in skeleton.maps:
            fd = _LOADER_MAP.unpack_from(context, offset)[0]
            if fd > 0:
                self.maps[name] = fd
            offset += _LOADER_MAP.size
        fds = struct.unpack_from(f"<{len(skeleton.programs)}i", context, offset)
        self.programs = {name: fd for name, fd in zip(skeleton.programs, fds, strict=True) if fd > 0}

    def view(self, name: str, length: int) -> mmap.mmap:
        """Return the memory of a map made with BPF_F_MMAPABLE; it outlives the file descriptor."""
        return mmap.mmap(self.maps[name], -(-length // mmap.PAGESIZE) * mmap.PAGESIZE)

    def attach(self, name: str, tid: int = 0, *, threads: bool = False) -> int:
        """Return a link on which a program visits one task of the caller's PID namespace, or all.

        The caller closes the link.

        ``threads``: visit all threads of the process with that number.
        A kernel before 6.1 silently ignores the task: the program has to check which one it visits.
        """
        # union bpf_iter_link_info: task.tid, task.pid, task.pid_fd
        task = struct.pack("<IIII", 0, tid, 0, 0) if threads else struct.pack("<IIII", tid, 0, 0, 0)
        info = ctypes.create_string_buffer(task, len(task))
        where = (ctypes.addressof(info), len(task)) if tid else (0, 0)
        attribute = struct.pack("<4IQI", self.programs[name], 0, _ATTACH_TRACE_ITERATOR, 0, *where)
        return _bpf(_LINK_CREATE, attribute, "attach to the process")[0]

    def close(self) -> None:
        for fd in (*self.maps.values(), *self.programs.values()):
            os.close(fd)
        self.maps, self.programs = {}, {}

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open_iterator(link: int) -> int:
    """Return a descriptor on which the program runs once over all tasks of the link.

    The caller closes the descriptor.
    """
    return _bpf(_ITERATOR_CREATE, struct.pack("<II", link, 0), "start the walk")[0]


def run_iterator(fd: int) -> None:
    """Run the program, once for each descriptor."""
    while True:
        try:
            # The program prints nothing: an empty read means that it has visited everything.
            if not os.read(fd, 4096):
                return
        except BlockingIOError:
            continue  # the kernel stops after every million mappings
