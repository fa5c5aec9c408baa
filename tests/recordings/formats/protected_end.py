"""The program that the sessions beside it are of: it writes 2 MiB in a loop, whose end is protected after 2 s.

A child reads memory that both share. Each session was recorded by the last memtui of its format, as root and with
``memtui record -o format-N.memtui --interval 0.25 -- /usr/bin/python3 protected_end.py``, on Linux 6.18 (x86-64).
"""

import ctypes
import mmap
import os
import time

SIZE, SHARED, PROTECTED, PAGE = 2 << 20, 1 << 20, 8192, 4096
memory = mmap.mmap(-1, 2 * SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
shared = mmap.mmap(-1, SHARED)
block = memoryview(bytes(range(256)) * 256)
libc = ctypes.CDLL(None)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc.munmap(ctypes.c_void_p(address + SIZE), ctypes.c_size_t(SIZE))  # nothing lies directly above
view = memoryview(memory)
for at in range(0, SHARED, len(block)):
    shared[at : at + len(block)] = block
child = os.fork()
end_s = time.monotonic() + 4.5
is_protected = False
while time.monotonic() < end_s:
    if child:
        for at in range(0, SIZE - len(block), len(block)):
            view[at : at + len(block)] = block
        if not is_protected:
            view[SIZE - PROTECTED : SIZE] = block[:PROTECTED]
        if not is_protected and time.monotonic() > end_s - 2.5:
            libc.mprotect(ctypes.c_void_p(address + SIZE - PROTECTED), ctypes.c_size_t(PROTECTED), mmap.PROT_READ)
            is_protected = True
    for at in range(0, SHARED, PAGE):
        shared[at]
    time.sleep(0.005)
if child:
    os.wait()
os._exit(0)
