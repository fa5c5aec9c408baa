"""What one sample costs beside others that work by idle page tracking, on one process in one run.

``python -m benchmarks.peers``, as root on a kernel with CONFIG_IDLE_PAGE_TRACKING; with ``--kernel IMAGE`` in a virtual
machine that has it. Measured are brendangregg/wss's ``wss-v2``, the procedure of MemSnoop
(``benchmarks.memsnoop``), and memtui's trackers ``idle`` and ``pagetable`` with all that a window takes. A sample is
all the work but the waiting. "System calls" is its CPU time in the kernel, "own code" that outside of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks import documents, machine
from benchmarks.guest import boot
from benchmarks.memsnoop import MemSnoop
from benchmarks.programs import VARIABLE as PROGRAMS
from benchmarks.programs import find
from benchmarks.table import Skip, columns, number
from benchmarks.targets import pattern_of
from memtui.core.procfs import read_stat
from memtui.probes.pages.idle.bitmap import BITMAP
from memtui.probes.pages.idle.tracker import IdleTracker
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.tracker import PageTracker
from memtui.probes.pause.pauser import NotPaused
from memtui.probes.proc_maps import parse_maps, read_maps
from memtui.probes.window_reader import Lost, PageReader, Subject

T = TypeVar("T")
MIB, HOT, SAMPLES, WINDOW_S = 512, 0.1, 6, 0.5
RESIDENT_EVERY = 2  # windows: memtui asks for residents about once a second
TIMES = {"idle": 5, "pagetable": 15}
"""How many times cheaper than a sample of MemSnoop's procedure one of memtui's has to be."""
MEMSNOOP = "MemSnoop's procedure"
# The peers read the idle bits of all memory, so their cost grows with the machine: a small one, and one to train on.
# Only what is used has to be there.
GUEST_MEMORY = ("12G", "64G")
_ATTEMPTS = 20
_BEGIN, _END = "begin-of-figures", "end-of-figures"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one tool needs for a sample: means, in milliseconds.

    ``paused_ms`` is None where the target runs on. ``found``: pages of the target's own memory, of ``touched``.
    """

    tool: str
    whole_ms: float
    system_ms: float
    own_ms: float
    paused_ms: float | None
    found: int
    touched: int


@dataclass(frozen=True, slots=True)
class Target:
    """The process that is watched, and what it touches for ever."""

    pid: int
    first: int
    last: int
    touched: int

    def own(self, pages: np.ndarray) -> int:
        """How many of these pages lie in its memory, and not in what its interpreter needs."""
        return int(((pages >= self.first) & (pages < self.last)).sum())


def measure(mib: int = MIB, samples: int = SAMPLES, *, scattered: bool = False) -> Iterator[Cost]:
    """All tools one after the other on one process. Raises Skip where there is no idle page tracking."""
    if os.geteuid() != 0:
        raise Skip("needs root")
    if not BITMAP.exists():
        raise Skip(f"{BITMAP} is missing: this kernel has no idle page tracking")
    wss_v2 = find("wss-v2")
    pages = mib << 8
    hot = int(pages * HOT)
    words: tuple[object, ...] = ("random", "--pages", pages, "--touched", hot)
    if not scattered:  # the first of ten regions, for ever
        words = ("stairs", "--pages", hot, "--regions", round(1 / HOT), "--step-seconds", 1e6)
    with pattern_of(*words) as truth:
        target = Target(truth["pid"], truth["start"] >> 12, truth["end"] >> 12, hot)

        def by_wss_v2() -> tuple[int, float | None]:
            command = [wss_v2, str(target.pid), str(WINDOW_S)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return int(float(done.stdout.split()[-1])) << 8, None  # it says whole megabytes, of the whole process

        yield _cost("wss-v2", target, samples, by_wss_v2, waits=True)
        with closing(MemSnoop(target.pid)) as snoop:

            def by_memsnoop() -> tuple[int, float | None]:
                begin = time.perf_counter()
                found = snoop.sample()
                return target.own(found), time.perf_counter() - begin

            yield _cost(MEMSNOOP, target, samples, by_memsnoop)
        for name, tracker in (("idle", IdleTracker()), ("pagetable", PageTableTracker())):
            yield _by_memtui(name, target, samples, tracker)


def _by_memtui(name: str, target: Target, samples: int, tracker: PageTracker) -> Cost:
    """As its sampler does it: pause, read, clear, let go."""
    subject = Subject(target.pid, None, read_stat(target.pid).start_ticks, parse_maps(read_maps(target.pid)))
    with closing(PageReader(tracker, pause=True)) as reader:
        _patiently(lambda: reader.start(subject))
        windows = 0

        def take() -> tuple[int, float | None]:
            nonlocal windows
            windows += 1
            (outcome,) = reader.read([subject], want_resident=windows % RESIDENT_EVERY == 0)
            if isinstance(outcome, Lost):
                raise outcome.error
            assert outcome.window.pages is not None
            return target.own(outcome.window.pages.pages()), outcome.paused_ns / 1e9

        return _cost(name, target, samples, take)


def _patiently(action: Callable[[], T]) -> T:
    """Do it again where the target did not stand still in time, as on a busy emulated machine."""
    for _ in range(_ATTEMPTS):
        try:
            return action()
        except NotPaused:
            time.sleep(WINDOW_S)
    return action()


def _cost(
    tool: str, target: Target, samples: int, take: Callable[[], tuple[int, float | None]], *, waits: bool = False
) -> Cost:
    """Take samples; the first is left out. ``waits``: the tool is a program that waits for the window itself."""
    who = resource.RUSAGE_CHILDREN if waits else resource.RUSAGE_SELF
    whole = system = own = paused = 0.0
    found: list[int] = []
    pauses = False
    for sample in range(samples + 1):
        if not waits:
            time.sleep(WINDOW_S)
        before, begin, (pages, paused_s), end, after = _patiently(lambda: _timed(who, take))
        if sample == 0:
            continue
        whole += end - begin - (WINDOW_S if waits else 0.0)
        system += after.ru_stime - before.ru_stime
        own += after.ru_utime - before.ru_utime
        paused, pauses = paused + (paused_s or 0.0), paused_s is not None
        found.append(pages)
    each = 1e3 / samples
    paused_ms = paused * each if pauses else None
    return Cost(tool, whole * each, system * each, own * each, paused_ms, int(np.median(found)), target.touched)


def _timed(who: int, take: Callable[[], T]) -> tuple[resource.struct_rusage, float, T, float, resource.struct_rusage]:
    """What it returns, between what was used and the time before it and after it."""
    before, begin = resource.getrusage(who), time.perf_counter()
    taken = take()
    return before, begin, taken, time.perf_counter(), resource.getrusage(who)


def table(costs: Sequence[Cost]) -> str:
    """As text that is also Markdown."""
    (peer,) = (cost for cost in costs if cost.tool == MEMSNOOP)
    head = ("a sample of", "ms", "system calls", "own code", "target paused", "pages found", "MemSnoop's by it")
    lines = [head]
    for cost in costs:
        lines.append(
            (
                cost.tool,
                number(cost.whole_ms),
                number(cost.system_ms),
                number(cost.own_ms),
                "" if cost.paused_ms is None else number(cost.paused_ms),
                f"{cost.found:,} of {cost.touched:,}",
                f"{peer.whole_ms / cost.whole_ms:.1f}",
            )
        )
    return columns(lines)


def report(mib: int, samples: int) -> str:
    """Two tables and the machine. Raises Skip."""
    load, parts = machine.load(), []
    for name, costs in both(mib, samples).items():
        parts.append(f"{mib} MiB resident, {HOT:.0%} of it touched, {name}:\n\n{table(costs)}")
    return "\n\n".join([machine.describe(load, machine.load()), *parts])


def both(mib: int, samples: int) -> dict[str, list[Cost]]:
    """With the touched memory in one piece, and scattered. Raises Skip."""
    kinds = (("in one piece", False), ("scattered", True))
    return {name: list(measure(mib, samples, scattered=scattered)) for name, scattered in kinds}


def in_guest(kernel: str, memory: str, *words: str) -> str:
    """What this program prints on another kernel, in a guest with that memory. Raises Skip."""
    environment = {PROGRAMS: str(find("wss-v2").parent), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = ["env", *(f"{name}={value}" for name, value in environment.items())]
    command += [sys.executable, "-m", "benchmarks.peers", *words]
    with tempfile.TemporaryDirectory(prefix="memtui-guest-") as folder:
        script = f"echo {_BEGIN}; {shlex.join(command)}; echo {_END}"
        said = boot(kernel, script, Path(folder) / "console", memory=memory)
    found = re.search(rf"^{_BEGIN}\s*^(.*)^{_END}", said.replace("\r", ""), re.M | re.S)
    if not found:
        raise RuntimeError(f"the guest did not get so far: {said[-2000:]}")
    if why := re.search(r"^not measured: (.*)$", found[1], re.M):
        raise Skip(why[1])
    return found[1].strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Two tables, or one line of JSON; 1 where it cannot be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="A sample beside those of others.")
    parser.add_argument("--mib", type=int, default=MIB, help="resident memory of the target (%(default)s)")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of each tool (%(default)s)")
    parser.add_argument("--json", action="store_true", help="the figures as one line")
    parser.add_argument("--kernel", metavar="IMAGE", help="measure on this kernel, in a guest")
    parser.add_argument(
        "--memory", nargs="+", default=GUEST_MEMORY, help="of that guest, one after the other (%(default)s)"
    )
    parser.add_argument("--into", type=Path, metavar="DOC.md", help="put the tables into their place there")
    given = parser.parse_args(arguments)
    if given.into and not documents.has_place(given.into, "peers"):
        parser.error(f"{given.into} has no place for peers: {documents.BEGIN.format('peers')}")
    try:
        if given.kernel:
            words = ["--mib", str(given.mib), "--samples", str(given.samples), *(["--json"] if given.json else [])]
            text = "\n\n".join(in_guest(given.kernel, memory, *words) for memory in given.memory)
        elif given.json:
            found = both(given.mib, given.samples)
            text = json.dumps({name: [asdict(cost) for cost in costs] for name, costs in found.items()})
        else:
            text = report(given.mib, given.samples)
    except Skip as why:
        print(f"not measured: {why}", file=sys.stderr)
        return 1
    print(text)
    if given.into:
        documents.put(given.into, "peers", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
