"""One run of a study, in a process of its own: starts the program, records it, ends it, and reports the result.

Its input has one line of JSON, a ``RunOrder``; the end of the input is the order to stop. So the worker ends with the
study, however the study dies, and processes that the program left behind end with the worker. Its messages go to the
pipe named as its argument, a line of JSON each; its output, and so the program's, is the log of the run.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from memtui.analysis.slowdown import Block, count_in
from memtui.core.errors import FAILURE, UserError
from memtui.core.json_fields import from_json, to_json
from memtui.core.privilege import invoker
from memtui.core.procfs import TICKS_PER_S
from memtui.core.samples import Options
from memtui.recording.supervisor.launch import Observation
from memtui.recording.supervisor.program import PR_SET_CHILD_SUBREAPER, Launch
from memtui.recording.supervisor.supervisor import Supervisor
from memtui.study.calibration import SETTLE_SECONDS, Blocks, CalibrationPlan
from memtui.study.plan import ALTERNATE, BLOCKS, CONTAINER, Run
from memtui.study.progress_counters import Steps
from memtui.study.runs import program_launcher
from memtui.study.runs.container import memory_cgroup
from memtui.study.runs.container_engine import PREFIX, running_container
from memtui.study.runs.memory_limit import LimitedRun, limited_run
from memtui.study.runs.messages import RunFailed, RunOrder, RunProgress, RunResult

POLL_SECONDS = 0.02  # between two reads of the steps
REPORT_SECONDS = 0.5
GRACE_SECONDS = 3.0  # for a program to end after a signal
FIRST_STEP_SECONDS = 300.0  # for the first step: without it neither blocks nor a limit on memory can start
NO_STEPS_SECONDS = 15.0  # for the first step before blocks of another window start without it: they need no steps
SWITCH_SECONDS = 0.2  # after another window was asked for, before a window counts: more than the shortest of them
MOST_STEPS = 5000  # whose times are reported

Send = Callable[[object], None]


class _RunMonitor:
    """Watches the progress of the program while it is recorded, and decides when the run is over."""

    def __init__(self, run: Run, observation: Observation, log: str, send: Send, limit: LimitedRun | None) -> None:
        self._run, self._observation, self._send, self._limit = run, observation, send, limit
        self.steps = Steps("steps", log)
        self.start_s = self._reported_s = time.monotonic()
        self.left = False  # the study ended
        self.ended_it = False  # this monitor ended the run
        self.limited = False
        self.blocks: Blocks | None = None
        if run.kind in (BLOCKS, ALTERNATE):
            plan = CalibrationPlan(0, _options(run), "steps", log, run.pairs, run.block_s)
            chance = random.Random(run.seed)
            switch, settle_s = (
                (self._switch_interval, SWITCH_SECONDS)
                if run.kind == ALTERNATE
                else (lambda on: observation.pause(not on), SETTLE_SECONDS)
            )
            self.blocks = Blocks(plan, switch, settle_s, chance)

    def poll(self) -> bool:
        """Poll the run once; return whether it is over."""
        self.ended_it = self._poll()
        return self.ended_it

    def _poll(self) -> bool:
        if select.select([0], [], [], 0)[0] and not os.read(0, 4096):
            self.left = True
            return True
        self.steps.poll()
        now_s = time.monotonic()
        if now_s - self._reported_s > REPORT_SECONDS:
            self._reported_s = now_s
            progress = self._observation.progress
            wss_bytes = None if progress is None else progress.wss_bytes
            self._send(RunProgress(now_s - self.start_s, self.steps.total, wss_bytes))
        first_s = self.first_s
        # The program starts without a limit, so that everything before training is the same in all runs.
        if self._limit is not None and self._limit.poll(self.steps.total, first_s is not None):
            return True
        if self.blocks is not None:
            alternates = self._run.kind == ALTERNATE
            if first_s is None and alternates and now_s > self.start_s + NO_STEPS_SECONDS:
                first_s = self.start_s
            if first_s is not None and now_s > first_s + SETTLE_SECONDS:
                self.blocks.step(now_s)
            return self.blocks.done or (first_s is None and now_s > self.start_s + FIRST_STEP_SECONDS)
        limit_s = self._run.limit_s
        if limit_s is not None and first_s is None and self._run.needs_steps:
            limit_s = max(limit_s, FIRST_STEP_SECONDS)
        self.limited = limit_s is not None and now_s > (first_s or self.start_s) + limit_s
        return self.limited

    def _switch_interval(self, fine: bool) -> None:
        seconds = self._run.interval_s if fine else self._run.other_interval_s
        assert seconds is not None
        self._observation.set_interval(round(seconds * 1e9))

    @property
    def first_s(self) -> float | None:
        """When the first step was seen."""
        seen = zip(self.steps.times_s, self.steps.values, strict=True)
        return next((time_s for time_s, value in seen if value > 0), None)


def main() -> int:
    """Return 0 when the run was reported, also when it failed."""
    signal.signal(signal.SIGINT, lambda *_: None)  # the study gets it, too, and decides
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    pipe = os.fdopen(int(sys.argv[1]), "w")
    order = from_json(RunOrder, json.loads(_first_line()))

    def send(message: object) -> None:
        with suppress(OSError, ValueError):
            pipe.write(json.dumps(to_json(message)) + "\n")
            pipe.flush()

    try:
        send({"done": _work(order, send)})
    except UserError as error:
        send(RunFailed(str(error), error.code))
    except Exception as error:
        send(RunFailed(f"{type(error).__name__}: {error}", FAILURE))
        raise
    finally:
        _end_orphans()
    return 0


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(0, 1)  # no more than the line: select waits for the end of the input
        if not chunk:
            raise SystemExit(0)
        line += chunk
    return line


def _options(run: Run) -> Options:
    return Options(
        interval_ns=round(run.interval_s * 1e9),
        tracker=run.tracker,
        filter=run.filter,
        pause=run.pause,
        keep_command=False,
        keep_resident=False,
    )


def _work(order: RunOrder, send: Send) -> RunResult:
    run = order.run
    busy_s, start_s = _busy_s() - _own_s(), time.monotonic()
    program = [*order.before, *run.program]
    os.environ.update(run.environment)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")  # a step that waits in a buffer is seen too late
    # Under sudo the program is the user's, and may not join a cgroup of root's.
    may_join = run.place == CONTAINER and os.geteuid() == 0 and "SUDO_UID" not in os.environ
    with ExitStack() as stack:
        container, limit, cgroup = None, None, ""
        target: int | Launch
        if order.memory is not None:
            limit = stack.enter_context(limited_run(order.memory))
        if order.engine is not None:
            user = invoker()
            container = stack.enter_context(
                running_container(order.engine, f"{PREFIX}-{os.getpid()}", order.cpus, program, (user.uid, user.gid))
            )
            target = container.pid
        else:
            cgroup = stack.enter_context(memory_cgroup()) if may_join else ""
            target = Launch(program_launcher.command_line(order.cpus, limit.joins if limit else cgroup, program))
        observation = Observation(target, _options(run), Path(order.session), force=True, verb="study")
        supervisor, monitor = Supervisor(observation), _RunMonitor(run, observation, order.log, send, limit)
        try:
            if limit is not None:
                limit.join(observation.pid)
            if container is not None:
                container.go()
            supervisor.wait(monitor.poll, POLL_SECONDS)
        finally:
            ended_s = time.monotonic()
            if container is not None and not monitor.left and not monitor.ended_it:
                container.wait(GRACE_SECONDS)
            stopped_by_us = observation.outlived if container is None else container.runs
            supervisor.stop()
            if container is None:
                _end(observation, gently=run.place != CONTAINER)
            else:
                container.end()
        observation.finish()
        monitor.steps.poll()
        return RunResult(
            seconds=ended_s - monitor.start_s,
            left=monitor.left,
            limited=monitor.limited or (monitor.blocks is not None and monitor.blocks.done),
            exit=None if stopped_by_us else observation.exit_status if container is None else container.wait(0),
            windows=0 if observation.progress is None else observation.progress.samples,
            ending=observation.ending[1] if observation.ending else "",
            cgroup=bool(cgroup),
            others_cpus=max(_busy_s() - _own_s() - busy_s, 0.0) / (time.monotonic() - start_s),
            memory=None if limit is None else limit.result(),
            blocks=None if monitor.blocks is None else tuple(_blocks(monitor.blocks, monitor.steps)),
            **_steps(monitor.steps),
        )


def _busy_s() -> float:
    """Return the CPU time of all programs on all CPUs since boot, and the time stolen by other guests; proc(5)."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / TICKS_PER_S


def _own_s() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _steps(steps: Steps) -> dict[str, Any]:
    """Return the fields of a ``RunResult`` that are about steps."""
    seen = [(time_s, value) for time_s, value in zip(steps.times_s, steps.values, strict=True) if value > 0]
    times_ns = [round(time_s * 1e9) for time_s, _ in seen]
    rate = None
    if len(seen) > 1:
        rate = (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])
    return {
        "steps": seen[-1][1] if seen else 0,
        "first_step_ns": times_ns[0] if times_ns else None,
        "last_step_ns": times_ns[-1] if times_ns else None,
        "step_times_ns": tuple(times_ns[:MOST_STEPS]),
        "steps_per_s": rate,
    }


def _blocks(blocks: Blocks, steps: Steps) -> Iterator[Block]:
    for pair, observed, start_s, end_s in blocks.spans:
        yield Block(pair, observed, start_s, end_s, *count_in(steps.times_s, steps.values, start_s, end_s))


def _end(observation: Observation, *, gently: bool) -> None:
    """End the program, if it still runs."""
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        if number == signal.SIGTERM and not gently:
            continue
        if observation.outlived:
            with suppress(ValueError):
                observation.signal(number)
        deadline_s = time.monotonic() + seconds
        while observation.outlived and time.monotonic() < deadline_s:
            time.sleep(0.01)


def _end_orphans() -> None:
    """End processes that the program left behind: children of this process now (``PR_SET_CHILD_SUBREAPER``)."""
    deadline_s = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline_s:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in Path("/proc/self/task", str(os.getpid()), "children").read_text().split():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
