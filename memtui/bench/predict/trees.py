"""The model: the sum of the costs of a call's steps, and extremely randomised trees for the residual.

Trees alone predict no cost beyond the largest measured one, and spend most of their splits on the rule that more work
takes longer. The sum of the steps models that rule, also beyond; the trees (Geurts, Ernst, Wehenkel: Extremely
randomized trees, 2006) model where a shape is more or less efficient than similar ones.
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


class Trees:
    """A ``Model`` of what does not grow with work, such as watts: trees alone; the class is its ``Fit``.

    Attributes:
        space: features of the trees.
    """

    def __init__(self, rows: Sequence[Described], log: Reals) -> None:
        self.space = Space.of(rows)
        self._forest = ExtraTreesRegressor(TREES, random_state=SEED)
        self._forest.fit(self.space.matrix(rows), log - self._rule(rows, log))

    def _rule(self, rows: Sequence[Described], log: Reals) -> Reals:
        """Fit the rule that trees do not have to find, and return f8[n], what it predicts for the rows."""
        self._mean = float(log.mean())
        return self._base(rows)

    def _base(self, rows: Sequence[Described]) -> Reals:
        """Return f8[n], what the rule predicts."""
        return np.full(len(rows), self._mean)

    def __call__(self, rows: Sequence[Described]) -> Guess:
        """Return the mean of the trees on top of the rule, and their standard deviation."""
        points = self.space.matrix(rows).astype(np.float32)  # the type that trees use
        each = np.array([tree.predict(points) for tree in self._forest.estimators_])
        return Guess(self._base(rows) + each.mean(0), each.std(0))

    @property
    def importances(self) -> dict[str, float]:
        """Share of each feature in the residual variance that the trees explain. The sum is 1."""
        return dict(zip(self.space.names, map(float, self._forest.feature_importances_), strict=True))


class StepsAndTrees(Trees):
    """A ``Model``; the class is its ``Fit``. The same rows make the same model.

    Attributes:
        steps: sum of the steps' costs, which is fitted first.
    """

    steps: SumOfSteps

    def _rule(self, rows: Sequence[Described], log: Reals) -> Reals:
        self.steps = SumOfSteps.fitted(rows, log)
        return self._base(rows)

    def _base(self, rows: Sequence[Described]) -> Reals:
        return self.steps.predict(rows)
