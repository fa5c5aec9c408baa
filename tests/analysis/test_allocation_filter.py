"""The filter over allocations, against a test of each row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.allocation_filter import parse_row_filter
from memtui.analysis.allocation_trace import CATEGORIES, PHASES, StepTrace
from memtui.analysis.trace_index import StepIndex
from tests.support.step_traces import sound_rows

NAMES = ("aten::linear/aten::AddMM", "aten::relu", "blocks.0.mlp")
TERMS = {
    "add": lambda row: any("add" in word for word in row[:4]),
    "ACT": lambda row: any("act" in word for word in row[:4]),
    "op=aten::addmm": lambda row: row[0].endswith("/aten::addmm"),
    "layer=*": lambda row: row[1] != "",
    "layer=mlp": lambda row: row[1] == "blocks.0.mlp",
    "kind=opt*": lambda row: row[2] == "optimiser state",
    "phase=forward": lambda row: row[3] == "forward",
    ">1MiB": lambda row: row[4] > 1 << 20,
    ">64": lambda row: row[4] > 64,
    "<64": lambda row: row[4] < 64,
    "op=ATEN::Linear/*": lambda row: row[0].startswith("aten::linear/"),
    "layer=Blocks.0.*": lambda row: row[1] == "blocks.0.mlp",
    "layer=0.mlp": lambda row: False,
}


@settings(deadline=None, max_examples=30)
@given(sound_rows(), st.lists(st.tuples(st.sampled_from(sorted(TERMS)), st.booleans()), max_size=3))
def test_a_row_is_shown_when_all_terms_match(drawn, terms):
    rows, existing = drawn
    columns = np.array(rows, np.int64).reshape(-1, 7).T
    trace = StepTrace.from_columns(columns, step=0, start_ns=100, end_ns=10**6, existing=existing, names=NAMES)
    index = StepIndex(trace)
    result = parse_row_filter("  ".join("!" * inverted + term for term, inverted in terms))(index)
    if not terms:
        assert result is None
        return
    for row in range(len(trace)):
        names = (
            trace.name(int(trace.op[row])).lower(),
            trace.name(int(index.layer[row])).lower(),
            CATEGORIES[trace.category[row]],
            PHASES[trace.phase[row]],
            abs(int(trace.delta_bytes[row])),
        )
        assert result[row] == all(TERMS[term](names) != inverted for term, inverted in terms)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mm >", "> is not a size, as >1MiB is"),
        ("<much", "<much is not a size, as <1MiB is"),
        ("lay=x", "lay= is none of op, layer, kind, phase"),
        ("op=", "op= lacks its pattern, as in op=*mm"),
        ("! mm", "! stands before nothing"),
    ],
)
def test_what_is_no_filter_is_told_in_a_line(text, why):
    with pytest.raises(ValueError, match=r"^") as caught:
        parse_row_filter(text)
    assert str(caught.value) == why
