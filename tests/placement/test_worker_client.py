"""The client of the process that measures, against a process that answers what it is told to."""

from __future__ import annotations

import json
import sys

import pytest

from memtui.core.errors import BAD_INPUT, FAILURE, UserError
from memtui.placement import worker_client
from memtui.placement.worker_client import PlacementProcess
from memtui.placement.worker_protocol import CreatedPool

READY = {
    "at": "ready",
    "resolution_ns": 30.5,
    "environment": {"torch": "2.13", "threads": 3, "cpu": "a CPU", "capability": "AVX2"},
}
FAKE = """#!{python} -IS
import json, os, sys, time
with open({log!r}, "a") as log:
    print(json.dumps(sys.argv[1:]), file=log, flush=True)
    for pause_s, answer in {answers!r}:
        time.sleep(pause_s)
        if answer is None:
            os.kill(os.getpid(), 9)
        print(json.dumps(answer), flush=True)
        line = sys.stdin.readline()
        print(line, end="", file=log, flush=True)
"""


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Starts the client of a process with certain answers, (seconds before it, answer); what it heard is in a log."""
    started = []

    def start(*answers, threads: int = 3):
        fake, log = tmp_path / "python", tmp_path / "log"
        fake.write_text(FAKE.format(python=sys.executable, log=str(log), answers=answers))
        fake.chmod(0o700)
        with monkeypatch.context() as patch:
            patch.setattr(worker_client.sys, "executable", str(fake))
            started.append(PlacementProcess(threads))
        return started[-1], lambda: [json.loads(line) for line in log.read_text().splitlines()]

    yield start
    for process in started:
        process.close()


def test_a_request_and_its_answer(client):
    pools = [{"name": "dram", "emulated": False, "note": ""}, {"name": "cxl", "emulated": True, "note": "waits added"}]
    process, heard = client((0, READY), (0, {"at": "done", "pools": pools}), (0, {"at": "done", "times_ns": [[1.5]]}))
    assert (process.started.resolution_ns, process.started.environment.threads) == (30.5, 3)
    assert process.pools(["dram", "cxl"]) == (CreatedPool("dram", False, ""), CreatedPool("cxl", True, "waits added"))
    assert process.isolated("mm", (), 0.25) == [[1.5]]
    assert heard() == [
        ["-P", "-m", "memtui.placement.torch.worker", "--threads", "3"],
        {"do": "pools", "names": ["dram", "cxl"]},
        {"do": "isolated", "op": "mm", "configurations": [], "seconds": 0.25},
    ]


def test_what_waits_is_told_while_there_is_no_answer(client, monkeypatch):
    monkeypatch.setattr(worker_client, "_LISTEN_S", 0.01)
    process, _ = client((0, READY), (0.2, {"at": "done", "runs_ns": [[[1.0, 2.0]]]}))
    ticks = []
    process.tick = lambda: ticks.append(1)
    assert process.in_graph([{}], 1.0) == [[[1.0, 2.0]]]
    assert ticks


@pytest.mark.parametrize(
    ("kind", "code"), [("NoStep", BAD_INPUT), ("NoMemory", BAD_INPUT), ("UserError", BAD_INPUT), ("KeyError", FAILURE)]
)
def test_a_request_that_fails_is_the_users_fault_or_is_not(client, kind, code):
    process, _ = client((0, READY), (0, {"at": "failed", "kind": kind, "text": "why"}))
    with pytest.raises(UserError, match=r"^why$") as caught:
        process.capture("mlp", 4, 0)
    assert caught.value.code == code


def test_a_process_that_ends_or_falls_silent_is_gone(client, monkeypatch):
    process, _ = client((0, READY), (0, None))
    with pytest.raises(UserError, match="what measures is gone: the worker was killed by SIGKILL") as caught:
        process.bandwidths()
    assert caught.value.code == FAILURE
    monkeypatch.setattr(worker_client, "_LISTEN_S", 0.01)
    monkeypatch.setattr(worker_client, "_SILENT_S", 0.1)
    process, _ = client((0, READY), (60, None))
    with pytest.raises(UserError, match="what measures is gone: it said nothing for 0 s"):
        process.bandwidths()
    process._process.kill()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("No module named 'torch'", "nothing can be measured: No module named 'torch'; pip install 'memtui[place]'"),
        ("too little memory", "nothing can be measured: too little memory"),
    ],
)
def test_one_that_cannot_measure_says_why(client, text, said):
    with pytest.raises(UserError) as caught:
        client((0, {"at": "unable", "text": text}))
    assert (str(caught.value), caught.value.code) == (said, FAILURE)
