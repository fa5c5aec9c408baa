"""A run under a memory limit, as its worker sees it: the program joins, the limit comes, counters are read."""

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
from typing import Any

from memtui.core.errors import FAILURE, UserError
from memtui.core.privilege import invoker
from memtui.study.runs import cgroup_limit, swap_file
from memtui.study.runs.cgroup_limit import LimitGroup, counts_of
from memtui.study.runs.messages import LimitMark, MemoryOrder, MemoryResult

MOST_MARKS = 1000
NEARLY_FULL = 0.75  # of the swap: the rest may go between the last mark and the end of the program
QUIET_SECONDS = 0.25  # without a step, a mark is made all the same
START_SECONDS, END_SECONDS = 60.0, 15.0
_TRY_BYTES = 4 << 20


class Limited:
    """One such run. ``joins``: the name of the cgroup that the program has to wait for before it begins."""

    def __init__(self, keeper: _Keeper, ready: dict[str, Any], limit_bytes: int | None) -> None:
        self._keeper, self._limit_bytes = keeper, limit_bytes
        self._version, self._folder = ready["version"], Path(ready["folder"])
        self.joins = self._folder.name
        self._ready = ready
        self._asked = False
        self.reached_ns: int | None = None if limit_bytes else time.monotonic_ns()
        self._marks: list[LimitMark] = []
        self._every, self._skipped = 1, 0
        self._last_s, self._last_steps = 0.0, -1.0
        self.failed = ""

    def join(self, pid: int) -> None:
        """Move the program, which waits for it, into the cgroup. Raises UserError."""
        self._keeper.say({"join": pid})
        self._keeper.await_word("joined", START_SECONDS)

    def look(self, steps: float, due: bool) -> bool:
        """Ask for the limit when it is due, and note what the cgroup counts. True: it failed, and the run is over."""
        if self._limit_bytes and due and not self._asked:
            self._asked = True
            self._keeper.say({"limit": self._limit_bytes})
        for word in self._keeper.words(0.0):
            self.failed = word.get("failed", self.failed)
            if "limit" in word:
                self.reached_ns = time.monotonic_ns()
        now_s = time.monotonic()
        if steps != self._last_steps or now_s > self._last_s + QUIET_SECONDS:
            self._last_s, self._last_steps = now_s, steps
            self._note(steps)
        return bool(self.failed)

    def _note(self, steps: float) -> None:
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        with suppress(OSError, ValueError, KeyError):  # its last process may just have ended
            counts = counts_of(self._version, self._folder)
            self._marks.append(LimitMark(time.monotonic_ns(), steps, counts))
        if len(self._marks) > MOST_MARKS:
            self._marks, self._every = self._marks[::2], 2 * self._every

    def result(self) -> MemoryResult:
        """Return what became of it. Raises UserError where the limit could not be set."""
        if self.failed:
            raise UserError(self.failed, FAILURE)
        group, swap_bytes = LimitGroup(self._version, self._folder), self._ready["swap_bytes"]
        nearly_full = any((mark.counts.swap_bytes or 0) > NEARLY_FULL * swap_bytes for mark in self._marks)
        return MemoryResult(
            limit_bytes=self._limit_bytes,
            swap=self._ready["swap"],
            swap_bytes=swap_bytes,
            version=self._version,
            reached_ns=self.reached_ns,
            swapped_in_is_its_own=cgroup_limit.tells_swapped_in(self._folder),
            page_cluster=_page_cluster(),
            kills=group.kills(),
            swap_was_full=nearly_full or group.swap_was_full(),
            marks=tuple(self._marks),
        )


@contextmanager
def limited(order: MemoryOrder) -> Iterator[Limited]:
    """Yield a cgroup and swap, which are gone afterwards. Raises UserError, which says what is missing."""
    keeper = _Keeper(order.swap_bytes, order.folders)
    try:
        ready = keeper.await_word("ready", START_SECONDS)["ready"]
        yield Limited(keeper, ready, order.limit_bytes)
    finally:
        keeper.end()


def why_not(folders: Sequence[str]) -> str:
    """Empty where a limit can be set and swap be had, which is tried; else what is missing, and what to do."""
    if os.getuid() != 0:
        return "a limit on memory is root's to set: start it with sudo"
    try:
        with limited(MemoryOrder(None, _TRY_BYTES, tuple(folders))):
            return ""
    except UserError as error:
        return str(error)


class _Keeper:
    """``limit_holder`` from outside."""

    def __init__(self, swap_bytes: int, folders: Sequence[str]) -> None:
        order = {"swap_bytes": swap_bytes, "folders": list(folders), "uid": invoker().uid}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "memtui.study.runs.limit_holder", json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            user=os.getuid(),  # under sudo this process writes as the user
            group=os.getgid(),
        )
        self._rest = b""
        self._ended = False

    def say(self, word: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(word).encode() + b"\n")
            self._process.stdin.flush()

    def words(self, seconds: float) -> list[dict[str, Any]]:
        """Return what it has said, after at most so long a wait."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        if self._ended or not select.select([fd], [], [], seconds)[0]:
            return []
        chunk = os.read(fd, 65536)
        self._ended = not chunk
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        return [json.loads(line) for line in whole]

    def await_word(self, name: str, seconds: float) -> dict[str, Any]:
        """Return the first with this name. Raises UserError."""
        deadline_s = time.monotonic() + seconds
        while not self._ended and (left_s := deadline_s - time.monotonic()) > 0:
            for word in self.words(left_s):
                if "failed" in word:
                    raise UserError(word["failed"], word.get("code", FAILURE))
                if name in word:
                    return word
        why = "ended" if self._ended else f"did not answer within {seconds:.0f} s"
        raise UserError(f"what holds the memory limit {why}", FAILURE)

    def end(self) -> None:
        """Let it take everything down; where it was killed, do that here. Says what is left on standard error."""
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
        """Return what could not be taken down, as it says itself."""
        deadline_s = time.monotonic() + END_SECONDS
        while not self._ended and (left_s := deadline_s - time.monotonic()) > 0:
            for word in self.words(left_s):
                if "gone" in word:
                    return str(word["left"])
        return ""


def _page_cluster() -> int | None:
    """Swap readahead: 2 to this power pages at once; see sysctl/vm.rst."""
    try:
        return int(Path("/proc/sys/vm/page-cluster").read_text())
    except (OSError, ValueError):
        return None
