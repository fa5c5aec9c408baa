"""Tensors of no model and no optimiser have a name: type, shape, and the data set that has them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.tensor_pages import UNKNOWN, TensorMap
from memtui.recording.tracer import tensor_registry
from memtui.recording.tracer.tensor_registry import LastingTensors, build_registry, located
from memtui.reports.allocation_summary import LargestTensor, of_it
from memtui.reports.report import build_report
from memtui.reports.text import format_report
from tests.support.traced_programs import script, traced

pytestmark = pytest.mark.real_clock(alone=False)

WEIGHTS = CATEGORIES.index("weights")


def test_the_data_set_that_has_a_tensor():
    data = TensorDataset(torch.zeros(1000, 64, dtype=torch.int64), torch.zeros(1000))
    alone = torch.zeros(500, 3)
    lasting = LastingTensors()
    lasting.now()
    holders = lasting.holders()
    registry = build_registry((), (), others=[*data.tensors, alone], holders=holders)
    assert registry.others[located(data.tensors[0])[1]].part == "int64[1000, 64] of TensorDataset.tensors"
    assert registry.others[located(alone)[1]].part == "float32[500, 3]"
    del data
    assert not [name for name in lasting.holders().values() if name == "TensorDataset.tensors"]


def test_a_data_set_that_comes_later_is_there_after_the_next_search(monkeypatch):
    monkeypatch.setattr(tensor_registry, "_REST_FACTOR", 0)  # each call searches
    lasting = LastingTensors()
    lasting.now()
    data = TensorDataset(torch.zeros(2000, 64, dtype=torch.int64))
    assert not [tensor for tensor in lasting.now() if tensor is data.tensors[0]], "it may be a batch"
    assert [tensor for tensor in lasting.now() if tensor is data.tensors[0]]
    assert lasting.holders()[located(data.tensors[0])[1]] == "TensorDataset.tensors"


def test_a_category_is_named_after_what_most_of_it_is():
    def made(*sizes: int) -> TensorMap:
        columns = np.array(
            [[n << 20, size, UNKNOWN] for n, size in enumerate(sizes)] + [[99 << 20, 1 << 19, WEIGHTS]]
        ).T
        return TensorMap.of(columns, ("",) * (len(sizes) + 1), tuple(f"part {n}" for n in range(len(sizes) + 1)))

    assert made(5000, 70_000, 8000).most_of(UNKNOWN) == ("part 1", 70_000)
    assert made(5000, 5000, 5000).most_of(UNKNOWN) is None
    assert made().most_of(UNKNOWN) is None
    assert of_it(LargestTensor("int64[9]", 72)) == " (72 B of it int64[9])"
    assert of_it(None) == ""


PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randint(0, 50, (200000, 64)))
model = nn.Sequential(nn.Embedding(50, 32), nn.Flatten(), nn.Linear(64 * 32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, (batch,) in zip(range(60), DataLoader(data, batch_size=16)):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_the_data_of_a_loader_is_named_in_the_report(tmp_path):
    done, report = traced(tmp_path, sys.executable, script(tmp_path, PROGRAM), every=10)
    assert done.returncode == 0, done.stderr
    most = report["allocations"]["at_peak"]["most_unknown"]
    assert most == {"part": "int64[200000, 64] of TensorDataset.tensors", "size_bytes": 200000 * 64 * 8}
    assert "(97.7 MiB of it int64[200000, 64] of TensorDataset.tensors)" in format_report(
        build_report(tmp_path / "s.memtui")
    )


LATER = """
import gc
import time
from itertools import chain, repeat

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self, count):
        self.rows = torch.randint(0, 50, (count, 64))
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        return self.rows[index]

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Embedding(50, 32), nn.Flatten(), nn.Linear(64 * 32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

# The tracer searches and records again after a multiple of the time that both take, which no clock of a test knows.
searches, list_objects = 0, gc.get_objects
def counted(*args, **kwargs):
    global searches
    searches += 1
    return list_objects(*args, **kwargs)
gc.get_objects = counted

for count in (1000, 200000):
    batches = chain.from_iterable(repeat(DataLoader(Rows(count), batch_size=16)))
    wanted, records_left, end_s = searches + 1, 2, time.monotonic() + 60
    while records_left and time.monotonic() < end_s:
        records_left -= searches >= wanted and torch.autograd._profiler_enabled()
        loss = model(next(batches)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_data_that_come_while_steps_are_traced_are_named_too(tmp_path):
    done, report = traced(tmp_path, sys.executable, script(tmp_path, LATER), every=10)
    assert done.returncode == 0, done.stderr
    most = report["allocations"]["at_peak"]["most_unknown"]
    assert most == {"part": "int64[200000, 64] of Rows.rows", "size_bytes": 200000 * 64 * 8}
