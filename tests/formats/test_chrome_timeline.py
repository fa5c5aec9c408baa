"""A timeline as a Chrome trace: what the format demands of every event, and no nanosecond lost."""

from __future__ import annotations

import json

from memtui.formats import chrome_timeline
from memtui.formats.timeline import Counter, Group, Instant, Slice, Track

START_NS = 61_282_713_333_501
TREE, PROCESS = Group("all processes"), Group("train.py", 4242, "python train.py")
STEPS, OTHER = Track(PROCESS, "steps"), Track(TREE, "steps")
ITEMS = (
    Counter(Track(PROCESS, "working set", "bytes"), START_NS + 1, (4096,)),
    Counter(Track(PROCESS, "tensors", "bytes", ("weights", "inputs")), START_NS, (5, 0)),
    Slice(STEPS, START_NS + 1001, START_NS + 3_600_000_000_123, "step 0", {"step": 0}),
    Slice(STEPS, START_NS + 3_600_000_000_123, START_NS + 3_600_000_000_124, "step 1", {}),
    Slice(OTHER, START_NS, START_NS + 1, "other", {}),
    Instant(Track(TREE, "marks"), START_NS + 7, "epoch 1", {}, everywhere=True),
    Instant(Track(TREE, "samples"), START_NS + 8, "sample", {"reason": "none"}),
)


def document(items=ITEMS, wall_ns=1_790_000_000_000_000_000) -> dict:
    return json.loads("".join(chrome_timeline.trace({"host": "lab"}, (START_NS, wall_ns), items)))


def of_kind(events: list[dict], kind: str) -> list[dict]:
    return [event for event in events if event["ph"] == kind]


def test_the_head_has_the_base_of_times_and_what_it_is_of():
    trace = document()
    assert (trace["baseTimeNanoseconds"], trace["otherData"]) == (1_790_000_000_000_000_000, {"host": "lab"})
    assert "baseTimeNanoseconds" not in document(wall_ns=None)
    assert document(())["traceEvents"] == []


def test_times_are_microseconds_to_the_nanosecond():
    step, following, other = of_kind(document()["traceEvents"], "X")
    assert (step["ts"], step["dur"]) == (1.001, 3_599_999_999.122)
    assert round(following["ts"] * 1000) == round((step["ts"] + step["dur"]) * 1000)
    assert (other["ts"], other["dur"]) == (0, 0.001)


def test_counters_have_numbers_by_unit_or_series():
    one, several = of_kind(document()["traceEvents"], "C")
    assert (one["name"], one["args"], one["ts"]) == ("working set", {"bytes": 4096}, 0.001)
    assert several["args"] == {"weights": 5, "inputs": 0}


def test_what_is_not_a_process_has_a_number_that_no_process_can_have():
    events = document()["traceEvents"]
    named = {event["pid"]: event["args"]["name"] for event in of_kind(events, "M") if event["name"] == "process_name"}
    assert named.pop(4242) == "train.py"
    ((number, name),) = named.items()
    assert (number > chrome_timeline.NO_PROCESS, name) == (True, "all processes")
    tracks = [event for event in of_kind(events, "M") if event["name"] == "thread_name"]
    assert len({event["tid"] for event in tracks}) == len(tracks) == 4, "two tracks of one name are two"
    used = {(event["pid"], event["tid"]) for event in events if event["ph"] in "Xi"}
    assert used == {(event["pid"], event["tid"]) for event in tracks}


def test_a_mark_is_drawn_over_all_tracks():
    mark, sample = of_kind(document()["traceEvents"], "i")
    assert (mark["name"], mark["s"], sample["s"], sample["args"]) == ("epoch 1", "g", "t", {"reason": "none"})
