"""Snapshots in the forms in which versions of PyTorch write them, with the structure that its own viewer reads."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from memtui.core.call_stacks import Frame
from memtui.formats.catalogue import import_bytes
from memtui.formats.imported import Imported

T_US = 1_790_857_026_000_000
MIB = 1 << 20
CPP = {"name": "at::detail::empty_generic(c10::ArrayRef<long>)", "filename": "??", "line": 0}
LINEAR = {"name": "forward", "filename": "/venv/torch/nn/modules/linear.py", "line": 134}
OWN = {"name": "forward", "filename": "/home/me/model.py", "line": 42}
MAIN = {"name": "<module>", "filename": "/home/me/train.py", "line": 9}
STACK = [CPP, LINEAR, OWN, MAIN]
FRAMES = tuple(Frame(f["name"], f["filename"].replace("??", ""), f["line"]) for f in STACK)


def entry(action: str, address: int, size: int, n: int, frames: Any) -> dict[str, Any]:
    """An entry of ``device_traces`` of PyTorch 2.13 (``torch/csrc/cuda/memory_snapshot.cpp``)."""
    where = {"device_free": 3 * MIB} if action == "oom" else {"addr": address}
    more = {"size": size, "stream": 0, "pool_id": (0, 0), "time_us": T_US + n}
    return {"action": action, **where, **more, "compile_context": "N/A", "user_metadata": "", "frames": frames}


def snapshot_of_2_13(devices: int) -> dict[str, Any]:
    """What ``torch.cuda.memory._snapshot()`` returns: on each device a tensor that stays, and one that goes."""
    traces, segments = [], []
    for device in range(devices):
        base = (device + 1) << 40
        blocks = [
            {"address": base, "size": MIB, "requested_size": MIB - 4, "state": "active_allocated", "frames": [MAIN]},
            {"address": base + MIB, "size": MIB, "requested_size": MIB, "state": "active_allocated", "frames": STACK},
            {"address": base + 2 * MIB, "size": 18 * MIB, "requested_size": 0, "state": "inactive", "frames": []},
        ]
        about = {"device": device, "address": base, "total_size": 20 * MIB, "stream": 0, "segment_type": "large"}
        about |= {"segment_pool_id": (0, 0), "is_expandable": False, "frames": STACK, "requested_size": 2 * MIB - 4}
        segments.append({**about, "allocated_size": 2 * MIB, "active_size": 2 * MIB, "blocks": blocks})
        traces.append(
            [
                entry("segment_alloc", base, 20 * MIB, 0, STACK),
                entry("alloc", base + MIB, MIB, 1, STACK),
                entry("alloc", base + 2 * MIB, (device + 1) * MIB, 2, STACK[1:]),
                entry("free_requested", base + 2 * MIB, (device + 1) * MIB, 3, [MAIN]),
                entry("free_completed", base + 2 * MIB, (device + 1) * MIB, 4, [MAIN]),
                entry("oom", 0, 80 << 30, 5, STACK),
                entry("snapshot", 0, 0, 6, []),
            ]
        )
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}
    annotations: list[Any] = []
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": settings,
        "external_annotations": annotations,
    }


def snapshot_of_2_0() -> dict[str, Any]:
    """Without times, without addresses and requested sizes of blocks; frames are in a history of the block."""
    history = [
        {"addr": 1 << 40, "real_size": MIB - 4, "frames": STACK},
        {"addr": 1 << 40, "real_size": 17, "frames": [MAIN]},  # what was in the block before
    ]
    blocks = [
        {"size": MIB, "state": "active_allocated", "history": history},
        {"size": 512, "state": "active_allocated"},  # recorded by nobody
        {"size": MIB - 512, "state": "inactive"},
    ]
    segment = {"device": 0, "address": 1 << 40, "total_size": 2 * MIB, "allocated_size": MIB + 512, "stream": 0}
    segment |= {"active_size": MIB + 512, "segment_type": "small", "blocks": blocks}
    trace = [
        {"action": "alloc", "addr": 1 << 41, "size": 512, "stream": 0, "frames": [OWN, MAIN]},
        {"action": "free_requested", "addr": 1 << 41, "size": 512, "stream": 0, "frames": [MAIN]},
        {"action": "free_completed", "addr": 1 << 41, "size": 512, "stream": 0},
        {"action": "oom", "size": MIB, "device_free": 0, "stream": 0},
    ]
    return {"segments": [segment], "device_traces": [trace]}


def stacks_of(imported: Imported, part: int = 0) -> list[tuple[Frame, ...]]:
    trace = imported.parts[part].trace
    assert trace.stack is not None
    assert imported.stacks is not None
    return [imported.stacks.stack(number) for number in trace.stack.tolist()]


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_snapshot_of_2_13_has_the_memory_and_the_stacks_of_each_device(protocol):
    imported = import_bytes(pickle.dumps(snapshot_of_2_13(2), protocol))
    assert [part.device for part in imported.parts] == ["cuda:0", "cuda:1"]
    for device, part in enumerate(imported.parts):
        assert part.trace.check() == []
        assert part.trace.start_bytes == MIB - 4, "a block that the trace does not name, as it was requested"
        assert part.trace.peak_bytes == MIB - 4 + MIB + (device + 1) * MIB
        assert stacks_of(imported, device) == [FRAMES[3:], FRAMES, FRAMES[1:], FRAMES[3:]]
    assert [mark.text for mark in imported.events] == ["out of memory: 80.0 GiB asked for, 3.00 MiB were free"] * 2
    assert imported.about.clock == "wall"
    assert imported.stacks is not None
    assert len(imported.stacks.frames) == 4, "each frame once"


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_snapshot_of_2_0_has_what_it_can_have(protocol):
    imported = import_bytes(pickle.dumps(snapshot_of_2_0(), protocol))
    (part,) = imported.parts
    assert (part.trace.check(), imported.about.clock) == ([], "none")
    assert part.trace.start_bytes == MIB - 4 + 512
    assert stacks_of(imported) == [FRAMES, (), FRAMES[2:], ()]


def test_frames_that_no_part_of_a_file_repeats_are_the_same_stack():
    """With ``augment_with_fx_traces`` each frame is a dict of its own."""

    def copied(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**frame, "fx_node_name": "linear"} for frame in frames]

    trace = [entry("alloc", 512 * n, 512, n, copied(STACK)) for n in range(5)]
    imported = import_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    assert stacks_of(imported) == [FRAMES] * 5
    assert imported.stacks is not None
    assert len(imported.stacks) == 4


def test_so_many_stacks_that_there_is_no_room_for_them_are_told(monkeypatch):
    monkeypatch.setattr("memtui.core.call_stacks.MOST_STACKS", 4)
    trace = [entry("alloc", 512 * n, 512, n, [{**MAIN, "line": n}]) for n in range(10)]
    imported = import_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    assert [len(stack) for stack in stacks_of(imported)] == [1] * 4 + [0] * 6
    assert imported.about.warnings == ("it has more or deeper call stacks than fit into a session; left out: 6",)


@pytest.mark.parametrize("line", [-1, 1 << 40, "nine", None])
def test_a_line_that_is_none_is_not_known(line):
    trace = [entry("alloc", 512, 512, 0, [{**MAIN, "line": line}])]
    imported = import_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    assert stacks_of(imported) == [(Frame("<module>", "/home/me/train.py", 0),)]
