"""A pickle that is read as a stream is what Python reads, and its long lists may be taken away meanwhile."""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.large_files import write_snapshot
from memtui.formats.catalogue import import_bytes
from memtui.formats.imported import NotImportable
from memtui.formats.input_file import Input
from memtui.formats.safe_pickle import load_pickle
from tests.conftest import LONG
from tests.support.memory_growth import bytes_an_event
from tests.support.pieces import InPieces

PROTOCOLS = [2, 3, 4, 5]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 100), 1 << 100) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner) | st.tuples(inner, inner),
    max_leaves=12,
)


@given(st.lists(values, max_size=6), st.sampled_from(PROTOCOLS), st.integers(1, 30), st.booleans())
def test_wherever_the_pieces_end_the_value_is_the_same(value, protocol, step, optimized):
    data = pickle.dumps([value, value, *value], protocol)
    data = pickletools.optimize(data) if optimized else data
    assert load_pickle(InPieces(data, range(step, len(data), step))) == [value, value, *value]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lists_of_references_are_lists_of_the_same_objects(protocol):
    frames = [{"line": n} for n in range(700)]
    stacks = [[frames[(7 * n + k) % 700] for k in range(n % 60)] for n in range(300)]
    long = frames * 3  # in several parts, of which a later one extends the list
    found = load_pickle(Input(io.BytesIO(pickle.dumps([frames, stacks, long, stacks, [1]], protocol))))
    assert found == [frames, stacks, long, stacks, [1]]
    assert found[1] is found[3]
    assert found[1][50][3] is found[0][(7 * 50 + 3) % 700]


class Taken:
    keys = ("device_traces", "host_traces")

    def __init__(self) -> None:
        self.by_list: dict[int, tuple[list[Any], list[Any]]] = {}

    def take(self, owner: list[Any], elements: list[Any]) -> None:
        self.by_list.setdefault(id(owner), (owner, []))[1].extend(map(dict, elements))

    def whole(self, owner: list[Any]) -> list[Any]:
        return self.by_list.get(id(owner), (owner, []))[1] + owner


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("counts", [[2], [1], [0], [1000, 1001], [3, 0, 1, 2500]], ids=str)
@pytest.mark.parametrize("alone", [False, True])
def test_events_are_taken_while_the_rest_is_read(protocol, counts, alone):
    frames = [{"name": f"f{n}", "filename": "a.py", "line": n} for n in range(300)]
    traces = [
        [{"action": "alloc", "addr": n, "pool_id": (0, n % 3), "frames": frames[n % 250 :][:20]} for n in range(count)]
        for count in counts
    ]
    host = [{"action": "alloc", "addr": n, "frames": []} for n in range(5)]
    before = {"segments": [{"frames": frames, "blocks": [{"state": "inactive", "action": 1}, {"state": ""}]}]}
    snapshot = {"device_traces": traces} if alone else {**before, "device_traces": traces, "host_traces": host, "z": 1}
    taken = Taken()
    found = load_pickle(Input(io.BytesIO(pickle.dumps(snapshot, protocol))), taken)
    assert [taken.whole(trace) for trace in found["device_traces"]] == traces
    assert all(trace == [] for trace, count in zip(found["device_traces"], counts, strict=True) if count != 1)
    if not alone:
        assert taken.whole(found["host_traces"]) == host
        assert {key: found[key] for key in before} == before


def test_an_event_that_is_named_again_elsewhere_is_gone_there():
    """No file of PyTorch names one twice. To keep each for that would be to keep them all."""
    event = {"action": "snapshot", "frames": []}
    data = pickle.dumps({"device_traces": [[event, event, {"action": "oom"}]], "last": event, "n": 1})
    taken = Taken()
    found = load_pickle(Input(io.BytesIO(data)), taken)
    assert taken.whole(found["device_traces"][0]) == [event, event, {"action": "oom"}]
    assert found["last"] is None


def test_a_pickle_that_stops_anywhere_is_damaged():
    data = pickle.dumps(
        {"device_traces": [[{"action": "alloc", "frames": [{"line": 1.5}] * 3}] * 3], "n": (1, 2, None)}
    )
    for end in range(2, len(data)):
        with pytest.raises(NotImportable, match="damaged pickle"):
            load_pickle(Input(io.BytesIO(data[:end])), Taken())


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04]\x94(j\x00\x00\x00\x00h\x07e.",  # a reference to nothing
        b"\x80\x04X\xff\xff\xff\xffabc.",
        b"\x80\x04}(K\x01u.",
        b"\x80\x04K\x01(e.",
        b"\x80\x04(.",
        b"\x80\x04e.",
    ],
)
def test_odd_instructions_are_one_error(data):
    with pytest.raises(NotImportable) as raised:
        load_pickle(Input(io.BytesIO(data)), Taken())
    assert "\n" not in str(raised.value)


DEEP_TUPLE = b")" + b"\x85" * 200_000
DEEP_LIST = b"]" * 200_000 + b"a" * 199_999


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x80\x04}" + DEEP_TUPLE + b"Ns.", id="tuple"),
        pytest.param(b"\x80\x04}(" + DEEP_TUPLE + b"Nu.", id="tuple among several"),
        pytest.param(b"\x80\x04}(\x8a\x09" + b"\1" * 9 + b"Nu.", id="long number"),
        pytest.param(b"\x80\x04}\x8a\x09" + b"\1" * 9 + b"Ns.", id="one long number"),
    ],
)
def test_what_takes_long_or_a_deep_stack_to_hash_is_no_key(data):
    with pytest.raises(NotImportable, match="damaged pickle"):
        load_pickle(Input(io.BytesIO(data)))


def test_texts_and_numbers_are_keys():
    value = {"a": 1, 2: "b", -(1 << 63): 0, 2.5: [], None: (), True: {3: 4}}
    assert load_pickle(Input(io.BytesIO(pickle.dumps(value)))) == value


@pytest.mark.parametrize(
    ("deep", "why"), [(DEEP_TUPLE, "an action is not a text"), (DEEP_LIST, "nested without end")], ids=["tuple", "list"]
)
def test_a_value_that_is_nested_without_end_is_one_error(deep, why):
    """Wherever a text is expected."""
    block = {"state": "HERE", "size": 1} if deep is DEEP_LIST else {}
    trace = [{"action": "alloc" if block else "HERE", "addr": 0, "size": 1}] * 2
    data = pickle.dumps({"segments": [{"address": 0, "blocks": [block]}], "device_traces": [trace]}, 2)
    assert data.count(b"X\4\0\0\0HERE") == 1
    with pytest.raises(NotImportable, match=why):
        import_bytes(data.replace(b"X\4\0\0\0HERE", deep))


def test_a_list_that_may_be_in_two_places_does_not_grow():
    first, second = b"](h\0h\1e", b"](h\0h\1eK\3a"
    with pytest.raises(NotImportable, match="damaged pickle"):
        load_pickle(Input(io.BytesIO(b"\x80\4(K\1\x94K\2\x94" + first + second + b"t.")))


@pytest.mark.parametrize(
    ("limit", "instruction"),
    [("_MOST_ON_STACK", b"]"), ("_MOST_ON_STACK", b"("), ("_MOST_IN_MEMO", b"]\x94a")],  # into the list before it
)
def test_what_is_held_of_a_pickle_has_a_limit(limit, instruction, monkeypatch):
    monkeypatch.setattr(f"memtui.formats.safe_pickle.{limit}", 50_000)
    file = io.BytesIO(b"\x80\4]" + instruction * (4 << 20))
    with pytest.raises(NotImportable, match="damaged pickle"):
        load_pickle(Input(file))
    assert file.tell() <= 2 << 20


def test_the_snapshots_of_the_benchmark_are_what_python_pickles():
    file = io.BytesIO()
    write_snapshot(file, 200_000)
    found = pickle.loads(file.getvalue())
    assert load_pickle(Input(io.BytesIO(file.getvalue()))) == found
    assert abs(len(pickle.dumps(found, 4)) / len(file.getvalue()) - 1) < 0.02, "but for frames of bytes"


def snapshot_of(path: Path, events: int) -> Path:
    frames = [{"name": f"f{n}", "filename": f"/me/m{n}.py", "line": n} for n in range(400)]
    trace = []
    for n in range(events):
        stack = [frames[(n % 50 + 7 * k) % 400] for k in range(40)]
        action = "alloc" if n % 2 == 0 else "free_completed"
        trace.append({"action": action, "addr": n // 2 % 64, "size": 512, "time_us": 10**15 + n, "frames": stack})
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    return path


def test_memory_grows_by_what_is_kept_of_an_event(tmp_path):
    """Its columns and its place in the memo; with its dict and the list of its frames it would be a kilobyte."""
    few, many = (10_000, 40_000) if LONG else (5_000, 20_000)
    assert bytes_an_event(lambda events: snapshot_of(tmp_path / "snapshot.pickle", events), few, many) < 250


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_snapshot_of_several_devices_in_any_protocol(protocol):
    traces = [
        [
            {"action": action, "addr": 4096, "size": 512 * (device + 1), "time_us": 10**15 + n, "frames": []}
            for n, action in enumerate(["alloc", "free_completed"] * count)
        ]
        for device, count in enumerate((1, 700, 2))
    ]
    imported = import_bytes(pickle.dumps({"segments": [], "device_traces": traces}, protocol))
    assert [(part.device, len(part.trace), part.trace.peak_bytes) for part in imported.parts] == [
        ("cuda:0", 2, 512),
        ("cuda:1", 1400, 1024),
        ("cuda:2", 4, 1536),
    ]
