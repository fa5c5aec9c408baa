"""Performs the runs of a study, one after the other, each in a worker (``memtui.study.runs.worker``)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from memtui.core.errors import FAILURE, UserError
from memtui.core.json_fields import to_json
from memtui.core.secrets import mask_secrets
from memtui.core.text import printable, short_command
from memtui.core.units import size
from memtui.study.plan import BLOCKS, CONTAINER, Run
from memtui.study.runs.container import Means
from memtui.study.runs.messages import (
    MemoryOrder,
    MemoryResult,
    RunFailed,
    RunOrder,
    RunProgress,
    RunResult,
    WorkerMessage,
    worker_message_of,
)

STOP_SECONDS = 20.0  # for a worker to end its program and its recording
_LINE_CHARACTERS = 200
# Where a program accesses all of its memory again and again, the kernel may find nothing to swap out and kill the
# program although swap has room. That is chance.
_ATTEMPTS = 3

Show = Callable[[RunProgress], object]


def perform(
    run: Run,
    stem: Path,
    cpus: Sequence[int],
    means: Means,
    show: Show,
    memory: MemoryOrder | None = None,
) -> RunResult:
    """Perform a run.

    Args:
        run: the program and how it is observed.
        stem: path of session and log, without ``.memtui`` and ``.log``; files with these names are replaced.
        cpus: numbers of the CPUs that the program may use.
        means: how a program comes into a container.
        show: called with the progress of the run about twice a second.
        memory: limit and swap of the program.

    Raises:
        UserError: the run failed, or the program ended before there was a window.
        KeyboardInterrupt: after the worker has ended.
    """
    session, log = Path(f"{stem}.memtui"), Path(f"{stem}.log")
    in_container = run.place == CONTAINER
    before, engine = (means.prefix, means.engine) if in_container else ((), None)
    order = RunOrder(run, str(session), str(log), tuple(cpus), memory, before, engine)
    start_s = time.monotonic()
    attempts, done = 1, _attempt(order, log, show)
    while attempts < _ATTEMPTS and _was_killed_for_nothing(done):
        attempts, done = attempts + 1, _attempt(order, log, show)
    _check(run, done, log)
    return replace(done, took_s=time.monotonic() - start_s, attempts=attempts)


def _attempt(order: RunOrder, log: Path, show: Show) -> RunResult:
    """Perform a run once. Raises UserError where its worker failed."""
    with _worker(order, log) as pipe:
        last = _listen(pipe, show)
    if isinstance(last, RunFailed):
        raise UserError(f"{order.run.group}: {last.failed}", last.code)
    if not isinstance(last, RunResult):
        raise UserError(f"{order.run.group}: the worker ended without a word ({_last_line(log)})", FAILURE)
    return last


def _killed_in(done: RunResult) -> MemoryResult | None:
    """Return the memory of a run whose program the kernel killed for lack of memory; None where it did not."""
    return done.memory if done.memory is not None and done.memory.kills and not done.limited else None


def _was_killed_for_nothing(done: RunResult) -> bool:
    """Return whether the kernel killed the program though swap had room."""
    memory = _killed_in(done)
    return memory is not None and memory.swap_was_full is False


@contextmanager
def _worker(order: RunOrder, log: Path) -> Iterator[int]:
    """Start a worker and yield the pipe with its messages; end the worker afterwards."""
    log.unlink(missing_ok=True)
    reading, writing = os.pipe()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        # Under sudo this process writes as the user. It has to be root to start the worker.
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "memtui.study.runs.worker", str(writing)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=(writing,),
            user=os.getuid(),
            group=os.getgid(),
        )
    finally:
        os.close(writing)
        os.close(output)
    assert worker.stdin is not None
    try:
        with suppress(BrokenPipeError):
            worker.stdin.write(json.dumps(to_json(order)).encode() + b"\n")
            worker.stdin.flush()
        yield reading
    finally:
        os.close(reading)
        with suppress(BrokenPipeError):
            worker.stdin.close()
        _wait_for_end(worker)


def _wait_for_end(worker: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a worker; a second ^C does not leave it behind."""
    deadline_s = time.monotonic() + STOP_SECONDS
    while True:
        try:
            worker.wait(max(deadline_s - time.monotonic(), 0.1))
            return
        except KeyboardInterrupt:
            continue
        except subprocess.TimeoutExpired:
            worker.kill()  # its program, its sampler and its recorder end with it


def _listen(pipe: int, show: Show) -> WorkerMessage | None:
    """Show the progress of a worker until it ends; return its last message."""
    lines = b""
    last: WorkerMessage | None = None
    while chunk := os.read(pipe, 65536):
        *whole, lines = (lines + chunk).split(b"\n")
        for line in whole:
            last = worker_message_of(json.loads(line))
            if isinstance(last, RunProgress):
                show(last)
    return last


def _check(run: Run, done: RunResult, log: Path) -> None:
    """Raise UserError where the program did not do what it was started for."""
    program = printable(short_command(mask_secrets(shlex.join(run.program)), 80))
    last_line = _last_line(log)
    quote = f"; it said: {last_line}" if last_line else ""
    if (killed_in := _killed_in(done)) is not None:
        memory, swap = size(killed_in.limit_bytes), size(killed_in.swap_bytes)
        why = (
            f"in {memory} of memory it found nothing to put out, though {swap} of swap had room{quote}; a higher limit "
            "or another try may do"
            if killed_in.swap_was_full is False
            else f"{memory} of memory and {swap} of swap were full{quote}; it needs more than in the recording"
        )
        raise UserError(f"{run.group}: {program} was killed by the kernel: {why}", FAILURE)
    if done.exit and not done.limited:
        raise UserError(f"{run.group}: {program} failed with status {done.exit}{quote}", FAILURE)
    if done.seconds < run.interval_s or not done.windows:
        raise UserError(
            f"{run.group}: {program} ended after {done.seconds:.2f} s, too soon for a window of {run.interval_s:g} s"
            f"{quote}; give it more to do",
            FAILURE,
        )
    blocks = len(done.blocks or ())
    if run.kind == BLOCKS and blocks < 2 * run.pairs:
        raise UserError(
            f"{run.group}: {program} ended, or reported no steps, after {blocks} of {2 * run.pairs} "
            f"blocks of {run.block_s:g} s{quote}",
            FAILURE,
        )
    if done.ending:
        raise UserError(f"{run.group}: the recording ended: {done.ending}", FAILURE)


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace")[-4096:].strip().splitlines()
    except OSError:
        return ""
    return printable(lines[-1][:_LINE_CHARACTERS]) if lines else ""
