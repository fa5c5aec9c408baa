"""``memtui calibrate``: how much slower a running process gets by being watched, from its own progress.

One recording, as any other, runs all the while, into a file that is thrown away. In the blocks with, it samples; in
those without, it rests as after ``x``: no window is taken and the target is left alone. So nothing is started between
blocks, nobody is asked for a password twice, and both kinds of block have the same idle processes beside them.
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
from memtui.core.text import visible
from memtui.core.units import duration, percent
from memtui.recording.registry import CALIBRATION
from memtui.recording.supervisor.launch import Observation
from memtui.recording.supervisor.supervisor import Supervisor
from memtui.session.file_format import beside
from memtui.session.session import Session
from memtui.study.progress_counters import HOW, Counter, Marks, open_counter

LOOK_SECONDS = 0.02  # how often the counter is read: what a block's ends are sure to
SETTLE_SECONDS = 1.0  # after watching began or ended, before anything counts
MAX_BYTES = 256 << 20  # of the file that is thrown away


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What to measure. ``pairs`` of blocks of ``seconds`` each, counted by a counter of ``open_counter``."""

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
    """Goes from block to block by the clock. ``switch`` begins or ends the watching."""

    def __init__(
        self, plan: CalibrationPlan, switch: Callable[[bool], object], settle_s: float, chance: random.Random
    ) -> None:
        self._plan, self._switch, self._settle_s = plan, switch, settle_s
        self._order: list[bool] = []
        for _ in range(plan.pairs):
            pair = [True, False]
            chance.shuffle(pair)  # what drifts, or comes at fixed times, favours neither
            self._order += pair
        self.spans: list[tuple[int, bool, float, float]] = []  # (pair, observed, begin_s, end_s) of whole blocks
        self._begin_s: float | None = None

    @property
    def done(self) -> bool:
        return len(self.spans) == len(self._order)

    def step(self, now_s: float) -> None:
        """Do what is to be done at this moment, if anything is."""
        if self.done:
            return
        at = len(self.spans)
        if self._begin_s is None:
            self._switch(self._order[at])
            self._begin_s = now_s + self._settle_s
        elif now_s >= self._begin_s + self._plan.seconds:
            self.spans.append((at // 2, self._order[at], self._begin_s, now_s))
            self._begin_s = None
            self.step(now_s)


def calibrate(plan: CalibrationPlan, say: Callable[[str], object]) -> dict[str, Any]:
    """Measure, and return the document of ``--json``; ^C and the end of the target leave what there is by then.

    Raises:
        UserError: it could not begin, or nothing was counted.
    """
    least_s = 4 * plan.options.interval_ns / 1e9
    if plan.seconds < least_s:
        raise UserError(f"--seconds {plan.seconds:g} is too short for windows of that length: at least {least_s:g}")
    _check_as_invoker(plan)
    command = command_of(plan.pid)
    begin_s = time.monotonic()
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
            )
            say(observation.notice)
            counter = open_counter(plan.counter, plan.path, plan.pid)
            blocks, ended = _run(plan, observation, counter, begin_s)
        return _result(plan, command, path, counter, blocks, ended)
    finally:
        for name in (path, *beside(path)):
            name.unlink(missing_ok=True)


def _run(plan: CalibrationPlan, observation: Observation, counter: Counter, begin_s: float) -> tuple[Blocks, str]:
    """Run every block, or as many as there is time for; return them, and why they ended."""
    blocks = Blocks(plan, lambda on: observation.pause(not on), SETTLE_SECONDS, random.Random())
    supervisor = Supervisor(observation)

    def look() -> bool:
        counter.poll()
        blocks.step(time.monotonic())
        progress_line.tell(f"block {len(blocks.spans) + 1} of {2 * plan.pairs}")
        return blocks.done or _hopeless(blocks, counter)

    ended = "target exited"
    with ProgressLine("calibrate", f"watching process {plan.pid} and leaving it alone", silent_since_s=begin_s):
        try:
            supervisor.wait(look, LOOK_SECONDS)
            if observation.running:
                ended = "done" if blocks.done else "stopped"
        except KeyboardInterrupt:
            ended = "interrupted"
        finally:
            supervisor.stop()
    observation.finish()
    return blocks, ended


def _hopeless(blocks: Blocks, counter: Counter) -> bool:
    """Return whether the counter has not moved for a whole pair of blocks; marks are only read at the end."""
    return len(blocks.spans) == 2 and len(counter.times_s) < 2 and not isinstance(counter, Marks)


def _result(
    plan: CalibrationPlan, command: str, path: Path, counter: Counter, blocks: Blocks, ended: str
) -> dict[str, Any]:
    reader = Session(path)
    try:
        samples, tracker = reader.samples, reader.hello.tracker
        if isinstance(counter, Marks):
            counter.note([event.t_ns for event in reader.events(0, 1 << 62) if event.kind == "mark"])
    finally:
        reader.close()
    found: list[Block] = []
    inside = np.zeros(len(samples), bool)  # windows in blocks with
    cpu_ns = wall_ns = 0.0
    for pair, observed, begin_s, end_s in blocks.spans:
        within = (samples.start_ns >= begin_s * 1e9) & (samples.end_ns <= end_s * 1e9)
        counted, over_s, changes = count_in(counter.times_s, counter.values, begin_s, end_s)
        found.append(Block(pair, observed, begin_s, end_s, counted, over_s, changes, int(within.sum())))
        if observed and within.sum() > 1:
            first, last = np.flatnonzero(within)[[0, -1]]
            used = samples.sampler_cpu_ns + samples.recorder_cpu_ns
            cpu_ns += float(used[last] - used[first])
            wall_ns += float(samples.end_ns[last] - samples.end_ns[first])
            inside[first + 1 : last + 1] = True
    cost = slow_down(found)
    if cost is None:
        raise UserError(_nothing(found, counter, ended), FAILURE)
    paused_ns = samples.paused_ns[inside]
    known = bool(len(paused_ns)) and not np.isnan(paused_ns).any()
    origin_s = found[0].begin_s
    return {
        "target": {"pid": plan.pid, "command": command},
        "counter": counter.what,
        "tracker": tracker,
        "interval_s": plan.options.interval_ns / 1e9,
        "max_overhead_fraction": allowed(plan.options.max_overhead_ppm),
        "slow_down": asdict(cost),
        "per_second": {
            name: median([block.per_second for block in found if block.observed is observed])
            for name, observed in (("without", False), ("with", True))
        },
        "overhead": {
            "paused_fraction": float(paused_ns.sum()) / wall_ns if known and wall_ns else None,
            "self_cpu_fraction": cpu_ns / wall_ns if wall_ns else None,
            "lost_fraction": lost_fraction(samples.lost_ns[inside], wall_ns),
        },
        "pairs_asked": plan.pairs,
        "block_s": plan.seconds,
        "blocks": [_plain(block, origin_s) for block in found],
        "doubts": doubts(found),
        "end": ended,
    }


def _plain(block: Block, origin_s: float) -> dict[str, Any]:
    plain = asdict(block) | {"per_second": block.per_second}
    return plain | {"begin_s": block.begin_s - origin_s, "end_s": block.end_s - origin_s}


def _nothing(blocks: list[Block], counter: Counter, ended: str) -> str:
    """Return why there is no figure, and what would help."""
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
        f"estimated    {percent(overhead['lost_fraction'])} of its time lost, as the screen says; "
        f"paused {percent(overhead['paused_fraction'])}, own CPU {percent(overhead['self_cpu_fraction'])}",
    ]
    lines += [f"doubt        {text}" for text in result["doubts"]]
    if result["end"] != "done":
        whole = len(result["blocks"]) // 2
        lines.append(f"ended        {result['end']}, after {whole} of {result['pairs_asked']} pairs")
    return "\n".join(map(visible, lines))


def _signed(fraction: float) -> str:
    return f"{fraction * 100:+.1f}"


def _check_as_invoker(plan: CalibrationPlan) -> None:
    """Say what is wrong with the counter before a password is asked for; root reads no file that a user names."""

    def check() -> None:
        open_counter(plan.counter, plan.path, plan.pid)

    as_invoker(check)


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP end it in order, as ^C does, with what there is."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
