"""A made-up training for the screen: what a session reader would answer, without a file. Grows with a clock."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from memtui.analysis.reuse_histogram import ReuseHistogram, bin_of
from memtui.core.errors import UserError
from memtui.core.fast_numpy import distinct
from memtui.core.page_set import PageSet
from memtui.core.readings import GpuMemory, GpuUse, PowerReading
from memtui.core.samples import Capability, Clock, End, Event, Hello, Host, Options, Process, Target

MIB = 1 << 20
STEP_NS = 210_000_000
PSS_BYTES = 90 << 20  # of each process of a family
ORIGIN_NS = 100_000_000_000  # the machine is up for longer, so live windows are of the past


def _rows() -> list[SimpleNamespace]:
    big = [
        (0x5581_0000_0000, 24 * MIB, "rw-p", "[heap]", ""),
        (0x7F2A_0000_0000, 64 * MIB, "rw-p", "", ""),
        (0x7F2A_1000_0000, 588 * MIB, "rw-p", "", ""),
        (0x7F2A_4000_0000, 41 * MIB, "r-xp", "/usr/lib/libtorch_cpu.so", ""),
        (0x7F2A_4800_0000, 12 * MIB, "rw-p", "/usr/lib/libtorch_cpu.so", ""),
        (0x7F2A_5000_0000, 8 * MIB, "r--p", "/usr/lib/python3.11/lib-dynload/_ssl.so", ""),
        (0x7F42_0000_0000, 16 * MIB, "rw-s", "/dev/shm/torch_4242_1", ""),
        (0x7FFC_1000_0000, 132 << 10, "rw-p", "[stack]", ""),
    ]
    small = [(0x7F50_0000_0000 + n * 4 * MIB, 8192, "r--p", f"/usr/lib/libsmall{n}.so", "") for n in range(400)]
    noaccess = [(0x7F60_0000_0000 + n * 4 * MIB, 2 * MIB, "---p", "", "noaccess") for n in range(15)]
    return [
        SimpleNamespace(
            id=number, process=1, pid=4242, start=start, end=start + size, perms=perms, name=name,
            first_sample=0, last_sample=1 << 40, filtered=filtered, open=True, states=(),
            filtered_at=lambda sample, filtered=filtered: filtered,
        )
        for number, (start, size, perms, name, filtered) in enumerate(big + small + noaccess)
    ]  # fmt: skip


class FakeSamples(SimpleNamespace):
    """A table of samples of 0.2 s."""

    has_budget = are_estimates = False

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def newest(self) -> int:
        return int(self.sample[-1]) if len(self) else -1

    def intervals_ns(self, of: slice = slice(None)) -> np.ndarray:
        return np.full(len(self.sample), 200_000_000)[of]


class FakeSession:
    """``count`` samples are there; with ``growing`` more appear as time passes (``clock`` in seconds)."""

    def __init__(
        self,
        count: int = 300,
        *,
        children: int = 0,
        growing: bool = False,
        tracker: str = "pagetable",
        clock=time.monotonic,
    ):
        self.path = Path("/home/ann/.local/state/memtui/train-4242.memtui")
        wss = Capability("wss", True)
        if tracker == "rss":
            wss = Capability("wss", False, "needs root", "sudo memtui attach 4242")
        self.hello = Hello(
            "0.1",
            Clock(ORIGIN_NS, 1_700_000_000_000_000_000, 0, "boot"),
            Host("lab", "6.1", "x86_64", 2, 8 << 30),
            Target(4242, 99, "/usr/bin/python3 -u /home/ann/train.py --epochs 3", "ann"),
            Options(200_000_000, filter="noaccess"),  # what is left out of the screen besides is stored
            tracker,
            "cold" if tracker == "pagetable" else "off",
            "working-set",
            wss=wss,
        )
        self.growing, self.clock, self.began, self.first = growing, clock, clock(), count
        self.end = None if growing else End(ORIGIN_NS + count * STEP_NS, "target exited")
        self.children = children
        self.rows = _rows()
        for child in range(1, children + 1):  # each with a heap of its own, and ranks as torchrun gives them
            heap = vars(self.rows[0]) | {"id": 1000 + child, "process": 1 + child, "pid": 4242 + child}
            self.rows.append(SimpleNamespace(**heap))
        self.ended_at: dict[int, int] = {}  # process -> the sample in which it ended
        self.released = self.gave_way = self.asked_pages = 0
        self.downsampled_to_bytes: int | None = None
        self.partial = False
        self._sums: list[int] = []
        self.processes = SimpleNamespace(
            all=self._all_processes,
            after=self._processes_after,
            with_keys=self._processes_of,
            present=self._processes_in,
            samples=self._process_samples,
        )
        self.vmas = SimpleNamespace(
            rows=self._vma_rows,
            rows_of=self._vma_rows_of,
            wss=self._vma_wss,
            rss=self._vma_rss,
            shared=self._vma_shared,
            private=lambda first_sample, last_sample: [],
        )
        self.pages = SimpleNamespace(
            page_set=self._page_set,
            processes=self._processes_with_pages,
            sums=self._touch_sums,
            stored_sample=self._stored_sample,
        )
        self.reuse = SimpleNamespace(until=self._reuse_until, between=self._reuse_between, bursts=lambda *samples: [])
        self.devices = SimpleNamespace(
            power=self._power,
            gpu_memory_at=self._gpu_memory_at,
            gpu_use_at=self._gpu_use_at,
            memory_limits=lambda first_ns, last_ns: [],
            memory_use=lambda first_ns, last_ns: [],
            numa_use=lambda first_ns, last_ns: [],
        )
        self.training = SimpleNamespace(
            progress=self._training,
            devices=self._training_devices,
            networks=self._trainings,
            details=None,
            traced_fraction=lambda until_ns: None,
        )
        self.allocations = SimpleNamespace(steps=list, driver_memory=list)
        self.tensors = SimpleNamespace(starts=self._tensor_places, latest=lambda pid, t_ns: None)
        self.refresh()

    @property
    def alive(self) -> bool:
        return self.growing

    @property
    def file_bytes(self) -> int:
        return 40_000 + 7_000 * len(self.samples.sample)

    def stop(self) -> None:
        """The target exits."""
        self.growing = False
        self.end = End(int(self.samples.end_ns[-1]), "target exited")

    def refresh(self) -> bool:
        count = self.first
        if self.growing:
            count += int((self.clock() - self.began) * 1e9 / STEP_NS)
        old = len(self.samples.sample) if hasattr(self, "samples") else -1
        if count == old:
            return False
        n = np.arange(count)
        start = ORIGIN_NS + n * STEP_NS
        self._sums += [self._wss(s) for s in range(len(self._sums), count)]
        wss = np.array(self._sums[:count], float)
        tracked = self.hello.wss.ok
        self.samples = FakeSamples(
            sample=n,
            start_ns=start,
            end_ns=start + 200_000_000,
            asked_ns=np.full(count, 200_000_000),
            budgeted_ns=np.full(count, np.nan),
            next_ns=np.full(count, np.nan),
            paused_ns=np.full(count, 3_100_000.0 if tracked else np.nan),
            wss_bytes=wss if tracked else np.full(count, np.nan),
            stored_bytes=wss if tracked else np.full(count, np.nan),
            wss_low_bytes=np.full(count, np.nan),
            wss_high_bytes=np.full(count, np.nan),
            lost_ns=np.full(count, 4_000_000.0 if tracked else np.nan),
            set_again_ns=np.full(count, 900_000.0 if tracked else np.nan),
            rss_bytes=(1030.0 + 20 * np.sin(n / 40)) * MIB,
            processes=np.full(count, 1.0 + self.children),
            pss_bytes=np.full(count, PSS_BYTES * (1.0 + self.children) if self.children else np.nan),
            pss_ns=np.where(self.children > 0, start + 200_000_000.0, np.nan),
            sampler_cpu_ns=n * 1_500_000,
            recorder_cpu_ns=n * 600_000,
            gaps=np.zeros(count, np.int64),
            faulted_in_bytes=np.full(count, np.nan),
            unknown_bytes=np.full(count, np.nan),
            shared_bytes=np.full(count, float(self.shared_bytes) if tracked else np.nan),
            disturbed=("",) * count,
            status=("ok",) * count,
            reason=("",) * count,
        )
        return True

    def release(self) -> None:
        self.released += 1

    def release_if_ended(self) -> None:
        self.gave_way += 1

    def _all_processes(self) -> list[Process]:
        children = [
            Process(
                1 + n, 4242 + n, 4242, 100 + n, 0, f"python worker.py {n}", f"child RANK={n - 1} LOCAL_RANK={n - 1}"
            )
            for n in range(1, self.children + 1)
        ]
        return [Process(1, 4242, 1, 99, 0, "train.py", "target"), *children]

    def _process_samples(self, first_sample: int, last_sample: int) -> list[dict]:
        return [
            {
                "sample": n,
                "process": p.key,
                "status": "gone" if n >= self.ended_at.get(p.key, 1 << 40) else "ok",
                "reason": "",
                "end_ns": ORIGIN_NS + n * STEP_NS + 200_000_000,
                "cpu_ns": n * STEP_NS // p.key,
                "wss_bytes": self._size_of(n, p.key) if self.hello.wss.ok else None,
                # As if all of it were touched: a verdict would read hundreds of page sets, which take long to invent.
                "stored_bytes": (1030 if p.key == 1 else 100 * p.key) * MIB if self.hello.wss.ok else None,
                "shared_bytes": self._shared_of(p.key) if self.hello.wss.ok else None,
                "rss_bytes": (1030 if p.key == 1 else 100 * p.key) * MIB,
                "pss_bytes": PSS_BYTES if self.children else None,
                "pss_ns": ORIGIN_NS + n * STEP_NS + 200_000_000 if self.children else None,
                "pss_reason": "",
                "private_bytes": PSS_BYTES // 2 if self.children else None,
                "swap_bytes": 0,
                "minor_faults": 0,
                "major_faults": 0,
                "faulted_in_bytes": None,
            }
            for n in range(first_sample, last_sample + 1)
            for p in self.processes.all()
            if n <= self.ended_at.get(p.key, 1 << 40)
        ]

    def _processes_after(self, key):
        return [process for process in self.processes.all() if process.key > key]

    def _processes_of(self, keys):
        return [process for process in self.processes.all() if process.key in keys]

    def _processes_in(self, first_sample, last_sample):
        return {process.key for process in self.processes.all()}

    def _vma_rows_of(self, processes):
        return [row for row in self._vma_rows() if row.process in processes]

    def _vma_rows(self, process=None):
        return self.rows

    def _touched(self, sample: int) -> list[tuple[int, int]]:
        """(row, bytes): what a forward and backward pass walk through."""
        if not self.hello.wss.ok:
            return []
        phase = sample % 16 / 16
        wave = 0.5 + 0.5 * np.sin(2 * np.pi * phase)
        return [
            (0, int(2 + 6 * wave) * MIB), (1, int(20 + 40 * wave) * MIB), (2, 12 * MIB), (3, 9 * MIB),
            (4, int(3 * wave + 1) * MIB), (6, int(16 * (phase < 0.3)) * MIB), (7, 65536),
            *((1000 + child, (4 + child) * MIB) for child in range(1, self.children + 1)),
        ]  # fmt: skip

    def _size_of(self, sample: int, process: int) -> int:
        by_id = {row.id: row.process for row in self.rows if row.id < 8 or row.id > 1000}
        return sum(size for row, size in self._touched(sample) if by_id[row] == process)

    def _wss(self, sample: int) -> int:
        return sum(size for _, size in self._touched(sample)) - max(self.children - 1, 0) * self.shared_bytes

    @property
    def shared_bytes(self) -> int:
        """All children touch the same part of their heaps."""
        return 3 * MIB if self.children > 1 else 0

    def _shared_of(self, process: int) -> int:
        return self.shared_bytes if process > 1 else 0

    def _vma_shared(self, sample: int) -> dict[int, int]:
        return {1000 + child: self.shared_bytes for child in range(1, self.children + 1) if self.shared_bytes}

    def _vma_wss(self, first_sample: int, last_sample: int):
        samples, ids, values = [], [], []
        for sample in range(first_sample, last_sample + 1):
            for row, size in self._touched(sample):
                if size:
                    samples.append(sample)
                    ids.append(row)
                    values.append(size)
        return np.array(samples, np.int64), np.array(ids, np.int64), np.array(values, np.int64)

    def _vma_rss(self, sample: int) -> dict[int, int]:
        return {row.id: row.end - row.start for row in self.rows if row.perms != "---p"}

    def _stored_sample(self, first_sample: int, last_sample: int) -> int | None:
        return first_sample

    def _touch_sums(self, first_sample: int, last_sample: int) -> dict:
        return {}  # as before the first of them is whole

    def _processes_with_pages(self, sample: int) -> frozenset[int]:
        return frozenset(row.process for row in self.rows)

    def _page_set(self, sample: int, process: int) -> PageSet | None:
        self.asked_pages += 1
        random = np.random.default_rng(sample)
        pages = []
        by_id = {row.id: row for row in self.rows if row.process == process}
        for row, size in self._touched(sample):
            if row not in by_id:
                continue
            vma = by_id[row]
            whole, count = (vma.end - vma.start) >> 12, size >> 12
            at = int(sample % 16 / 16 * whole)
            sparse = distinct(random.integers(0, whole, count))
            own = sparse if row == 2 else (at + np.arange(count)) % whole
            pages.append(own + (vma.start >> 12))
        return PageSet.from_pages(np.concatenate(pages)) if pages else None

    def _training(self, first_ns: int = 0, last_ns: int = 1 << 62, device: str = "cpu") -> list:
        return []

    def _trainings(self) -> list:
        return []

    def _training_devices(self) -> list[str]:
        return ["cpu"]

    def _tensor_places(self, after: int) -> list:
        return []

    def _reuse_until(self, sample: int) -> ReuseHistogram:
        histogram = ReuseHistogram()
        octaves = np.array([16, 18, 20, 21, 22, 23, 24, 25, 26, 26.5, 27, 27.2, 27.5, 28, 29, 30])
        counts = np.array([3, 1, 1, 2, 3, 5, 9, 14, 30, 55, 80, 40, 16, 6, 2, 3]) * (sample + 1)
        distance = np.exp2(octaves).astype(np.int64)
        np.add.at(histogram.upper, bin_of(distance), counts)
        np.add.at(histogram.lower, bin_of((distance * 0.94).astype(np.int64)), counts)
        histogram.first_touches = int(counts.sum() * 0.02) + 20
        return histogram

    def _reuse_between(self, first_sample: int, last_sample: int) -> list:
        return []

    def _power(self, first_ns: int, last_ns: int) -> list[PowerReading]:
        none = PowerReading(ORIGIN_NS, "CPU", "package", "rapl", status="unsupported", reason="no RAPL zone here")
        out = [none]
        for second in range(max(0, (first_ns - ORIGIN_NS) // 10**9), max(0, (last_ns - ORIGIN_NS) // 10**9)):
            t = ORIGIN_NS + second * 10**9
            if first_ns <= t < last_ns:
                watts = 388 + 60 * np.sin(second / 5)
                out.append(
                    PowerReading(t, "GPU 0", "board", "nvml", float(watts), 388.0 * second, 700.0, name="NVIDIA H100")
                )
        return out

    def _gpu_memory_at(self, t_ns: int) -> dict[int, GpuMemory]:
        """The parent holds nothing, the first child more and more, and of the second nobody tells."""
        second = (t_ns - ORIGIN_NS) // 10**9
        held = {1: GpuMemory(t_ns, 1, 0), 2: GpuMemory(t_ns, 2, (500 + second) * MIB)}
        return held | {3: GpuMemory(t_ns, 3, None, "denied", "GPU 1: the driver refuses it to this user")}

    def _gpu_use_at(self, t_ns: int) -> dict[int, GpuUse]:
        """The first child keeps half of a GPU busy."""
        why = "GPU 1: use by process: the driver refuses it to this user"
        return {1: GpuUse(t_ns, 1, 0.0), 2: GpuUse(t_ns, 2, 0.48), 3: GpuUse(t_ns, 3, None, "denied", why)}

    def events(self, first_ns: int, last_ns: int) -> list[Event]:
        marks = [ORIGIN_NS + n * 20 * 10**9 for n in range(1, 4)]
        return [Event(t, "mark", "epoch") for t in marks if first_ns <= t < last_ns]


if __name__ == "__main__":
    # python -m tests.support.screen_fakes live|replay|rss [count] [color]: the screen on invented data, to look at.
    from memtui.core.errors import silence
    from memtui.tui import terminal

    kind, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 300
    how = terminal.prepare(color=sys.argv[3] if len(sys.argv) > 3 else "auto", ascii_only="ascii" in sys.argv)
    from memtui.tui.session_app import MemtuiApp

    session = FakeSession(count, growing=kind != "replay", tracker="rss" if kind == "rss" else "pagetable")
    app = MemtuiApp(lambda: session, live=kind != "replay", color=how.color, ascii_only=how.ascii_only)
    app.run()
    if terminal.hung_up():  # as run_viewer does
        silence(sys.__stderr__)
        silence(sys.stdout)
    raise SystemExit(app.return_code or 0)


class FakeRecording:
    """Takes orders as a recording does, and keeps them."""

    def __init__(self, why: str = "") -> None:
        self.orders: list[tuple[str, dict[str, Any]]] = []
        self.paused, self.why = False, why

    def __call__(self, do: str, **fields: Any) -> dict[str, Any]:
        assert threading.current_thread() is not threading.main_thread(), "the screen would stand still meanwhile"
        if self.why:
            raise UserError(self.why)
        self.orders.append((do, fields))
        if do in ("pause", "resume"):
            self.paused = do == "pause"
        return {"ok": True, "paused": self.paused}
