"""``memtui place profile``: reads the arguments, measures in a child process, and stores the profile."""

from __future__ import annotations

import argparse
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
from memtui.core.json_fields import to_json
from memtui.core.privilege import invoker, state_directory
from memtui.core.text import printable
from memtui.placement import memory
from memtui.placement.builtin_models import batch_of, check_model
from memtui.placement.file_header import is_profile
from memtui.placement.graph import Graph
from memtui.placement.pool_specs import PoolSpec, parse_pools
from memtui.placement.profile import MODES, Pool, Profile
from memtui.placement.profiling.cache import Cache
from memtui.placement.profiling.planner import Facts, Measurements, Profiling, Request, progress_of, unfinished_message
from memtui.placement.profiling.progress import ProfileProgress
from memtui.placement.profiling.text import about, lines
from memtui.placement.store import ProfileFile
from memtui.placement.validation import Damaged, count, list_of, required, table
from memtui.placement.worker_client import BUSY, PlacementProcess
from memtui.placement.worker_protocol import Bandwidth, CreatedPool, Environment
from memtui.probes.power.energy_source import lock_path

CACHE = "place-cache.db"  # in the state directory


def profile(args: argparse.Namespace, console: Console) -> int:
    """Profile and return the exit status. Raises UserError."""
    pools = parse_pools(args.pools)
    _check_here(pools)
    model = check_model(str(args.file))
    request = Request(
        model,
        pools,
        args.mode or MODES,
        args.seconds,
        batch_of(model, args.batch),
        args.seed,
        args.threads,
        args.again,
    )
    if args.output is None:
        raise UserError("say where the profile goes: -o p.memtui")
    if os.path.lexists(args.output) and not is_profile(args.output):
        raise UserError(f"{args.output}: exists and is not a placement profile")
    check_place(args.output, force=True)  # before minutes are spent
    if args.cache is not None:
        check_place(args.cache, force=True)
    cache = args.cache or state_directory(invoker()) / CACHE

    def work(progress: ProfileProgress) -> Profile:
        return measure(request, args.output, cache, progress, force=args.force)

    if console.wants_screen(args):
        from memtui.placement.profiling.screen import profile_on_screen

        return profile_on_screen(
            args, request, lambda progress: lines(about(work(progress), args.output, progress)), console
        )
    with console.progress(f"profiling {args.file}") as line:
        progress = ProfileProgress(line.update, on_start=None if args.json or line.on_terminal else console.notify)
        try:
            result = work(progress)
        except KeyboardInterrupt:
            console.notify(unfinished_message(args.output, request.modes))
            raise
    document = about(result, args.output, progress)
    if args.json:
        console.print_json(document)
    else:
        print("\n".join(map(printable, lines(document))))
    return 0


def _check_here(pools: tuple[PoolSpec, ...]) -> None:
    """Raise UserError for a pool that this machine does not have, before PyTorch is started."""
    for pool in pools:
        try:
            if pool.node is not None:
                memory.check_node(pool.node)
            if pool.folder:
                memory.about_folder(pool.folder)
        except memory.NoMemory as error:
            raise UserError(f"{pool.name}: {error}") from None


def measure(
    request: Request, output: Path, cache_path: Path, progress: ProfileProgress, *, force: bool = False
) -> Profile:
    """Measure into the profile's file, and return the profile; an unfinished one is continued. Raises UserError."""
    with Cache(cache_path) as cache, exclusively(lock_path(None), BUSY):
        progress.phase("starting PyTorch")
        with closing(PlacementProcess(request.threads)) as process:
            process.tick = progress.tick
            progress.phase(f"recording a step of {request.model}")
            captured = process.capture(request.model, request.batch, request.seed)
            graph = captured.graph
            progress.phase("making the pools")
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
                **to_json(environment),
            }
            measurements = Measurements(
                graph, tuple(pool.name for pool in request.pools), request.modes, request.seconds
            )
            profiling = Profiling(measurements, cache, process, facts, about_graph, anew=request.anew)
            file = _unfinished(output, graph, created, about_run, force)
            if file is None or request.anew:
                progress.phase("how fast the pools are")
                key = BandwidthsKey(environment, created)
                bandwidths = _bandwidths(cache, process, key, progress, anew=request.anew)
                pools, about_file = _pools(created, bandwidths), about_run | _speeds(created, bandwidths)
                resolution_ns = process.started.resolution_ns
                if file is None:
                    file = ProfileFile.create(output, graph, pools, resolution_ns, about_file, force=force)
                else:
                    file.renew(pools, resolution_ns, about_file)
            before = file.measured()
            progress.count(before, {mode: of for mode, (_, of) in progress_of(file.profile(), request.modes).items()})
            for step in profiling.steps(before):
                file.replace(step.samples)
                progress.step(step)
        return file.profile()


def _unfinished(
    path: Path, graph: Graph, created: Sequence[CreatedPool], about_run: Mapping[str, str | int | float], force: bool
) -> ProfileFile | None:
    """Return an unfinished profile of the same things. Raises UserError where the file is another profile."""
    if force or not os.path.lexists(path) or not is_profile(path):
        return None  # any other file is refused where the profile is created
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
        pools: in their order; the other pools are copied from and to the first.
    """

    environment: Environment
    pools: Sequence[CreatedPool]

    def to_dict(self) -> dict[str, Any]:
        return {**to_json(self.environment), "pools": to_json(self.pools), "what": "moves"}


@dataclass(frozen=True, slots=True)
class CachedBandwidths:
    """Bandwidths of all pools as they are cached.

    Attributes:
        pools: bandwidths of each pool, in their order.
        sitting: time of the measurement (ns, UTC).
    """

    pools: tuple[Bandwidth, ...]
    sitting: int

    @classmethod
    def from_dict(cls, value: Any, what: str = "bandwidths") -> CachedBandwidths:
        """Raise Damaged: another program may have written the value."""
        fields = table(value, what)
        return cls(list_of(fields, "pools", Bandwidth.from_dict), required(fields, "sitting", count))


def _bandwidths(
    cache: Cache, process: PlacementProcess, key: BandwidthsKey, progress: ProfileProgress, *, anew: bool
) -> tuple[Bandwidth, ...]:
    """Measure once for a machine and its pools, so that plans do not change with every profile."""
    cached = None if anew else _cached(cache, key)
    if cached is not None:
        progress.bandwidths_ns = cached.sitting
        return cached.pools
    sitting = time.time_ns()
    bandwidths = process.bandwidths()
    cache.put([(key, CachedBandwidths(bandwidths, sitting))])
    return bandwidths


def _cached(cache: Cache, key: BandwidthsKey) -> CachedBandwidths | None:
    """Return the cached bandwidths; None where they are missing or damaged."""
    try:
        cached = CachedBandwidths.from_dict(cache.get(key))
    except Damaged:
        return None
    return cached if len(cached.pools) == len(key.pools) else None


def _pools(created: Sequence[CreatedPool], bandwidths: Sequence[Bandwidth]) -> list[Pool]:
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


def _speeds(created: Sequence[CreatedPool], bandwidths: Sequence[Bandwidth]) -> dict[str, str | int | float]:
    """Return the bandwidths of reading and writing each pool, in bytes a second, as facts of a profile."""
    speeds: dict[str, str | int | float] = {}
    for pool, bandwidth in zip(created, bandwidths, strict=True):
        speeds |= {f"{pool.name} read": bandwidth.read, f"{pool.name} written": bandwidth.written}
    return speeds
