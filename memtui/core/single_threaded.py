"""Imported before numpy, for its effect: the libraries under it start no threads of their own.

The sampler has no use for them, and they would stay as mighty as it was when it started: Linux gives up capabilities
thread by thread.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
    os.environ[_name] = "1"
