"""``memtui place profile``: takes what was asked, lets a child process measure, and keeps what it finds."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from memtui.errors import UserError
from memtui.exclusive import exclusively
from memtui.foreign import visible
from memtui.placement import memory
from memtui.placement.cache import Cache
from memtui.placement.measured import MODES, Pool, Profile
from memtui.placement.model import Graph
from memtui.placement.model_names import check_model
from memtui.placement.plain import Damaged, count, positive
from memtui.placement.pool_names import Asked, parse_pools
from memtui.placement.profiling import Profiling, Step, Wanted
from memtui.placement.solve.problem import PAGE_BYTES
from memtui.placement.speeds import pool_plain
from memtui.placement.store import ProfileFile, is_profile
from memtui.placement.worker_process import BUSY, PlacementProcess
from memtui.privilege import invoker, state_directory
from memtui.probes.energy_source import lock_path
from memtui.units import duration_ns, size, span

Say = Callable[[str], None]
CACHE = "place-cache.db"  # in the state directory
_RATES = ("read", "written", "copied_from", "copied_to")


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
        anew: take nothing from the cache, or from a profile that is there.
    """

    model: str
    pools: tuple[Asked, ...]
    modes: tuple[str, ...]
    seconds: float
    batch: int
    seed: int
    threads: int
    anew: bool = False


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
        args.again,
    )
    if args.output is None:
        raise UserError("say where the profile goes: -o p.memtui")
    if os.path.lexists(args.output) and not is_profile(args.output):
        raise UserError(f"{args.output}: is there, and no profile")
    if args.cache is not None and not args.cache.parent.is_dir():
        raise UserError(f"--cache {args.cache}: there is no folder {args.cache.parent}; make it, or name another one")
    cache = args.cache or state_directory(invoker()) / CACHE
    if args.tui and not args.json and sys.stdin.isatty() and sys.stdout.isatty():
        from memtui.placement.profile_screen import watched

        def work() -> list[str]:
            shown = Shown(quiet=True)
            return lines(about(measure(request, args.output, cache, shown, force=args.force), args.output, shown))

        return watched(args, args.output, work, say)
    shown = Shown(quiet=args.json)
    try:
        found = measure(request, args.output, cache, shown, force=args.force)
    except KeyboardInterrupt:
        shown.clear()
        say(f"broken off; {shown.measured} times are kept, and the same command goes on from there")
        raise
    plain = about(found, args.output, shown)
    print(json.dumps(plain, indent=2) if args.json else "\n".join(map(visible, lines(plain))))
    return 0


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
            profiling = Profiling(wanted, cache, process, facts, about_graph, anew=request.anew)
            file = _gone_on_with(output, graph, made, told, force)
            if file is None or request.anew:
                shown.phase("how fast the pools are")
                bandwidths = _bandwidths(cache, process, {**environment, "pools": made}, shown, anew=request.anew)
                pools, speeds = _pools(made, bandwidths)
                resolution_ns = float(process.ready["resolution_ns"])
                if file is None:
                    file = ProfileFile.create(output, graph, pools, resolution_ns, {**told, **speeds}, force=force)
                else:
                    file.renew(pools, resolution_ns, {**told, **speeds})
            before = file.measured()
            shown.before = len(before)
            for step in profiling.steps(before):
                file.replace(step.samples)
                shown.step(step)
        shown.clear()
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


def _bandwidths(
    cache: Cache, process: PlacementProcess, facts: Mapping[str, Any], shown: Shown, *, anew: bool
) -> list[dict[str, Any]]:
    """Measured once for a machine and its pools: plans that rest upon them should not change with every profile.

    ``facts`` has the pools in their order: the first is the one that the others are copied from and to.
    """
    what = {**facts, "what": "moves"}
    kept = None if anew else _checked(cache.get(what), len(facts["pools"]))
    if kept is not None:
        shown.bandwidths_ns = kept["sitting"]
        return list(kept["pools"])
    sitting = time.time_ns()
    found = process.bandwidths()
    cache.put([(what, {"pools": found, "sitting": sitting})])
    return list(found)


def _checked(kept: Any, pools: int) -> dict[str, Any] | None:
    """What a cache holds, if that is what it should be."""
    try:
        found = [positive(each[way], way) for each in kept["pools"] for way in _RATES]
        count(kept["sitting"], "sitting")
    except (Damaged, KeyError, TypeError):
        return None
    return dict(kept) if len(found) == pools * len(_RATES) else None


def _pools(
    made: list[dict[str, Any]], bandwidths: list[dict[str, Any]]
) -> tuple[list[Pool], dict[str, str | int | float]]:
    """The pools, and what else was measured of them: bytes a second of reading and of writing."""
    ways = ("copied_from", "copied_to", "copied_from_meanwhile", "copied_to_meanwhile")
    measured = (*ways, *(f"{way}_fixed_ns" for way in ways), "meanwhile_start_ns")
    pools = [
        Pool(pool["name"], pool["emulated"], pool["note"], *(found.get(each) for each in measured))
        for pool, found in zip(made, bandwidths, strict=True)
    ]
    speeds: dict[str, str | int | float] = {}
    for pool, found in zip(made, bandwidths, strict=True):
        speeds |= {f"{pool['name']} {way}": found[what] for way, what in (("read", "read"), ("written", "written"))}
    return pools, speeds


@dataclass
class Shown:
    """Progress on standard error: a line that is written over where that is a terminal, nothing otherwise.

    Attributes:
        quiet: say nothing.
        before: times that the profile had already; here and below, of one op in one configuration and way of timing.
        cached: that are from the cache.
        measured: that were measured now.
        moments: when those of the cache were measured (ns, UTC).
        bandwidths_ns: when the bandwidths were, where they are from the cache.
    """

    quiet: bool = False
    before: int = 0
    cached: int = 0
    measured: int = 0
    moments: set[int] = field(default_factory=set)
    bandwidths_ns: int | None = None
    _begin_s: float = field(default_factory=time.monotonic)
    _drawn: bool = False
    _text: str = ""

    def phase(self, text: str) -> None:
        self._text = text
        self._draw(text)

    def step(self, step: Step) -> None:
        self.cached += step.cached
        self.moments.update(step.measured_ns)
        self.measured += len(step.samples) - step.cached
        left = "" if step.left_s is None else f", {span(step.left_s)} left"
        known = f", {self.cached} known before" if self.cached else ""
        self._text = f"{step.mode}: {step.done} of {step.of}, {self.measured} measured{known}{left}"
        self._draw(self._text)

    def tick(self) -> None:
        self._draw(f"{self._text} ({span(time.monotonic() - self._begin_s)})")

    def clear(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _draw(self, text: str) -> None:
        if not self.quiet and sys.stderr.isatty():
            print(f"\r\x1b[K{visible(text)}", end="", file=sys.stderr, flush=True)
            self._drawn = True


def about(found: Profile, output: Path, shown: Shown) -> dict[str, Any]:
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
        "peak_bytes_in_pages": found.graph.peak_in_pages(PAGE_BYTES),
        "resolution_ns": found.resolution_ns,
        "results_copied": found.about.get("results_copied"),
        "pools": [pool_plain(found, pool) | speeds[pool.name] for pool in found.pools],
        "emulated": list(found.emulated),
        "configurations": {mode: found for mode, found in counts.items() if found},
        "times": {
            "in_the_file_before": shown.before,
            "from_the_cache": shown.cached,
            "cached_from": _when(min(shown.moments, default=None)),
            "cached_to": _when(max(shown.moments, default=None)),
            "measured_now": shown.measured,
        },
        "bandwidths_cached": _when(shown.bandwidths_ns),
    }


def _when(ns: int | None) -> str | None:
    """A moment as ISO 8601, in local time; None where there is none."""
    if ns is None:
        return None
    return datetime.fromtimestamp(ns / 1e9).astimezone().isoformat(" ", "seconds")


def _fixed(pool: Mapping[str, Any]) -> list[str]:
    """What a move takes however small it is."""
    fixed = pool["fixed_ns"]
    if fixed["copy_out"] is None or fixed["copy_in"] is None:
        return []
    line = f"{pool['name']}: a move takes {duration_ns(fixed['copy_out'])} out, {duration_ns(fixed['copy_in'])} in"
    if fixed["start_meanwhile"] is not None:
        out, into = (duration_ns(fixed[f"copy_{way}_meanwhile"]) for way in ("out", "in"))
        line += f"; during an op {out} out, {into} in, and the op {duration_ns(fixed['start_meanwhile'])} longer"
    return [f"{line}; and its bytes"]


def _known_before(plain: Mapping[str, Any]) -> list[str]:
    """How many times are not of today."""
    found, times = [], plain["times"]
    if times["from_the_cache"]:
        every = sum(times[which] for which in ("in_the_file_before", "from_the_cache", "measured_now"))
        when = " to ".join(dict.fromkeys((times["cached_from"], times["cached_to"])))
        found.append(f"{times['from_the_cache']} of {every} times are from the cache, of {when}")
    if times["in_the_file_before"]:
        found.append(f"{times['in_the_file_before']} times were in the profile before")
    if plain["bandwidths_cached"]:
        found.append(f"bandwidths and times of moves are from the cache, of {plain['bandwidths_cached']}")
    if found:
        found.append("--again measures all of them now")
    return found


def lines(plain: Mapping[str, Any]) -> list[str]:
    """The same for people."""
    found = [
        f"{plain['model']}: {plain['ops']} ops, at most {size(plain['peak_bytes_in_pages'])} of intermediate tensors "
        f"at once, in pages of {size(PAGE_BYTES)}",
        f"{'pool':20} {'read':>9} {'written':>9} {'copy out':>9} {'copy in':>9}  GB/s",
    ]
    for pool in plain["pools"]:
        ways = ("read", "written", "copied_from", "copied_to")
        speeds = " ".join(f"{(pool[f'{way}_bytes_per_s'] or 0) / 1e9:9.1f}" for way in ways)
        found.append(f"{pool['name']:20} {speeds}  {pool['note']}".rstrip())
    for pool in plain["pools"][1:]:
        found += _fixed(pool)
    found += [f"{mode}: {number} configurations" for mode, number in plain["configurations"].items()]
    found += _known_before(plain)
    if plain["results_copied"]:
        found.append(
            f"{plain['results_copied']} ops cannot write where they are told to: their times have a copy in them"
        )
    if plain["emulated"]:
        found.append(f"emulated, so no measurement of a machine: {', '.join(plain['emulated'])}")
    found.append(f"{plain['file']}: memtui place compare, solve and show read it")
    return found
