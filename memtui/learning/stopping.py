"""The accuracy that a training must reach or stop. Pure."""

from __future__ import annotations

from collections.abc import Sequence

Minimum = Sequence[tuple[int, float]]  # (epoch, percent): from the end of that epoch on


def minimum_at(minimum: Minimum, epoch: int) -> float | None:
    """The most that is asked for at the end of an epoch, in percent; None: nothing."""
    return max((percent for since, percent in minimum if since <= epoch), default=None)


def shortfall(minimum: Minimum, epoch: int, accuracy: float) -> str | None:
    """Why training stops after an epoch; None where it goes on."""
    for since, percent in minimum:
        if since <= epoch and accuracy < percent:
            many = f"{since} epoch{'s' * (since != 1)}"
            return f"expected {percent:g} after {many}, got {accuracy:.4g}"
    return None
