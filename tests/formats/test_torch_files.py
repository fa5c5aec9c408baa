"""Files that PyTorch's own profiler writes, here and now, are read."""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys

import pytest

from memtui.analysis.allocation_trace import CATEGORIES, PHASES
from memtui.formats.catalogue import import_file
from tests.support.recordings import HISTORIES, recording, unpacked

pytest.importorskip("torch")


# In a process of its own: what other tests have left in this one may be freed in the trace.
PROGRAM = """
import sys, torch
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))

def step():
    torch.nn.functional.cross_entropy(net(x), y).backward()

step()
net.zero_grad()
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
    step()
found.export_chrome_trace(sys.argv[1] + "/chrome.json")
net.zero_grad()
with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as found:
    step()
found.export_chrome_trace(sys.argv[1] + "/calls.json")
for name in ("timeline.json", "timeline.raw.json.gz"):
    found.export_memory_timeline(f"{sys.argv[1]}/{name}", device="cpu")
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """Linear(8,4)-ReLU-Linear(4,2), batch 16, warmed up, one step with its gradients made anew."""
    folder = tmp_path_factory.mktemp("torch")
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM, folder], check=True, timeout=120)
    return folder


def only(path):
    (part,) = import_file(path).parts
    assert part.trace.check() == []
    return part.trace


@pytest.mark.slow
def test_the_chrome_trace_has_the_known_peak(profiled):
    """816 bytes by hand: loss 4, its gradient 4, ReLU output 256, dW2 32, db2 8, dh 256, dz 256."""
    trace = only(profiled / "chrome.json")
    assert trace.peak_bytes == 816
    assert trace.name(int(trace.op[trace.peak_row])).endswith("aten::threshold_backward")
    assert PHASES[int(trace.phase[trace.peak_row])] == "backward"
    assert int(trace.usage_bytes[-1]) == 184  # the gradients
    events = json.loads((profiled / "chrome.json").read_text())["traceEvents"]
    memory = [event for event in events if event["name"] == "[memory]"]
    assert trace.usage_bytes.tolist() == [event["args"]["Total Allocated"] for event in memory]


def test_a_trace_with_stacks_has_the_calls_around_every_allocation(profiled):
    imported = import_file(profiled / "calls.json")
    (part,) = imported.parts
    assert part.trace.check() == []
    born = [row for row in range(len(part.trace)) if part.trace.delta_bytes[row] > 0]
    stacks = [imported.stacks.stack(int(part.trace.stack[row])) for row in born]
    of_layer = [stack for stack in stacks if any(frame.function == "nn.Module: Linear_0" for frame in stack)]
    assert of_layer
    for stack in of_layer:
        assert stack[0].function.startswith("aten::"), "the innermost call is the operator that allocates"
        assert ("step", "<string>") in [(frame.function, frame.file) for frame in stack]
        linear = next(frame for frame in stack if frame.file.endswith("torch/nn/modules/linear.py"))
        assert (linear.function, linear.line > 1) == ("forward", True)


def test_the_timeline_of_sums_keeps_its_sums(profiled):
    times, sums = json.loads((profiled / "timeline.json").read_text())
    trace = only(profiled / "timeline.json")
    last = {int(t): int(used) for t, used in zip(trace.t_ns, trace.usage_bytes, strict=True)}
    totals = {t * 1000: sum(row) for t, row in zip(times, sums, strict=True)}
    assert {t: totals[t] for t in last} == last
    assert trace.peak_bytes == max(map(sum, sums))


def test_the_raw_timeline_keeps_its_kinds(profiled):
    rows = json.loads(gzip.decompress((profiled / "timeline.raw.json.gz").read_bytes()))
    trace = only(profiled / "timeline.raw.json.gz")
    existing = sum(size for _, action, size, _ in rows if action == 1)
    assert trace.start_bytes == existing
    assert int(trace.usage_bytes[-1]) == sum(size for _, _, size, _ in rows)
    held = dict(zip(CATEGORIES, trace.by_category()[-1].tolist(), strict=True))
    assert held["weights"] == 4 * (8 * 4 + 4 + 4 * 2 + 2)
    assert held["gradients"] == held["weights"]


@pytest.mark.parametrize("kind", HISTORIES)
def test_a_snapshot_of_a_real_gpu_has_the_allocators_own_peak(kind, tmp_path):
    said = recording(f"history-{kind}")
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": said["after"], "device_traces": said["device_traces"]}))
    assert only(path).peak_bytes == said["peak_requested_bytes"]


@pytest.mark.parametrize("kind", ["plain", "streams", "graphs"])
def test_a_trace_of_a_real_gpu_has_the_profilers_own_peak(kind, tmp_path):
    path = unpacked(f"kineto-{kind}", tmp_path)
    said = [
        event["args"]["Total Allocated"]
        for event in json.loads(path.read_text())["traceEvents"]
        if event["name"] == "[memory]" and event["args"]["Device Type"] == 1
    ]
    (part,) = [part for part in import_file(path).parts if part.device == "cuda:0"]
    assert part.trace.check() == []
    assert part.trace.peak_bytes == max(said)
