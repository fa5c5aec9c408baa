"""Large blocks are given back to the kernel, also after one was freed; and free pages, when asked."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

# Prints the bytes in mapped blocks while a block is allocated for the second time.
MAPPED = """
import ctypes, sys
from memtui.core.malloc import give_back_large_blocks
class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
if not hasattr(libc, "mallinfo2"):
    sys.exit("no mallinfo2")
libc.mallinfo2.restype = Info
if sys.argv[1] == "set":
    give_back_large_blocks()
libc.free(libc.malloc(4 << 20))
before = libc.mallinfo2().hblkhd
libc.malloc(4 << 20)
print(libc.mallinfo2().hblkhd - before)
"""


@pytest.mark.parametrize(("how", "mapped"), [("not set", False), ("set", True)])
def test_a_large_block_is_mapped_again_after_one_was_freed(how, mapped):
    done = subprocess.run([sys.executable, "-c", MAPPED, how], capture_output=True, text=True)
    if "no mallinfo2" in done.stderr:
        pytest.skip("this C library does not say what is mapped (glibc before 2.33, musl)")
    assert (int(done.stdout) > 4 << 20) == mapped


# Frees 32 MiB of small blocks below one that stays, and prints by how much RSS is less after giving back.
FREED = """
import ctypes
from memtui.core.malloc import give_back_free_pages
from memtui.core.procfs import PROC, rss_bytes_of
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
blocks = [libc.malloc(16 << 10) for _ in range(2048)]
for block in blocks:
    ctypes.memset(block, 1, 16 << 10)
stays = libc.malloc(64)
for block in blocks:
    libc.free(block)
before = rss_bytes_of(PROC / "self")
give_back_free_pages()
print(before - rss_bytes_of(PROC / "self"))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library has no malloc_trim (musl)")
def test_free_pages_below_a_block_that_stays_are_given_back():
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 24 << 20
