"""What each format of other tools says, and that no file, however odd, gives more than a result or one error."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.large_files import MAKERS
from memtui.analysis.allocation_trace import CATEGORIES, PHASES
from memtui.formats.catalogue import import_bytes, import_file, may_be_imported
from memtui.formats.imported import Imported, NotImportable
from memtui.formats.input_file import Input
from memtui.formats.zpp import zpp_lines
from tests.support.chrome_traces import chrome, memory, span
from tests.support.memory_logs import A1, A1_ANALYSIS, MIB, ZPP, mxnet_log, sockeye_log, zpp_text


def only(found: Imported):
    (part,) = found.parts
    return part.trace


def back(data: bytes) -> bytes:
    return "".join(zpp_lines(only(import_bytes(data)))).encode()


def kinds(trace) -> dict[str, int]:
    held = trace.by_category()[trace.peak_row].tolist()
    return {name: size for name, size in zip(CATEGORIES, held, strict=True) if size}


# MXNet


def test_an_mxnet_log_has_an_order_and_no_clock():
    imported = import_bytes(mxnet_log())
    trace = only(imported)
    assert [(trace.name(op), size) for op, size in zip(trace.op.tolist(), trace.delta_bytes.tolist(), strict=True)] == [
        *A1
    ]
    assert trace.t_ns.tolist() == list(range(3, 33, 3))  # numbers of lines
    assert imported.about.clock == "lines"
    assert imported.about.driver
    assert any(text.startswith("frees: ") for text in imported.about.absent)
    assert [(mark.t_ns, mark.text) for mark in imported.events] == [(2, "In InitGraph."), (33, "Finished binding.")]
    assert imported.driver[0] == (4, 12195 * MIB - MIB, 12196 * MIB)
    assert len(imported.driver) == 10
    assert kinds(trace) == {
        "weights": 1048608,
        "gradients": 1048608,
        "activations": 2097312,
        "optimiser state": 1048608,
        "inputs": 160,
        "buffers": 544,
        "temporaries": 4194336,
        "unknown": 96,
    }


@pytest.mark.parametrize(
    "first",
    [
        "[2018-03-01:10:11:12:INFO:sockeye.utils:log_basic_info] Sockeye version 1.16.2",
        "[2019-07-01:10:11:12:INFO:sockeye.utils:log_sockeye_version] Sockeye version 1.18.97, commit 0123abc, path /x",
        "[10:11:14] src/operator/././cudnn_algoreg-inl.h:107: Running performance tests to find the best convolution",
        "[12] [13] of some program",
    ],
)
def test_a_log_that_begins_with_a_time_in_brackets_is_not_json(first):
    """Every log of Sockeye does."""
    imported = import_bytes(first.encode() + b"\n" + mxnet_log())
    assert imported.about.format == "MXNet log"
    assert only(imported).peak_bytes == only(import_bytes(mxnet_log())).peak_bytes


@pytest.mark.parametrize("console", [True, False])
def test_a_whole_log_of_sockeye(console):
    data = sockeye_log(console=console)
    imported = import_bytes(data)
    trace = only(imported)
    rows = zip(trace.op.tolist(), trace.delta_bytes.tolist(), strict=True)
    assert [(trace.name(op), size) for op, size in rows] == [*A1]
    assert (imported.about.format, imported.about.warnings) == ("MXNet log", ())
    numbers = [number for number, line in enumerate(data.splitlines(), 1) if b"[mem] Allocate" in line]
    assert trace.t_ns.tolist() == numbers
    free = 12196 - np.cumsum([size for _, size in A1]) / MIB
    assert [row.free_bytes for row in imported.driver] == (np.floor(free) * MIB).tolist()


def test_an_allocation_in_mb_is_one_and_is_marked():
    imported = import_bytes(mxnet_log(in_mb=(("mask_workspace", 3),)))
    trace = only(imported)
    assert int(trace.delta_bytes[-1]) == 3145728
    assert CATEGORIES[int(trace.category[-1])] == "temporaries"
    assert imported.about.coarse == ("mask_workspace",)


def test_a_line_that_was_cut_is_told_and_the_rest_counts():
    data = mxnet_log() + b"[mem] Allocate 4194"
    imported = import_bytes(data)
    assert len(only(imported)) == 10
    last = data.count(b"\n") + 1
    assert imported.about.warnings == (f"line {last} is not a whole allocation",)


# The analysis of MXNet logs


def test_an_analysis_knows_sums():
    imported = import_bytes(json.dumps(A1_ANALYSIS, indent=2).encode())
    assert imported.about.sums == {key: (total, tuple(tags)) for key, (total, tags) in A1_ANALYSIS.items()}
    assert int(only(imported).peak_bytes) == 9_438_208
    assert imported.about.clock == "none"


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"in_arg": [0.5, []]}, "not a whole number"),
        ({"in_arg": [-1.0, []]}, "not a number of bytes"),
        ({"in_arg": ["1", []]}, "not a number of bytes"),
        ({"in_arg": [1.0, [3]]}, "not a list of texts"),
        ({"in_arg": [1.0, []], "x": 3}, "not a total and a list"),
        ({"in_arg": [1e300, []]}, "not a number of bytes"),
    ],
)
def test_a_damaged_analysis(document, why):
    with pytest.raises(NotImportable, match=why):
        import_bytes(json.dumps(document).encode())


# ZPP-MEM


def test_zpp_begins_with_what_was_in_use():
    trace = only(import_bytes(ZPP.encode()))
    assert trace.start_bytes == 215296
    assert trace.usage_bytes.tolist()[trace.existing :] == [215296, 235520, 235520]
    assert trace.delta_bytes.tolist()[trace.existing :] == [0, 20224, 0]
    assert trace.peak_bytes == 235520
    assert trace.name(int(trace.op[trace.peak_row])) == "forward/DFA_fully_connected_layer_8/Add"
    assert int(trace.t_ns[0]) == 1560104632231000_000


def test_zpp_comes_back_to_the_byte():
    assert back(ZPP.encode()) == ZPP.encode()
    text = zpp_text(2000).encode()
    assert back(text) == text
    trace = only(import_bytes(text))
    assert int(trace.usage_bytes[-1]) == 0


def test_a_wrong_usage_is_told_by_its_line():
    imported = import_bytes(ZPP.replace("235520 20224", "235521 20224").encode())
    assert [line.partition(" says")[0] for line in imported.about.warnings] == ["line 2"]
    assert only(imported).peak_bytes == 235520


def test_commas_and_carriage_returns_are_taken():
    odd = ZPP.replace(" ", ", ").replace("\n", "\r\n").encode()
    assert back(odd) == ZPP.encode()


def test_kinds_are_what_became_of_a_block():
    rows = [(0, 8, "forward/a"), (1, 4, "forward/b"), (2, -4, "forward/b"), (3, 2, "gradients/c"), (4, -8, "forward/a")]
    usage, lines = 0, []
    for t, change, op in rows:
        usage += change
        lines.append(f"{t} {usage} {change} {op}\n")
    trace = only(import_bytes("".join(lines).encode()))
    assert [CATEGORIES[c] for c in trace.category.tolist()] == [
        *("activations", "temporaries", "temporaries", "unknown", "activations")
    ]
    assert [PHASES[p] for p in trace.phase.tolist()] == ["forward", "forward", "forward", "backward", "forward"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 1 1 a\n0 2 1 b\n", "line 2 is earlier than line 1"),
        ("1 1 1 a\n2 2 1", r"line 2 is not four words.*cut off"),
        ("1 1 1 a\nhello\n3 3 1 b\n", "line 2 is not four words: time"),
        ("1 5 5 a\n2 -1 -6 a\n", "line 2 frees 6 bytes where fewer are held"),
        ("1 1 2 a\n", "line 1 allocates more than"),
    ],
)
def test_a_damaged_zpp_text_is_told_by_its_line(text, why):
    with pytest.raises(NotImportable, match=why):
        import_bytes(text.encode())


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(-300, 300), st.sampled_from("abc")), min_size=1),
    st.integers(0, 500),
)
def test_usage_is_that_of_the_text_whatever_is_freed(changes, base):
    t_us, usage, lines = 10**15, base, []
    for later, change, op in changes:
        change = max(change, -usage)
        t_us, usage = t_us + later, usage + change
        lines.append(f"{t_us} {usage} {change} gradients/{op}\n")
    trace = only(import_bytes("".join(lines).encode()))
    # A free may have been of several blocks: then several rows have its time, the last of them its usage.
    seen = {int(t): int(used) for t, used in zip(trace.t_ns, trace.usage_bytes, strict=True)}
    by_time = {int(line.split()[0]) * 1000: int(line.split()[1]) for line in lines}
    assert seen == by_time or {**seen, int(trace.start_ns): by_time[int(trace.start_ns)]} == by_time
    assert int(trace.usage_bytes[-1]) == usage
    assert trace.check() == []


def snapshot(events, blocks=()) -> bytes:
    address, result = 1000, []
    for size, state in blocks:
        result.append({"address": address, "size": size, "requested_size": size, "state": state, "frames": []})
        address += size
    segments = [{"device": 0, "address": 1000, "total_size": address - 1000, "blocks": result}] if result else []
    return pickle.dumps({"segments": segments, "device_traces": [list(events)]})


def traced(action, address, size, time_us, frames=()):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us, "frames": list(frames)}


FRAMES = (
    {"name": "_conv_forward", "filename": "/venv/torch/nn/modules/conv.py", "line": 456},
    {"name": "forward", "filename": "/home/me/model.py", "line": 42},
)


def test_a_snapshot_frees_when_the_free_is_completed():
    t = 1_700_000_000_000_000
    imported = import_bytes(
        snapshot(
            [
                traced("segment_alloc", 1000, 4096, t),
                traced("alloc", 1000, 512, t + 1, FRAMES),
                traced("free_requested", 1000, 512, t + 2),
                traced("alloc", 2000, 256, t + 3),
                traced("free_completed", 1000, 512, t + 4),
                traced("free_completed", 3000, 64, t + 5),  # from before the trace
                {"action": "oom", "size": 1 << 30, "device_free": 1 << 20, "stream": 0, "time_us": t + 6, "frames": []},
            ],
            [(1024, "inactive"), (512, "active_allocated")],
        )
    )
    (part,) = imported.parts
    trace = part.trace
    assert part.device == "cuda:0"
    # At 2024 the segments have a block that the trace never named: it was there all the time.
    assert trace.start_bytes == 64 + 512
    assert trace.usage_bytes.tolist()[trace.existing :] == [576 + 512, 576 + 768, 576 + 256, 576 + 192]
    assert trace.name(int(trace.op[trace.existing])) == "forward (model.py:42)"
    assert [mark.text for mark in imported.events] == ["out of memory: 1.00 GiB asked for, 1.00 MiB were free"]


def test_a_snapshot_without_times_counts_its_rows():
    """As PyTorch 2.0 wrote them."""
    events = [traced("alloc", 7, 512, 0), traced("free_completed", 7, 512, 0)]
    for event in events:
        del event["time_us"]
    imported = import_bytes(snapshot(events))
    assert (only(imported).t_ns.tolist(), imported.about.clock) == ([0, 1], "none")


def call(name, path="/home/me/train.py", line=1):
    return {"name": name, "filename": path, "line": line}


EMPTY, MODULE = call("at::empty", "??", 0), call("__call__", "/venv/torch/nn/modules/module.py")
DEEP = [call("f" * 100, line=n) for n in range(100)]


@pytest.mark.parametrize(
    ("frames", "path"),
    [
        (
            (EMPTY, *FRAMES, MODULE, call("step"), call("main", line=9)),
            "main (train.py:9)/step (train.py:1)/forward (model.py:42)",
        ),
        ((EMPTY, FRAMES[0], MODULE), "_conv_forward (conv.py:456)"),
        ((EMPTY, call("at::detail", "??", 0)), "at::empty (??:0)"),
        ((call("a/b", "/x/c.py"), call("d", "/x/e.py")), "d (e.py:1)/a\N{DIVISION SLASH}b (c.py:1)"),
        (DEEP, "/".join(f"{'f' * 100} (train.py:{n})" for n in reversed(range(34)))),
        ((), ""),
    ],
)
def test_the_calls_of_a_snapshot_are_those_outside_of_pytorch(frames, path):
    trace = only(import_bytes(snapshot([traced("alloc", 7, 512, 5, frames), traced("alloc", 8, 512, 6, frames)])))
    assert [trace.name(op) for op in trace.op.tolist()] == [path, path]
    assert len(trace.names) == (path != "")


def test_so_many_stacks_that_a_session_has_no_room_for_them_are_their_innermost_calls(monkeypatch):
    monkeypatch.setattr("memtui.formats.call_paths.MOST_PATHS", 100)
    stacks = [(call("forward"), call("main", line=n)) for n in range(5)]
    trace = only(import_bytes(snapshot([traced("alloc", 7 + n, 512, n, stack) for n, stack in enumerate(stacks)])))
    names = [trace.name(op) for op in trace.op.tolist()]
    assert names[:2] == ["main (train.py:0)/forward (train.py:1)", "main (train.py:1)/forward (train.py:1)"]
    assert names[2:] == ["forward (train.py:1)"] * 3


def test_a_block_of_no_bytes_may_be_freed():
    trace = only(import_bytes(snapshot([traced("alloc", 7, 0, 5), traced("free_completed", 7, 0, 9)])))
    assert trace.delta_bytes.tolist() == [0]


def pinned(host_traces, host_segments=()) -> bytes:
    """A snapshot of PyTorch 2.14 with ``record_pinned_host_memory``, one block on a device."""
    device = [traced("alloc", 1, 512, 5), traced("free_completed", 1, 512, 9)]
    host = {"host_traces": host_traces, "host_segments": list(host_segments)}
    return pickle.dumps({"segments": [], "device_traces": [device, []], "allocator_settings": {}, **host})


HOST = [traced("alloc", 7, 4096, 6, FRAMES), traced("free_completed", 7, 4096, 8), traced("alloc", 7, 1024, 9)]
HOST_SEGMENT = {"address": 1 << 20, "blocks": [{"size": 64, "address": 1 << 20, "state": "active_allocated"}]}


@pytest.mark.parametrize("host", [HOST, [HOST]])
def test_pinned_memory_of_a_snapshot_is_a_part_of_its_own(host):
    parts = import_bytes(pinned(host, [HOST_SEGMENT])).parts
    assert [(part.device, part.trace.start_bytes, part.trace.peak_bytes) for part in parts] == [
        ("cuda:0", 0, 512),
        ("pinned host memory", 64, 64 + 4096),
    ]
    trace = parts[1].trace
    assert trace.usage_bytes.tolist()[trace.existing :] == [64 + 4096, 64, 64 + 1024]
    assert trace.name(int(trace.op[trace.existing])) == "forward (model.py:42)"


def test_pinned_memory_without_a_history_is_what_is_held():
    (_, part) = import_bytes(pinned([], [HOST_SEGMENT])).parts
    assert (part.device, part.trace.peak_bytes) == ("pinned host memory", 64)


@pytest.mark.parametrize("host", [[{"action": "alloc"}], [{"action": "alloc"}] * 2, [[1]], {"a": 1}, [[HOST[0]], 5]])
def test_pinned_memory_in_an_unknown_form_is_left_out_with_a_word(host):
    imported = import_bytes(pinned(host))
    assert [part.device for part in imported.parts] == ["cuda:0"]
    (warning,) = imported.about.warnings
    assert re.fullmatch(r"its pinned host memory is left out: (Key|Type|Attribute)Error: .*", warning)


class Hostile:
    def __reduce__(self):
        return print, ("it ran",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_wants_to_run_runs_nothing(protocol, capsys):
    with pytest.raises(NotImportable, match="of more than data") as raised:
        import_bytes(pickle.dumps({"segments": [], "device_traces": [Hostile()]}, protocol))
    assert "\n" not in str(raised.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x80\x04K\x01r\xff\xff\xff\x7f.", "no CUDA memory snapshot"),  # a place far out in the table of what is kept
        (b"\x80\x04" + b"]" * 200_000 + b".", "no CUDA memory snapshot"),
        (b"\x80\x04cos\nsystem\nX\x04\x00\x00\x00truetR.", "of more than data"),
        (b"\x80\x04h\x09.", "damaged"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", "damaged"),
        (pickle.dumps({"device_traces": [[{"action": "alloc"}]]}), "not a snapshot of CUDA memory"),
        (pickle.dumps({"device_traces": [], "segments": []}), "neither blocks nor a trace"),
        (snapshot([traced("alloc", 1, 1, 5)])[:-9], "damaged"),
    ],
)
def test_damaged_pickles(data, why):
    with pytest.raises(NotImportable, match=why):
        import_bytes(data)


# All of them


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0\1\2" * 100, "is binary and of no format that is known: .* a pickle .* a capture of memray"),
        (b"hello\n", "is text, but of no format"),
        (
            b"[trace] In InitGraph.\n[mem] Release GPU memory.\n",
            r"no line `\[mem\] Allocate .*MXNet.*TIME USAGE CHANGE",
        ),
        (b"hello\n" * 3 + ZPP.encode()[:80], "half of its lines or more are not `TIME USAGE"),
        (b'{"a": 1}', "is JSON, but of no format that is known: it has no `traceEvents`.*list of times and sums"),
        (b'[{"a": 1}]', "is JSON, but of no format that is known"),
        (b'{"traceEvents": [', "is damaged JSON"),
        (b'{"traceEvents": [{"name": "[memory]"}]}', "an event of its trace is damaged"),
        (b"[" * 100_000, "is JSON that is nested without end"),
        (b'{"in_arg": [NaN, []]}', "NaN is not a number"),
        (b"SQLite format 3\0" + b"\0" * 100, "is a database"),
        (b"[[1, 2], [[0, 1]]]", "are not 9 whole numbers"),
        (b"[" + b"[1, 1, 3, 4]," * 100 + b"[1, 2]]", "differ in length"),
        (b"[[1, 9, 3, 4]]", "an action of its timeline is not a number of an action"),
    ],
)
def test_what_is_no_log_is_told_in_one_line(data, why):
    with pytest.raises(NotImportable, match=why) as raised:
        import_bytes(data)
    assert "\n" not in str(raised.value)


GOOD = (
    mxnet_log(),
    json.dumps(A1_ANALYSIS).encode(),
    ZPP.encode(),
    chrome(span("aten::mm", 0, 9), memory(1, 64, 7, 64), memory(5, -64, 7)),
    b"[[5, 6, 7], [[0,1,2,3,4,5,6,7,8],[0,2,2,3,4,5,6,7,0],[0,1,0,3,4,5,6,7,8]]]",
    b"[[-1, 1, 128, 0], [1000, 2, 256, 4], [1500, 3, -128, 0], [1500, 3, 128, 5], [2000, 4, -256, 4]]",
    snapshot(
        [traced("alloc", 1000, 512, 5, FRAMES), traced("free_completed", 1000, 512, 9)], [(64, "active_allocated")]
    ),
)


@pytest.mark.parametrize("data", GOOD)
def test_the_good_ones_are_good(data):
    for part in import_bytes(data).parts:
        assert part.trace.check() == []


@given(st.sampled_from(GOOD), st.data())
def test_a_damaged_file_gives_a_result_or_one_error(good, data):
    raw = bytearray(good)
    for _ in range(data.draw(st.integers(1, 6))):
        index = data.draw(st.integers(0, len(raw) - 1))
        match data.draw(st.integers(0, 3)):
            case 0:
                raw[index] = data.draw(st.integers(0, 255))
            case 1:
                del raw[index : index + data.draw(st.integers(1, 20))]
            case 2:
                raw[index:index] = data.draw(st.binary(max_size=8))
            case _:
                raw[index:index] = data.draw(
                    st.sampled_from([b"9" * 30, b"-", b"null", b"[]", b'"x"', b"1e400", b"\n"])
                )
        raw = raw or bytearray(b"x")
    took_in_or_refused(bytes(raw))


@given(st.binary(max_size=200))
def test_garbage_is_refused(raw):
    took_in_or_refused(raw)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["traceEvents", "a", "args"]), inner),
    max_leaves=12,
)


@given(json_values)
def test_any_json_gives_a_result_or_one_error(plain):
    took_in_or_refused(json.dumps(plain).encode())


@given(json_values)
def test_any_pickle_of_data_gives_a_result_or_one_error(plain):
    took_in_or_refused(pickle.dumps({"segments": plain, "device_traces": [plain]}))


def took_in_or_refused(raw: bytes) -> None:
    try:
        imported = import_bytes(raw)
    except NotImportable:
        return
    for part in imported.parts:
        assert part.trace.check() == []


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b"1 1 1 a\n" + mxnet_log(), "MXNet log"),
        (b"1 1 1 a\n" + b"[12:00:00] training goes on\n" * 5000 + mxnet_log(), "MXNet log"),
        (ZPP.encode() + b"1560104632231091 235520 0 [mem] Allocate 64 bytes GPU memory (untagged).\n", "ZPP-MEM text"),
        (b"[" + b"[1000, 2, 256, 4]," * 99 + b"[1000, 2, 256, 4]]", "raw memory timeline"),
        (b'{"in_arg": [1.0, []], "x": [2.0, []]}', "MXNet analysis"),
    ],
)
def test_the_format_that_is_the_most_certain_reads_a_file(data, form):
    """Each looks at 200 lines or parts of it; those that are as it writes them are its share."""
    assert import_bytes(data).about.format == form


@pytest.mark.parametrize("before", [0, 100_000, (1 << 20) - 30, (1 << 20) - 3])
def test_a_log_may_be_opened_wherever_its_first_allocation_is(before, tmp_path):
    path = tmp_path / "log"
    noise = (b"INFO training goes on\n" * 50_000)[-before:] if before else b""
    path.write_bytes(noise + mxnet_log())
    assert may_be_imported(path)
    path.write_bytes(noise + b"[mem] Release GPU memory.\n")
    assert not may_be_imported(path)
    path.write_bytes(bytes(1 << 16) + noise + mxnet_log())
    assert not may_be_imported(path), "binary"


def test_a_format_may_be_said():
    log = b"1 1 1 a\n" + mxnet_log()
    with pytest.raises(NotImportable, match="line 2 is not four words"):
        import_bytes(log, "zpp")
    text = ZPP.encode() + b"1560104632231091 235520 0 [mem] Allocate 64 bytes GPU memory (untagged).\n"
    assert import_bytes(text, "mxnet").about.format == "MXNet log"
    trace = chrome(memory(1, 10, 1, 110))
    assert import_bytes(trace, "chrome").about.format == "Chrome trace"
    snapshot = pickle.dumps({"segments": [], "device_traces": []})
    for data, form in ((trace, "analysis"), (trace, "timeline"), (pickle.dumps([1]), "snapshot")):
        with pytest.raises(NotImportable, match=f"is not what --format {form} says"):
            import_bytes(data, form)
    with pytest.raises(NotImportable, match="damaged JSON"):
        import_bytes(log, "chrome")
    with pytest.raises(NotImportable, match="neither blocks nor a trace"):
        import_bytes(snapshot, "snapshot")


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_packed_files_are_unpacked(pack, tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_bytes(pack(ZPP.encode()))
    whole = import_bytes(ZPP.encode())
    assert only(import_file(path)).delta_bytes.tolist() == only(whole).delta_bytes.tolist()
    path.write_bytes(pack(ZPP.encode())[:-9])
    with pytest.raises(NotImportable, match=r"is damaged (gzip|xz|bzip2)"):
        import_file(path)
    path.write_bytes(pack(b"1 1 1 a\n" * 100))
    monkeypatch.setattr("memtui.formats.input_file.MOST_BYTES", 150)
    with pytest.raises(NotImportable, match="has more than 150 B"):
        import_file(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("kind", ["trace", "snapshot"])
def test_large_files_are_read_packed_or_from_a_pipe(pack, kind, tmp_path):
    file = io.BytesIO()
    MAKERS[kind](file, 1_200_000)  # more than one piece
    path = tmp_path / kind
    path.write_bytes(pack(file.getvalue()))
    whole = import_bytes(file.getvalue())
    command = [sys.executable, "-m", "memtui", "import", "-", "-o", tmp_path / "s.memtui", "--json"]
    with path.open("rb") as packed, subprocess.Popen(["cat"], stdin=packed, stdout=subprocess.PIPE) as pipe:
        said = subprocess.run(command, stdin=pipe.stdout, capture_output=True, check=True, text=True)
    devices = json.loads(said.stdout)["sessions"][0]["devices"]
    for found in (import_file(path).parts, whole.parts):
        assert [(p.device, len(p.trace) - p.trace.existing, p.trace.peak_bytes) for p in found] == [
            (device["device"], device["rows"], device["peak_bytes"]) for device in devices
        ]
    path.write_bytes(pack(file.getvalue())[:-4096])
    with pytest.raises(NotImportable, match=r"is (a )?damaged (gzip|JSON|pickle)"):
        import_file(path)


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False, buffer=io.BytesIO(ZPP.encode())))
    assert import_file(Path("-")).about.file == "standard input"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(NotImportable, match="is a terminal"):
        import_file(Path("-"))


def test_standard_input_that_does_not_wait_is_refused(monkeypatch):
    """What comes later would be a part of the file only."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    with os.fdopen(reading, "rb") as file, os.fdopen(writing, "wb", buffering=0) as pipe:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False, buffer=file))
        for said in (b"", ZPP.encode(), b"[12:00:00] " + mxnet_log()):
            pipe.write(said)
            with pytest.raises(NotImportable, match=r"^cannot be read: nothing is there yet"):
                import_file(Path("-"))


def test_nothing_is_read_after_what_could_not_be():
    pieces = iter([b"1 1 1 a\n", None, b"2 2 1 b\n", b""])
    source = Input(SimpleNamespace(read=lambda _: next(pieces)))  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(NotImportable, match="cannot be read"):
            source.rest()


def test_a_text_that_looks_like_json_is_read_from_its_beginning_or_not_at_all(monkeypatch):
    log = b"[12:00:00] [mem] Allocate 64 bytes GPU memory (untagged).\n" * 3000
    assert len(only(import_bytes(log))) == 3000
    monkeypatch.setattr("memtui.formats.input_file.MOST_BYTES", 100_000)
    with pytest.raises(NotImportable, match="has more than"):
        import_bytes(log)


def test_too_little_memory_is_one_error(monkeypatch):
    def parse_json(_: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr("memtui.formats.catalogue.parse_json", parse_json)
    with pytest.raises(NotImportable, match="is of more data than there is memory for"):
        import_bytes(b"[[1], [[0]]]")


def test_files_are_unpacked_within_limits(tmp_path, monkeypatch):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(ZPP.encode()))
    assert import_file(path).about.file == "log.gz"
    path.write_bytes(gzip.compress(ZPP.encode())[:-20])
    with pytest.raises(NotImportable, match="damaged gzip"):
        import_file(path)
    path.write_bytes(gzip.compress(b"1 1 1 a\n" * 100))
    monkeypatch.setattr("memtui.formats.input_file.MOST_BYTES", 100)
    with pytest.raises(NotImportable, match="has more than 100 B"):
        import_file(path)
    path.write_bytes(b"")
    with pytest.raises(NotImportable, match="is empty"):
        import_file(path)


@pytest.mark.parametrize("begin", [b"", b'{"', b"[[1", b"[", b'[{"a', b"\x80\x04"])
def test_a_file_that_is_too_large_is_refused_before_it_is_read(begin, tmp_path):
    path = tmp_path / "endless"
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(1 << 40)
    with pytest.raises(NotImportable, match=r"has more than 2\.00 GiB|of more than data"):
        import_file(path)


def test_names_that_are_no_text_can_be_stored():
    trace = only(import_bytes(b"[mem] Allocate 64 bytes GPU memory (in_arg:\xff\x1b[2J).\n"))
    assert trace.names == ("in_arg:\\xff\x1b[2J",)
    assert replace(trace).check() == []
    assert np.all(trace.delta_bytes == 64)


@given(st.lists(st.lists(st.integers(0, 50), min_size=8, max_size=8), min_size=1, max_size=12))
def test_sums_of_a_timeline_stay_what_they_are(rows):
    document = [list(range(5, 5 + len(rows))), [[0, *row] for row in rows]]
    trace = only(import_bytes(json.dumps(document).encode()))
    order = (
        "weights",
        "optimiser state",
        "inputs",
        "temporaries",
        "activations",
        "gradients",
        "temporaries",
        "unknown",
    )
    held = trace.by_category()
    for index, row in enumerate(rows):
        places = np.flatnonzero(trace.t_ns <= (5 + index) * 1000)
        result = dict(zip(CATEGORIES, held[places[-1]].tolist(), strict=True)) if len(places) else {}
        for kind in set(order):
            assert result.get(kind, 0) == sum(size for name, size in zip(order, row, strict=True) if name == kind)
