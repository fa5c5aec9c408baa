"""The peak of a recorded step and its segment, for steps whose peak is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memtui.analysis.allocation_trace import CATEGORIES, StepTrace
from memtui.analysis.peak_segment import (
    Peak,
    peak_of,
    peak_sentence,
    representative_step,
    segment_label,
    segment_of,
)
from tests.support.step_traces import BETWEEN, sound_rows, trace_of

MIB = 1 << 20
NAMES = ("aten::addmm", "conv_1", "conv_1.weight", "conv_10", "relu_2")
OP, CONV, NESTED, TENTH, RELU = range(5)
ROWS = [  # the peak is after row 4: 64 + 32 + 8 + 4 + 2; row 5 frees the first new block
    (100, 64, 0, 0, BETWEEN, -1, CONV),
    (110, 32, 1, 2, 0, OP, NESTED),
    (120, 8, 2, 2, 0, OP, TENTH),
    (130, 4, 3, 6, 0, OP, RELU),
    (140, 2, 4, 2, 0, OP, CONV),
    (150, -32, 1, 2, 1, OP, CONV),
    (160, 16, 5, 2, 1, OP, CONV),
]


def trace(rows=ROWS, existing=1) -> StepTrace:
    columns = np.array(rows, np.int64).reshape(-1, 7).T
    return StepTrace.from_columns(columns, step=3, start_ns=100, end_ns=10**6, existing=existing, names=NAMES)


def test_a_peak_by_hand():
    """A nested layer is in its parent's segment, ``conv_10`` is not, and what was there before does not count."""
    peak = peak_of(trace(), [["relu_2"], ["input", "conv_1"], ["conv_1", "relu_2"]])
    assert peak == Peak(
        step=3,
        bytes_=110,
        above_start_bytes=46,
        parts={CATEGORIES[0]: 64, CATEGORIES[2]: 42, CATEGORIES[6]: 4},
        op="aten::addmm",
        layer="conv_1",
        segment=("input", "conv_1"),
        segment_bytes=34,
    )
    alone = peak_of(trace())
    assert alone == replace(peak, segment=(), segment_bytes=0)
    assert peak_of(trace([], 0)) is None


@given(sound_rows(), st.lists(st.lists(st.sampled_from(("0", "aten::relu", "x")), max_size=2), max_size=2))
def test_the_peak_is_that_of_sums_row_by_row(drawn, segments):
    rows, existing = drawn
    step = trace_of(rows, existing)
    peak = peak_of(step, segments)
    if not rows:
        assert peak is None
        return
    usage = [sum(row[1] for row in rows[: n + 1]) for n in range(len(rows))]
    at = usage.index(max(usage))
    parts = {name: sum(r[1] for r in rows[: at + 1] if r[3] == n) for n, name in enumerate(CATEGORIES)}
    assert (peak.bytes_, peak.parts) == (max(usage), {name: part for name, part in parts.items() if part})
    assert peak.above_start_bytes == max(usage) - sum(row[1] for row in rows[:existing])
    assert (peak.op, peak.layer) == (step.name(rows[at][5]), step.name(rows[at][6]))
    alive = {row[2]: row for row in rows[: at + 1] if row[1] > 0}
    for row in rows[: at + 1]:
        if row[1] < 0:
            del alive[row[2]]
    fresh = [row for row in alive.values() if row[2] >= existing]
    assert peak.segment == next((tuple(s) for s in segments if peak.layer in s), ())
    assert peak.segment_bytes == sum(row[1] for row in fresh if step.name(row[6]) in peak.segment)


@dataclass(frozen=True)
class Step:
    peak_above_start_bytes: int
    rows: int


STEPS = st.lists(st.builds(Step, st.sampled_from((0, 97, 98, 99, 100)), st.integers(0, 5)), max_size=8)


@given(STEPS)
@example([Step(100, 5), Step(97, 1), Step(98, 3)])
def test_the_step_that_stands_for_all_has_the_usual_peak(steps):
    result = representative_step(steps)
    if not steps:
        assert result is None
        return
    peaks = [step.peak_above_start_bytes for step in steps]
    most = max(map(peaks.count, peaks))
    if most > 1:
        usual = [step for step in steps if peaks.count(step.peak_above_start_bytes) == most]
    else:
        usual = [step for step in steps if step.peak_above_start_bytes >= Fraction(98, 100) * max(peaks)]
    assert result is min(usual, key=lambda step: step.rows)


def test_segments_of_layers():
    segments = [["a"], ["b", "b.x"], ("c", "d")]
    assert segment_of("b.x.y", segments) == ("b", "b.x")
    assert segment_of("d", segments) == ("c", "d")
    assert segment_of("bb", segments) == segment_of("", segments) == segment_of("a", []) == ()
    assert [segment_label(segment) for segment in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "none",
        "a",
        "a to b",
        "a to c",
    ]


PEAK = Peak(4, 110 * MIB, 40 * MIB, {}, "aten::addmm", "conv_1", ("conv_1", "relu_2"), 30 * MIB)


@pytest.mark.parametrize(
    ("peak", "single", "sentence"),
    [
        (
            PEAK,
            True,
            "peak: 40.0 MiB above the start of iteration 5, addmm in conv_1: set by segment conv_1 to relu_2 alone, "
            "30.0 MiB (75 %); nothing else would lower it",
        ),
        (PEAK, False, "peak: 40.0 MiB above the start of iteration 5, addmm in conv_1, segment conv_1 to relu_2"),
        (
            replace(PEAK, segment=(), segment_bytes=0),
            True,
            "peak: 40.0 MiB above the start of iteration 5, addmm in conv_1",
        ),
        (replace(PEAK, segment=(), layer=""), False, "peak: 40.0 MiB above the start of iteration 5"),
        (
            replace(PEAK, above_start_bytes=0, segment_bytes=0),
            True,
            "peak: 0 B above the start of iteration 5, addmm in conv_1: set by segment conv_1 to relu_2 alone, "
            "0 B (0 %); nothing else would lower it",
        ),
        (
            replace(PEAK, above_start_bytes=1, segment_bytes=1),
            True,
            "peak: 1 B above the start of iteration 5, addmm in conv_1: set by segment conv_1 to relu_2 alone, "
            "1 B (100 %); nothing else would lower it",
        ),
    ],
)
def test_the_sentence_of_a_peak(peak, single, sentence):
    assert peak_sentence(peak, single_segment=single) == sentence
