"""A run under a memory limit, on the side of its worker: the program joins the cgroup, counters are sampled."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from memtui.core.errors import FAILURE, UserError
from memtui.core.json_fields import to_json
from memtui.core.privilege import invoker
from memtui.study.runs import cgroup_limit, swap_file
from memtui.study.runs.cgroup_limit import LimitGroup, counts_of
from memtui.study.runs.limit_messages import (
    HolderFailed,
    HolderGone,
    HolderReady,
    JoinRequest,
    LimitOrder,
    LimitReached,
    LimitRequest,
    ProcessJoined,
    Reply,
    Request,
    reply_of,
)
from memtui.study.runs.messages import CgroupSample, MemoryOrder, MemoryResult

MAX_SAMPLES = 1000
NEARLY_FULL = 0.75  # of the swap: the rest may fill between the last sample and the end of the program
QUIET_SECONDS = 0.25  # after that the counters are sampled even without a step
START_SECONDS, END_SECONDS = 60.0, 15.0
_TRY_BYTES = 4 << 20

_R = TypeVar("_R", HolderReady, ProcessJoined)


class LimitedRun:
    """A run under a memory limit. ``joins``: name of the cgroup that the program waits for before it starts."""

    def __init__(self, holder: _LimitHolder, ready: HolderReady, limit_bytes: int | None) -> None:
        self._holder, self._limit_bytes = holder, limit_bytes
        self._version, self._folder = ready.version, Path(ready.folder)
        self.joins = self._folder.name
        self._ready = ready
        self._requested = False
        self.reached_ns: int | None = None if limit_bytes else time.monotonic_ns()
        self._samples: list[CgroupSample] = []
        self._every, self._skipped = 1, 0
        self._last_s, self._last_steps = 0.0, -1.0
        self.failed = ""

    def join(self, pid: int) -> None:
        """Move the program, which waits for that, into the cgroup. Raises UserError."""
        self._holder.send(JoinRequest(pid))
        self._holder.wait_for(ProcessJoined, START_SECONDS)

    def poll(self, steps: float, due: bool) -> bool:
        """Request the limit when it is due, and sample the counters. True: the limit failed, and the run is over."""
        if self._limit_bytes and due and not self._requested:
            self._requested = True
            self._holder.send(LimitRequest(self._limit_bytes))
        for reply in self._holder.receive(0.0):
            if isinstance(reply, HolderFailed):
                self.failed = reply.failed
            elif isinstance(reply, LimitReached):
                self.reached_ns = time.monotonic_ns()
        now_s = time.monotonic()
        if steps != self._last_steps or now_s > self._last_s + QUIET_SECONDS:
            self._last_s, self._last_steps = now_s, steps
            self._sample(steps)
        return bool(self.failed)

    def _sample(self, steps: float) -> None:
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        with suppress(OSError, ValueError, KeyError):  # the last process of the cgroup may just have ended
            counts = counts_of(self._version, self._folder)
            self._samples.append(CgroupSample(time.monotonic_ns(), steps, counts))
        if len(self._samples) > MAX_SAMPLES:
            self._samples, self._every = self._samples[::2], 2 * self._every

    def result(self) -> MemoryResult:
        """Return the result of the run. Raises UserError where the limit could not be set."""
        if self.failed:
            raise UserError(self.failed, FAILURE)
        group, swap_bytes = LimitGroup(self._version, self._folder), self._ready.swap_bytes
        nearly_full = any((sample.counts.swap_bytes or 0) > NEARLY_FULL * swap_bytes for sample in self._samples)
        return MemoryResult(
            limit_bytes=self._limit_bytes,
            swap=self._ready.swap,
            swap_bytes=swap_bytes,
            version=self._version,
            reached_ns=self.reached_ns,
            swapped_in_is_its_own=cgroup_limit.counts_swapped_in(self._folder),
            page_cluster=_page_cluster(),
            kills=group.kills(),
            swap_was_full=nearly_full or group.swap_was_full(),
            samples=tuple(self._samples),
        )


@contextmanager
def limited_run(order: MemoryOrder) -> Iterator[LimitedRun]:
    """Yield a run with cgroup and swap, and remove both afterwards. Raises UserError, which names what is missing."""
    holder = _LimitHolder(order.swap_bytes, order.folders)
    try:
        ready = holder.wait_for(HolderReady, START_SECONDS)
        yield LimitedRun(holder, ready, order.limit_bytes)
    finally:
        holder.end()


def why_not(folders: Sequence[str]) -> str:
    """Return "" where a limit and swap can be set up, which is tried; else what is missing, and what helps."""
    if os.getuid() != 0:
        return "a limit on memory is root's to set: start it with sudo"
    try:
        with limited_run(MemoryOrder(None, _TRY_BYTES, tuple(folders))):
            return ""
    except UserError as error:
        return str(error)


class _LimitHolder:
    """A ``memtui.study.runs.limit_holder`` process, and the pipes to it."""

    def __init__(self, swap_bytes: int, folders: Sequence[str]) -> None:
        order = LimitOrder(swap_bytes, tuple(folders), invoker().uid)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "memtui.study.runs.limit_holder", json.dumps(to_json(order))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            user=os.getuid(),  # under sudo this process writes as the user
            group=os.getgid(),
        )
        self._rest = b""
        self._ended = False

    def send(self, request: Request) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(to_json(request)).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, seconds: float) -> list[Reply]:
        """Return the replies that have arrived; wait at most ``seconds`` for the first."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        if self._ended or not select.select([fd], [], [], seconds)[0]:
            return []
        chunk = os.read(fd, 65536)
        self._ended = not chunk
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        return [reply_of(json.loads(line)) for line in whole]

    def wait_for(self, kind: type[_R], seconds: float) -> _R:
        """Return the first reply of this kind. Raises UserError."""
        deadline_s = time.monotonic() + seconds
        while not self._ended and (left_s := deadline_s - time.monotonic()) > 0:
            for reply in self.receive(left_s):
                if isinstance(reply, HolderFailed):
                    raise UserError(reply.failed, reply.code)
                if isinstance(reply, kind):
                    return reply
        why = "ended" if self._ended else f"did not answer within {seconds:.0f} s"
        raise UserError(f"what holds the memory limit {why}", FAILURE)

    def end(self) -> None:
        """Let the holder take everything down, or do that here where it was killed; print what is left to stderr."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        left = self._left()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            left = left or f"process {self._process.pid}, which still takes swap down"
        else:
            if self._process.returncode:
                cgroup_limit.sweep()
                swap_file.sweep()
        self._process.stdout.close()
        if left:
            print(f"of a memory limit is left: {left}", file=sys.stderr)

    def _left(self) -> str:
        """Return what the holder could not take down, by its own report."""
        deadline_s = time.monotonic() + END_SECONDS
        while not self._ended and (left_s := deadline_s - time.monotonic()) > 0:
            for reply in self.receive(left_s):
                if isinstance(reply, HolderGone):
                    return reply.left
        return ""


def _page_cluster() -> int | None:
    """Return the swap readahead: 2 to this power pages at once; see sysctl/vm.rst."""
    try:
        return int(Path("/proc/sys/vm/page-cluster").read_text())
    except (OSError, ValueError):
        return None
