"""The process that calls AMD's library: ``python -m memtui.probes.gpu.amd_worker PARENT``; see ``worker``."""

from __future__ import annotations

import sys

from memtui.probes.gpu.amd import NO_AMD_GPU, AmdProbe
from memtui.probes.gpu.worker import serve

if __name__ == "__main__":
    sys.exit(serve(AmdProbe, NO_AMD_GPU))
