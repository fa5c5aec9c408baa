"""What the processes of DAMON and of the NVIDIA driver are sent and send comes back as it was."""

from __future__ import annotations

import json

import pytest

from memtui.core.readings import PowerReading
from memtui.core.samples import Capability
from memtui.probes.gpu import messages as gpu_messages
from memtui.probes.gpu.messages import DriverReport, GpuReport
from memtui.probes.gpu.processes import EVERYBODY_ELSE, Holding
from memtui.probes.pages.damon import messages
from memtui.probes.pages.damon.messages import Accessed, Forget, Pace, Ready, Trouble, Watch


@pytest.mark.parametrize("order", [Watch(7, 1), Forget(7), Pace(10**9, True), Pace(None, False)])
def test_orders_to_damon(order):
    assert messages.parse_order(messages.to_line(order)) == order


@pytest.mark.parametrize(
    "report",
    [Ready({"nr_kdamonds": "0", "0": {"pid": "-1"}}), Accessed(5, [[7, 1, [[4096, 8192]]]]), Trouble("DAMON ended")],
)
def test_reports_of_damon(report):
    assert messages.parse_report(messages.to_line(report)) == report


@pytest.mark.parametrize(
    "report",
    [
        DriverReport(Capability("nvml", False, "no driver", "install one")),
        GpuReport((PowerReading(5, "GPU 0", "board", "nvml"),), (Holding(7, 4096), Holding(EVERYBODY_ELSE, 0)), 0.5),
    ],
)
def test_reports_of_the_nvidia_driver(report):
    line = gpu_messages.to_line(report)
    assert line.count(b"\n") == 1
    assert gpu_messages.from_line(line) == report


def test_half_a_line_is_an_error():
    line = gpu_messages.to_line(DriverReport(Capability("nvml", True)))
    with pytest.raises(json.JSONDecodeError):
        gpu_messages.from_line(line[: len(line) // 2])
    with pytest.raises(KeyError):
        gpu_messages.from_line(json.dumps({}).encode())
