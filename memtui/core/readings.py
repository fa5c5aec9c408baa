"""What is read between windows, at moments of its own: power, GPUs, resident memory, and the limit of memory."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.core.samples import Status

# Scopes of a ``PowerReading`` by which its energy is added to others, or is not.
GPU_PACKAGE = "GPU package"  # leaves out the memory and regulators of the card
GPU_WITH_CPU = "processor with CPU"  # an APU
SOCKET_WITH_MEMORY = "socket with memory"  # of Grace
CHASSIS = "chassis"  # everything behind the power supply


@dataclass(frozen=True, slots=True)
class PowerReading:
    """One power source at one moment. ``energy_j`` counts up from an arbitrary origin."""

    t_ns: int
    device: str  # "GPU 0", "CPU package 0"
    scope: str  # what the figure covers: "board", "package", "dram"
    source: str  # "nvml instant", "rapl", "hwmon average": docs/reference/accuracy.md has all
    power_w: float | None = None
    energy_j: float | None = None
    limit_w: float | None = None
    memory_used_bytes: int | None = None
    utilization: float | None = None
    name: str = ""
    status: str = Status.OK
    reason: str = ""
    processes: int | None = None  # compute processes of all users on the board: they share its power
    # Of a GPU, as means since the reading before: shares from 0 to 1, and traffic seen from the GPU.
    sm_active: float | None = None
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    counters_reason: str = ""  # of a GPU: why one of these is missing


GPU_COUNTERS = (
    *("sm_active", "sm_occupancy", "tensor_active", "dram_active", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
    *("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
)
"""The fields of ``PowerReading`` that the counters of a GPU give."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The memory of one process on all GPUs together at one moment. ``process`` is its key."""

    t_ns: int
    process: int
    gpu_bytes: int | None
    status: str = Status.OK
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How busy one process kept all GPUs together, a mean since the reading before. ``process`` is its key.

    ``gpus_used``: 0.48 is about half of one GPU.
    """

    t_ns: int
    process: int
    gpus_used: float | None
    status: str = Status.OK
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Resident memory of a process tree at one moment, between windows, too.

    Attributes:
        t_ns: when it was read.
        processes: their number.
        rss_bytes: the sum of their RSS, which counts shared pages several times.
        pss_bytes: the sum of their PSS, where that was read for this moment; None: not read, or a process alone.
    """

    t_ns: int
    processes: int
    rss_bytes: int
    pss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NumaUse:
    """Where some of the touched pages of a process lie, and where its threads run: on one NUMA node, at one moment.

    Attributes:
        t_ns: when it was read.
        process: its key.
        node: number of the node.
        pages: how many pages of 4 KiB lie there, of those that were chosen at random in the window before.
        threads: how many threads that ran since the reading before had a CPU of the node last.
    """

    t_ns: int
    process: int
    node: int
    pages: int
    threads: int


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The limit of memory that leaves a program the least, at one moment.

    Attributes:
        t_ns: when it was read.
        cgroup: whose limit that is, as in ``/proc/PID/cgroup``; empty: the memory of the machine.
        limit_bytes: the limit.
        used_bytes: what everything under that limit uses.
        reclaimable_bytes: part of that: page cache, which the kernel takes back before it kills.
        swap_bytes: how much of it can still be swapped out.
        stall_cgroup: the cgroup whose tasks the next two count; empty: all tasks of the machine.
        some_stall_ns: how long at least one task waited for memory since the count started (PSI); None: not counted.
        full_stall_ns: how long all tasks that wanted to run waited at once; None: not counted.
        refaults: pages read since the count started that had been in memory, and were dropped; None: not counted.
        oom_score_adj: of the program, -1000 to 1000: what the kernel looks at when it kills; None: not read.
        high_cgroup: the cgroup whose ``memory.high`` is reached first; empty: none has one. Above it nothing is killed,
            but its tasks have to give memory back before they go on.
        high_bytes: that boundary.
        high_used_bytes: what everything under it uses.
        high_events: how often its tasks were above it since the count started; None: not counted.
    """

    t_ns: int
    cgroup: str
    limit_bytes: int
    used_bytes: int
    reclaimable_bytes: int
    swap_bytes: int
    stall_cgroup: str = ""
    some_stall_ns: int | None = None
    full_stall_ns: int | None = None
    refaults: int | None = None
    oom_score_adj: int | None = None
    high_cgroup: str = ""
    high_bytes: int | None = None
    high_used_bytes: int | None = None
    high_events: int | None = None

    @property
    def needed_bytes(self) -> int:
        """What is used and is not page cache."""
        return self.used_bytes - self.reclaimable_bytes

    @property
    def left_bytes(self) -> int:
        """How much more can be used until the kernel kills."""
        return self.limit_bytes - self.needed_bytes + self.swap_bytes


@dataclass(frozen=True, slots=True)
class Power:
    """All power readings of one tick, and what was read with them: of GPUs by process, and of memory."""

    readings: tuple[PowerReading, ...] = ()
    gpu_memory: tuple[GpuMemory, ...] = ()
    gpu_use: tuple[GpuUse, ...] = ()
    limits: tuple[MemoryLimit, ...] = ()
    memory_use: tuple[MemoryUse, ...] = ()
    numa_use: tuple[NumaUse, ...] = ()
