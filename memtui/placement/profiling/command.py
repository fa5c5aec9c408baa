"""``memtui place profile``: takes what was asked, lets a child process measure, and keeps what it finds."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.core.file_lock import exclusively
from memtui.core.files import check_place
from memtui.core.privilege import invoker, state_directory
from memtui.core.text import visible
from memtui.placement import memory
from memtui.placement.builtin_models import check_model
from memtui.placement.file_header import is_profile
from memtui.placement.graph import Graph
from memtui.placement.pool_specs import PoolSpec, parse_pools
from memtui.placement.profile import MODES, Pool, Profile
from memtui.placement.profiling.cache import Cache
from memtui.placement.profiling.planner import Facts, Profiling, Request, Wanted, broken_off, progress_of
from memtui.placement.profiling.progress import ProfileProgress
from memtui.placement.profiling.text import about, lines
from memtui.placement.store import ProfileFile
from memtui.placement.validation import Damaged, count, list_of, required, table
from memtui.placement.worker_client import BUSY, PlacementProcess
from memtui.placement.worker_protocol import Bandwidth, Environment, MadePool
from memtui.probes.power.energy_source import lock_path

CACHE = "place-cache.db"  # in the state directory


def profile(args: argparse.Namespace, console: Console) -> int:
    """Profile and return the exit status. Raises UserError."""
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
    check_place(args.output, force=True)  # before minutes are spent
    if args.cache is not None:
        check_place(args.cache, force=True)
    cache = args.cache or state_directory(invoker()) / CACHE

    def work(shown: ProfileProgress) -> Profile:
        return measure(request, args.output, cache, shown, force=args.force)

    if console.wants_screen(args):
        from memtui.placement.profiling.screen import watched

        return watched(args, request, lambda shown: lines(about(work(shown), args.output, shown)), console)
    with console.progress(f"profiling {args.file}") as line:
        shown = ProfileProgress(line.tell, on_start=None if args.json or line.on_terminal else console.notify)
        try:
            result = work(shown)
        except KeyboardInterrupt:
            console.notify(broken_off(args.output, request.modes))
            raise
    document = about(result, args.output, shown)
    print(json.dumps(document, indent=2) if args.json else "\n".join(map(visible, lines(document))))
    return 0


def _check_here(pools: tuple[PoolSpec, ...]) -> None:
    """Say what can be told at once, before PyTorch is started. Raises UserError."""
    for pool in pools:
        try:
            if pool.node is not None:
                memory.check_node(pool.node)
            if pool.folder:
                memory.about_folder(pool.folder)
        except memory.NoMemory as error:
            raise UserError(f"{pool.name}: {error}") from None


def measure(
    request: Request, output: Path, cache_path: Path, shown: ProfileProgress, *, force: bool = False
) -> Profile:
    """Return the profile, which is in its file, too; one that was broken off is gone on with. Raises UserError."""
    with Cache(cache_path) as cache, exclusively(lock_path(None), BUSY):
        shown.phase("starting PyTorch")
        with closing(PlacementProcess(request.threads)) as process:
            process.tick = shown.tick
            shown.phase(f"recording a step of {request.model}")
            captured = process.capture(request.model, request.batch, request.seed)
            graph = captured.graph
            shown.phase("making the pools")
            created = process.pools([pool.name for pool in request.pools])
            environment = process.started.environment
            facts = Facts(environment, {pool.name: pool for pool in created})
            about_graph = f"{captured.fingerprint} {request.model} {request.batch} {request.seed}"
            about_run: dict[str, str | int | float] = {
                "model": request.model,
                "batch": request.batch,
                "seed": request.seed,
                "fingerprint": captured.fingerprint,
                "results_copied": len(captured.copied),
                "kernel": platform.release(),
                **environment.to_dict(),
            }
            wanted = Wanted(graph, tuple(pool.name for pool in request.pools), request.modes, request.seconds)
            profiling = Profiling(wanted, cache, process, facts, about_graph, anew=request.anew)
            file = _gone_on_with(output, graph, created, about_run, force)
            if file is None or request.anew:
                shown.phase("how fast the pools are")
                key = BandwidthsKey(environment, created)
                bandwidths = _bandwidths(cache, process, key, shown, anew=request.anew)
                pools, about_file = _pools(created, bandwidths), about_run | _speeds(created, bandwidths)
                resolution_ns = process.started.resolution_ns
                if file is None:
                    file = ProfileFile.create(output, graph, pools, resolution_ns, about_file, force=force)
                else:
                    file.renew(pools, resolution_ns, about_file)
            before = file.measured()
            shown.count(before, {mode: of for mode, (_, of) in progress_of(file.profile(), request.modes).items()})
            for step in profiling.steps(before):
                file.replace(step.samples)
                shown.step(step)
        return file.profile()


def _gone_on_with(
    path: Path, graph: Graph, created: Sequence[MadePool], about_run: Mapping[str, str | int | float], force: bool
) -> ProfileFile | None:
    """Return a profile of the same things that was broken off. Raises UserError where there is another one."""
    if force or not os.path.lexists(path) or not is_profile(path):
        return None  # what is there, if anything, is refused where the file is made
    there = ProfileFile(path).profile()
    same = [pool.name for pool in created] == [pool.name for pool in there.pools]
    if there.graph != graph or not same or any(there.about.get(key) != value for key, value in about_run.items()):
        raise UserError(f"{path}: is a profile of something else, or from elsewhere; --force overwrites it")
    return ProfileFile(path)


@dataclass(frozen=True, slots=True)
class BandwidthsKey:
    """Everything that bandwidths depend on.

    Attributes:
        environment: machine, threads and versions.
        pools: in their order: the first is the one that the others are copied from and to.
    """

    environment: Environment
    pools: Sequence[MadePool]

    def to_dict(self) -> dict[str, Any]:
        return {**self.environment.to_dict(), "pools": [pool.to_dict() for pool in self.pools], "what": "moves"}


@dataclass(frozen=True, slots=True)
class CachedBandwidths:
    """Bandwidths of all pools as they are cached.

    Attributes:
        pools: in their order.
        sitting: when they were measured (ns, UTC).
    """

    pools: tuple[Bandwidth, ...]
    sitting: int

    def to_dict(self) -> dict[str, Any]:
        return {"pools": [bandwidth.to_dict() for bandwidth in self.pools], "sitting": self.sitting}

    @classmethod
    def from_dict(cls, value: Any, what: str = "bandwidths") -> CachedBandwidths:
        """Raise Damaged: somebody else may have put it into the cache."""
        fields = table(value, what)
        return cls(list_of(fields, "pools", Bandwidth.from_dict), required(fields, "sitting", count))


def _bandwidths(
    cache: Cache, process: PlacementProcess, key: BandwidthsKey, shown: ProfileProgress, *, anew: bool
) -> tuple[Bandwidth, ...]:
    """Measure once for a machine and its pools: plans that rest upon them should not change with every profile."""
    cached = None if anew else _cached(cache, key)
    if cached is not None:
        shown.bandwidths_ns = cached.sitting
        return cached.pools
    sitting = time.time_ns()
    bandwidths = process.bandwidths()
    cache.put([(key, CachedBandwidths(bandwidths, sitting))])
    return bandwidths


def _cached(cache: Cache, key: BandwidthsKey) -> CachedBandwidths | None:
    """Return what the cache has, if that is what it should be."""
    try:
        cached = CachedBandwidths.from_dict(cache.get(key))
    except Damaged:
        return None
    return cached if len(cached.pools) == len(key.pools) else None


def _pools(created: Sequence[MadePool], bandwidths: Sequence[Bandwidth]) -> list[Pool]:
    return [
        Pool(
            pool.name,
            pool.emulated,
            pool.note,
            read_bytes_per_s=bandwidth.copied_from,
            write_bytes_per_s=bandwidth.copied_to,
            async_read_bytes_per_s=bandwidth.copied_from_meanwhile,
            async_write_bytes_per_s=bandwidth.copied_to_meanwhile,
            read_fixed_ns=bandwidth.copied_from_fixed_ns,
            write_fixed_ns=bandwidth.copied_to_fixed_ns,
            async_read_fixed_ns=bandwidth.copied_from_meanwhile_fixed_ns,
            async_write_fixed_ns=bandwidth.copied_to_meanwhile_fixed_ns,
            async_start_ns=bandwidth.meanwhile_start_ns,
        )
        for pool, bandwidth in zip(created, bandwidths, strict=True)
    ]


def _speeds(created: Sequence[MadePool], bandwidths: Sequence[Bandwidth]) -> dict[str, str | int | float]:
    """Return what else was measured of the pools: bytes a second of reading and of writing."""
    speeds: dict[str, str | int | float] = {}
    for pool, bandwidth in zip(created, bandwidths, strict=True):
        speeds |= {f"{pool.name} read": bandwidth.read, f"{pool.name} written": bandwidth.written}
    return speeds
