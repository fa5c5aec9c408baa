"""Leaves what imports make out of garbage collection: of torch's half a million objects all stay to the end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen_imports() -> Iterator[None]:
    """Collect nothing meanwhile, and never what is there at the end. A process with torch takes 0.5 s of CPU less."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
