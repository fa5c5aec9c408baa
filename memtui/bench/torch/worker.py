"""The process that measures: the worker runs the operators, and is the only process that imports torch.

The worker receives the messages of ``messages`` on its standard input and answers on its standard output. It ends with
its input, which it polls between blocks, so it does not outlive the sweep.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import traceback
from pathlib import Path

import psutil

from memtui.bench import data, loop
from memtui.bench.configuration import Configuration, from_text
from memtui.bench.cpu_speed import Yardstick
from memtui.bench.messages import (
    Done,
    Failed,
    MeasureRequest,
    Phase,
    PowerSettled,
    Ready,
    Reply,
    Unable,
    request_of,
)
from memtui.bench.plan import BenchPlan
from memtui.core.frozen_imports import frozen_imports
from memtui.core.json_fields import to_json
from memtui.probes.host import processor_name

ROOM = 0.8  # of the free memory may be used
_answers = 1  # where messages go


class Worker:
    """Measures requested configurations on one device."""

    def __init__(self, device: str, threads: int) -> None:
        """Prepare a device. Raises ImportError without torch, and RuntimeError where the device does not exist."""
        with frozen_imports():
            import torch

        self._torch, self._device = torch, device
        self._input = b""
        self._power_settled = False
        # One CPU is left to the rest of the machine: threads wait for each other at the end of every call, so all of
        # them would wait for a thread that was disturbed.
        torch.set_num_threads(threads or max(1, len(os.sched_getaffinity(0)) - 1))
        self._yardstick: Yardstick | None = None
        if device.startswith("cuda"):
            if not torch.cuda.is_available():
                raise RuntimeError(f"{device}: this PyTorch ({torch.__version__}) finds no CUDA device")
            torch.cuda.set_device(device)  # raises for a number that does not exist
            self._cache_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
        else:
            self._cache_bytes = last_level_cache_bytes()
            self._yardstick = Yardstick(torch, torch.get_num_threads())

    def serve(self) -> None:
        """Answer until the input ends."""
        send(self._ready())
        while (line := self._line()) is not None:
            request = request_of(json.loads(line))
            if not isinstance(request, MeasureRequest):
                continue
            self._power_settled = False
            try:
                self._measure(from_text(request.configuration), request.plan)
            except data.OutOfMemory as error:
                send(Failed("out of memory", str(error)))
            except loop.Interrupted:
                return
            except Exception as error:
                traceback.print_exc()
                is_memory = isinstance(error, RuntimeError) and data.out_of_memory(error)
                why = "out of memory" if is_memory else type(error).__name__
                send(Failed(why, str(error).partition("\n")[0]))
            if self._device.startswith("cuda"):
                self._torch.cuda.empty_cache()

    def _measure(self, configuration: Configuration, plan: BenchPlan) -> None:
        torch = self._torch
        send(Phase("data"))
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = configuration.dtype == "tf32"
        self._check_room(configuration)
        tensors = data.Data(torch, self._device, configuration, self._cache_bytes, plan.seed)
        load = loop.Load(torch, self._device, configuration, tensors)
        windows, settled, launch_share = loop.measure(load, plan, send, self._settled, self._yardstick)
        limit_ns = self._yardstick.limit_ns() if self._yardstick else None
        usual_ns = self._yardstick.usual_ns() if self._yardstick else None
        send(Done(tuple(windows), settled, limit_ns, usual_ns, tensors.walked_bytes, tensors.copies, launch_share))

    def _check_room(self, configuration: Configuration) -> None:
        """Raise OutOfMemory for tensors that cannot fit: Linux overcommits memory, and kills a process that uses it."""
        operator, p = configuration.operator, configuration.parameters
        size = operator.moved_bytes(p, 4) * (3 if configuration.both_ways else 1)
        on_cpu = self._device == "cpu"
        free = psutil.virtual_memory().available if on_cpu else self._torch.cuda.mem_get_info(self._device)[0]
        if size > ROOM * free:
            raise data.OutOfMemory(f"it takes {size} bytes, and {free} are free")

    def _ready(self) -> Ready:
        torch = self._torch
        own = str(torch.__version__), torch.get_num_threads(), self._cache_bytes, os.getpid()
        if not self._device.startswith("cuda"):
            return Ready(*own, processor_name(), "", capability=torch.backends.cpu.get_cpu_capability())
        properties = torch.cuda.get_device_properties(self._device)
        return Ready(
            *own,
            properties.name,
            str(getattr(properties, "uuid", "")),
            memory_bytes=properties.total_memory,
            cuda=torch.version.cuda,
            cudnn=torch.backends.cudnn.version(),
        )

    def _settled(self) -> bool:
        """Whether the sweep reported that the power has settled. Raises Interrupted when the sweep is gone."""
        while select.select([0], [], [], 0)[0]:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                raise loop.Interrupted
            self._input += chunk
        while b"\n" in self._input:
            line, _, self._input = self._input.partition(b"\n")
            self._power_settled |= isinstance(request_of(json.loads(line)), PowerSettled)
        return self._power_settled

    def _line(self) -> bytes | None:
        while b"\n" not in self._input:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return None
            self._input += chunk
        line, _, self._input = self._input.partition(b"\n")
        return line


def send(message: Ready | Reply | Unable) -> None:
    """Write a message to the sweep. Raises BrokenPipeError."""
    os.write(_answers, json.dumps(to_json(message), separators=(",", ":")).encode() + b"\n")


def last_level_cache_bytes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Return the size of the largest cache of the first CPU; 0 where the kernel does not report it."""
    sizes = [0]
    for path in root.glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes)


def main() -> int:
    """Run the command line of the process and return its exit status."""
    parser = argparse.ArgumentParser(prog="memtui.bench.torch.worker")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    # From here on standard output leads to /dev/null, for the user's network.
    global _answers
    _answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        Worker(options.device, options.threads).serve()
    except (ImportError, RuntimeError, BrokenPipeError) as error:
        send(Unable(str(error).partition("\n")[0]))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
