"""The model: what the steps of a call take, and extremely randomised trees for what that leaves.

Trees alone know no cost beyond the largest that was measured, and spend most of their splits on saying that more work
takes longer. The sum of the steps says that, also beyond; the trees (Geurts, Ernst, Wehenkel: Extremely randomized
trees, 2006) say where a shape is more or less efficient than its like.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from memtui.bench.predict.estimator import Guess, Reals
from memtui.bench.predict.features import Described, Space
from memtui.bench.predict.sum_of_steps import SumOfSteps

TREES = 100
SEED = 0


class StepsAndTrees:
    """A ``Model``; the class is its ``Fit``. The same rows make the same model.

    Attributes:
        steps: what they take, which was fitted first.
        space: the features that the trees were shown.
    """

    def __init__(self, rows: Sequence[Described], log: Reals) -> None:
        self.steps, self.space = SumOfSteps.fitted(rows, log), Space.of(rows)
        self._forest = ExtraTreesRegressor(TREES, random_state=SEED)
        self._forest.fit(self.space.matrix(rows), log - self.steps.at(rows))

    def __call__(self, rows: Sequence[Described]) -> Guess:
        """Return the mean of the trees on the sum of the steps, and their standard deviation."""
        points = self.space.matrix(rows).astype(np.float32)  # what a tree works with
        each = np.array([tree.predict(points) for tree in self._forest.estimators_])
        return Guess(self.steps.at(rows) + each.mean(0), each.std(0))

    @property
    def importances(self) -> dict[str, float]:
        """By feature: its share in what the trees explain of the variance that the steps leave. The sum is 1."""
        return dict(zip(self.space.names, map(float, self._forest.feature_importances_), strict=True))
