"""What came of a training, as the process that trained leaves it for the one that started it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from memtui.core.errors import FAILURE, UserError


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """The fullest moment of a recorded iteration; None where none was recorded, and ``peak_reason`` says why.

    Attributes:
        peak_bytes: all that was known to be held.
        peak_above_start_bytes: of it, what was not there when the iteration began.
        peak_by_category: bytes.
        activation_bytes: of activations.
        peak_segment: its layers; None where it was in none.
        peak_segment_bytes: what was allocated in them since the iteration began, and was held then.
        peak_op: what allocated last.
        peak_reason: why nothing is known; "" where something is.
    """

    peak_bytes: int | None = None
    peak_above_start_bytes: int | None = None
    peak_by_category: dict[str, int] | None = None
    activation_bytes: int | None = None
    peak_segment: list[str] | None = None
    peak_segment_bytes: int | None = None
    peak_op: str | None = None
    peak_reason: str = ""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """Of a training that came to its end.

    Attributes:
        epochs: that were finished.
        iterations: that ran.
        accuracy: in percent; None: not measured, and ``reason`` says why.
        loss: the last one, perhaps infinite; None: not measured.
        stopped: why it stopped before its last epoch; None: it did not.
        files: that were written.
        reason: why there is no accuracy; "" where there is one.
        peak: of its memory.
    """

    epochs: int
    iterations: int
    accuracy: float | None
    loss: float | None
    stopped: str | None
    files: list[str]
    reason: str
    peak: PeakMemory

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready object, in which the peak has no object of its own."""
        plain = asdict(self)
        peak = plain.pop("peak")
        return plain | peak

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TrainingResult:
        """Return what ``to_dict`` made plain. Raises TypeError and KeyError for anything else."""
        own, of_peak = ([f.name for f in fields(of) if f.name != "peak"] for of in (cls, PeakMemory))
        peak = PeakMemory(**{name: plain[name] for name in of_peak})
        return cls(**{name: plain[name] for name in own}, peak=peak)


def read_result(path: Path) -> TrainingResult:
    """Return the result that a training left in a file. Raises UserError where there is none."""
    try:
        return TrainingResult.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        raise UserError("the training left no result", FAILURE) from None
