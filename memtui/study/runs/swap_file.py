"""Temporary swap: a file without a name on a loop device, which the kernel takes down when the swap ends.

The file never has a name (``O_TMPFILE``) and the device clears itself (``LO_FLAGS_AUTOCLEAR``), so that ``swapoff``
alone leaves nothing behind. ``sweep`` does it for the swap of a process that is gone.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memtui.core.errors import FAILURE, UserError
from memtui.core.units import size
from memtui.probes.swap_areas import swap_areas

RESERVE_BYTES = 512 << 20  # of a disk: stays free next to the swap file
_MIB = 1 << 20
# In these a file without a name can be made, and a loop device on it does not have to ask another machine.
FILE_SYSTEMS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs")
_NAME = "memtui-swap"
_SECONDS = 120.0  # for swapoff, which reads back pages of all programs

# linux/loop.h
_CTL_GET_FREE, _CONFIGURE, _GET_STATUS64 = 0x4C82, 0x4C0A, 0x4C05
_AUTOCLEAR, _DIRECT_IO = 4, 16
_INFO = struct.Struct("<QQQQQIIII64s64s32sQQ")  # struct loop_info64
_CONFIG = struct.Struct(f"<II{_INFO.size}s64x")  # struct loop_config
_FLAGS, _FILE_NAME = 8, 9  # fields of the former


@dataclass(frozen=True, slots=True)
class Swap:
    """Swap for the pages of a program.

    Attributes:
        device: memtui's own device, such as "/dev/loop3"; "" where the machine had enough swap before.
        what: description for a report: "a file on ext4, on a loop device, past the page cache".
        bytes_: size that may be used.
    """

    device: str
    what: str
    bytes_: int


def free_bytes(proc: Path = Path("/proc")) -> tuple[int, list[str]]:
    """Return (free bytes, devices and files) of the swap that the machine has already; see proc_swaps(5)."""
    areas = [area for area in swap_areas(proc) if not _is_ours(area.name)]
    return sum(area.size_bytes - area.used_bytes for area in areas), [area.name for area in areas]


def folder_for(need_bytes: int, folders: Sequence[str]) -> tuple[str, str]:
    """Return (folder, file system) with room for a swap file and a reserve. Raises UserError with what is missing."""
    refused = []
    for folder in folders:
        kind = file_system(folder)
        if kind not in FILE_SYSTEMS:
            refused.append(f"{folder} is on {kind or 'nothing known'}")
            continue
        # A file in tmpfs takes memory, of which other programs need some, too.
        free, more = (_available_bytes(), need_bytes) if kind == "tmpfs" else (_free_disk_bytes(folder), 0)
        if free < need_bytes + more + RESERVE_BYTES:
            refused.append(f"{folder} ({kind}) has {size(free)} free")
            continue
        return folder, kind
    raise UserError(
        f"a swap file of {size(need_bytes)} needs {size(RESERVE_BYTES)} more than that on one of "
        f"{', '.join(FILE_SYSTEMS)}: {'; '.join(refused)}; name a folder with room (-o), or switch on swap",
        FAILURE,
    )


def switch_on(need_bytes: int, folders: Sequence[str]) -> tuple[Swap, mmap.mmap | None]:
    """Switch on swap on a new file.

    Returns:
        The swap, and, of a file in memory, its locked pages, which must stay referenced until the swap is switched off.

    Raises:
        UserError: a tool, room on a disk, or a loop device is missing.
    """
    for tool in ("mkswap", "swapon", "swapoff"):
        if shutil.which(tool, path=_search()) is None:
            raise UserError(f"{tool} (util-linux) is not installed, and swap is made with it", FAILURE)
    need_bytes = -(-need_bytes // _MIB) * _MIB  # an incomplete last block could not be read
    folder, kind = folder_for(need_bytes, folders)
    locked: mmap.mmap | None = None
    try:
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"{folder}: no swap file can be made there: {error.strerror}", FAILURE) from None
    try:
        os.posix_fallocate(file, 0, need_bytes)
        if kind == "tmpfs":
            locked = _map_locked(file, need_bytes)
        device, open_device = _attach(file)
    except OSError as error:
        raise UserError(f"no loop device takes a swap file in {folder}: {error.strerror}", FAILURE) from None
    finally:
        os.close(file)
    try:
        for argv in (["mkswap", "-q", device], ["swapon", device]):
            _run_tool(argv)
    finally:
        os.close(open_device)  # a device without swap on it is cleared by this
    direct = _lines(Path("/sys/block", Path(device).name, "loop/dio")) == ["1"]
    how = "past the page cache" if direct else "through the page cache"
    return Swap(device, f"a file on {kind}, on a loop device, {how}", need_bytes), locked


def switch_off(device: str) -> str:
    """Switch off the swap on a device, which then clears itself; return why that failed, "" where it did not."""
    try:
        _run_tool(["swapoff", device])
    except UserError as error:
        return "" if device not in _active() else str(error)
    return ""


def sweep() -> None:
    """Switch off the swap of processes that are gone."""
    for device in _active():
        owner = _owner(device)
        if owner is not None and not owner_lives(owner):
            switch_off(device)


def owner_id() -> str:
    """Return the PID namespace and the pid of this process, for the names of its cgroup and its swap."""
    return f"{Path('/proc/self/ns/pid').stat().st_ino}-{os.getpid()}"


def owner_lives(owner: str) -> bool:
    """Return whether the process of an ``owner_id`` lives, or cannot be seen from here."""
    namespace, _, pid = owner.partition("-")
    if namespace != owner_id().partition("-")[0] or not pid.isdigit():
        return True
    try:
        return b"memtui.study.runs.limit_holder" in Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return False


def file_system(folder: str) -> str:
    """Return the type of a folder's file system; "" when it cannot be found out."""
    try:
        device, path = Path(folder).stat().st_dev, os.path.realpath(folder)
    except OSError:
        return ""
    best = ("", "")
    for line in _lines(Path("/proc/self/mountinfo")):
        mount, _, kind = line.partition(" - ")
        fields = mount.split()
        top = fields[4].encode().decode("unicode_escape")
        on_it = fields[2] == f"{os.major(device)}:{os.minor(device)}"
        # btrfs reports other device numbers in stat(2), so there the longest path decides.
        below = path == top or path.startswith(top.rstrip("/") + "/")
        if (on_it or kind.startswith("btrfs ")) and below and len(top) >= len(best[0]):
            best = (top, kind.split()[0])
    return best[1]


def _attach(file: int) -> tuple[str, int]:
    """Attach a file to a free loop device; return its path and a file descriptor. Raises OSError."""
    info = [0] * 9 + [f"{_NAME} {owner_id()}".encode(), b"", b"", 0, 0]
    with Path("/dev/loop-control").open("rb") as control:
        for attempt in range(8):  # another process may take the device first
            number = fcntl.ioctl(control, _CTL_GET_FREE)
            # Past the page cache: pages cached there would be memory that no limit counts.
            info[_FLAGS] = _AUTOCLEAR | _DIRECT_IO
            device = f"/dev/loop{number}"
            if not Path(device).exists():
                os.mknod(device, 0o600 | 0o060000, os.makedev(7, number))
            handle = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(handle, _CONFIGURE, _CONFIG.pack(file, mmap.PAGESIZE, _INFO.pack(*info)))
            except OSError:
                os.close(handle)
                if attempt == 7:
                    raise
                continue
            return device, handle
    raise AssertionError("unreachable")


def _owner(device: str) -> str | None:
    """Return the ``owner_id`` in the name of a loop device's file; None for a device of another program."""
    if not device.startswith("/dev/loop"):
        return None
    try:
        handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        info = _INFO.unpack(fcntl.ioctl(handle, _GET_STATUS64, bytes(_INFO.size)))
    except OSError:
        return None
    finally:
        os.close(handle)
    name, _, owner = info[_FILE_NAME].rstrip(b"\0").decode(errors="replace").partition(" ")
    return owner if name == _NAME else None


def _is_ours(device: str) -> bool:
    return _owner(device) is not None


def _active() -> list[str]:
    return [area.name for area in swap_areas()]


def _map_locked(file: int, bytes_: int) -> mmap.mmap:
    """Map a file in memory and lock its pages: swapped out, they would need the swap that they are."""
    pages = mmap.mmap(file, bytes_)
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(bytes_)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pages


def _run_tool(argv: Sequence[str]) -> None:
    """Run a tool of util-linux. Raises UserError with its last message."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_SECONDS,
            env=os.environ | {"PATH": _search(), "LC_ALL": "C"}, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{argv[0]}: {error}", FAILURE) from None
    if done.returncode:
        message = (done.stderr.strip() or "no word").splitlines()[-1]
        raise UserError(f"swap cannot be switched here: {message.removeprefix(f'{argv[0]}: ')}", FAILURE)


def _search() -> str:
    """Return a search path with root's folders, which a user's path lacks."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _free_disk_bytes(folder: str) -> int:
    with suppress(OSError):
        stats = os.statvfs(folder)
        return stats.f_bavail * stats.f_frsize
    return 0


def _available_bytes() -> int:
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
