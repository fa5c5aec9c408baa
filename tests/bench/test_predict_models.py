"""Models on a device whose law is known: which is best, whether its range holds, what it says beyond the measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from memtui.bench.configuration import make, product
from memtui.bench.predict.baselines import LogLinear, fit_nearest
from memtui.bench.predict.evaluation import MODEL, across_operators, across_shapes, score, without
from memtui.bench.predict.features import describe
from memtui.bench.predict.ranges import LEVEL, Ranged, calibrated, folds, upper_quantile
from memtui.bench.predict.sum_of_steps import SumOfSteps
from memtui.bench.predict.trees import StepsAndTrees
from memtui.bench.spaces import in_space
from tests.support.synthetic_device import NOISE, as_samples, call_ns, samples


@pytest.fixture(scope="module")
def measured():
    return samples(in_space("predict", "conv2d", {}))


@pytest.fixture(scope="module")
def answers(measured):
    return across_shapes(measured)


@given(st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=40).filter(lambda g: len(set(g)) > 1))
@settings(max_examples=50)
def test_no_group_is_on_both_sides(groups):
    result = list(folds(groups))
    assert sorted(i for _, fold in result for i in fold) == list(range(len(groups)))
    for others, fold in result:
        assert len(others)
        assert not {groups[i] for i in others} & {groups[i] for i in fold}


def test_the_model_beats_both_baselines_on_shapes_it_has_not_seen(measured, answers):
    result = {name: score(ranged, measured.log) for name, ranged in answers.by.items()}
    best = result.pop(MODEL)
    assert len(result) == 2
    assert all(best.mape < 0.7 * other.mape and best.median_ape < 0.7 * other.median_ape for other in result.values())
    assert all(best.range_ratio < other.range_ratio for other in result.values())
    assert best.median_ape > NOISE / 3, "nobody can know the noise: the fold was seen"


def test_the_ranges_cover_what_they_say(measured, answers):
    for name, ranged in answers.by.items():
        assert score(ranged, measured.log).coverage == pytest.approx(LEVEL, abs=0.06), name


def test_a_model_that_knows_its_rows_by_heart_is_not_sure_of_others():
    """What is fitted without an error would have a range of nothing, if its own rows said how wrong it is."""
    configurations = in_space("predict", "conv2d", {})
    result = []
    for seed in range(10):  # one draw of 120 rows is off by 5 %, as the quantile of so few is
        chance = np.random.default_rng(seed)
        noise, order = as_samples(configurations, chance.normal(0, 1, 240)), chance.permutation(240)
        known, requested = noise.take(order[:120]), noise.take(order[120:])
        assert (fit_nearest(known.rows, known.log)(known.rows).log == known.log).all()
        result.append(score(calibrated(fit_nearest, known)(requested.rows), requested.log).coverage)
    assert np.mean(result) == pytest.approx(LEVEL, abs=0.05)


def test_repeated_shapes_do_not_make_the_range_small():
    """The same shapes in several batches, with an error that belongs to the shape: rows of a shape know each other."""
    shapes = in_space("predict", "conv2d", {})[::8]
    chance = np.random.default_rng(2)
    result = [(make("conv2d", {**c.parameters, "n": n}), error) for c in shapes for error in [chance.normal()]
             for n in (1, 2, 3, 4)]  # fmt: skip
    drawn = samples([c for c, _ in result])
    drawn = replace(drawn, log=drawn.log + np.array([error for _, error in result]))
    honest = score(across_shapes(drawn).by[MODEL], drawn.log)
    leaking = replace(drawn, groups=tuple(map(str, range(len(drawn.rows)))))
    flattered = score(across_shapes(leaking).by[MODEL], drawn.log)
    assert len(set(drawn.groups)) == len(shapes)
    assert flattered.median_ape < 0.7 * honest.median_ape
    assert honest.coverage > 0.8


def test_the_same_rows_make_the_same_model(measured):
    requested = [describe(c) for c in in_space("small", "conv2d", {})]
    one, other = (calibrated(StepsAndTrees, measured)(requested) for _ in range(2))
    assert (one.log == other.log).all()
    assert (one.high == other.high).all()


def test_beyond_the_largest_it_goes_on_with_the_work(measured):
    large = make("conv2d", {"n": 64, "cin": 512, "cout": 512, "h": 56, "k": 3})
    model = StepsAndTrees(measured.rows, measured.log)
    result = float(model([describe(large)]).log[0])
    assert model.space.outside(describe(large))
    assert measured.log.max() + 1 < result < np.log(call_ns(large)) + 1, "trees alone know nothing above the largest"


def test_importances_are_of_what_matters(measured):
    result = StepsAndTrees(measured.rows, measured.log).importances
    assert sum(result.values()) == pytest.approx(1)
    ranks = sorted(result, key=result.__getitem__, reverse=True)
    assert "log2 conv2d.groups" in ranks[:5]
    assert "conv2d.p" not in ranks[:5]


def test_a_line_finds_a_law_of_powers():
    configurations = product("linear", {"m": [1, 4, 64, 256], "in": [64, 512, 4096], "out": [8, 1000]})
    rows = [describe(c) for c in configurations]
    true = np.log([3.0 * c.flops**0.5 * c.moved_bytes**0.25 for c in configurations])
    line = LogLinear.fitted(rows, true)
    assert line.predict(rows) == pytest.approx(true)
    assert line.lines["linear"][:2] / np.log(2) == pytest.approx([0.5, 0.25])


def test_steps_find_what_each_takes():
    """A law of each way; the depthwise ones are too few, and share that of their operator."""
    law = {"call": 3000.0, "operations, filled": 0.01, "numbers read": 0.2, "weights": 0.5}
    kinds = {"n": [16], "cin": [32, 64, 128], "cout": [16, 48], "h": [14, 28], "k": [1, 3]}
    blocks = [describe(c) for c in product("conv2d", kinds)]
    true = np.log([sum(law.get(step, 0) * amount for step, amount in row.steps.amounts.items()) for row in blocks])
    few = [describe(make("conv2d", {"n": 2, "cin": 64, "groups": "depthwise", "h": h})) for h in (14, 28)]
    steps = SumOfSteps.fitted([*blocks, *few], np.append(true, [12.0, 13.0]))
    assert set(steps.ways) == {"conv2d blocks of channels"}
    assert steps.predict(blocks) == pytest.approx(true, abs=0.01)
    assert steps.ways["conv2d blocks of channels"]["operations, filled"] == pytest.approx(0.01, rel=0.02)
    assert np.isfinite(steps.predict(few)).all()


@given(st.lists(st.floats(1, 1e9), min_size=4, max_size=20), st.integers(4, 30))
def test_more_work_never_takes_less_by_its_steps(costs, size):
    rows = [describe(make("relu", {"elements": 1 << n})) for n in range(4, 4 + len(costs))]
    steps = SumOfSteps.fitted(rows, np.log(costs))
    less, more = steps.predict([describe(make("relu", {"elements": n})) for n in (1 << size, (1 << size) + 99)])
    assert less <= more


def test_an_operator_with_few_rows_shares_the_line():
    configurations = [*product("relu", {"elements": [1 << n for n in range(10, 22)]}), make("gelu", {})]
    rows = [describe(c) for c in configurations]
    line = LogLinear.fitted(rows, np.log([float(c.flops) for c in configurations]))
    assert set(line.lines) == {"relu"}
    assert line.predict([describe(make("silu", {"elements": 5000}))]) == pytest.approx(np.log(5000))


def test_the_nearest_is_of_the_same_operator_if_there_is_one():
    known = [make("relu", {"elements": 1000}), make("gelu", {"elements": 10**6})]
    model = fit_nearest([describe(c) for c in known], np.array([1.0, 2.0]))
    requested = [make("gelu", {"elements": 1000}), make("relu", {"elements": 10**6}), make("silu", {"elements": 900})]
    assert model([describe(c) for c in requested]).log.tolist() == [2, 1, 1]


def test_one_operator_is_predicted_from_the_others():
    ops = ("relu", "gelu", "silu")
    configurations = [make(op, {"elements": 1 << n}) for op in ops for n in range(8, 24)]
    log = np.log([100.0 + c.flops / 4 for c in configurations])
    drawn = as_samples(configurations, log)
    others, own = without("gelu", drawn)
    assert {row.op for row in others.rows} == {"relu", "silu"}
    assert {row.op for row in own.rows} == {"gelu"}
    result = across_operators("gelu", drawn)
    assert result.outside.all()
    assert score(result.by[MODEL], own.log).median_ape < 0.2


def test_scores_by_hand():
    true = np.log([1.0, 2.0, 4.0, 8.0])
    ranged = Ranged(np.log([1.0, 3.0, 2.0, 8.0]), np.log([0.5, 2.5, 1.0, 4.0]), np.log([2.0, 10.0, 4.0, 16.0]))
    result = score(ranged, true)
    assert (result.rows, result.mape, result.median_ape) == (4, pytest.approx(0.25), pytest.approx(0.25))
    assert (result.coverage, result.range_ratio) == (0.75, pytest.approx(4))
    assert score(ranged, true, np.array([False, True, False, False])).mape == pytest.approx(0.5)
    assert score(ranged, true, np.zeros(4, bool)) is None


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60))
def test_the_quantile_is_one_for_one_more_of_the_kind(values):
    result = upper_quantile(np.array(values), LEVEL)
    assert result in values
    assert sum(v <= result for v in values) >= min(LEVEL * (len(values) + 1), len(values))
