"""``memtui calibrate``: how much slower a running process gets while it is observed, from its own progress.

One ordinary recording runs for the whole time, into a file that is deleted. In the blocks with observation it samples;
in the blocks without, it rests as after ``x``: no window is taken and the target is left alone. So nothing is started
between blocks, no password is needed twice, and both kinds of block run next to the same idle processes.
"""

from __future__ import annotations

import random
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memtui.analysis.overhead_budget import allowed
from memtui.analysis.slowdown import Block, count_in, doubts, slow_down
from memtui.analysis.statistics import median
from memtui.analysis.target_loss import lost_fraction
from memtui.core import progress_line
from memtui.core.errors import FAILURE, UserError
from memtui.core.options import DEFAULT_MAX_PAUSE_NS
from memtui.core.privilege import as_invoker
from memtui.core.procfs import command_of
from memtui.core.progress_line import ProgressLine
from memtui.core.samples import Options
from memtui.core.text import printable
from memtui.core.units import about_percent, duration, percent
from memtui.recording.registry import CALIBRATION
from memtui.recording.supervisor.launch import Observation
from memtui.recording.supervisor.supervisor import Supervisor
from memtui.session.file_format import sqlite_temporary_files
from memtui.session.session import Session
from memtui.study.progress_counters import HOW, Annotations, Counter, open_counter

POLL_SECONDS = 0.02  # between two reads of the counter: the accuracy of a block's ends
SETTLE_SECONDS = 1.0  # after observation started or stopped, before the block
MAX_BYTES = 256 << 20  # of the file that is deleted


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """A calibration: ``pairs`` of blocks of ``seconds`` each, with a counter of ``open_counter``."""

    pid: int
    options: Options
    counter: str
    path: str
    pairs: int
    seconds: float
    sudo: bool | None = None
    hold_filtered: bool = False
    max_pause_ns: int = DEFAULT_MAX_PAUSE_NS


class Blocks:
    """Goes from block to block by the clock. ``switch`` starts or stops the observation."""

    def __init__(
        self, plan: CalibrationPlan, switch: Callable[[bool], object], settle_s: float, chance: random.Random
    ) -> None:
        self._plan, self._switch, self._settle_s = plan, switch, settle_s
        self._order: list[bool] = []
        for _ in range(plan.pairs):
            pair = [True, False]
            chance.shuffle(pair)  # drift, and events at fixed times, favour neither
            self._order += pair
        self.spans: list[tuple[int, bool, float, float]] = []  # (pair, observed, begin_s, end_s) of whole blocks
        self._start_s: float | None = None

    @property
    def done(self) -> bool:
        return len(self.spans) == len(self._order)

    def step(self, now_s: float) -> None:
        """Start or end a block if its time has come."""
        if self.done:
            return
        index = len(self.spans)
        if self._start_s is None:
            self._switch(self._order[index])
            self._start_s = now_s + self._settle_s
        elif now_s >= self._start_s + self._plan.seconds:
            self.spans.append((index // 2, self._order[index], self._start_s, now_s))
            self._start_s = None
            self.step(now_s)


def calibrate(plan: CalibrationPlan, notify: Callable[[str], object]) -> dict[str, Any]:
    """Measure, and return the document of ``--json``; ^C and the end of the target leave the blocks until then.

    Raises:
        UserError: the measurement could not start, or nothing was counted.
    """
    least_s = 4 * plan.options.interval_ns / 1e9
    if plan.seconds < least_s:
        raise UserError(f"--seconds {plan.seconds:g} is too short for windows of that length: at least {least_s:g}")
    _check_as_invoker(plan)
    command = command_of(plan.pid)
    start_s = time.monotonic()
    path = Path(tempfile.gettempdir()) / f"{CALIBRATION}{plan.pid}-{secrets.token_hex(8)}.memtui"
    try:
        with _signals_as_interrupts():
            observation = Observation(
                plan.pid,
                plan.options,
                path,
                verb="calibrate",
                sudo=plan.sudo,
                max_bytes=MAX_BYTES,
                hold_filtered=plan.hold_filtered,
                max_pause_ns=plan.max_pause_ns,
                waiting=lambda doing, since_s: ProgressLine("calibrate", doing, silent_since_s=since_s),
            )
            notify(observation.notice)
            counter = open_counter(plan.counter, plan.path, plan.pid)
            blocks, ended = _run(plan, observation, counter, start_s)
        return _result(plan, command, path, counter, blocks, ended)
    finally:
        for name in (path, *sqlite_temporary_files(path)):
            name.unlink(missing_ok=True)


def _run(plan: CalibrationPlan, observation: Observation, counter: Counter, start_s: float) -> tuple[Blocks, str]:
    """Run every block, or as many as there is time for; return the blocks, and why they ended."""
    blocks = Blocks(plan, lambda on: observation.pause(not on), SETTLE_SECONDS, random.Random())
    supervisor = Supervisor(observation)

    def poll() -> bool:
        counter.poll()
        blocks.step(time.monotonic())
        progress_line.update(f"block {len(blocks.spans) + 1} of {2 * plan.pairs}")
        return blocks.done or _hopeless(blocks, counter)

    ended = "target exited"
    with ProgressLine("calibrate", f"watching process {plan.pid} and leaving it alone", silent_since_s=start_s):
        try:
            supervisor.wait(poll, POLL_SECONDS)
            if observation.running:
                ended = "done" if blocks.done else "stopped"
        except KeyboardInterrupt:
            ended = "interrupted"
        finally:
            supervisor.stop()
    observation.finish()
    return blocks, ended


def _hopeless(blocks: Blocks, counter: Counter) -> bool:
    """Return whether the counter has not moved in a whole pair of blocks; annotations are only read at the end."""
    return len(blocks.spans) == 2 and len(counter.times_s) < 2 and not isinstance(counter, Annotations)


def _result(
    plan: CalibrationPlan, command: str, path: Path, counter: Counter, blocks: Blocks, ended: str
) -> dict[str, Any]:
    reader = Session(path)
    try:
        samples, tracker = reader.samples, reader.hello.tracker
        if isinstance(counter, Annotations):
            counter.set_times([event.t_ns for event in reader.events(0, 1 << 62) if event.kind == "mark"])
    finally:
        reader.close()
    measured: list[Block] = []
    inside = np.zeros(len(samples), bool)  # windows that ended in blocks with observation: what they cost is in these
    used_ns = samples.sampler_cpu_ns + samples.recorder_cpu_ns
    cpu_ns = cpu_wall_ns = observed_ns = 0.0
    for pair, observed, start_s, end_s in blocks.spans:
        within = (samples.start_ns >= start_s * 1e9) & (samples.end_ns <= end_s * 1e9)
        counted, over_s, changes = count_in(counter.times_s, counter.values, start_s, end_s)
        measured.append(Block(pair, observed, start_s, end_s, counted, over_s, changes, int(within.sum())))
        if not observed:
            continue
        ended_within = (samples.end_ns >= start_s * 1e9) & (samples.end_ns <= end_s * 1e9)
        inside |= ended_within
        observed_ns += 1e9 * (end_s - start_s)
        if ended_within.sum() > 1:
            first, last = np.flatnonzero(ended_within)[[0, -1]]
            cpu_ns += float(used_ns[last] - used_ns[first])
            cpu_wall_ns += float(samples.end_ns[last] - samples.end_ns[first])
    cost = slow_down(measured)
    if cost is None:
        raise UserError(_nothing(measured, counter, ended), FAILURE)
    paused_ns = samples.paused_ns[inside]
    has_pauses = bool(len(paused_ns)) and not np.isnan(paused_ns).any()
    origin_s = measured[0].begin_s
    return {
        "target": {"pid": plan.pid, "command": command},
        "counter": counter.what,
        "tracker": tracker,
        "interval_s": plan.options.interval_ns / 1e9,
        "max_overhead_fraction": allowed(plan.options.max_overhead_ppm),
        "slow_down": asdict(cost),
        "per_second": {
            name: median([block.per_second for block in measured if block.observed is observed])
            for name, observed in (("without", False), ("with", True))
        },
        "overhead": {
            "paused_fraction": float(paused_ns.sum()) / observed_ns if has_pauses else None,
            "self_cpu_fraction": cpu_ns / cpu_wall_ns if cpu_wall_ns else None,
            "lost_fraction": lost_fraction(samples.lost_ns[inside], observed_ns),
        },
        "pairs_asked": plan.pairs,
        "block_s": plan.seconds,
        "blocks": [_block_row(block, origin_s) for block in measured],
        "doubts": doubts(measured),
        "end": ended,
    }


def _block_row(block: Block, origin_s: float) -> dict[str, Any]:
    row = asdict(block) | {"per_second": block.per_second}
    return row | {"begin_s": block.begin_s - origin_s, "end_s": block.end_s - origin_s}


def _nothing(blocks: list[Block], counter: Counter, ended: str) -> str:
    """Return why there is no slow-down, and what would help."""
    if len(blocks) < 2:
        return f"ended ({ended}) before the first pair of blocks was whole; shorter blocks (--seconds) come sooner"
    moved = ", ".join(str(block.changes) for block in blocks[:6])
    return (
        f"{counter.what}: moved {moved} times a block, too seldom for a rate; take longer blocks (--seconds), or {HOW}"
    )


def format_result(result: dict[str, Any]) -> str:
    """Return the result as lines of text."""
    cost, rates, overhead = result["slow_down"], result["per_second"], result["overhead"]
    bounds = f" [{_signed(cost['low'])}, {_signed(cost['high'])}]" if cost["low"] is not None else ""
    pairs = f"{cost['count']} pair{'s' * (cost['count'] != 1)}"
    sure = f", {cost['confidence'] * 100:.0f} % interval" if bounds else ""
    changes = median([block["changes"] for block in result["blocks"]])
    windows = median([block["windows"] for block in result["blocks"] if block["observed"]])
    budget = result["max_overhead_fraction"]
    limit = f", budget {budget * 100:g} %" if budget else ""
    lines = [
        f"target       {result['target']['command'][:80]} (pid {result['target']['pid']})",
        f"slow-down    {_signed(cost['median'])} %{bounds} of time a step: median of {pairs}{sure}",
        f"counted      {result['counter']}: {rates['without']:.4g} a second without, {rates['with']:.4g} with; "
        f"it moved {changes:g} times a block of {result['block_s']:g} s",
        f"watched      {result['tracker']}, asked {duration(result['interval_s'])}{limit}, {windows:g} windows a block",
        f"estimated    {about_percent(overhead['lost_fraction'])} of its time lost, as the screen says; "
        f"paused {percent(overhead['paused_fraction'])}, own CPU {percent(overhead['self_cpu_fraction'])}",
    ]
    lines += [f"doubt        {text}" for text in result["doubts"]]
    if result["end"] != "done":
        whole = len(result["blocks"]) // 2
        lines.append(f"ended        {result['end']}, after {whole} of {result['pairs_asked']} pairs")
    return "\n".join(map(printable, lines))


def _signed(fraction: float) -> str:
    return f"{fraction * 100:+.1f}"


def _check_as_invoker(plan: CalibrationPlan) -> None:
    """Check the counter before a password is needed; root does not read a file that a user names."""

    def check() -> None:
        open_counter(plan.counter, plan.path, plan.pid)

    as_invoker(check)


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the calibration in order, as ^C does, with the blocks until then."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
