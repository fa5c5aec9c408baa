"""The process that captures, measures and runs; of all that places tensors only it imports torch.

It takes one JSON object a line on its standard input and answers each with one on its standard output. The end of the
input is the end. It looks for that between measurements, so it does not outlive the one who started it. What the
user's model prints goes nowhere.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import traceback
from typing import Any, TextIO

import psutil

from memtui.core.units import size
from memtui.placement.graph import Configuration
from memtui.placement.memory import NoMemory
from memtui.placement.plan import PlacementPlan
from memtui.placement.pool_specs import parse_pool
from memtui.probes.host import processor_name

SWITCH_S = 1e-4  # a thread that moves tensors waits no longer for one that computes in Python, or waits busily
ROOM = 0.8  # of the memory that is free may be taken


class ParentExited(Exception):
    """Nobody is there any more."""


class Worker:
    """One captured step, its pools, and what it is told to do with them."""

    def __init__(self, asked: TextIO, told: TextIO, threads: int) -> None:
        """``asked``: where questions come from; ``told``: where answers go. Raises ImportError without torch."""
        import torch

        from memtui.placement.torch.clock import Clock, resolution_ns

        self._torch, self._asked, self._told = torch, asked, told
        # As the bench does: one CPU is left to the rest of the machine.
        torch.set_num_threads(threads or max(1, len(os.sched_getaffinity(0)) - 1))
        self._clock = Clock()
        self._resolution_ns = resolution_ns(self._clock)
        self._captured: Any = None
        self._machine: Any = None
        self._measuring: Any = None
        self._seed = 0

    def serve(self) -> None:
        """Answer until the input ends."""
        environment = {
            "torch": self._torch.__version__,
            "threads": self._torch.get_num_threads(),
            "cpu": processor_name(),
            "capability": self._torch.backends.cpu.get_cpu_capability(),
        }
        self._tell({"at": "ready", "resolution_ns": self._resolution_ns, "environment": environment})
        for line in self._asked:
            asked = json.loads(line)
            try:
                self._tell({"at": "done", **getattr(self, f"_{asked.pop('do')}")(**asked)})
            except (BrokenPipeError, ParentExited):
                return
            except Exception as error:
                traceback.print_exc()
                self._tell({"at": "failed", "kind": type(error).__name__, "text": self._why(error)})

    def _why(self, error: Exception) -> str:
        from memtui.placement.torch.models import NoStep

        line = str(error).partition("\n")[0]
        return line if isinstance(error, NoMemory | NoStep) else f"{type(error).__name__}: {line}"

    def _capture(self, model: str, batch: int, seed: int) -> dict[str, Any]:
        from memtui.placement.torch.capture import capture
        from memtui.placement.torch.models import build

        self._seed = seed
        self._captured = capture(build(model, batch, seed), model)
        copied = [k.op.name for k in self._captured.kernels if k.copies]
        graph = self._captured.graph.to_plain()
        return {"graph": graph, "fingerprint": self._captured.fingerprint, "copied": copied}

    def _pools(self, names: list[str]) -> dict[str, Any]:
        from memtui.placement.torch.placed_step import Machine
        from memtui.placement.torch.pools import Pool
        from memtui.placement.torch.timers import Measuring

        self._check_room(len(names))
        pools = []
        for name in names:
            try:
                pools.append(Pool(parse_pool(name)))
            except NoMemory as error:
                raise NoMemory(f"{name}: {error}" if not str(error).startswith(name) else str(error)) from None
        self._machine = Machine(self._captured, pools, self._clock)
        self._measuring = Measuring(self._machine, self._seed, self._check_listener)
        return {"pools": [pool.to_plain() for pool in pools]}

    def _check_room(self, pools: int) -> None:
        """Linux promises memory that it has not, and ends the process that then uses it. Raises NoMemory."""
        needed = pools * sum(storage.size_bytes for storage in self._captured.graph.storages.values())
        free = psutil.virtual_memory().available
        if needed > ROOM * free:
            raise NoMemory(f"every tensor in every pool takes {size(needed)}, and {size(free)} of memory are free")

    def _bandwidths(self) -> dict[str, Any]:
        from memtui.placement.torch.bandwidth import measure

        found = measure(list(self._machine.pools.values()), self._clock)
        return {"bandwidths": [bandwidth.to_plain() for bandwidth in found]}

    def _isolated(self, op: str, configurations: list[Any], seconds: float) -> dict[str, Any]:
        found = [Configuration.from_plain(plain) for plain in configurations]
        return {"times_ns": self._measuring.isolated(op, found, seconds)}

    def _in_graph(self, placements: list[dict[str, str]], seconds: float) -> dict[str, Any]:
        return {"runs_ns": self._measuring.in_graph(placements, seconds)}

    def _run(self, plans: list[Any], repeats: int) -> dict[str, Any]:
        from memtui.placement.torch.execution import execute

        return execute(
            self._machine, [PlacementPlan.from_plain(plan) for plan in plans], repeats, self._seed, self._check_listener
        )

    def _check_listener(self) -> None:
        """Raise Gone when the other end of the input was closed: nobody says anything while it waits for an answer."""
        if select.select([self._asked], [], [], 0)[0]:
            raise ParentExited

    def _tell(self, plain: dict[str, Any]) -> None:
        self._told.write(json.dumps(plain, separators=(",", ":")) + "\n")
        self._told.flush()


def main() -> int:
    """Run the command line of the process and return its exit status."""
    parser = argparse.ArgumentParser(prog="memtui.placement.torch.worker")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    # From here on the standard streams are the user's model's, and lead nowhere.
    asked, told = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    sys.setswitchinterval(SWITCH_S)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    try:
        Worker(asked, told, options.threads).serve()
    except (ImportError, RuntimeError) as error:
        print(json.dumps({"at": "unable", "text": str(error).partition("\n")[0]}), file=told, flush=True)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
