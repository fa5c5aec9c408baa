"""The messages between a study and the worker of a run: one JSON object a line, a dataclass for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from memtui.analysis.slowdown import Block
from memtui.core.json_fields import fields_from_json, fields_to_json, from_json
from memtui.study.plan import Run
from memtui.study.runs.cgroup_limit import Counts
from memtui.study.runs.container_engine import Engine


@dataclass(frozen=True, slots=True)
class MemoryOrder:
    """The memory and the swap that a program gets.

    Attributes:
        limit_bytes: limit on its memory; None: its faults are counted, and nothing is limited.
        swap_bytes: size of the swap that it needs.
        folders: folders in which a swap file may lie.
    """

    limit_bytes: int | None
    swap_bytes: int
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunOrder:
    """A run, for its worker.

    Attributes:
        run: the program and how it is observed.
        session: path of the recording.
        log: path of the file with the output of the program.
        cpus: numbers of the CPUs that the program may use.
        memory: memory of the program; None: no limit.
        before: command line that starts the program in a container; () without.
        engine: docker or podman, where one of them starts the program.
    """

    run: Run
    session: str
    log: str
    cpus: tuple[int, ...]
    memory: MemoryOrder | None = None
    before: tuple[str, ...] = ()
    engine: Engine | None = None


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is: seconds since its start, steps of the program, and its last working set."""

    elapsed_s: float
    steps: float
    wss_bytes: float | None


@dataclass(frozen=True, slots=True)
class RunFailed:
    """A failed run: the reason, as a line for the user (``failed``), and the exit status of the command (``code``)."""

    failed: str
    code: int


@dataclass(frozen=True, slots=True)
class CgroupSample:
    """The counters of a cgroup at a moment (``CLOCK_MONOTONIC``), and the steps of the program until then."""

    time_ns: int
    steps: float
    counts: Counts

    def to_dict(self) -> dict[str, Any]:
        return {"at_ns": self.time_ns, "steps": self.steps, **fields_to_json(self.counts)}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> CgroupSample:
        counts = dict(message)
        return cls(counts.pop("at_ns"), counts.pop("steps"), from_json(Counts, counts))


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """What a run under a limit on memory measured.

    Attributes:
        limit_bytes: the limit; None: memory was not limited.
        swap: description of the swap; "" without.
        swap_bytes: size of the swap.
        version: version of the memory cgroups, 1 or 2.
        reached_ns: when the limit was reached (``CLOCK_MONOTONIC``); None: it was not.
        swapped_in_is_its_own: whether pages from swap are counted for the cgroup, and not for the whole machine.
        page_cluster: swap readahead: 2 to this power pages at once; None where the kernel does not report it.
        kills: number of processes that the kernel killed for lack of memory.
        swap_was_full: whether swap was full then; None where the kernel does not report it.
        samples: the counters in order of time.
    """

    limit_bytes: int | None
    swap: str = ""
    swap_bytes: int = 0
    version: int = 2
    reached_ns: int | None = None
    swapped_in_is_its_own: bool = True
    page_cluster: int | None = None
    kills: int = 0
    swap_was_full: bool | None = None
    samples: tuple[CgroupSample, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the message, as state files have it: there the samples are ``marks``."""
        message = fields_to_json(self)
        return message | {"marks": message.pop("samples")}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> MemoryResult:
        fields_by_name = {"samples" if name == "marks" else name: value for name, value in message.items()}
        return fields_from_json(cls, fields_by_name)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run measured. A field that an older memtui did not store has its default.

    Attributes:
        seconds: how long the program was recorded.
        left: whether the study ended during the run.
        limited: whether the run was ended after its time limit.
        exit: exit status of the program; None where the run ended it.
        windows: number of windows in the recording.
        ending: why the recording ended early.
        cgroup: whether the program had a memory cgroup of its own.
        others_cpus: CPUs that other programs used during the run.
        steps: number of steps of the program.
        first_step_ns: when the first step was seen (``CLOCK_MONOTONIC``).
        last_step_ns: when the last step was seen.
        step_times_ns: when each of the first steps was seen.
        steps_per_s: rate of steps; None with fewer than two.
        memory: result of a run whose memory was limited or counted.
        blocks: blocks of time, observed in one way or the other.
        took_s: duration of the whole run.
        attempts: how often the program was started.
        tracker: name of the tracker that saw the pages.
    """

    seconds: float = 0.0
    left: bool = False
    limited: bool = False
    exit: int | None = None
    windows: int = 0
    ending: str = ""
    cgroup: bool = False
    others_cpus: float | None = None
    steps: float = 0
    first_step_ns: int | None = None
    last_step_ns: int | None = None
    step_times_ns: tuple[int, ...] = ()
    steps_per_s: float | None = None
    memory: MemoryResult | None = None
    blocks: tuple[Block, ...] | None = None
    took_s: float = 0.0
    attempts: int = 1
    tracker: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the message, without memory and blocks where there are none."""
        message = fields_to_json(self)
        return {name: value for name, value in message.items() if name not in ("memory", "blocks") or value is not None}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> RunResult:
        """Read the message of a worker, or a row of a state file, which has more fields."""
        names = [field.name for field in fields(cls) if field.name in message]
        return fields_from_json(cls, {name: message[name] for name in names})


WorkerMessage = RunProgress | RunFailed | RunResult


def worker_message_of(message: Mapping[str, Any]) -> WorkerMessage:
    """Return the message in a line of a worker."""
    if "failed" in message:
        return from_json(RunFailed, message)
    if "done" in message:
        return from_json(RunResult, message["done"])
    return from_json(RunProgress, message)
