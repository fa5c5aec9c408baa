"""The result of a training, as the process that trains leaves it for the process that started it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from memtui.core.errors import FAILURE, UserError


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """The peak of a recorded iteration; None where no iteration was recorded, and ``peak_reason`` says why.

    Attributes:
        peak_bytes: bytes in use.
        peak_above_start_bytes: bytes in use above those at the start of the iteration.
        peak_by_category: bytes by category.
        activation_bytes: bytes of activations.
        peak_segment: layers of the segment of the peak; None where the peak is in no segment.
        peak_segment_bytes: bytes in use that those layers allocated since the iteration began.
        peak_op: operator that allocated last.
        peak_reason: why the peak is not known; "" where it is known.
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
    """Result of a training that ended.

    Attributes:
        epochs: finished epochs.
        iterations: finished iterations.
        accuracy: in percent; None: not measured, and ``reason`` says why.
        loss: the last loss, perhaps infinite; None: not measured.
        stopped: why the training stopped before its last epoch; None: it did not.
        files: written files.
        reason: why the accuracy was not measured; "" where it was.
        peak: peak of its memory.
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
        """Return a JSON-ready object; the fields of the peak are inlined."""
        document = asdict(self)
        peak = document.pop("peak")
        return document | peak

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> TrainingResult:
        """Invert ``to_dict``. Raises TypeError and KeyError for anything else."""
        own, of_peak = ([f.name for f in fields(of) if f.name != "peak"] for of in (cls, PeakMemory))
        peak = PeakMemory(**{name: document[name] for name in of_peak})
        return cls(**{name: document[name] for name in own}, peak=peak)


def read_result(path: Path) -> TrainingResult:
    """Return the result that a training left in a file. Raises UserError where the file has no result."""
    try:
        return TrainingResult.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        raise UserError("the training left no result", FAILURE) from None
