"""Power iteration on a matrix of 72 MiB: streams through it over and over."""

import hashlib
import sys
import time

import numpy as np

random = np.random.default_rng(1)
matrix = random.standard_normal((3000, 3000))
vector = random.standard_normal(3000)
for step in range(int(sys.argv[1])):
    vector = matrix @ vector
    vector /= np.linalg.norm(vector)
    print("step", step, "at", time.monotonic_ns(), file=sys.stderr, flush=True)
print(hashlib.sha256(vector.tobytes()).hexdigest())
