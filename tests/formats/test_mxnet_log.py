"""The log of MXNet's memory patch: what a line of it is, whatever else the line says."""

from __future__ import annotations

import time

import pytest

from memtui.formats import mxnet_log
from memtui.formats.imported import NotImportable

LONG = "x" * 100_000


@pytest.mark.parametrize("unit", ["1 MB", "1 bytes"])
def test_a_line_of_many_beginnings_costs_no_more_than_others(unit):
    line = f"[mem] Allocate {unit} GPU memory (".encode() * 10_000
    begin_ns = time.thread_time_ns()
    assert mxnet_log.certainty(line) == 0
    with pytest.raises(NotImportable, match="no line of it is an allocation"):
        mxnet_log.parse(line)
    assert mxnet_log.certainty(line + b"\n" + line + b").") == 1
    assert time.thread_time_ns() - begin_ns < 10**9


@pytest.mark.parametrize(
    ("line", "tag"),
    [
        ("[mem] Allocate 8 bytes GPU memory (a).", "a"),
        ("Epoch (1). [mem] Allocate 8 bytes GPU memory ().", ""),
        ("[mem] Allocate 8 bytes GPU memory (a (b).c). and more", "a (b).c"),
        ("[mem] Allocate 1 bytes GPU memory [mem] Allocate 8 bytes GPU memory (a).", "a"),
        (f"[mem] Allocate 8 bytes GPU memory ({LONG}).", LONG[: mxnet_log.MOST_CHARACTERS]),
    ],
)
def test_a_tag_is_all_up_to_the_last_end_in_its_line(line, tag):
    text = f"[mem] Allocate 7 bytes GPU memory (cut\n{line}\n)."
    (part,) = mxnet_log.parse(text.encode()).parts
    assert part.trace.delta_bytes.tolist() == [8]
    assert part.trace.names == ((tag,) if tag else ())
