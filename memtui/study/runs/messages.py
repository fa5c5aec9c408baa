"""What a study and the worker of a run send each other: one JSON object a line, a dataclass for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from memtui.analysis.slowdown import Block
from memtui.study.plan import Run
from memtui.study.runs.cgroup_limit import Counts
from memtui.study.runs.container_engine import Engine

_COUNTS = tuple(field.name for field in fields(Counts))


@dataclass(frozen=True, slots=True)
class MemoryOrder:
    """What memory a program gets.

    Attributes:
        limit_bytes: None: its faults are counted, and nothing is limited.
        swap_bytes: of swap that has to be there.
        folders: in which a swap file may lie.
    """

    limit_bytes: int | None
    swap_bytes: int
    folders: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> MemoryOrder:
        return cls(message["limit_bytes"], message["swap_bytes"], tuple(message["folders"]))


@dataclass(frozen=True, slots=True)
class RunOrder:
    """A run, for its worker.

    Attributes:
        run: what to do.
        session: path of the recording.
        log: path of what the program prints.
        cpus: numbers of the CPUs that the program may use.
        memory: that it gets; None: as much as there is.
        before: what comes before the program on its command line.
        engine: that starts it in a container.
    """

    run: Run
    session: str
    log: str
    cpus: tuple[int, ...]
    memory: MemoryOrder | None = None
    before: tuple[str, ...] = ()
    engine: Engine | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> RunOrder:
        return cls(
            Run.from_dict(message["run"]),
            message["session"],
            message["log"],
            tuple(message["cpus"]),
            None if message["memory"] is None else MemoryOrder.from_dict(message["memory"]),
            tuple(message["before"]),
            None if message["engine"] is None else Engine.from_dict(message["engine"]),
        )


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is: seconds, steps of the program, and its last working set."""

    at_s: float
    steps: float
    wss_bytes: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RunFailed:
    """A run failed; the text says why, for a user. ``code``: the exit status of the command."""

    text: str
    code: int

    def to_dict(self) -> dict[str, Any]:
        return {"failed": self.text, "code": self.code}


@dataclass(frozen=True, slots=True)
class LimitMark:
    """What a cgroup had counted at some moment (``CLOCK_MONOTONIC``), and after how many steps."""

    at_ns: int
    steps: float
    counts: Counts

    def to_dict(self) -> dict[str, Any]:
        return {"at_ns": self.at_ns, "steps": self.steps, **asdict(self.counts)}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> LimitMark:
        return cls(message["at_ns"], message["steps"], Counts(**{name: message[name] for name in _COUNTS}))


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """What became of a limit on memory.

    Attributes:
        limit_bytes: None: there was none.
        swap: what the swap was; "" without.
        swap_bytes: how much of it.
        version: of the memory cgroups.
        reached_ns: when the limit was reached (``CLOCK_MONOTONIC``); None: it was not.
        swapped_in_is_its_own: whether pages from swap are counted for the cgroup, and not for the whole machine.
        page_cluster: readahead: 2 to this power pages at once; None where it is not known.
        kills: how often the kernel killed for want of memory.
        swap_was_full: whether that was because swap was full; None where it is not known.
        marks: what was counted, in order of time.
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
    marks: tuple[LimitMark, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"marks": [mark.to_dict() for mark in self.marks]}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> MemoryResult:
        scalars = {name: value for name, value in message.items() if name != "marks"}
        return cls(**scalars, marks=tuple(LimitMark.from_dict(mark) for mark in message.get("marks", ())))


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to; what an older memtui did not note is as without it.

    Attributes:
        seconds: how long the program was recorded.
        left: the study ended meanwhile.
        limited: it was ended when it had run for long enough.
        exit: status of the program; None where it was ended.
        windows: of the recording.
        ending: why the recording ended early.
        cgroup: whether the program had a memory cgroup of its own.
        others_cpus: CPUs that other programs took meanwhile.
        steps: of the program.
        first_step_ns: when the first step was seen (``CLOCK_MONOTONIC``), as ``last_step_ns``.
        last_step_ns: the last one.
        step_times_ns: of the first steps.
        steps_per_s: None where there were too few.
        memory: where it was limited, or counted.
        blocks: of time with one way of watching and another.
        took_s: the whole run.
        attempts: how often it was started.
        tracker: that saw the pages.
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
        message = asdict(self)
        for name in ("memory", "blocks"):
            if message[name] is None:
                del message[name]
        return message if self.memory is None else message | {"memory": self.memory.to_dict()}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> RunResult:
        """Read what a worker sent, or a row of a state file, which has more fields."""
        scalars = {field.name: message[field.name] for field in fields(cls) if field.name in message}
        memory, blocks = message.get("memory"), message.get("blocks")
        return cls(
            **scalars
            | {
                "step_times_ns": tuple(message.get("step_times_ns", ())),
                "memory": None if memory is None else MemoryResult.from_dict(memory),
                "blocks": None if blocks is None else tuple(Block(**block) for block in blocks),
            }
        )
