"""The GPU reader as a process of its own: a driver call that hangs is told, and delays nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from memtui.core.samples import Status
from memtui.probes.gpu.worker import pause_after
from memtui.session.session import Session
from memtui.tui.presenters.power import PowerLog
from tests.nvml_stub.build import COMPILER, compile_stand_in, run_with
from tests.support.cli import memtui
from tests.support.live import part, pattern
from tests.support.nvml_process import SETUP

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc) to build the NVML stand-in")
WORKER = "memtui.probes.gpu.nvml_worker"


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Path:
    return compile_stand_in(tmp_path_factory.mktemp("nvml"))


def test_readings_come_at_their_own_moments(driver):
    code = SETUP + (
        "probe = GpuProcess(); first = wait_for(good); second = wait_for(good);"
        "import sys; print(json.dumps([first, second, time.monotonic_ns(), 'pynvml' in sys.modules,"
        "[asdict(c) for c in probe.capabilities()]])); probe.close()"
    )
    first, second, now_ns, loaded, capabilities = run_with(driver, code, devices=2, processes="7:1,8:1")
    assert [(reading["device"], reading["power_w"], reading["processes"]) for reading in first] == [
        ("GPU 0", 250, 2),
        ("GPU 1", 500, 2),
    ]
    assert 300_000_000 < second[0]["t_ns"] - first[0]["t_ns"] < 5_000_000_000
    assert second[0]["t_ns"] < now_ns
    assert not loaded, "the bindings belong to the other process"
    assert [(reading["name"], reading["ok"]) for reading in capabilities] == [("nvml", True)]


def test_a_call_that_hangs_is_stale_and_nobody_waits_for_it(driver, tmp_path):
    hang = tmp_path / "hang"
    code = SETUP + (
        f"hang = pathlib.Path({str(hang)!r}); probe = GpuProcess(); wait_for(good); hang.touch();"
        "one = wait_for(stale); two = wait_for(stale); time.sleep(1.2); three = wait_for(stale);"
        "hang.unlink(); again = wait_for(good); probe.close(); print(json.dumps([one, two, three, again, longest]))"
    )
    one, two, three, again, longest = run_with(driver, code, hang=hang)
    assert re.fullmatch(r"stale since \d\d:\d\d:\d\d: the NVIDIA driver does not answer", one[0]["reason"])
    assert (one[0]["device"], one[0]["source"], one[0]["power_w"]) == ("GPU 0", "nvml instant", None)
    assert one[0]["reason"] == two[0]["reason"] == three[0]["reason"], "since when does not move"
    assert again[0]["power_w"] == 250
    assert longest < 0.5, "it waited"


def test_a_hanging_process_is_replaced_after_a_while(driver, tmp_path):
    hang = tmp_path / "hang"
    code = SETUP + (
        f"hang = pathlib.Path({str(hang)!r}); probe = GpuProcess(stale_ns=700_000_000, restart_ns=1_500_000_000);"
        "wait_for(good); first = probe._worker.pid; hang.touch(); wait_for(stale);"
        "wait_for(lambda found: probe._worker.pid != first); gone = not os.path.exists(f'/proc/{first}');"
        "hang.unlink(); wait_for(good); probe.close(); print(json.dumps(gone))"
    )
    assert run_with(driver, code, hang=hang)


def test_a_driver_that_hangs_from_the_start(driver, tmp_path):
    hang = tmp_path / "hang"
    hang.touch()
    code = SETUP + (
        "import memtui.probes.gpu.client as module; module.FIRST_WORD_S = 1.0; probe = GpuProcess();"
        "capability = asdict(probe.capabilities()[0]); found = wait_for(stale); probe.close();"
        "print(json.dumps([capability, found]))"
    )
    capability, (reading,) = run_with(driver, code, hang_init=hang)
    assert (capability["ok"], capability["reason"]) == (False, "the NVIDIA driver did not answer in 1 s")
    assert "nvidia-smi" in capability["remedy"]
    assert (reading["device"], reading["status"]) == ("GPU", "failed")
    assert reading["reason"].startswith("stale since")


def test_a_process_that_was_killed_is_told_and_replaced(driver):
    code = SETUP + (
        "probe = GpuProcess(restart_ns=1_000_000_000); wait_for(good); probe._worker.kill(); probe._worker.wait();"
        "dead = wait_for(stale); wait_for(good); probe.close(); print(json.dumps(dead))"
    )
    (dead,) = run_with(driver, code)
    assert dead["reason"].endswith("the GPU reader ended (status -9)")


def test_without_a_gpu_the_process_ends_and_its_word_stands(driver):
    code = SETUP + (
        "probe = GpuProcess(stale_ns=300_000_000);"  # on a busy machine its first word comes later than that
        "wait_for(lambda found: not stale(found)); probe._worker.wait(); time.sleep(0.5);"
        "print(json.dumps([asdict(one) for one in probe.read(5)])); probe.close()"
    )
    (reading,) = run_with(driver, code, devices=0)
    assert (reading["t_ns"], reading["status"], reading["reason"]) == (
        5,
        "unsupported",
        "the NVIDIA driver shows no GPU",
    )


def test_the_process_dies_with_the_one_that_started_it(driver, tmp_path):
    hang = tmp_path / "hang"
    code = SETUP + (
        f"probe = GpuProcess(); wait_for(good); pathlib.Path({str(hang)!r}).touch(); time.sleep(1);"
        "print(probe._worker.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    environment = os.environ | {"LD_LIBRARY_PATH": str(driver), "STANDIN_HANG": str(hang)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    worker, end = int(done.stdout), time.monotonic() + 10
    while psutil.pid_exists(worker) and psutil.Process(worker).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end, "it outlived its parent"
        time.sleep(0.02)


@pytest.mark.real_clock
def test_a_hang_delays_no_window_of_a_recording(driver, tmp_path):
    hang, path = tmp_path / "hang", tmp_path / "s.memtui"
    steering = {"LD_LIBRARY_PATH": str(driver), "STANDIN_HANG": str(hang), "STANDIN_PROCESSES": "7:1,8:1,9:1"}
    with pattern("loop", "--pages", 300) as truth:
        options = ["--interval", "0.1", "--duration", "7", "--tracker", "rss"]
        argv = [sys.executable, "-m", "memtui", "record", str(truth["pid"]), "-o", str(path), *options]
        with subprocess.Popen(argv, env=os.environ | steering, stdout=subprocess.DEVNULL) as recording:
            sampler, worker = part(recording.pid, "memtui.recording.sampler"), part(recording.pid, WORKER)
            time.sleep(3)
            hang.touch()
            sampler_mib, worker_mib = (p.memory_info().rss / 2**20 for p in (sampler, worker))
            assert recording.wait() == 0
        assert not psutil.pid_exists(worker.pid)
    reader = Session(path)
    ends = reader.samples.end_ns
    half = (ends[0] + ends[-1]) // 2
    before, after = int((ends < half).sum()), int((ends >= half).sum())
    assert after >= 0.7 * before, f"{before} windows before the hang, {after} after"
    rows = [r for r in reader.devices.power(0, 2**62) if r.device == "GPU 0"]
    assert rows[0].power_w == 250
    assert rows[0].processes == 3
    stale = [r for r in rows if r.status == Status.FAILED]
    assert len(stale) == 1, "an absent source is stored once"
    assert stale[0].reason.startswith("stale since")
    log, playhead = PowerLog(), type("Playhead", (), {"latest_ns": int(ends[-1])})
    log.update(reader, playhead)
    device = next(d for d in log.view(int(ends[-1])).devices if d.name == "GPU 0")
    assert (device.now_w, device.mean_w, device.note) == (None, 250, stale[0].reason)
    reader.close()
    report = json.loads(memtui("report", path, "--json").stdout)
    gpu = next(p for p in report["power"] if p["device"] == "GPU 0")
    assert (gpu["mean_w"], gpu["processes"], gpu["reason"]) == (250, 3, stale[0].reason)
    argv = memtui("report", path).stdout
    assert re.search(r"power +GPU 0 board, 3 processes: mean 250 W, .* \(stale since", argv)
    assert memtui("export", path, "--to", "csv", "-o", tmp_path / "out").returncode == 0
    header, *lines = (tmp_path / "out/power.csv").read_text().splitlines()
    assert header.endswith(",nvlink_rx_bytes_per_s,counters_reason")
    assert any(",3,0.9" in line for line in lines if line.split(",")[1] == "GPU 0")
    assert sampler_mib < 60
    assert worker_mib < 40


def test_a_driver_that_takes_cpu_time_is_asked_more_seldom():
    """Readings take half a percent of a CPU, but none is further away than 3 s."""
    assert [pause_after(cost_s) for cost_s in (0, 0.001, 0.0069, 0.055)] == [0.5, 0.5, pytest.approx(1.38), 3]
