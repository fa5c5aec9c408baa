"""``memtui export --to chrome`` and ``--to perfetto`` of whole sessions, against the report and the tables."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter as Counts
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.core.readings import GpuMemory, GpuUse, Power, PowerReading
from memtui.core.samples import End, Event, Process, ProcessWindow, Window
from memtui.core.tracer_messages import LearningProgress, TrainingProgress
from memtui.formats.catalogue import import_bytes, import_file
from memtui.formats.imported import NotImportable
from memtui.formats.session_writer import write
from memtui.formats.timeline import Counter, Instant, Slice
from memtui.reports.export import export
from memtui.reports.export.timeline import attributes, timeline
from memtui.reports.report import build_report
from memtui.reports.source import Source
from tests.support.memory_logs import ZPP, mxnet_log
from tests.support.sessions import MS, hello, touched, write_session
from tests.support.told_steps import step

TRACE_PROCESSOR = "MEMTUI_TRACE_PROCESSOR"  # names the program
SAMPLES = 150  # more than are read at once
LOST, CUT = 40, 60


def stream():
    """A process and its child, one after the other paused; a lost window; a GPU; training steps; marks."""
    yield hello()
    for key, pid, command in ((1, 1, "python train.py"), (2, 2, "python loader.py"), (3, 2, "cat data")):
        yield Process(key, pid, 1, 777, key, command, "target" if key == 1 else "child")
    for sample in range(SAMPLES):
        start_ns, end_ns = sample * 200 * MS, sample * 200 * MS + 180 * MS
        fields = {"pages": touched(sample), "rss_bytes": (80 << 20) + sample, "paused_ns": 3 * MS + sample}
        first = ProcessWindow(1, start_ns, end_ns, **fields, pss_bytes=70 << 20, pss_ns=end_ns + MS)
        if sample == LOST:
            first = ProcessWindow(1, start_ns, end_ns, paused_ns=5 * MS, status="lost", reason="did not stop in time")
        elif sample == LOST + 1:
            first = replace(first, start_ns=start_ns - 200 * MS)  # it goes on from the start of the lost one
        elif sample == CUT:
            first = replace(first, longest_pause_ns=MS)
        second = ProcessWindow(2 if sample < 100 else 3, start_ns + 4 * MS, end_ns + 4 * MS, **fields)
        yield Window(sample, start_ns, end_ns + 4 * MS, 200 * MS, sample * MS, (first, second), gaps=sample == 100)
        if sample % 10 == 0:
            reading = PowerReading(
                end_ns, "GPU 0", "board", "nvml", 300.0, 60.0 * sample, 700.0, 2 << 30, 0.5, pcie_tx_bytes_per_s=1e6
            )
            broken = PowerReading(end_ns, "CPU package 0", "package", "rapl", status="denied", reason="only root may")
            yield Power((reading, broken), (GpuMemory(end_ns, 1, 1 << 30),), (GpuUse(end_ns, 1, 0.25),))
    yield step(7)
    ends_ns = np.array([[400 * MS, 900 * MS, 1000 * MS]])
    usage = np.array([[100 * MS, 400 * MS, 0, -1, *range(len(CATEGORIES))]]).T
    yield TrainingProgress(1, 3, 100 * MS, ends_ns, usage)
    about = json.dumps({"network": "fcReLu", "type": "BP"})
    points = np.array([[200 * MS, 300 * MS], [1, 2], [1, 1]]), np.array([[2.5, np.nan], [10.0, 20.0], [np.nan] * 2])
    yield LearningProgress(1, about, *points)
    yield Event(250 * MS, "mark", "epoch 1")
    yield Event(260 * MS, "warning", "a disk is slow")
    yield End(SAMPLES * 200 * MS, "target exited")


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return write_session(tmp_path_factory.mktemp("timeline") / "s.memtui", stream())


@pytest.fixture(scope="module")
def items(path):
    with closing(Source(path)) as reader:
        return list(timeline(reader))


def on(items, name: str, pid: int | None = None) -> list:
    return [item for item in items if item.track.name == name and item.track.group.pid == pid]


def test_a_window_is_a_slice_and_a_value_from_its_start(items):
    sizes, windows = on(items, "working set", 1), on(items, "windows", 1)
    slices = [item for item in windows if isinstance(item, Slice)]
    assert [item.t_ns for item in sizes] == [item.start_ns for item in slices]
    assert [item.values[0] for item in sizes] == [item.args["wss_bytes"] for item in slices]
    assert [item.args["sample"] for item in slices] == [n for n in range(SAMPLES) if n != LOST]
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(slices))
    (lost,) = [item for item in windows if isinstance(item, Instant)]
    assert lost.args == {"sample": LOST, "status": "lost", "reason": "did not stop in time"}
    assert len(on(items, "windows", 2)) == SAMPLES, "the last window, too"


def test_resident_memory_is_from_when_it_was_read(items):
    assert [item.t_ns for item in on(items, "RSS", 2)] == [n * 200 * MS + 184 * MS for n in range(SAMPLES)]
    assert {item.t_ns % (200 * MS) for item in on(items, "PSS", 1)} == {181 * MS}


def test_the_whole_tree_has_a_value_for_each_sample(items, path):
    with closing(Source(path)) as reader:
        wss_bytes = reader.samples.wss_bytes.tolist()
    assert [item.values[0] for item in on(items, "working set")] == [size for size in wss_bytes if size == size]
    samples = on(items, "samples")
    assert [item.args["sample"] for item in samples] == list(range(SAMPLES))
    assert samples[100].args["gaps"] == 1


def test_pauses_are_those_of_the_report(items, path):
    pauses = [item for pid in (1, 2) for item in on(items, "pauses", pid)]
    report = build_report(path)
    paused_s = sum(p.end_ns - p.start_ns if isinstance(p, Slice) else p.args["paused_ns"] for p in pauses) / 1e9
    assert paused_s == pytest.approx(report.overhead.paused_fraction * (report.duration_s + report.gaps.end_s))
    assert on(items, "pauses", 1)[0][1:3] == (180 * MS, 183 * MS), "from where the window ends"


def test_pauses_of_a_window_that_was_cut_into_parts_are_not_one_pause(items):
    (pauses,) = [item for item in on(items, "pauses", 1) if item.args["sample"] == CUT]
    assert isinstance(pauses, Instant)
    assert (pauses.t_ns, pauses.name) == (CUT * 200 * MS + 180 * MS, "paused in parts")
    assert pauses.args == {"sample": CUT, "paused_ns": 3 * MS + CUT, "longest_pause_ns": MS}


def test_steps_are_those_of_the_report(items, path):
    steps = on(items, "training steps", 1)
    assert len(steps) == build_report(path).training[0].steps == 3
    assert [(item.name, item.start_ns, item.end_ns) for item in steps] == [
        ("step 3", 100 * MS, 400 * MS),
        ("step 4", 400 * MS, 900 * MS),
        ("step 5", 900 * MS, 1000 * MS),
    ]
    (usage,) = on(items, "tensors on cpu", 1)
    assert (usage.t_ns, usage.values) == (100 * MS, tuple(range(len(CATEGORIES))))


def test_a_recorded_step_has_phases_and_what_was_allocated(items):
    (recorded,) = on(items, "recorded steps", 1)
    assert (recorded.name, recorded.start_ns, recorded.end_ns) == ("step 7", 100, 150)
    assert (recorded.args["peak_bytes"], recorded.args["peak_op"]) == (1464, "aten::relu")
    phases = [(item.name, item.start_ns, item.end_ns) for item in on(items, "phases", 1)]
    assert phases == [("forward", 110, 140), ("backward", 140, 150)]
    allocated = [(item.t_ns, sum(item.values)) for item in on(items, "allocated on cpu", 1)]
    assert allocated == [(100, 1000), (110, 1400), (120, 1464), (130, 1400), (140, 1000)]


def test_devices_have_counters_with_units_and_reasons_where_there_is_none(items):
    devices = [item for item in items if item.track.group.name == "power and GPUs"]
    units = {item.track.name: (item.track.unit, item.values[0]) for item in devices if isinstance(item, Counter)}
    assert units == {
        "GPU 0 board: power": ("W", 300.0),
        "GPU 0 board: energy": ("J", 60.0 * (SAMPLES - 10)),
        "GPU 0 board: limit": ("W", 700.0),
        "GPU 0 board: memory used": ("bytes", 2 << 30),
        "GPU 0 board: utilization": ("share", 0.5),
        "GPU 0 board: pcie tx": ("bytes/s", 1e6),
    }
    missing = [item for item in devices if isinstance(item, Instant)]
    assert {(item.name, item.args["reason"]) for item in missing} == {("CPU package 0 package", "only root may")}
    assert {item.values[0] for item in on(items, "GPU memory", 1)} == {1 << 30}
    assert {item.values[0] for item in on(items, "GPUs used", 1)} == {0.25}


def test_loss_and_accuracy_where_they_were_measured(items):
    assert [(item.t_ns, item.values) for item in on(items, "loss", 1)] == [(200 * MS, (2.5,))]
    assert [item.values for item in on(items, "accuracy", 1)] == [(10.0,), (20.0,)]


def test_marks_and_events_are_moments(items):
    (mark,) = on(items, "marks")
    assert (mark.t_ns, mark.name, mark.everywhere) == (250 * MS, "epoch 1", True)
    assert {item.name for item in on(items, "events")} >= {"warning: a disk is slow", "end: target ended"}


def test_a_process_is_shown_as_its_last_command(items):
    groups = {item.track.group.pid: item.track.group.name for item in items}
    assert (groups[1], groups[2]) == ("python train.py", "cat data")


def test_what_is_said_of_the_whole(path):
    with closing(Source(path)) as reader:
        values = attributes(reader)
    assert (values["host"], values["command"], values["samples"]) == ("lab", "python train.py --lr 0.1", SAMPLES)
    assert values["unit *_bytes"] == "bytes"


# Files


def test_one_file_of_the_session_and_one_of_each_recorded_step(path, tmp_path):
    written = export(path, "chrome", tmp_path / "chrome")
    assert [file.name for file in written] == ["s.trace.json", "s-step-7.trace.json"]
    events = json.loads(written[0].read_text())["traceEvents"]
    assert Counts(event["ph"] for event in events).keys() == {"M", "C", "X", "i"}
    (step_part,) = import_bytes(written[1].read_bytes()).parts
    assert step_part.trace.peak_bytes == 1464
    (whole,) = export(path, "perfetto", tmp_path / "perfetto")
    assert whole.name == "s.pftrace"
    assert whole.read_bytes()[0] == 0x0A, "a packet"


def test_perfettos_schema_reads_the_same_slices_and_counters(path, items, tmp_path):
    schema = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="Perfetto's schema is not installed (pip: perfetto)"
    )
    trace = schema.Trace()
    trace.ParseFromString(export(path, "perfetto", tmp_path)[0].read_bytes())
    names, events = {}, defaultdict(list)
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            names[track.uuid] = (names.get(track.parent_uuid), track.process.pid or track.name)
        elif packet.HasField("track_event"):
            events[names[packet.track_event.track_uuid]].append((packet.timestamp, packet.track_event))
    expected = Counts((item.track.group.pid, item.track.name, type(item)) for item in items)
    slices = 0
    for (group, name), of_track in events.items():
        pid = group[1] if isinstance(group[1], int) else None
        kinds = [event.type for _, event in of_track]
        sliced = [t_ns for t_ns, event in of_track if event.type in (1, 2)]
        assert sliced == sorted(sliced), "a viewer pairs begin and end by their order"
        assert [kind for kind in kinds if kind in (1, 2)] == [1, 2] * (len(sliced) // 2)
        assert len(sliced) // 2 == expected[pid, name, Slice]
        slices += len(sliced) // 2
        assert kinds.count(3) == expected[pid, name, Instant]
        if ": " not in name or pid is None:
            assert kinds.count(4) == expected[pid, name, Counter]
    assert slices == sum(isinstance(item, Slice) for item in items)


@pytest.mark.parametrize("form", ["perfetto", "chrome"])
def test_perfettos_trace_processor_counts_the_same_slices_and_counters(form, path, items, tmp_path):
    """What Perfetto's screen and its queries see: Google's own program drops what is not in order."""
    if TRACE_PROCESSOR not in os.environ:
        pytest.skip(f"{TRACE_PROCESSOR} names no trace_processor_shell of Perfetto")
    api = pytest.importorskip("perfetto.trace_processor", reason="Perfetto's API is not installed (pip: perfetto)")
    config = api.TraceProcessorConfig(bin_path=os.environ[TRACE_PROCESSOR])
    with api.TraceProcessor(trace=str(export(path, form, tmp_path)[0]), config=config) as processor:

        def count(what: str) -> int:
            return next(iter(processor.query(f"select count(*) as n from {what}"))).n

        slices, counters = count("slice"), count("counter")
        steps = count("slice where name glob 'step [0-9]*' and dur > 0")
    report = build_report(path)
    assert slices == sum(isinstance(item, Slice | Instant) for item in items), "an instant is a slice of no duration"
    assert counters == sum(len(item.values) for item in items if isinstance(item, Counter))
    assert steps == report.training[0].steps + report.allocations.steps


@pytest.mark.parametrize("packed", [False, True])
def test_a_whole_session_as_a_chrome_trace_is_refused_with_what_to_open(packed, path, tmp_path):
    written = export(path, "chrome", tmp_path, packed=packed)[0]
    why = r"^is what memtui exported of s\.memtui \(--to chrome\), which is .*; open the session itself"
    for form in ("", "chrome"):
        with pytest.raises(NotImportable, match=why):
            import_file(written, form)


def test_packed_files_are_the_same_files(path, tmp_path):
    plain = export(path, "chrome", tmp_path / "plain")
    packed = export(path, "chrome", tmp_path / "packed", packed=True)
    assert [file.name for file in packed] == [f"{file.name}.gz" for file in plain]
    assert [gzip.decompress(file.read_bytes()) for file in packed] == [file.read_bytes() for file in plain]
    assert import_bytes(packed[1].read_bytes()).about.format == "Chrome trace"
    again = export(path, "chrome", tmp_path / "again", packed=True)
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in packed]


def test_a_session_without_steps_is_a_timeline_too(tmp_path):
    only = (message for message in stream() if not isinstance(message, type(step())))
    (file,) = export(write_session(tmp_path / "s.memtui", only), "chrome", tmp_path / "out")
    assert len(json.loads(file.read_text())["traceEvents"]) > SAMPLES


@pytest.mark.parametrize("log", [ZPP.encode(), mxnet_log()])
def test_an_imported_session_has_its_allocations(log, tmp_path):
    path = tmp_path / "s.memtui"
    imported = import_bytes(log)
    write(imported, path)
    with closing(Source(path)) as reader:
        items = list(timeline(reader))
        assert attributes(reader)["imported_from"] == imported.about.format
    trace = imported.parts[0].trace
    scale = 1000 if imported.about.counts else 1
    allocated = [item for item in items if item.track.name.startswith("allocated on")]
    assert [item.t_ns for item in allocated] == (trace.t_ns[max(trace.existing - 1, 0) :] * scale).tolist()
    assert sum(allocated[-1].values) == int(trace.usage_bytes[-1])
    assert len(export(path, "perfetto", tmp_path / "out")) == 1
