"""What ``make gpu-check`` makes of its readings, and that it says what is missing on a machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.gpu_check import __main__ as gpu_check
from benchmarks.gpu_check import square_wave, traces
from benchmarks.gpu_check.checks import Check, Report, Verdict, counts, document_table, read_checks, table
from tests.nvml_stub.build import COMPILER, compile_stand_in
from tests.support.recordings import recording
from tests.support.repository import ROOT

MS = 1_000_000


def verdicts(report: Report) -> dict[str, Verdict]:
    return {check.what: check.verdict for check in read_checks(report.folder / f"{report.stage}.jsonl")}


def test_values_pass_within_the_tolerance_only(tmp_path, capsys):
    report = Report("nvml", tmp_path)
    report.close("near", 102.0, 100.0, 0.03, "W", "other")
    report.close("far", 104.0, 100.0, 0.03, "W", "other")
    report.close("nothing", None, 100.0, 0.03, "W", "other", "denied")
    report.equal("same", [1, 2], [1, 2], "other")
    report.equal("different", [1, 2], [1], "other")
    with report.part("broken"):
        raise RuntimeError("no such thing\nat all")
    assert verdicts(report) == {
        "near": Verdict.PASS,
        "far": Verdict.FAIL,
        "nothing": Verdict.NOT_AVAILABLE,
        "same": Verdict.PASS,
        "different": Verdict.FAIL,
        "broken": Verdict.FAIL,
    }
    checks = read_checks(tmp_path / "nvml.jsonl")
    assert checks[2].reason == "memtui has no value: denied"
    assert checks[5].reason == "RuntimeError: no such thing"
    assert counts(checks) == "2 pass, 3 fail, 1 n/a"
    assert "differs by 4.00 %" in table(checks)
    assert "| nvml | same | [1, 2] | [1, 2] (other) | equal | pass |" in document_table(checks)
    assert "far  104 W  100 W (other)  3 %  fail" in capsys.readouterr().out


def test_a_line_that_was_being_written_is_left_out(tmp_path):
    report = Report("nvml", tmp_path)
    report.figure("cadence", "100 ms")
    with (tmp_path / "nvml.jsonl").open("a") as file:
        file.write('{"stage": "nvml", "wh')
    assert read_checks(tmp_path / "nvml.jsonl") == [Check("nvml", "cadence", Verdict.FIGURE, "100 ms")]


@given(
    window_ms=st.sampled_from([10, 24, 50, 100, 400]),
    delay_ms=st.sampled_from([0, 10, 30]),
    off_w=st.floats(50, 150),
    on_w=st.floats(300, 900),
)
@settings(max_examples=20, deadline=None)
def test_the_window_of_a_known_sensor_is_found(window_ms, delay_ms, off_w, on_w):
    """A sensor that gives every 100 ms the mean of an interval, over a load of 230 ms half of which is on."""
    period, length = 230 * MS, 6000 * MS
    on = [(start, start + period // 2) for start in range(0, length, period)]
    fine = np.arange(-1000, 6000) * MS
    power = np.where((fine >= 0) & (fine % period < period // 2), on_w, off_w)
    energy = np.concatenate(([0.0], np.cumsum(power)))
    at = np.arange(1000 * MS, length, 100 * MS)
    ends = (at - delay_ms * MS) // MS + 1000
    values = (energy[ends] - energy[ends - window_ms]) / window_ms
    found = square_wave.fit(on, at, values, (10, 24, 50, 100, 200, 400), (0, 10, 20, 30))
    assert (found.window_ns, found.delay_ns) == (window_ms * MS, delay_ms * MS)
    assert (found.off_w, found.on_w) == (pytest.approx(off_w, abs=2), pytest.approx(on_w, abs=2))
    assert found.every_ns == 100 * MS


def test_the_windows_of_an_h200():
    """Its instant power is the mean of a quarter of the time, as Yang et al. found of others; its average is of 1 s."""
    square = recording("nvml")["square"]
    t_ns, instant, average = (np.array(column, np.int64) for column in zip(*square["rows"], strict=True))
    tried = (10, 20, 24, 30, 50, 100, 500, 1000, 1500)
    found = [
        square_wave.fit(square["on_ns"], *square_wave.updates(t_ns, values / 1000), tried, range(0, 50, 5))
        for values in (instant, average)
    ]
    assert [sensor.window_ns / MS for sensor in found] == [24, 1000]
    assert [sensor.every_ns / MS for sensor in found] == [pytest.approx(100, abs=3)] * 2


def test_too_few_values_are_no_fit():
    with pytest.raises(ValueError, match="too few"):
        square_wave.fit([(0, 1)], np.arange(5), np.arange(5.0), (10,), (0,))


def test_steps_a_second_are_of_the_stretch(tmp_path):
    progress = tmp_path / "progress"
    progress.write_text("".join(f"{second * 10**9} {20 * second + (second > 5) * 100}\n" for second in range(10)))
    assert traces.steps_per_second(progress, end_ns=5 * 10**9) == 20
    assert traces.steps_per_second(progress, begin_ns=6 * 10**9) == 20
    assert traces.steps_per_second(progress) == pytest.approx(20 + 100 / 9)


def test_the_stages_are_named(capsys):
    assert gpu_check.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(gpu_check.STAGES)


@pytest.mark.parametrize("words", [["--only", "nvml,gpu"], ["--budget", "soon"]])
def test_bad_words_end_with_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        gpu_check.main(words)
    assert ended.value.code == 2
    assert words[1].rpartition(",")[2] in capsys.readouterr().err


def test_without_a_gpu_the_table_says_why(tmp_path, capsys):
    if gpu_check.first_gpu() is not None:
        pytest.skip("there is a GPU here")
    assert gpu_check.main(["--only", "nvml,trace", "--folder", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "gpu-check.json").read_text())
    assert found["gpu"] is None
    assert [(check["stage"], check["verdict"]) for check in found["checks"]] == [("nvml", "n/a"), ("trace", "n/a")]
    assert "no NVIDIA driver" in found["checks"][0]["reason"]
    assert "finds no CUDA device" in found["checks"][1]["reason"]
    assert "2 n/a" in capsys.readouterr().out


def test_a_stage_that_ended_here_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_check, "first_gpu", lambda: {"uuid": "GPU-1"})
    Report("nvml", tmp_path).figure("cadence", "100 ms")
    (tmp_path / "nvml.done").write_text(json.dumps({"uuid": "GPU-1"}))
    given = gpu_check._parsed(["--folder", str(tmp_path)])
    assert gpu_check._stage("nvml", given, 0.0, {"uuid": "GPU-1"}) == [
        Check("nvml", "cadence", Verdict.FIGURE, "100 ms")
    ]
    (other,) = gpu_check._stage("nvml", given, 0.0, {"uuid": "GPU-2"})
    assert (other.verdict, other.reason) == (Verdict.NOT_AVAILABLE, "no time was left for it")


# What nvidia-smi says of the stand-in for NVML, whose process 77 has 1 GiB.
SMI = """#!/bin/sh
case "$1" in
  pmon) printf '# gpu pid type sm mem command\\n# Idx # C/G %% %% name\\n 0 77 C {use} 18 python3\\n 0 78 C - - x\\n' ;;
  dmon) printf '# gpu pwr smutil smocc mmaact dram\\n# Idx W %% %% %% %%\\n 0 81 0 0 0 0\\n 0 81 94 14 92 15\\n' ;;
  *compute-apps=*) echo "77, 1024" ;;
  *gpu=uuid) echo GPU-stand-in-0 ;;
  *) echo "{watts}, 250.00, 700.00, 75, 1024, 1980, 2619, 45, 0x0000000000000004, GPU-stand-in-0" ;;
esac
"""
CODE = """
import sys
from pathlib import Path
from benchmarks.gpu_check import nvml
from benchmarks.gpu_check.checks import Report
from memtui.probes.gpu.nvml import NvmlProbe
nvml.PAIRS = 2
report, probe = Report("nvml", Path(sys.argv[1])), NvmlProbe()
nvml.against_smi(report, probe)
nvml.processes(report, probe, 77)
nvml.counters(report, probe)
"""


@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
@pytest.mark.parametrize(
    ("watts", "use", "wrong"),
    [("251.00", "82", []), ("290.00", "51", ["power (nvml instant), median of 2", "use by a process"])],
)
def test_readings_are_held_against_nvidia_smi(tmp_path, watts, use, wrong):
    library = compile_stand_in(tmp_path / "lib")
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI.replace("{watts}", watts).replace("{use}", use))
    smi.chmod(0o755)
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(library),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "STANDIN_PROCESSES": f"77:{1 << 30}",
        "STANDIN_HELD_DOWN": "4",
        "STANDIN_USE": "77:80",
    }
    subprocess.run([sys.executable, "-c", CODE, tmp_path], cwd=ROOT, env=environment, check=True, timeout=60)
    checks = read_checks(tmp_path / "nvml.jsonl")
    assert [check.what for check in checks if check.verdict == Verdict.FAIL] == wrong
    assert len(checks) >= 10
    assert [check.what for check in checks if check.verdict == Verdict.PASS][-5:] == [
        "sm_active", "sm_occupancy", "tensor_active", "dram_active", "tensor cores are busy with products"
    ]  # fmt: skip
