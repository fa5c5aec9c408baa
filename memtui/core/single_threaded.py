"""Keeps numpy's libraries from starting threads; to be imported before numpy, for this effect.

Sampler and recorder do not need such threads. They would keep the capabilities with which the sampler started: on Linux
each thread gives up its own.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
    os.environ[_name] = "1"
