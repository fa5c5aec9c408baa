"""The sizes in which the hardware maps memory, without numpy: a page of 4 KiB, a block of 2 MiB, a page of 1 GiB."""

PAGE_SHIFT, BLOCK_SHIFT, GIANT_SHIFT = 12, 21, 30
PAGE_BYTES, BLOCK_BYTES, GIANT_BYTES = 1 << PAGE_SHIFT, 1 << BLOCK_SHIFT, 1 << GIANT_SHIFT
PAGES_PER_BLOCK = BLOCK_BYTES // PAGE_BYTES
