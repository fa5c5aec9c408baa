"""A file system whose reads are answered when a test says so: whoever reads waits inside the kernel until then (D)."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from pathlib import Path

import pytest

FILE, SIZE = "file", 1 << 16
_IN, _OUT = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")  # include/uapi/linux/fuse.h
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE, _FLUSH, _INIT, _INTERRUPT = 1, 2, 3, 14, 15, 18, 25, 26, 36
_ENOENT, _ENOSYS = 2, 38
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


class StuckFiles:
    """One readable and executable file in ``folder``, of which nobody gets a byte before ``answer``."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.path = folder, folder / FILE
        self._waiting: list[tuple[int, int]] = []
        self._lock, self._answers = threading.Lock(), False
        try:
            self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            pytest.skip(f"no FUSE here: {error}")
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0".encode()
        if _libc.mount(b"stuck", bytes(folder), b"fuse", 0, options):
            os.close(self._fd)
            pytest.skip(f"FUSE cannot be mounted here: {os.strerror(ctypes.get_errno())}")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many reads wait."""
        return len(self._waiting)

    def answer(self) -> None:
        """Answer what waits, and from now on at once."""
        with self._lock:
            self._answers = True
            for unique, size in self._waiting:
                self._reply(unique, bytes(size))
            self._waiting.clear()

    def close(self) -> None:
        self.answer()
        _libc.umount2(bytes(self._folder), _MNT_DETACH)
        self._thread.join(5)
        os.close(self._fd)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._fd, 1 << 18)
            except OSError:
                return  # unmounted
            _, opcode, unique, node, *_ = _IN.unpack_from(request)
            self._handle(opcode, unique, node, request[_IN.size :])

    def _handle(self, opcode: int, unique: int, node: int, body: bytes) -> None:
        if opcode == _INIT:
            major, minor, ahead, _ = struct.unpack_from("<IIII", body)
            minor = min(minor, 31)
            self._reply(unique, struct.pack("<IIIIHHIIHHI28x", major, minor, ahead, 0, 16, 12, 4096, 1, 32, 0, 0))
        elif opcode == _LOOKUP and body.rstrip(b"\0") == FILE.encode():
            self._reply(unique, struct.pack("<QQQQII", 2, 0, 3600, 3600, 0, 0) + _attributes(2))
        elif opcode == _LOOKUP:
            self._reply(unique, error=_ENOENT)
        elif opcode == _GETATTR:
            self._reply(unique, struct.pack("<QII", 3600, 0, 0) + _attributes(node))
        elif opcode == _OPEN:
            self._reply(unique, bytes(16))
        elif opcode == _READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            size = max(min(size, SIZE - offset), 0)
            with self._lock:
                if self._answers:
                    self._reply(unique, bytes(size))
                else:
                    self._waiting.append((unique, size))
        elif opcode in (_RELEASE, _FLUSH):
            self._reply(unique)
        elif opcode not in (_FORGET, _INTERRUPT):
            self._reply(unique, error=_ENOSYS)

    def _reply(self, unique: int, body: bytes = b"", error: int = 0) -> None:
        try:
            os.write(self._fd, _OUT.pack(_OUT.size + len(body), -error, unique) + body)
        except OSError:
            pass  # the reader was killed


def _attributes(node: int) -> bytes:
    mode = 0o40755 if node == 1 else 0o100755
    return struct.pack("<QQQQQQIIIIIIIIII", node, SIZE, SIZE // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
