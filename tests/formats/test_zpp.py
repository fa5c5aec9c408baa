"""The raw text of ZPP-MEM: what is written is what its own scripts read."""

from __future__ import annotations

import time

import numpy as np

from memtui.analysis.allocation_trace import StepTrace
from memtui.formats import zpp
from memtui.formats.zpp import zpp_lines


def test_a_line_for_each_row_after_what_was_there_before():
    rows = [
        # t_ns, bytes, block, category, phase, op, layer
        (1_000, 100, 0, 0, 3, -1, -1),
        (2_500, 50, 1, 2, 0, 0, 1),
        (3_000, 0, 2, 6, 1, 2, -1),
        (4_999, -50, 1, 2, 2, -1, -1),
    ]
    trace = StepTrace.from_columns(
        np.array(rows).T, step=3, start_ns=1_000, end_ns=5_000, existing=1, names=("aten::mm", "fc 1", "gradients/x y")
    )
    assert "".join(zpp_lines(trace, 10**15)) == (
        "1000000000002 150 50 forward/fc_1/aten::mm\n"
        "1000000000003 150 0 gradients/x_y\n"
        "1000000000004 100 -50 optimizer/unknown\n"
    )


def test_blanks_inside_of_an_operation_cost_no_more_than_other_characters():
    line = b"1 1 1 a" + b" " * 100_000 + b"b"
    begin_ns = time.thread_time_ns()
    assert zpp.certainty(line + b" \r\n") == 1.0
    (part,) = zpp.parse(line + b" \r\n").parts
    assert time.thread_time_ns() - begin_ns < 10**9
    assert part.trace.names == (line[6:].decode(),)
