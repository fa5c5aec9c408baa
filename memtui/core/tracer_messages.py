"""What a traced program says of itself: recorded steps, where its tensors lie, progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAIN_MEMORY = "cpu"  # the device of PyTorch
PINNED_MEMORY = "pinned host memory"  # the part of it that PyTorch's allocator for CUDA holds: not a device of PyTorch


@dataclass(frozen=True, slots=True, eq=False)
class AllocationStep:
    """Every allocation of one training step of a process, from inside (``memtui.analysis.allocation_trace``).

    Attributes:
        pid: the process.
        step: number of the step, from 0.
        existing: count of the rows that stand for memory that was allocated before the step.
        names: of operators and layers.
        columns: i8[7, rows], see ``StepTrace.to_columns``.
        cost_ns: additional time of recording the step, as measured by the process itself.
        dropped: frees of memory whose allocation was not seen.
        lost: recorded steps that could not be sent before this one.
        device: whose memory it is, as PyTorch names it: "cpu" is main memory.
        allocated_peak_bytes: on a GPU, the most that blocks of PyTorch's allocator held; None: not known.
        reserved_peak_bytes: on a GPU, the most that its segments held; None: not known.
        allocator_reason: why these are not known.
        layer_types: the class of each layer, by its name.
    """

    pid: int
    step: int
    start_ns: int
    end_ns: int
    existing: int
    names: tuple[str, ...]
    columns: NDArray[np.int64]
    cost_ns: int = 0
    dropped: int = 0
    lost: int = 0
    device: str = MAIN_MEMORY
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    allocator_reason: str = ""
    layer_types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class TensorRanges:
    """The addresses of the lasting tensors of a process, valid until its next message of this kind.

    Attributes:
        pid: the process.
        t_ns: start of the validity.
        columns: i8[3, n]: address, size in bytes, and number of the category (``allocation_trace.CATEGORIES``).
        names: of the n tensors: the layer they belong to.
        parts: which part of the layer each is: "weight", "weight exp_avg".
    """

    pid: int
    t_ns: int
    columns: NDArray[np.int64]
    names: tuple[str, ...]
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TrainingProgress:
    """The training steps of a process that ended since its last such message, and the memory of its tensors.

    Attributes:
        pid: the process.
        first: number of the first step.
        start_ns: when the first step began; each other one begins at the end of the one before.
        ends_ns: i8[1, n]: when each ended.
        usage: i8[4 + categories, m]: observed stretches of steps, see ``memtui.analysis.tensor_usage``.
        names: of operators.
        view: how many steps are observed: "all steps", "1 step in 12"; empty with a reason.
        reason: why no step is observed between those that are recorded whole; empty where some are.
        cost_ns: an estimate of the time that observing took.
        device: the device whose memory ``usage`` is about, as PyTorch names it. For each stretch of steps there is one
            message for main memory, and one more for each other device with tensors.
    """

    pid: int
    first: int
    start_ns: int
    ends_ns: NDArray[np.int64]
    usage: NDArray[np.int64]
    names: tuple[str, ...] = ()
    view: str = ""
    reason: str = ""
    cost_ns: int = 0
    device: str = MAIN_MEMORY


@dataclass(frozen=True, slots=True, eq=False)
class LearningProgress:
    """The learning curve of a process since its last such message.

    Attributes:
        pid: the process.
        about: what the process trains, JSON with at least ``network`` and ``type``, see
            ``memtui.session.tables.learning``.
        places: i8[3, n]: time, number of the iteration, number of the epoch, all rising, both numbers from 1.
        values: f8[3, n]: mean loss since the point before, accuracy in percent, and the least accuracy that is required
            from there on; nan where a value was not measured or none is required.
    """

    pid: int
    about: str
    places: NDArray[np.int64]
    values: NDArray[np.float64]


TracerMessage = AllocationStep | TensorRanges | TrainingProgress | LearningProgress  # by programs about themselves
