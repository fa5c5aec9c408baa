"""``memtui place profile``: takes what was asked, lets a child process measure, and keeps what it finds."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Mapping
from contextlib import closing
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
from memtui.placement.profiling.planner import Profiling, Request, Wanted, broken_off, far
from memtui.placement.profiling.progress import ProfileProgress
from memtui.placement.profiling.text import about, lines
from memtui.placement.store import ProfileFile
from memtui.placement.validation import Damaged, count, positive
from memtui.placement.worker_client import BUSY, PlacementProcess
from memtui.probes.power.fast_energy import lock_path

CACHE = "place-cache.db"  # in the state directory
_RATES = ("read", "written", "copied_from", "copied_to")


def profile(args: argparse.Namespace, console: Console) -> int:
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
        shown = ProfileProgress(line.tell, begin=None if args.json or line.on_terminal else console.notify)
        try:
            found = work(shown)
        except KeyboardInterrupt:
            console.notify(broken_off(args.output, request.modes))
            raise
    plain = about(found, args.output, shown)
    print(json.dumps(plain, indent=2) if args.json else "\n".join(map(visible, lines(plain))))
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
            shown.count(before, {mode: of for mode, (_, of) in far(file.profile(), request.modes).items()})
            for step in profiling.steps(before):
                file.replace(step.samples)
                shown.step(step)
        return file.profile()


def _gone_on_with(
    path: Path, graph: Graph, made: list[dict[str, Any]], told: Mapping[str, Any], force: bool
) -> ProfileFile | None:
    """Return a profile of the same things that was broken off. Raises UserError where there is another one."""
    if force or not os.path.lexists(path) or not is_profile(path):
        return None  # what is there, if anything, is refused where the file is made
    found = ProfileFile(path).profile()
    same = [pool["name"] for pool in made] == [pool.name for pool in found.pools]
    if found.graph != graph or not same or any(found.about.get(key) != value for key, value in told.items()):
        raise UserError(f"{path}: is a profile of something else, or from elsewhere; --force overwrites it")
    return ProfileFile(path)


def _bandwidths(
    cache: Cache, process: PlacementProcess, facts: Mapping[str, Any], shown: ProfileProgress, *, anew: bool
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
    """Return what a cache holds, if that is what it should be."""
    try:
        found = [positive(each[way], way) for each in kept["pools"] for way in _RATES]
        count(kept["sitting"], "sitting")
    except (Damaged, KeyError, TypeError):
        return None
    return dict(kept) if len(found) == pools * len(_RATES) else None


def _pools(
    made: list[dict[str, Any]], bandwidths: list[dict[str, Any]]
) -> tuple[list[Pool], dict[str, str | int | float]]:
    """Return the pools, and what else was measured of them: bytes a second of reading and of writing."""
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
