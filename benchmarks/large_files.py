"""Importing files of the size that PyTorch's own viewer gives up on: seconds and peak of memory, by size of the file.

The files are made here, event by event as ``torch.profiler`` and ``torch.cuda.memory._dump_snapshot`` write them: a
trace of spans, launches, kernels, flows and ``[memory]`` instants; a snapshot of two devices with deep call stacks,
whose frames are shared.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from benchmarks import file_table
from benchmarks.run import ROOT, Run, say
from benchmarks.table import Row, columns, once

MIB = 1 << 20
SIZES_MIB, QUICK_MIB = (100, 1024), (10,)
LIMIT_S, LIMIT_MIB = 60, 1024
BASE_NS, FIRST_US = 1_790_857_026_000_000_000, 4_836_724_535_525.058
_OPS = (
    "aten::linear",
    "aten::addmm",
    "aten::relu",
    "aten::empty",
    "aten::native_layer_norm",
    "aten::scaled_dot_product",
)
_DEPTHS = (24, 80)  # frames of a stack, Python and C++ together
_STACKS, _FRAMES, _ALIVE = 3_000, 4_000, 600


def measure(run: Run) -> Iterator[Row]:
    """Traces and snapshots of 100 MiB and of 1 GiB, and a table of these and of real files (``file_table``)."""
    lines: list[tuple[str, ...]] = [file_table.HEAD]
    session = run.folder / "large.memtui"
    for what, write in KINDS:
        for size_mib in QUICK_MIB if run.quick else SIZES_MIB:
            path = run.folder / "large"
            with path.open("wb") as file:
                events = write(file, size_mib * MIB)
            name = f"{what} of {size_mib:,} MiB, {events:,} events"
            say(f"{name} ...")
            begin = time.perf_counter()
            costs = file_table.import_with(ROOT, path, session)
            seconds = time.perf_counter() - begin
            if costs.failed:
                raise RuntimeError(f"the import of a {name} failed: {costs.failed}")
            lines.append(file_table.line(path, f"generated: {name}", run.folder, costs, session))
            path.unlink()
            yield once(f"import of a {name}", seconds, "s", LIMIT_S)
            yield once(f"import of a {name}: peak of memory", costs.peak_mib, "MiB", LIMIT_MIB)
    lines += [file_table.line(path, name, run.folder) for path, name in file_table.real_files(run)]
    run.tables.append(columns(lines))


def write_trace(file: BinaryIO, most_bytes: int, calls: int = 0) -> int:
    """Write a trace of the profiler up to a size; return the number of its events.

    ``calls``: as with ``with_stack=True``, so many calls in Python around each operator.
    """
    chance, events, written, ts = random.Random(1), 0, 0, FIRST_US
    held: list[tuple[int, int]] = []
    total = 0
    file.write(
        b'{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA H200"}],"profile_memory":1,'
        b'"displayTimeUnit":"ms","baseTimeNanoseconds":%d,"traceEvents":[' % BASE_NS
    )
    step = unit = 0
    while written < most_bytes:
        lines = []
        if unit % 4000 == 0:
            lines.append(_span("user_annotation", f"ProfilerStep#{step}", ts, 4000 * 40.0, unit))
            step += 1
        for call in range(calls):
            name = f"train/model_{(unit // 7 + call) % 97}.py({call * 31 + 5}): forward_{unit % 11 * call}"
            lines.append(_span("python_function", name, ts + 0.01 * call, 39.5 - 0.02 * call, unit))
        backward = unit % 4000 > 2000
        name = _OPS[unit % len(_OPS)]
        if backward:
            lines.append(
                _span("cpu_op", f"autograd::engine::evaluate_function: Node{unit % 7}Backward0", ts, 38.5, unit)
            )
        lines.append(_span("cpu_op", name, ts + 1.125, 30.25, unit))
        lines.append(_span("cpu_op", "aten::empty_strided", ts + 2.25, 4.5, unit))
        if len(held) > 400 or (held and chance.random() < 0.45):
            address, size = held.pop(chance.randrange(len(held)))
            change = -size
        else:
            change, address = 512 * chance.randrange(1, 4000), 140_528_442_748_928 + 512 * unit
            held.append((address, change))
        total += change
        lines.append(_memory(ts + 3.5, change, total, address, unit))
        lines.append(
            f'{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1139,"tid":1139,'
            f'"ts":{ts + 8:.3f},"dur":5.627,"args":{{"External id":{unit},"cbid":211,"correlation":{unit}}}}}'
        )
        lines.append(f'{{"ph":"s","id":{unit},"pid":1139,"tid":1139,"ts":{ts + 8:.3f},"cat":"ac2g","name":"ac2g"}}')
        lines.append(
            '{"ph":"X","cat":"kernel","name":"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor'
            '<float>, std::array<char*, 1ul> >(int, at::native::FillFunctor<float>)",'
            f'"pid":0,"tid":7,"ts":{ts + 20:.3f},"dur":0.864,"args":{{"External id":{unit},"queued":0,"device":0,'
            f'"context":1,"stream":7,"correlation":{unit},'
            '"registers per thread":16,"grid":[1,1,1],"block":[128,1,1],"est. achieved occupancy %":0}}'
        )
        lines.append(f'{{"ph":"f","id":{unit},"pid":0,"tid":7,"ts":{ts + 20:.3f},"cat":"ac2g","name":"ac2g","bp":"e"}}')
        text = (",\n" if unit else "") + ",\n".join(lines)
        written += file.write(text.encode())
        events += len(lines)
        unit += 1
        ts += 40
    file.write(b'\n],"traceName":"trace.json"}\n')
    return events


def _span(kind: str, name: str, ts: float, dur: float, unit: int) -> str:
    return (
        f'{{"ph":"X","cat":"{kind}","name":"{name}","pid":1139,"tid":1139,"ts":{ts:.3f},"dur":{dur:.3f},"args":'
        f'{{"External id":{unit},"Record function id":0,"Concrete Inputs":["","",""],"Input type":["float","float",""],'
        f'"Input Strides":[[100,1],[1],[]],"Input Dims":[[8,100],[8],[]],"Ev Idx":{unit}}}}}'
    )


def _memory(ts: float, change: int, total: int, address: int, unit: int) -> str:
    return (
        f'{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1139,"tid":1139,"ts":{ts:.3f},"args":'
        f'{{"Total Reserved":71303168,"Total Allocated":{total},"Bytes":{change},"Device Id":0,"Device Type":1,'
        f'"Addr":{address},"finished":false,"Ev Idx":{unit}}}}}'
    )


class _Pickled:
    """Instructions of a pickle of protocol 4, as Python's own pickler writes them: what it saw before it refers to."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._memo: dict[object, int] = {}
        self.memoised = 0
        self.written = file.write(b"\x80\x04")

    def put(self, raw: bytes) -> None:
        """Write instructions as they are."""
        self.written += self._file.write(raw)

    def remember(self, key: object = None) -> bytes:
        """Return the instruction that memoises the top of the stack, under a name."""
        if key is not None:
            self._memo[key] = self.memoised
        self.memoised += 1
        return b"\x94"

    def got(self, key: object) -> bytes:
        """Return the instruction that gets what was memoised under a name."""
        index = self._memo[key]
        return b"h" + bytes([index]) if index < 256 else b"j" + index.to_bytes(4, "little")

    def text(self, text: str, *, shared: bool = True) -> bytes:
        """Return the instructions of a text; ``shared``: one object wherever it stands."""
        if shared and text in self._memo:
            return self.got(text)
        raw = text.encode()
        return b"\x8c" + bytes([len(raw)]) + raw + self.remember(text if shared else None)

    @staticmethod
    def whole(value: int) -> bytes:
        """Return the instruction of a whole number."""
        if 0 <= value < 256:
            return b"K" + bytes([value])
        if 0 <= value < 1 << 16:
            return b"M" + value.to_bytes(2, "little")
        if value < 1 << 31:
            return b"J" + value.to_bytes(4, "little", signed=True)
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(raw)]) + raw


def write_snapshot(file: BinaryIO, most_bytes: int) -> int:
    """Write a snapshot of the allocator up to a size; return the number of its events."""
    chance, out = random.Random(1), _Pickled(file)
    stacks = [_stack(chance) for _ in range(_STACKS)]
    out.put(b"}" + out.remember() + b"(" + out.text("segments") + b"]" + out.remember())
    out.put(out.text("device_traces") + b"]" + out.remember() + b"(")
    events, time_us, devices = 0, BASE_NS // 1000, 2
    for device in range(devices):
        out.put(b"]" + out.remember())
        held: list[tuple[int, int, list[int]]] = []
        going: tuple[int, int, list[int]] | None = None  # the free of it was requested
        until = most_bytes * (device + 1) // devices
        number = 0
        while out.written < until:
            out.put(b"(")
            for _ in range(1000):
                time_us += chance.randrange(1, 40)
                if number % 3 == 1 and len(held) > _ALIVE:
                    place = chance.randrange(len(held))
                    held[-1], held[place] = held[place], held[-1]
                    going = held.pop()
                    _entry(out, "free_requested", *going, time_us)
                elif number % 3 == 2 and going is not None:
                    _entry(out, "free_completed", *going, time_us)
                    going = None
                else:
                    size = 512 * chance.randrange(1, 60_000)
                    held.append((140_528_442_748_928 + 512 * number, size, stacks[chance.randrange(_STACKS)]))
                    _entry(out, "alloc", *held[-1], time_us)
                number += 1
            out.put(b"e")
            events += 1000
    out.put(b"e" + out.text("allocator_settings") + b"}" + out.remember() + b"u.")
    return events


def _stack(chance: random.Random) -> list[int]:
    return [chance.randrange(_FRAMES) for _ in range(chance.randrange(*_DEPTHS))]


def _entry(out: _Pickled, action: str, address: int, size: int, stack: list[int], time_us: int) -> None:
    out.put(b"}" + out.remember() + b"(" + out.text("action") + out.text(action))
    out.put(out.text("addr") + out.whole(address) + out.text("size") + out.whole(size))
    out.put(out.text("stream") + out.whole(0) + out.text("time_us") + out.whole(time_us))
    out.put(out.text("compile_context") + out.text("N/A", shared=False))
    out.put(out.text("user_metadata") + out.text("", shared=False))
    out.put(out.text("frames") + b"]" + out.remember() + b"(")
    out.put(b"".join([_frame(out, number) for number in stack]) + b"eu")


def _frame(out: _Pickled, number: int) -> bytes:
    key = "frame", number
    if number % 3:
        name, filename = f"torch::autograd::Node{number}::apply(std::vector<at::Tensor>&&)", "??"
    else:
        folder = "torch/nn/modules" if number % 2 else "train"
        name, filename = (
            f"forward_{number}",
            f"/home/user/.venv/lib/python3.13/site-packages/{folder}/module_{number % 97}.py",
        )
    try:
        return out.got(key)
    except KeyError:
        made = b"}" + out.remember(key) + b"(" + out.text("name") + out.text(name)
        made += out.text("filename") + out.text(filename) + out.text("line") + out.whole(number % 700)
        return made + b"u"


def write_trace_with_calls(file: BinaryIO, most_bytes: int) -> int:
    """Write a trace with 12 calls in Python around each operator; return the number of its events."""
    return write_trace(file, most_bytes, calls=12)


MAKERS: dict[str, Callable[[BinaryIO, int], int]] = {
    "trace": write_trace,
    "calls": write_trace_with_calls,
    "snapshot": write_snapshot,
}
KINDS = (
    ("Chrome trace", write_trace),
    ("Chrome trace with stacks", write_trace_with_calls),
    ("CUDA snapshot", write_snapshot),
)

if __name__ == "__main__":  # python -m benchmarks.large_files trace|calls|snapshot MIB FILE: makes a file to look at
    kind, size, target = sys.argv[1:]
    with Path(target).open("wb") as made_file:
        print(MAKERS[kind](made_file, int(size) * MIB), "events")
