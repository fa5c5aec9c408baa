"""What memtui reads of a GPU through NVML, against ``nvidia-smi`` in the same second; and how the sensors average."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu_check import square_wave
from benchmarks.gpu_check.checks import Report
from benchmarks.gpu_check.children import running, smi, smi_lines, smi_monitor, smi_text, zeus_monitor
from memtui.analysis.energy import from_counter
from memtui.core.readings import GPU_COUNTERS, PowerReading
from memtui.probes.gpu.nvml import NO_GPU, NvmlProbe
from memtui.probes.power.energy_source import NvmlEnergy

PAIRS = 5
QUERY = (
    "power.draw.instant,power.draw.average,enforced.power.limit,utilization.gpu,memory.used,clocks.sm,clocks.mem,"
    "temperature.gpu,clocks_event_reasons.active,uuid"
)
PERIOD_S, WAVE_S = 0.23, 5.0  # not a multiple of any sensor's period, so that its phase wanders
POWER, AVERAGE, ENERGY = 186, 185, 83  # NVML_FI_DEV_POWER_INSTANT, ..._AVERAGE, NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
MIB = 1 << 20
# By field of ``PowerReading``: the number of its metric in NVML and in ``nvidia-smi dmon --gpm-metrics``.
PRODUCTS_PER_CYCLE = (
    2048  # bf16 multiplications with an addition of one SM of H100 and H200, by NVIDIA's figure for the board
)
COUNTERS = {"sm_active": 2, "sm_occupancy": 3, "tensor_active": 5, "dram_active": 10}


def run(report: Report) -> None:
    """Run the stage."""
    probe = NvmlProbe()
    first = probe.read(time.monotonic_ns())[0]
    if first.device == NO_GPU:
        report.missing("NVML", first.reason)
        return
    recording: dict[str, Any] = {"name": first.name}
    with running("steady", 30) as load:
        time.sleep(1.5)
        with report.part("nvidia-smi"):
            against_smi(report, probe)
        with report.part("memory and use by process"):
            processes(report, probe, load.process.pid)
        with report.part("counters"):
            counters(report, probe)
        with report.part("energy"):
            _energy(report, smi("uuid")[0], recording)
        with report.part("cost of calls"):
            _costs(report, probe)
    for what in ("products", "copies"):
        with report.part(f"counters by work, {what}"):
            counters_by_work(report, probe, what)
    with report.part("averaging window"):
        _averaging(report, recording)
    (report.folder / "nvml-recording.json").write_text(json.dumps(recording, separators=(",", ":")))


def against_smi(report: Report, probe: NvmlProbe) -> None:
    """Compare one value after the other with ``nvidia-smi``."""
    powers: list[tuple[float, float]] = []
    uses: list[tuple[float, float]] = []
    source = NvmlEnergy(smi("uuid")[0])
    values: list[str] = []
    last: PowerReading | None = None
    for _ in range(PAIRS):
        before = probe.read(time.monotonic_ns())[0]
        values = smi(QUERY)
        last = probe.read(time.monotonic_ns())[0]
        if before.power_w and last.power_w:
            powers.append(((before.power_w + last.power_w) / 2, float(values[0])))
        uses.append(((last.utilization or 0.0) * 100, float(values[3])))
        time.sleep(0.3)
    assert last is not None
    watts = [statistics.median(side) for side in zip(*powers, strict=True)] if powers else [None, None]
    report.close(f"power ({last.source}), median of {PAIRS}", watts[0], watts[1], 0.05, "W", "nvidia-smi instant")
    report.close("power limit", last.limit_w, float(values[2]), 0.0, "W", "nvidia-smi")
    report.close("utilisation", *(statistics.median(side) for side in zip(*uses, strict=True)), 0.05, "%", "nvidia-smi")  # type: ignore[misc]
    used = None if last.memory_used_bytes is None else last.memory_used_bytes / MIB
    report.close("memory in use", used, float(values[4]), 0.002, "MiB", "nvidia-smi")
    state = source.state()
    values = smi(QUERY)
    report.close("SM clock", state.get("sm_mhz"), float(values[5]), 0.05, "MHz", "nvidia-smi")
    report.close("memory clock", state.get("memory_mhz"), float(values[6]), 0.0, "MHz", "nvidia-smi")
    report.close("temperature", state.get("temperature_c"), float(values[7]), 0.05, "C", "nvidia-smi")
    mask = int(values[8], 16)
    named = {0x1: "idle", 0x2: "application clocks", 0x4: "software power cap", 0x8: "hardware slowdown"}
    reasons = sorted(word for word in state.get("held_down", []) if word in named.values())
    wanted = sorted(word for bit, word in named.items() if mask & bit)
    report.equal("why the clock is held down", ", ".join(reasons), ", ".join(wanted), "nvidia-smi")
    source.close()


def processes(report: Report, probe: NvmlProbe, pid: int) -> None:
    """Compare what is said of single processes; ``pid``: of one that computes."""
    probe.read(time.monotonic_ns())
    held = {holding.pid: holding for holding in probe.holdings()}
    told = {int(line[0]): float(line[1]) for line in smi_lines("pid,used_memory", "compute-apps")}
    mine = held.get(pid)
    measured = None if mine is None or mine.gpu_bytes is None else mine.gpu_bytes / MIB
    report.close(
        "memory of a process", measured, told.get(pid), 0.002, "MiB", "nvidia-smi", mine.reason if mine else ""
    )
    report.equal("processes with GPU memory", sorted(p for p in held if p), sorted(told), "nvidia-smi")
    rows = smi_monitor("pmon", "-c", "1", "-s", "u")
    use = {int(row["pid"]): float(row["sm"]) for row in rows if row["pid"].isdigit() and row["sm"].isdigit()}
    measured = None if mine is None or mine.gpus_used is None else 100 * mine.gpus_used
    why = mine.use_reason if mine else "it is not listed"
    report.close("use by a process", measured, use.get(pid), 0.1, "%", "nvidia-smi pmon", why)


def counters(report: Report, probe: NvmlProbe) -> None:
    """Compare the counters of a board that multiplies matrices with those that ``nvidia-smi dmon`` reads."""
    probe.read(time.monotonic_ns())
    words = ("dmon", "-c", "4", "--gpm-metrics", ",".join(map(str, COUNTERS.values())))
    try:
        text = smi_text(*words)
    except (OSError, subprocess.SubprocessError) as error:
        text = f"# {type(error).__name__}: {getattr(error, 'stdout', '')}"
    (report.folder / "dmon.txt").write_text(text)
    # The metrics asked for are the last columns, in that order, whatever a driver calls them.
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    told = dict(zip(COUNTERS, rows[-1][-len(COUNTERS) :] if rows else (), strict=False))
    reading = probe.read(time.monotonic_ns())[0]
    for field in COUNTERS:
        share = getattr(reading, field)
        measured = None if share is None else 100 * share
        word = told.get(field, "-")
        other = float(word) if word.replace(".", "", 1).isdigit() else None
        why = reading.counters_reason if measured is None else f"memtui said {measured:.1f} %, nvidia-smi {word!r}"
        report.close(field, measured, other, 0.1, "%", "nvidia-smi dmon", why)
    busy = reading.tensor_active
    if busy is not None:
        report.holds("tensor cores are busy with products", 0.5 < busy <= 1, f"{100 * busy:.1f} %", "50 to 100 %")
    rates = {name: getattr(reading, name) for name in GPU_COUNTERS if name.endswith("_per_s")}
    told_rates = ", ".join(f"{name} {rate / MIB:.1f} MiB/s" for name, rate in rates.items() if rate is not None)
    report.figure("traffic", told_rates or f"n/a: {reading.counters_reason}")


def counters_by_work(report: Report, probe: NvmlProbe, what: str) -> None:
    """Compare counters with the work that was done while they counted, by what the board could have done."""
    import pynvml
    import torch

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    clocks: list[int] = []
    with running("rate", what, 4) as load:
        time.sleep(1)
        probe.read(time.monotonic_ns())
        for _ in range(20):
            time.sleep(0.1)
            clocks.append(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
        reading = probe.read(time.monotonic_ns())[0]
        per_s = load.result()["per_s"]
    if what == "products":
        hertz = 1e6 * statistics.mean(clocks)
        most = torch.cuda.get_device_properties(0).multi_processor_count * PRODUCTS_PER_CYCLE * hertz
        share, name = reading.tensor_active, "tensor_active"
    else:
        hertz = 2e6 * pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)  # twice a cycle
        most = hertz * pynvml.nvmlDeviceGetMemoryBusWidth(handle) / 8
        share, name = reading.dram_active, "dram_active"
    measured = None if share is None else 100 * share
    title, source = f"{name} while a process does {what}", f"{what} a second by the most that the clock allows"
    share_of_most = 100 * per_s / most
    if what == "copies" or measured is None:
        report.close(title, measured, share_of_most, 0.1, "%", source, reading.counters_reason)
    else:  # cycles in which a tensor core is at work, at its full rate or not
        report.holds(
            title, share_of_most - 1 < measured <= 100, f"{measured:.1f} %", f"{share_of_most:.1f} % ({source}) or more"
        )


def _energy(report: Report, uuid: str, recording: dict[str, Any]) -> None:
    """Compare the counter over some seconds of load with the sensor's integral and with Zeus."""
    source = NvmlEnergy(uuid)
    monitor = zeus_monitor()
    rows: list[tuple[int, float, float]] = []

    def poll(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            energy_j, power_w = source.read()
            rows.append((time.monotonic_ns(), energy_j, power_w))
            time.sleep(0.002)

    poll(0.5)
    if monitor:
        monitor.begin_window("load", sync_execution=False)
    begin = time.monotonic_ns()
    poll(8.0)
    end = time.monotonic_ns()
    zeus = monitor.end_window("load", sync_execution=False) if monitor else None
    poll(0.5)
    t_ns, energy, power = (np.array(column) for column in zip(*rows, strict=True))
    counted = from_counter(t_ns.astype(np.int64), energy, begin, end)
    inside = (t_ns >= begin) & (t_ns <= end)
    mean_w = float(np.trapezoid(power[inside], t_ns[inside]) / (t_ns[inside][-1] - t_ns[inside][0]))
    what = "mean power of 8 s of steady load, by the counter"
    report.close(what, counted.power_w, mean_w, 0.02, "W", "integral of the sensor")
    zeus_w = None if zeus is None else float(next(iter(zeus.gpu_energy.values()))) / zeus.time
    report.close(what, counted.power_w, zeus_w, 0.02, "W", "Zeus", "Zeus takes the counter's steps as they come")
    ticks = np.diff(t_ns[np.flatnonzero(np.diff(energy)) + 1]) / 1e6
    report.figure("the counter moves every", f"{np.median(ticks):.1f} ms")
    report.figure("one reading of counter and sensor takes", f"{_duration_us(source):.0f} us")
    recording["steady"] = [(int(t), round(e, 3), round(p, 3)) for t, e, p in rows[::4]]
    source.close()


def _duration_us(source: NvmlEnergy) -> float:
    times = []
    for _ in range(30):
        begin = time.monotonic_ns()
        source.read()
        times.append((time.monotonic_ns() - begin) / 1e3)
        time.sleep(0.01)
    return statistics.median(times)


def _costs(report: Report, probe: NvmlProbe) -> None:
    """Say what single calls cost under load: the wait, and the CPU time in it."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    calls: dict[str, Callable[[], object]] = {
        "a reading of NvmlProbe": lambda: (probe.read(time.monotonic_ns()), probe.holdings()),
        "energy counter": lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "energy counter as a field": lambda: pynvml.nvmlDeviceGetFieldValues(handle, [(ENERGY, 0)]),
        "power and energy as fields": lambda: pynvml.nvmlDeviceGetFieldValues(handle, [(POWER, 0), (ENERGY, 0)]),
        "power as a field": lambda: pynvml.nvmlDeviceGetFieldValues(handle, [(POWER, 0)]),
        "average power": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "utilisation": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle),
        "memory": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2),
        "compute processes": lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle),
        "use by process": lambda: pynvml.nvmlDeviceGetProcessUtilization(handle, int((time.time() - 1) * 1e6)),
    }
    for name, call in calls.items():
        waits, costs = [], []
        for _ in range(12):
            begin, cpu = time.monotonic_ns(), time.thread_time_ns()
            with contextlib.suppress(pynvml.NVMLError):
                call()
            waits.append((time.monotonic_ns() - begin) / 1e3)
            costs.append((time.thread_time_ns() - cpu) / 1e3)
            time.sleep(0.03)
        text = f"{statistics.median(waits):.0f} us, {statistics.median(costs):.0f} us of it CPU time"
        report.figure(f"cost of a call: {name}", text)


def _averaging(report: Report, recording: dict[str, Any]) -> None:
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    rows: list[tuple[int, int, int]] = []
    with running("square", PERIOD_S, WAVE_S) as load:
        end = time.monotonic() + WAVE_S
        while time.monotonic() < end:
            instant, average = pynvml.nvmlDeviceGetFieldValues(handle, [(POWER, 0), (AVERAGE, 0)])
            rows.append((time.monotonic_ns(), instant.value.uiVal, average.value.uiVal))
            time.sleep(0.002)
        on_ns = load.result()["on_ns"]
    recording["square"] = {"on_ns": on_ns, "rows": rows}
    t_ns, instant_mw, average_mw = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    delays = tuple(range(0, 101, 5))
    for name, values, windows in (
        ("instant", instant_mw, (*range(2, 60, 2), *range(60, 400, 10))),
        ("average", average_mw, tuple(range(100, 2001, 25))),
    ):
        sensor = square_wave.fit(on_ns, *square_wave.updates(t_ns, values / 1000), windows, delays)
        text = (
            f"{sensor.window_ns / 1e6:.0f} ms, a value every {sensor.every_ns / 1e6:.0f} ms, "
            f"{sensor.delay_ns / 1e6:.0f} ms old; "
            f"levels {sensor.off_w:.0f} and {sensor.on_w:.0f} W, error {sensor.error_w:.0f} W"
        )
        if name == "average":
            report.holds(
                "window of the average power", 800e6 <= sensor.window_ns <= 1200e6, text, "about 1 s (NVML's manual)"
            )
        else:
            seen = 100 * min(1.0, sensor.window_ns / sensor.every_ns)
            report.figure("window of the instant power", text, f"it sees {seen:.0f} % of the time")
