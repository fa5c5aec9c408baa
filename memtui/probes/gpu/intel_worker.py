"""The process that reads Intel GPUs: ``python -m memtui.probes.gpu.intel_worker PARENT SYSFS``; see ``worker``."""

from __future__ import annotations

import sys

from memtui.probes.gpu.intel import NO_INTEL_GPU, IntelProbe
from memtui.probes.gpu.worker import serve

if __name__ == "__main__":
    sys.exit(serve(lambda: IntelProbe(sys.argv[2]), NO_INTEL_GPU))
