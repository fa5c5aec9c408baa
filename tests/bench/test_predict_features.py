"""What a model is told of a configuration, which are nearly the same, and what lies beyond the measured ones."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.bench.configuration import CONDITIONS, make
from memtui.bench.operators import CATALOGUE
from memtui.bench.predict.features import BATCH, BYTES, FLOPS, Space, describe, group_of
from memtui.bench.spaces import in_space
from tests.support.bench_strategies import convolutions


@pytest.mark.parametrize("op", CATALOGUE)
def test_every_operator_is_described_by_finite_numbers(op):
    for configuration in in_space("small", op, {}):
        described = describe(configuration)
        assert described.op == op
        assert np.isfinite(list(described.features.values())).all()
        assert all(f"op={other}" not in described.features for other in set(CATALOGUE) - {op})
        names = " ".join(described.features)
        assert all(f"{op}.{key}" in names for key in configuration.stated)
        assert all(key in names for key in CONDITIONS)


def test_a_convolution_by_hand():
    result = describe(make("conv2d", {"n": 2, "cin": 64, "cout": 128, "h": 8, "k": 3, "groups": 4})).features
    flops, moved_bytes = 2 * 2 * 128 * 8 * 8 * 16 * 9, 4 * (2 * 64 * 64 + 128 * 16 * 9 + 2 * 128 * 64)
    expected = {
        FLOPS: flops, BYTES: moved_bytes, "log2 intensity": flops / moved_bytes, "log2 flops by output": 2 * 16 * 9,
        "log2 input elements": 2 * 64 * 64, "log2 weight elements": 128 * 16 * 9, "log2 output elements": 2 * 128 * 64,
        "log2 conv2d.rows": 2 * 8 * 8, "log2 conv2d.columns": 32, "log2 conv2d.summed": 16 * 9,
        "log2 conv2d.cin in steps of": 16, "log2 conv2d.cout in steps of": 32, "log2 conv2d.k": 4,
    }  # fmt: skip
    assert {name: result[name] for name in expected} == pytest.approx({k: log2(v) for k, v in expected.items()})
    assert (result["way=conv2d blocks of channels"], result["number bytes"], result["backward"]) == (1, 4, 0)
    assert (result["dtype=fp32"], result["cache=cold"], result["op=conv2d"]) == (1, 1, 1)


@given(convolutions(), convolutions())
def test_other_configurations_are_described_otherwise(one, other):
    assert (describe(one) == describe(other)) == (one == other)


@given(convolutions(), st.integers(1, 64), st.sampled_from(("fp32", "bf16")))
def test_the_same_shape_is_one_group(configuration, n, dtype):
    again = make("conv2d", {**configuration.parameters, **configuration.conditions, "n": n, "dtype": dtype})
    assert group_of(again) == group_of(configuration)


@given(convolutions(), convolutions())
def test_other_shapes_are_other_groups(one, other):
    shapes = [{k: v for k, v in c.parameters.items() if k != "n"} for c in (one, other)]
    assert (group_of(one) == group_of(other)) == (shapes[0] == shapes[1])


def test_every_operator_says_what_its_batch_is():
    assert set(BATCH) == set(CATALOGUE)
    assert all(batch is None or batch in CATALOGUE[op].defaults for op, batch in BATCH.items())
    assert all(len(CATALOGUE[op].defaults) > 1 for op, batch in BATCH.items() if batch), "or all rows were one group"


@given(st.lists(convolutions(), min_size=1, max_size=8))
def test_what_was_measured_is_not_outside(configurations):
    rows = [describe(c) for c in configurations]
    space = Space.of(rows)
    assert all(space.outside(row) == () for row in rows)
    assert space.matrix(rows).shape == (len(rows), len(space.names))
    assert (space.matrix(rows).std(0) > 0).all(), "what is always the same tells nothing"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"h": 57}, "log2 conv2d.h"),
        ({"h": 13}, "log2 conv2d.h"),
        ({"k": 5}, "log2 conv2d.k"),
        ({"dtype": "bf16"}, "dtype=bf16"),
        ({"mode": "forward-backward"}, "backward"),
        ({"groups": "depthwise"}, "way=conv2d depthwise"),
        ({"bias": True}, "conv2d.bias"),
        ({"input_zeros": 50}, "log2 input_zeros"),
    ],
)
def test_what_was_not_measured_is_named(changes, named):
    space = Space.of([describe(make("conv2d", {"h": h, "k": k})) for h in (14, 56) for k in (1, 3)])
    assert space.outside(describe(make("conv2d", {"h": 28, "k": 3}))) == ()
    assert named in space.outside(describe(make("conv2d", {"h": 28, "k": 3, **changes})))


def test_the_range_of_another_operator_is_none():
    rows = [make("relu", {"elements": 1 << n}) for n in (4, 24)] + [make("gelu", {"elements": 1 << n}) for n in (8, 9)]
    space = Space.of([describe(c) for c in rows])
    assert space.outside(describe(make("relu", {"elements": 1 << 20}))) == ()
    assert FLOPS in space.outside(describe(make("gelu", {"elements": 1 << 20})))
    assert space.outside(describe(make("silu", {"elements": 1 << 8}))) == ("op=silu",)
