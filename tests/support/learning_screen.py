"""What a training reports of its loss and accuracy."""

from __future__ import annotations

import numpy as np

from memtui.core.tracer_messages import LearningProgress
from memtui.session.tables.learning import About, about_text
from tests.support.training_screen import told as tensors

SECOND = 1_000_000_000


NAN = float("nan")


def told(rule: str = "DFAMEM", network: str = "fcReLu", pid: int = 4242, offset: float = 0.0) -> LearningProgress:
    """Forty points in 4 s: the loss falls from 2.3, the accuracy rises to 90 % in four epochs, and 60 % are wanted."""
    many = np.arange(1, 41)
    places = np.array([many * SECOND // 10, many * 5, (many - 1) // 10 + 1])
    loss = 2.3 * np.exp(-many / 12) + offset
    accuracy = np.where(many % 10 == 0, 50 + many, NAN)
    minimum = np.where(many % 10 == 0, np.where(many >= 20, 60.0, NAN), NAN)
    about = About(pid, network, rule, {"epochs": 4}, (("blocks.0",), ("blocks.1.linear", "act")), rule == "DFAMEM")
    return LearningProgress(pid, about_text(about), places, np.array([loss, accuracy, minimum]))


def all_told(rule: str = "DFAMEM", **how):
    return (*(tensors(n) for n in range(0, 80, 10)), told(rule, **how))
