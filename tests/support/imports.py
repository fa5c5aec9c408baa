"""Which modules a program loads."""

from __future__ import annotations

import subprocess
import sys


def loaded(source: str) -> set[str]:
    """Top-level names in sys.modules of a fresh interpreter after running ``source``."""
    code = f"{source}\nimport sys\nprint(' '.join({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
