"""What a sweep and its worker say to each other comes out of JSON as it went in."""

from __future__ import annotations

import json

import pytest

from memtui.bench.messages import (
    Done,
    Failed,
    MeasureRequest,
    Phase,
    PowerSettled,
    Ready,
    Unable,
    reply_of,
    request_of,
)
from memtui.bench.plan import BenchPlan, BenchWindow
from memtui.core.json_fields import from_json, to_json

WINDOWS = (BenchWindow(1, 9, 4, (2.0, 2.5), cpu_ns=7, yard_ns=(3.0, 3.0), load_ns=6), BenchWindow(10, 20, 5, (2.0,)))
CPU = Ready("2.9", 3, 1 << 20, 7, "a CPU", "", capability="AVX2")


def through_json(message) -> dict:
    return json.loads(json.dumps(to_json(message)))


@pytest.mark.parametrize("message", [MeasureRequest("{}", BenchPlan(windows=3, power=True)), PowerSettled()])
def test_requests(message):
    assert request_of(through_json(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        Phase("data"),
        Phase("window", 2, 5),
        Failed("out of memory", "it takes 9 bytes"),
        Done(WINDOWS, True, 4.0, 3.0, 1024, 8),
        Done(WINDOWS[1:], False, None, None, 1024, 1),
    ],
)
def test_replies(message):
    assert reply_of(through_json(message)) == message


def test_a_worker_says_what_it_is_or_why_it_is_not():
    assert from_json(Ready, through_json(CPU)) == CPU
    assert through_json(CPU)["at"] == "ready", "as core.processes has it"
    assert through_json(Unable("No module named 'torch'")) == {"at": "unable", "text": "No module named 'torch'"}


def test_an_environment_has_what_the_device_has():
    assert CPU.environment() == {"torch": "2.9", "threads": 3, "capability": "AVX2"}
    gpu = Ready("2.9", 3, 1 << 20, 7, "a GPU", "GPU-1", 1 << 30, "12.8", 91002)
    assert gpu.environment() == {"torch": "2.9", "threads": 3, "cuda": "12.8", "cudnn": 91002}
