"""What the supervisor sends the sampler, as lines on the sampler's standard input.

The first line is the order, a ``SamplerConfig`` as JSON. After it come commands: another interval or budget, ``pause``,
``resume``, and how much CPU time the recorder has used, which the sampler cannot measure and a budget counts.
Everything else, and the end of the input, ends the observation, so a supervisor that dies for whatever reason ends it
too.

The sampler may be root and the supervisor never is, so an order is checked before any of it is used.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args, get_type_hints

from memtui.core.options import (
    COMMAND_CHARACTERS,
    DEFAULT_MAX_PAUSE_NS,
    DURATION_NS,
    FLUSHES,
    INTERVAL_NS,
    MAX_OVERHEAD_PPM,
    MAX_PAUSE_NS,
    PAGES,
    REARMS,
    TRACKERS,
)
from memtui.core.samples import Options

OWN = "--own"  # the sampler watches processes of SUDO_UID only
REPORT_READY = "--tell"  # the sampler prints READY before it reads its order
READY = b"+%d\n"  # with the pid of the sampler, which is not a child of the supervisor
STOP, PAUSE, RESUME = b"stop\n", b"pause\n", b"resume\n"
_INTERVAL = re.compile(rb"interval ([1-9][0-9]{0,15})")
_BUDGET = re.compile(rb"budget (0|[1-9][0-9]{0,9})")
_RECORDER = re.compile(rb"recorder (0|[1-9][0-9]{0,17})")
_COMMAND_BYTES = 64  # of a command at most
LINE_BYTES = 1 << 18  # of an order at most
_TEXT_CHARACTERS = 1 << 12
TRACE_EVERY = 1, 1 << 31
PID = 1, 1 << 22  # the kernel's PID_MAX_LIMIT
_RANGES = {
    "interval_ns": INTERVAL_NS,
    "duration_ns": DURATION_NS,
    "max_overhead_ppm": MAX_OVERHEAD_PPM,
    "trace_every": TRACE_EVERY,
}
_CHOICES = {"tracker": TRACKERS, "pages": PAGES, "flush": FLUSHES, "rearm": REARMS}


@dataclass(frozen=True, slots=True)
class SamplerConfig:
    """The order: which process to observe, and how.

    ``start_ticks`` guards against a pid that was reused meanwhile; ``command`` is the program that a process at the
    exec gate will become. ``hold_filtered``: pause also processes that a pause may harm (seccomp). ``max_pause_ns``: a
    process that would have to be paused for longer is read while it runs.
    """

    pid: int
    start_ticks: int
    options: Options
    command: str = ""
    hold_filtered: bool = False
    max_pause_ns: int = DEFAULT_MAX_PAUSE_NS

    def to_line(self) -> bytes:
        """Return one line of JSON."""
        values = asdict(self) | {"command": self.command[:COMMAND_CHARACTERS]}
        return json.dumps(values).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> SamplerConfig:
        """Undo ``to_line``; every key, type and range is checked. Raises ValueError."""
        if len(line) > LINE_BYTES:
            raise ValueError(f"not an order: longer than {LINE_BYTES} bytes")
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError("not an order: no JSON") from None
        of_order = _checked(
            cls, values, {"pid": PID, "start_ticks": (0, 1 << 63), "max_pause_ns": MAX_PAUSE_NS}, {}, COMMAND_CHARACTERS
        )
        of_order["options"] = Options(**_checked(Options, of_order["options"], _RANGES, _CHOICES, _TEXT_CHARACTERS))
        return cls(**of_order)


def read_order(fd: int) -> SamplerConfig | None:
    """Return the order, the first line of the input; None when the input ends before it. Raises ValueError.

    Not a byte is taken beyond the line, and never more than the longest order.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(fd, 1)
        if not byte:
            return None
        line += byte
        if len(line) > LINE_BYTES:
            raise ValueError(f"not an order: longer than {LINE_BYTES} bytes")
    return SamplerConfig.from_line(bytes(line))


def interval_command(interval_ns: int) -> bytes:
    """Return the command for another interval."""
    return b"interval %d\n" % interval_ns


def budget_command(ppm: int | None) -> bytes:
    """Return the command for another budget, in parts per million of the time; None: without a budget."""
    return b"budget %d\n" % (ppm or 0)


def recorder_command(cpu_ns: int) -> bytes:
    """Return the command that reports the CPU time that the recorder has used since it began."""
    return b"recorder %d\n" % cpu_ns


@dataclass(slots=True)
class SamplerState:
    """State of a sampler after its order and the commands that came since."""

    interval_ns: int
    max_overhead_ppm: int | None = None
    paused: bool = False
    stop: bool = False
    recorder_cpu_ns: int = 0
    most_overhead_ppm: int | None = None  # where set there is always a budget, of this at most
    _rest: bytes = b""

    def __post_init__(self) -> None:
        self.max_overhead_ppm = self._allowed(self.max_overhead_ppm)

    def _allowed(self, ppm: int | None) -> int | None:
        if self.most_overhead_ppm is None:
            return ppm
        return min(ppm or self.most_overhead_ppm, self.most_overhead_ppm)

    def receive(self, chunk: bytes) -> None:
        """Apply commands from bytes of the input. The end of the input, and anything but a command, means stop."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self.stop |= not chunk or len(self._rest) > _COMMAND_BYTES or not self._rest.isascii()
        for line in lines:
            if (match := _INTERVAL.fullmatch(line)) and INTERVAL_NS[0] <= int(match[1]) <= INTERVAL_NS[1]:
                self.interval_ns = int(match[1])
            elif (match := _BUDGET.fullmatch(line)) and int(match[1]) <= MAX_OVERHEAD_PPM[1]:
                self.max_overhead_ppm = self._allowed(int(match[1]) or None)
            elif match := _RECORDER.fullmatch(line):
                self.recorder_cpu_ns = int(match[1])
            elif line + b"\n" in (PAUSE, RESUME):
                self.paused = line + b"\n" == PAUSE
            else:
                self.stop = True


def _checked(
    kind: type,
    values: Any,
    ranges: dict[str, tuple[int, int]],
    choices: dict[str, tuple[str, ...]],
    text_characters: int,
) -> dict[str, Any]:
    """Return the fields of a dataclass out of JSON. Raises ValueError."""
    wanted = {field.name for field in fields(kind)}
    if not isinstance(values, dict) or set(values) != wanted:
        raise ValueError(f"not an order: {kind.__name__} has the fields {', '.join(sorted(wanted))} and no others")
    hints = get_type_hints(kind)
    for name, value in values.items():
        allowed = get_args(hints[name]) or (hints[name],)
        # JSON knows objects, not dataclasses; and True is an int to Python, but not to us.
        if type(value) not in allowed and not (isinstance(value, dict) and hints[name] is Options):
            raise ValueError(f"not an order: {name} must be {' or '.join(t.__name__ for t in allowed)}")
        if isinstance(value, str) and len(value) > text_characters:
            raise ValueError(f"not an order: {name} is too long")
        if name in choices and value not in choices[name]:
            raise ValueError(f"not an order: {name} must be one of {', '.join(choices[name])}")
        if type(value) is int:
            low, high = ranges.get(name, (0, 1 << 63))
            if not low <= value <= high:
                raise ValueError(f"not an order: {name} must be from {low} to {high}, not {value}")
    return dict(values)
