"""JSON that is decoded while it is read is what ``json.loads`` makes of it, wherever the pieces end."""

from __future__ import annotations

import codecs
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.formats.catalogue import import_bytes
from memtui.formats.imported import NotImportable
from memtui.formats.input_file import Input, no_number
from memtui.formats.json_stream import JsonStream
from memtui.session.tables.imported import WALL
from tests.support.memory_growth import bytes_an_event
from tests.support.pieces import InPieces

TRACE = (
    '{"schemaVersion": 1, "deviceProperties": [{"id": 0}], "displayTimeUnit":"ms", "ünï": "\\u00fc\\"},{"\n,\n'
    '"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [\n'
    '{"ph":"X","cat":"cpu_op","name":"a},{b","ts":0.5,"dur":2e1,"args":{"Dims":[[1,2],[{"x":[]},{}]]},"id":null},\n'
    '{"ph":"M","name":"\\ud83d\\ude00 😀","args":{}} , {},[],12,-3.25,"text",true\n], "traceName": "t", "n": 12}\n'
)


def decoded(source: Input) -> Any:
    """Return the document as an importer reads it: the keys of the object, the items of its lists."""
    text = JsonStream(source)
    if text.peek() == "[":
        document: Any = list(text.items())
    elif text.peek() == "{":
        document = {key: list(text.items()) if text.peek() == "[" else text.value() for key in text.fields()}
    else:
        document = text.value()
    text.end()
    return document


def loaded(data: bytes) -> Any:
    return json.loads(data, parse_constant=no_number)


@pytest.mark.parametrize("encode", [str.encode, codecs.getencoder("utf-8-sig"), codecs.getencoder("utf-16")])
def test_a_piece_may_end_at_any_byte(encode):
    data = encode(TRACE)
    data = data[0] if isinstance(data, tuple) else data
    expected = loaded(data)
    for border in range(len(data) + 1):
        assert decoded(InPieces(data, [border])) == expected, border
    assert decoded(InPieces(data, range(1, len(data)))) == expected


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
documents = st.lists(values, max_size=8) | st.dictionaries(st.text(max_size=3), st.lists(values, max_size=4) | values)


@given(documents, st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_any_document_is_what_python_reads(document, step, indent, ascii_only):
    data = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert decoded(InPieces(data, range(step, len(data), step))) == document


@given(st.data(), st.integers(1, 30))
def test_what_python_refuses_is_refused(data, step):
    raw = bytearray(TRACE.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(raw) - 1))
        raw[index : index + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"", b"}", b"]", b"{", b"[", b",", b":", b'"', b"\\", b"1", b"NaN", b"-", b"\xff", b" "])
        )
    try:
        expected = loaded(bytes(raw))
    except ValueError:
        with pytest.raises(NotImportable):
            decoded(InPieces(bytes(raw), range(step, len(raw), step)))
    else:
        assert decoded(InPieces(bytes(raw), range(step, len(raw), step))) == expected


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"traceEvents": [{"ph": "X"}', r"Expecting ',' delimiter: character 28"),
        (b'{"traceEvents": [{"ph": "X"},]}', "Expecting value: character 29"),
        (b'{"traceEvents": [{}]} x', "Extra data: character 22"),
        (b'{"traceEvents": [{}]}{', "Extra data"),
        (b'{"traceEvents": [{}], 1: 2}', "Expecting property name"),
        (b'{"traceEvents": [{"a": NaN}]}', "NaN is not a number"),
        (b'{"traceEvents": [{}, ' + b"[" * 3_000_000, "nested without end"),
        (b'{"traceEvents": [{"name": "' + b"x" * 5_000_000, "Unterminated string"),
        (b'{"traceEvents": [{"name": "\xff"}]}', "is damaged JSON"),
    ],
)
def test_a_damaged_trace_is_told_with_its_place(data, why):
    with pytest.raises(NotImportable, match=why) as raised:
        import_bytes(data)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("value", [b'{"name": "', b"1."])
def test_a_value_without_end_is_refused_before_the_rest_is_read(value, monkeypatch):
    monkeypatch.setattr("memtui.formats.json_stream._MOST_VALUE", 1 << 20)
    file = io.BytesIO(b'{"traceEvents": [{}, ' + value + b"1" * (16 << 20))
    with pytest.raises(NotImportable, match="A value without end: character 21"):
        decoded(Input(file))
    assert file.tell() <= 6 << 20


def test_what_may_be_no_trace_is_kept_up_to_the_limit(monkeypatch):
    monkeypatch.setattr("memtui.formats.json_stream.MOST_BYTES", 1 << 20)
    with pytest.raises(NotImportable, match=r"has more than 2\.00 GiB|has more than 1\.00 MiB"):
        decoded(Input(io.BytesIO(b'{"a": [' + b"1, " * (1 << 20))))


def test_a_value_that_is_damaged_is_refused_before_the_rest_is_read():
    """Of a file of any size, no more is read than what was there when the damage came."""
    file = io.BytesIO(b'{"traceEvents": [{}, {"name": tru}, ' + b'{"name": "aten::mm"}, ' * 500_000)
    with pytest.raises(NotImportable):
        decoded(Input(file))
    assert file.tell() <= 1 << 20


def trace_of(path: Path, events: int) -> Path:
    with path.open("w") as file:
        file.write('{"baseTimeNanoseconds": 1, "traceEvents": [')
        for n in range(events // 2):
            args = f'{{"Bytes": {64 if n % 2 else -64}, "Addr": {n // 2 % 50}, "Device Type": 0, "Device Id": -1}}'
            file.write(
                f'{{"ph": "X", "cat": "cpu_op", "name": "aten::op{n % 9}", "ts": {n}, "dur": 0.9, "args": {{}}}},\n'
            )
            file.write(f'{{"ph": "i", "name": "[memory]", "ts": {n}.5, "args": {args}}},\n')
        file.write("{}]}")
    return path


def test_memory_grows_by_what_is_kept_of_an_event(tmp_path):
    """Columns of a span, and of a row; as dicts in memory an event has a kilobyte."""
    assert bytes_an_event(lambda events: trace_of(tmp_path / "trace.json", events), 20_000, 80_000) < 150


def test_nothing_is_kept_of_what_else_a_trace_has():
    """Text that a list of lists takes thirty times as much memory than."""
    rest = ",".join(f'"k{n}": [{",".join(["[]"] * 1000)}]' for n in range(300))
    event = '{"name": "[memory]", "ts": 1, "args": {"Bytes": 64}}'
    data = f'{{"traceEvents": [{event}], {rest}, "baseTimeNanoseconds": 1790857026000000000}}'.encode()
    tracemalloc.start()
    imported = import_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert imported.about.clock == WALL
    assert peak < 12 << 20, peak


def test_few_long_events_are_kept_until_the_format_is_certain():
    event = b'{"ph": "X", "name": "aten::mm", "ts": 1, "dur": 1, "args": {"text": "%s"}},' % (b"x" * (1 << 20))
    change = b'{"name": "[memory]", "ph": "i", "ts": 1, "args": {"Bytes": 64}}'
    data = b'{"traceEvents": [' + 64 * event + change + b"]}"
    tracemalloc.start()
    import_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20, peak
