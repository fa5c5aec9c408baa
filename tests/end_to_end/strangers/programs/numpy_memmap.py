"""Epochs over a data set that is mapped from a file, in random batches."""

import hashlib
import sys
import tempfile
import time

import numpy as np

random = np.random.default_rng(1)
with tempfile.NamedTemporaryFile() as file:
    made = np.memmap(file.name, np.float32, "w+", shape=(20_000, 512))
    made[:] = random.standard_normal(made.shape, np.float32)
    made.flush()
    del made
    data = np.memmap(file.name, np.float32, "r", shape=(20_000, 512))
    mean = np.zeros(512)
    for step in range(int(sys.argv[1])):
        for batch in np.split(random.permutation(len(data)), 40):
            mean += 0.01 * (data[np.sort(batch)].astype(float).mean(axis=0) - mean)
        print("step", step, "at", time.monotonic_ns(), file=sys.stderr, flush=True)
print(hashlib.sha256(mean.tobytes()).hexdigest())
