"""The process that calls NVIDIA's library: ``python -m memtui.probes.gpu.nvml_worker PARENT``; see ``worker``."""

from __future__ import annotations

import sys

from memtui.probes.gpu.nvml import NO_GPU, NvmlProbe
from memtui.probes.gpu.worker import serve

if __name__ == "__main__":
    sys.exit(serve(NvmlProbe, NO_GPU))
