"""``memtui place profile``: takes what was asked, lets a child process measure, and keeps what it finds."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtui.errors import UserError
from memtui.exclusive import exclusively
from memtui.foreign import visible
from memtui.placement import memory
from memtui.placement.cache import Cache
from memtui.placement.enumerate import pair_configurations
from memtui.placement.measured import MODES, Pool, Profile
from memtui.placement.model import Graph
from memtui.placement.model_names import check_model
from memtui.placement.pool_names import Asked, parse_pools
from memtui.placement.profiling import Profiling, Step, Wanted
from memtui.placement.store import ProfileFile, is_profile
from memtui.placement.worker_process import BUSY, PlacementProcess
from memtui.privilege import invoker, state_directory
from memtui.probes.energy_source import lock_path
from memtui.units import size, span

Say = Callable[[str], None]
CACHE = "place-cache.db"  # in the state directory


@dataclass(frozen=True)
class Request:
    """What was asked for.

    Attributes:
        model: one that comes along, or ``FILE.py:function``.
        pools: the fast one first.
        modes: ways of timing.
        seconds: for each configuration, or arrangement of the graph.
        batch: of a model that comes along.
        seed: of its parameters and inputs, and of the order of measurements.
        threads: of ops; 0: one less than there are CPUs.
    """

    model: str
    pools: tuple[Asked, ...]
    modes: tuple[str, ...]
    seconds: float
    batch: int
    seed: int
    threads: int


def profile(args: argparse.Namespace, say: Say) -> int:
    """Do it; the exit code. Raises UserError."""
    pools = parse_pools(args.pools)
    _check_here(pools)
    request = Request(
        check_model(str(args.file)),
        pools,
        args.mode or MODES,
        args.seconds,
        args.batch,
        args.seed,
        args.threads,
    )
    if args.output is None:
        raise UserError("say where the profile goes: -o p.memtui")
    if os.path.lexists(args.output) and not is_profile(args.output):
        raise UserError(f"{args.output}: is there, and no profile")
    cache = args.cache or state_directory(invoker()) / CACHE

    def work(shown: Shown) -> Profile:
        return measure(request, args.output, cache, shown, force=args.force)

    if args.tui and not args.json and sys.stdin.isatty() and sys.stdout.isatty():
        from memtui.placement.profile_screen import watched

        return watched(args, request, lambda shown: lines(about(work(shown), args.output)), say)
    line = not args.json and sys.stderr.isatty()
    shown = Shown(_write_over) if line else Shown(begin=None if args.json else say)
    try:
        found = work(shown)
    except KeyboardInterrupt:
        if line:
            _write_over("")
        say(broken_off(args.output, request.modes))
        raise
    if line:
        _write_over("")
    plain = about(found, args.output)
    print(json.dumps(plain, indent=2) if args.json else "\n".join(map(visible, lines(plain))))
    return 0


def _write_over(text: str) -> None:
    """A line of standard error, in place of the one before."""
    room = max(20, os.get_terminal_size(sys.stderr.fileno()).columns - 3)  # and for ^C
    print(f"\r\x1b[K{visible(text)[:room]}", end="", file=sys.stderr, flush=True)


def _check_here(pools: tuple[Asked, ...]) -> None:
    """What can be told at once, before PyTorch is started. Raises UserError."""
    for pool in pools:
        try:
            if pool.node is not None:
                memory.check_node(pool.node)
            if pool.folder:
                memory.about_folder(pool.folder)
        except memory.NoMemory as error:
            raise UserError(f"{pool.name}: {error}") from None


def measure(request: Request, output: Path, cache_path: Path, shown: Shown, *, force: bool = False) -> Profile:
    """The profile, which is in its file, too; one that was broken off is gone on with. Raises UserError."""
    with Cache(cache_path) as cache, exclusively(lock_path(None), BUSY):
        shown.phase("starting PyTorch")
        with closing(PlacementProcess(request.threads)) as process:
            process.tick = shown.tick
            shown.phase(f"recording a step of {request.model}")
            captured = process.capture(request.model, request.batch, request.seed)
            graph: Graph = captured["graph"]
            shown.phase("making the pools")
            made = process.pools([pool.name for pool in request.pools])
            environment: Mapping[str, Any] = process.ready["environment"]
            facts = {**environment, "pools": {pool["name"]: pool for pool in made}}
            about_graph = f"{captured['fingerprint']} {request.model} {request.batch} {request.seed}"
            told = {
                "model": request.model,
                "batch": request.batch,
                "seed": request.seed,
                "fingerprint": captured["fingerprint"],
                "results_copied": len(captured["copied"]),
                "kernel": platform.release(),
                **environment,
            }
            wanted = Wanted(graph, tuple(pool.name for pool in request.pools), request.modes, request.seconds)
            profiling = Profiling(wanted, cache, process, facts, about_graph)
            file = _gone_on_with(output, graph, made, told, force)
            if file is None:
                shown.phase("how fast the pools are")
                pools, speeds = _pools(made, _bandwidths(cache, process, facts))
                resolution_ns = float(process.ready["resolution_ns"])
                file = ProfileFile.create(output, graph, pools, resolution_ns, {**told, **speeds}, force=force)
            known = file.measured()
            shown.count(far(file.profile(), request.modes))
            for step in profiling.steps(known):
                file.add(step.samples)
                shown.step(step)
        return file.profile()


def _gone_on_with(
    path: Path, graph: Graph, made: list[dict[str, Any]], told: Mapping[str, Any], force: bool
) -> ProfileFile | None:
    """A profile of the same things that was broken off. Raises UserError where there is another one."""
    if force or not os.path.lexists(path) or not is_profile(path):
        return None  # what is there, if anything, is refused where the file is made
    found = ProfileFile(path).profile()
    same = [pool["name"] for pool in made] == [pool.name for pool in found.pools]
    if found.graph != graph or not same or any(found.about.get(key) != value for key, value in told.items()):
        raise UserError(f"{path}: is a profile of something else, or from elsewhere; --force overwrites it")
    return ProfileFile(path)


def _bandwidths(cache: Cache, process: PlacementProcess, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Measured once for a machine and its pools: plans that rest upon them should not change with every profile."""
    what = {**facts, "what": "bandwidths"}
    found = cache.get(what)
    if found is None:
        found = process.bandwidths()
        cache.put([(what, found)])
    return list(found)


def _pools(
    made: list[dict[str, Any]], bandwidths: list[dict[str, Any]]
) -> tuple[list[Pool], dict[str, str | int | float]]:
    """The pools, and what else was measured of them: bytes a second of reading and of writing."""
    ways = ("copied_from", "copied_to", "copied_from_meanwhile", "copied_to_meanwhile")
    pools = [
        Pool(pool["name"], pool["emulated"], pool["note"], *(found[way] for way in ways))
        for pool, found in zip(made, bandwidths, strict=True)
    ]
    speeds: dict[str, str | int | float] = {}
    for pool, found in zip(made, bandwidths, strict=True):
        speeds |= {f"{pool['name']} {way}": found[what] for way, what in (("read", "read"), ("written", "written"))}
    return pools, speeds


class Shown:
    """Progress, in a sentence that is given away whenever it changes."""

    def __init__(self, show: Say = lambda _: None, begin: Say | None = None) -> None:
        """``show`` takes each sentence in place of the one before, ``begin`` the one that measuring begins with."""
        self._show, self._begin = show, begin
        self._far: dict[str, tuple[int, int]] = {}
        self._phase, self.cached = "", 0
        self._step: Step | None = None
        self._since_s = time.monotonic()

    def phase(self, text: str) -> None:
        """Something before the measurements."""
        self._phase, self._since_s = text, time.monotonic()
        self._show(f"{text} ...")

    def count(self, far: Mapping[str, tuple[int, int]]) -> None:
        """Measurements begin; so many of so many are there in each way of timing."""
        self._phase, self._far = "", dict(far)
        there, of = (sum(counts) for counts in zip(*far.values(), strict=True))
        known = f", {there} of them known" if there else ""
        text = f"measuring {of} configurations ({', '.join(far)}){known}"
        self._show(text)
        if self._begin is not None:
            self._begin(text)

    def step(self, step: Step) -> None:
        there, of = self._far[step.mode]
        self._far[step.mode] = there + len(step.samples), of
        self.cached += step.cached
        self._step, self._since_s = step, time.monotonic()
        self.tick()

    def tick(self) -> None:
        """Time goes by."""
        passed_s = time.monotonic() - self._since_s
        if self._phase:
            self._show(f"{self._phase} ({span(passed_s)})")
        elif self._step is not None:
            there, of = self._far[self._step.mode]
            way = f" ({1 + [*self._far].index(self._step.mode)} of {len(self._far)})" if len(self._far) > 1 else ""
            left_s = self._step.left_s
            left = "" if left_s is None else f", {span(round(max(0.0, left_s - passed_s)))} left"
            known = f", {self.cached} known before" if self.cached else ""
            self._show(f"{self._step.mode}{way}: {there} of {of} configurations{left}{known}")


def far(profile: Profile, modes: Sequence[str]) -> dict[str, tuple[int, int]]:
    """How many configurations have times, and how many there are, in each of these ways of timing."""
    of = len(pair_configurations(profile.graph, [pool.name for pool in profile.pools]))
    return {mode: (sum(samples.mode == mode for samples in profile.samples), of) for mode in modes}


def broken_off(path: Path, modes: Sequence[str]) -> str:
    """What is left when measuring ends early."""
    try:
        counts = far(ProfileFile(path).profile(), modes)
    except UserError:
        return "broken off before there was a time to keep"
    there, of = (sum(counts) for counts in zip(*counts.values(), strict=True))
    return f"broken off, unfinished: {path} has {there} of {of} configurations; the same command goes on from there"


def about(found: Profile, output: Path) -> dict[str, Any]:
    """JSON-ready: what the file has."""
    counts = {mode: sum(s.mode == mode for s in found.samples) for mode in MODES}
    speeds = {
        pool.name: {
            "read_bytes_per_s": found.about.get(f"{pool.name} read"),
            "written_bytes_per_s": found.about.get(f"{pool.name} written"),
            "copied_from_bytes_per_s": pool.read_bytes_per_s,
            "copied_to_bytes_per_s": pool.write_bytes_per_s,
        }
        for pool in found.pools
    }
    return {
        "file": str(output),
        "model": found.graph.name,
        "ops": len(found.graph.ops),
        "tensors": len(found.graph.tensors),
        "peak_bytes": found.graph.peak_bytes,
        "resolution_ns": found.resolution_ns,
        "results_copied": found.about.get("results_copied"),
        "pools": [pool.to_plain() | speeds[pool.name] for pool in found.pools],
        "emulated": list(found.emulated),
        "configurations": {mode: count for mode, count in counts.items() if count},
    }


def lines(plain: Mapping[str, Any]) -> list[str]:
    """The same for people."""
    cells = max(20, *(len(pool["name"]) for pool in plain["pools"]))
    found = [
        f"{plain['model']}: {plain['ops']} ops, at most {size(plain['peak_bytes'])} of intermediate tensors at once",
        f"{'pool':{cells}} {'read':>9} {'written':>9} {'copy out':>9} {'copy in':>9}  GB/s",
    ]
    for pool in plain["pools"]:
        ways = ("read", "written", "copied_from", "copied_to")
        speeds = " ".join(f"{(pool[f'{way}_bytes_per_s'] or 0) / 1e9:9.1f}" for way in ways)
        found.append(f"{pool['name']:{cells}} {speeds}  {pool['note']}".rstrip())
    for mode, count in plain["configurations"].items():
        found.append(f"{mode}: {count} configurations")
    if plain["results_copied"]:
        count = plain["results_copied"]
        which = (
            "1 op cannot write where it is told to: its times"
            if count == 1
            else (f"{count} ops cannot write where they are told to: their times")
        )
        found.append(f"{which} have a copy in them")
    if plain["emulated"]:
        found.append(f"emulated, so no measurement of a machine: {', '.join(plain['emulated'])}")
    found.append(f"{plain['file']}: memtui place compare, solve and show read it")
    return found
