"""Reports of memray that nobody's memray wrote: what is recognised, and damage in one line."""

from __future__ import annotations

import csv
import json

import pytest

from memtui.analysis.stack_capture import call_text
from memtui.core import call_stacks
from memtui.formats.catalogue import import_bytes
from memtui.formats.imported import NotImportable

CSV = (
    "allocator,num_allocations,size,tid,thread_name,stack_trace\n"
    "MALLOC,2,100,1,0x1,make;/x/a.py;9|main;/x/a.py;3\nMMAP,1,50,1,0x1,\n"
)
GPROF2DOT = {
    "version": 0,
    "costs": [{"description": "Memory", "unit": "bytes"}],
    "events": [{"callchain": [1, 0], "cost": [100]}],
    "functions": [{"name": "main", "module": "/x/a.py"}, {"name": "make", "module": "/x/a.py"}],
}
SPEEDSCOPE = {
    "exporter": "memray@1.20.0",
    "shared": {"frames": [{"name": "main", "file": "/x/a.py", "line": 3}, {"name": "make"}]},
    "profiles": [{"samples": [[0, 1]], "weights": [100]}, {"samples": [[0, 1]], "weights": [4]}],
}
NODES = {
    "function": [0, 1, 2], "filename": [0, 3, 3], "lineno": [0, 3, 9], "value": [160, 160, 100],
    "n_allocations": [6, 6, 2], "children": [[1], [2], []],
}  # fmt: skip
FLAME_GRAPH = {
    "nodes": NODES,
    "strings": ["<root>", "main", "&lt;listcomp&gt;", "/x/a.py"],
    "inverted_no_imports_nodes": {},
}
TABLE = [{"stack_trace": "&lt;module&gt; at /x/a b.py:3", "size": 100, "n_allocations": 2}]


def page(data):
    return f"<!DOCTYPE html>\n<title>memray - report</title>\n    const packed_data = {json.dumps(data)};\n".encode()


def sums(data, form=""):
    imported = import_bytes(data if isinstance(data, bytes) else json.dumps(data).encode(), form)
    blocks = imported.capture.blocks
    return [
        ("/".join(map(call_text, imported.stacks.stack(stack)[::-1])), size, count)
        for stack, size, count in zip(
            *(column.tolist() for column in (blocks.stack, blocks.size_bytes, blocks.count)), strict=True
        )
    ]


def test_sums_by_stack():
    assert sums(CSV.encode()) == [("main (a.py:3)/make (a.py:9)", 100, 2), ("", 50, 1)]
    assert sums(GPROF2DOT) == [("main (a.py)/make (a.py)", 100, 1)]
    assert sums(SPEEDSCOPE) == [("main (a.py:3)/make", 100, 4)]
    assert sums(page(FLAME_GRAPH)) == [("main (a.py:3)", 60, 4), ("main (a.py:3)/<listcomp> (a.py:9)", 100, 2)]
    assert sums(page(TABLE)) == [("<module> (a b.py:3)", 100, 2)]


def test_their_format_can_be_named():
    assert sums(page(TABLE), "memray-report") == sums(page(TABLE))
    assert sums(GPROF2DOT, "memray-report") == sums(GPROF2DOT)
    for other in (b"a text", b"{}"):
        with pytest.raises(NotImportable, match="is not what --format memray-report says"):
            import_bytes(other, "memray-report")


@pytest.mark.parametrize(
    "data",
    [
        page({**FLAME_GRAPH, "nodes": {**NODES, "children": [[1], [0], []]}}),
        page({**FLAME_GRAPH, "nodes": {**NODES, "children": [[1], [7], []]}}),
        page({**FLAME_GRAPH, "nodes": {**NODES, "lineno": [1]}}),
        page({**FLAME_GRAPH, "strings": 3}),
        page({}),
        page([{"stack_trace": 3}]),
        page([{**TABLE[0], "size": -1}]),
        page([{**TABLE[0], "size": 1 << 70}]),
        b"<!DOCTYPE html><title>memray - report</title>",
        CSV.replace("100", "x").encode(),
        CSV.replace(";9|", "|").encode(),
        {**GPROF2DOT, "events": [{"callchain": [5], "cost": [1]}]},
        {**GPROF2DOT, "events": [{"callchain": [0], "cost": []}]},
        {**GPROF2DOT, "events": [{"callchain": [-1], "cost": [1]}]},
        {**GPROF2DOT, "functions": None},
        {**SPEEDSCOPE, "profiles": []},
        {**SPEEDSCOPE, "profiles": [{"samples": [[-1]], "weights": [100]}] * 2},
        {**SPEEDSCOPE, "profiles": [{"samples": [[0]], "weights": []}] * 2},
    ],
)
def test_damage_is_one_line(data):
    with pytest.raises(NotImportable, match=r"is not a report of memray: [^\n]+$"):
        sums(data)


def test_a_field_of_a_deep_stack_is_larger_than_csv_allows():
    deep = "|".join(["recurse;/x/a.py;9"] * 8_000)
    most = csv.field_size_limit()
    assert sums(CSV.encode() + f"MALLOC,1,7,1,0x1,{deep}\n".encode())[-1][1:] == (7, 1)
    assert csv.field_size_limit() == most


def test_gprof2dot_has_no_numbers_of_allocations():
    assert import_bytes(json.dumps(GPROF2DOT).encode()).about.absent[0].startswith("numbers of allocations and lines")
    assert not import_bytes(CSV.encode()).about.absent[0].startswith("numbers")


def test_a_flame_graph_of_more_stacks_than_have_room_is_read_without_them(monkeypatch):
    names = [f"f{number}" for number in range(5)]
    nodes = {
        "function": [*range(5)], "filename": [0] * 5, "lineno": [1] * 5, "value": [100, 100, 90, 80, 70],
        "n_allocations": [5, 5, 4, 3, 2], "children": [[1], [2], [3], [4], []],
    }  # fmt: skip
    graph = page({**FLAME_GRAPH, "nodes": nodes, "strings": names})
    monkeypatch.setattr(call_stacks, "MOST_STACKS", 2)
    imported = import_bytes(graph)
    assert imported.capture.blocks.size_bytes.tolist() == [10, 10, 10, 70]
    assert imported.capture.blocks.stack.tolist() == [0, 1, -1, -1]
    assert imported.about.warnings == ("it has more or deeper call stacks than fit into a session; left out: 2",)


def test_an_empty_one_has_no_allocation():
    with pytest.raises(NotImportable, match="has no allocation"):
        sums(page([]))
