"""A timeline in Perfetto's format: parsed again with Perfetto's own schema, and by hand where that is not installed."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Sequence

import pytest

from memtui.formats import perfetto
from memtui.formats.timeline import Counter, Group, Instant, Slice, Track

TREE, PROCESS = Group("all processes"), Group("python train.py", 4242, "/usr/bin/python train.py")
WSS, TENSORS = Track(PROCESS, "working set", "bytes"), Track(PROCESS, "tensors", "bytes", ("weights", "inputs"))
POWER, STEPS, MARKS = Track(TREE, "power", "W"), Track(PROCESS, "steps"), Track(TREE, "marks")
ITEMS = (
    Counter(WSS, 1000, (4096,)),
    Counter(POWER, 1000, (12.5,)),
    Slice(STEPS, 2000, 2500, "step 0", {"step": 0, "share": 0.5, "reason": "späte Zeile"}),
    Slice(STEPS, 2500, 2500, "step 1", {}),
    Counter(TENSORS, 2000, (1 << 40, 0)),
    Counter(TENSORS, 2600, (1 << 40, 7)),
    Instant(MARKS, 2700, "epoch 1", {"debt": -3}, everywhere=True),
)


@pytest.mark.parametrize(
    ("number", "wanted"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (-1, "ff" * 9 + "01"), (1 << 64, "00")]
)
def test_varints_are_those_of_the_documentation(number, wanted):
    assert perfetto.varint(number).hex() == wanted


def test_a_message_is_that_of_the_documentation():
    assert perfetto.integer(1, 150).hex() == "089601"
    assert perfetto.text(2, "testing").hex() == "120774657374696e67"
    assert perfetto.message(3, perfetto.integer(1, 150)).hex() == "1a03089601"
    assert perfetto.double(4, 1.0).hex() == "21000000000000f03f"


def test_text_that_is_not_utf8_is_written_as_the_session_shows_it():
    assert perfetto.text(2, "a\udcff") == perfetto.text(2, "a\\xff")


def test_a_slice_does_not_end_before_it_starts():
    def parts(end_ns):
        return list(perfetto.trace({}, (1000, None), [Slice(STEPS, 2000, end_ns, "step 0", {})]))

    assert parts(1500) == parts(2000) != parts(2001)


@pytest.fixture
def packets():
    schema = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="Perfetto's schema is not installed (pip: perfetto)"
    )
    trace = schema.Trace()
    trace.ParseFromString(b"".join(perfetto.trace({"host": "lab", "cpu_count": 2}, (1000, 1_790_000_000), ITEMS)))
    assert unknown_fields(trace) == []
    return trace.packet


def unknown_fields(message) -> list[int]:
    """Numbers of fields that the schema has not, in a message and all below it."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    numbers = [field.field_number for field in UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if isinstance(value, Sequence) else (value,):
                numbers += unknown_fields(part)
    return numbers


def test_the_head_says_which_clock_and_what_it_is_of(packets):
    first, clocks, about = packets[:3]
    assert {packet.trusted_packet_sequence_id for packet in packets} == {1}
    assert first.sequence_flags == first.SEQ_INCREMENTAL_STATE_CLEARED
    assert first.trace_packet_defaults.timestamp_clock_id == 3  # CLOCK_MONOTONIC
    assert clocks.clock_snapshot.primary_trace_clock == 3
    assert [(c.clock_id, c.timestamp) for c in clocks.clock_snapshot.clocks] == [(3, 1000), (1, 1_790_000_000)]
    values = {a.key: a.string_value or a.long_value for a in about.trace_attributes.attribute}
    assert values == {"host": "lab", "cpu_count": 2}


def test_every_track_is_described_once_and_before_its_events(packets):
    known: dict[int, str] = {}
    for packet in packets:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in known
            assert not track.parent_uuid or track.parent_uuid in known
            known[track.uuid] = track.name or track.process.process_name
        elif packet.HasField("track_event"):
            assert packet.track_event.track_uuid in known
    names = ["all processes", "marks", "power", "python train.py", "steps", "tensors: inputs", "tensors: weights"]
    assert sorted(known.values()) == [*names, "working set"]
    tracks = {known[p.track_descriptor.uuid]: p.track_descriptor for p in packets if p.HasField("track_descriptor")}
    process = tracks["python train.py"].process
    assert (process.pid, list(process.cmdline)) == (4242, ["/usr/bin/python train.py"])
    assert tracks["working set"].counter.unit == tracks["working set"].counter.UNIT_SIZE_BYTES
    assert tracks["power"].counter.unit_name == "W"
    assert tracks["working set"].parent_uuid == tracks["python train.py"].uuid
    assert not tracks["steps"].HasField("counter")


def test_events_have_times_values_and_annotations(packets):
    events = [(packet.timestamp, packet.track_event) for packet in packets if packet.HasField("track_event")]
    kinds = Counts(event.type for _, event in events)
    # Of two series the second sample has one value that is another one.
    assert kinds == {1: 2, 2: 2, 3: 1, 4: 5}
    begin, end = (next((t, e) for t, e in events if e.type == kind) for kind in (1, 2))
    assert (begin[0], begin[1].name, end[0]) == (2000, "step 0", 2500)
    annotations = {a.name: (a.int_value, a.double_value, a.string_value) for a in begin[1].debug_annotations}
    assert annotations == {"step": (0, 0.0, ""), "share": (0, 0.5, ""), "reason": (0, 0.0, "späte Zeile")}
    (mark,) = [event for _, event in events if event.type == 3]
    assert (mark.name, mark.debug_annotations[0].int_value) == ("epoch 1", -3)
    counters = [(t, e.counter_value or e.double_counter_value) for t, e in events if e.type == 4]
    assert counters == [(1000, 4096), (1000, 12.5), (2000, 1 << 40), (2000, 0), (2600, 7)]


def test_a_session_without_the_time_of_day_has_one_clock():
    (_, clocks, _) = perfetto.trace({}, (5, None), ())
    assert perfetto.integer(2, 5) in clocks
    assert clocks.count(perfetto.message(1, perfetto.integer(1, 3), perfetto.integer(2, 5))) == 1
    assert perfetto.integer(1, 1) not in clocks
