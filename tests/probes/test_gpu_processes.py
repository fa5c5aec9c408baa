"""GPU memory of each process: what the driver's lists tell, what they do not, and that it reaches screen and report."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time

import pytest

from memtui.core.readings import GPU_COUNTERS, GpuMemory, GpuUse, Power, PowerReading
from memtui.core.samples import End, Process, ProcessWindow, VmaTable, Window
from memtui.probes.gpu.processes import (
    CONTAINER,
    IMPOSSIBLE_USE,
    IN_MPS,
    IN_SLICES,
    NO_USE_IN_SLICES,
    NOT_REPORTED,
    WSL,
    Holders,
    Holding,
)
from memtui.recording.sampler.tracked_process import TrackedProcess, gpu_part
from memtui.reports.export import export
from memtui.reports.report import build_report
from memtui.reports.text import format_report
from memtui.session.session import Session
from memtui.tui.presenters import Presenter
from tests.nvml_stub.build import COMPILER, compile_stand_in, run_with
from tests.support import sessions
from tests.support.cli import memtui
from tests.support.nvml_process import SETUP as PROCESS_SETUP
from tests.support.sessions import MS, VMAS, write_session

GIB = 1 << 30
HELD = """
import json
from memtui.probes.gpu import nvml, processes as gpu_holders
probe = nvml.NvmlProbe()
{before}
(first, *_) = probe.read(1)
print(json.dumps([first.reason, {{h.pid: [h.gpu_bytes, h.status, h.reason] for h in probe.holdings()}}]))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no C compiler (cc) to build the NVML stand-in")
    return compile_stand_in(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def held(driver):
    """Who holds what, by pid as text ("0": everybody else): (bytes, status, reason)."""

    def ask(before: str = "", **settings):
        return run_with(driver, HELD.format(before=before), **settings)[1]

    return ask


@pytest.fixture
def used(driver):
    """Who keeps the boards how busy, by pid as text ("0": everybody else): (boards, status, reason)."""

    def ask(before: str = "", **settings):
        code = HELD.replace("[h.gpu_bytes, h.status, h.reason]", "[h.gpus_used, h.use_status, h.use_reason]")
        return run_with(driver, code.format(before=before), **settings)[1]

    return ask


def known(found) -> dict[str, int | None]:
    return {pid: gpu_bytes for pid, (gpu_bytes, _, _) in found.items()}


def test_two_processes_two_boards_and_all_lists(held):
    """Process 11 is on both boards and draws as well, 12 on the second only, 13 draws only, 14 is one of MPS."""
    lists = {"processes": "11:4096,12@1:8192", "graphics": "11:4096,13@0:100", "mps": "14@1:7,12@1:8192"}
    found = held(devices=2, **lists)
    assert known(found) == {"0": 0, "11": 2 * 4096, "12": 8192, "13": 100, "14": 7}
    assert {(status, reason) for _, status, reason in found.values()} == {("ok", "")}


def test_no_process_at_all_is_a_measured_zero(held):
    assert held(devices=2) == {"0": [0, "ok", ""]}


def test_a_board_without_mps_is_no_reason_not_to_know(held):
    assert known(held(processes="11:5", unsupported="mps")) == {"0": 0, "11": 5}


def test_what_the_driver_does_not_tell_is_not_zero(held):
    found = held(devices=2, processes="11@0:-,11@1:4096,12@0:9")
    assert found["11"] == [None, "unsupported", f"GPU 0: {NOT_REPORTED}"]
    assert known(found) == {"0": 0, "11": None, "12": 9}


def test_a_list_of_one_board_that_is_refused(held):
    """On board 1 anybody may hold anything, so no sum is known."""
    found = held(devices=2, processes="11@0:4096", denied="processes@1")
    why = [None, "denied", "GPU 1: compute processes: the driver refuses it to this user"]
    assert found == {"0": why, "11": why}
    found = held(processes="11:4096", denied="graphics")
    assert found["11"] == [4096, "ok", ""]  # both lists would say the same of it
    assert found["0"] == [None, "denied", "GPU 0: graphics processes: the driver refuses it to this user"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"unsupported": "processes"}, "compute processes: not supported by this GPU"),
        ({"lost": "0@0"}, "power: the GPU is lost: it fell off the bus or hangs"),
        ({"denied": "mps"}, "MPS processes: the driver refuses it to this user"),
    ],
)
def test_a_failing_call_is_told(held, settings, why):
    gpu_bytes, status, reason = held(**settings)["0"]
    assert (gpu_bytes, reason) == (None, f"GPU 0: {why}")
    assert status != "ok"


def test_a_lost_board_among_others(held):
    found = held(devices=2, processes="11@1:4096", no_handle=0)
    assert found["11"][0] is None
    assert found["11"][2].startswith("GPU 0: the GPU is lost")


def test_slices_are_added_up_and_those_of_others_are_not_known(held):
    found = held(mig=1, processes="11:4096/1,11:1000/2")
    assert found["11"] == [5096, "ok", ""]
    assert found["0"] == [None, "unsupported", f"GPU 0: {IN_SLICES}"]


def test_lists_that_grow_while_they_are_read(held):
    """The driver says how many there are; then there are more, and it says that the room is too small."""
    found = known(held(processes="11:4096", grow=10))
    assert (found["11"], found["0"]) == (4096, 0)
    assert len(found) == 2 + 30
    found = held("nvml._LIST_TRIES = 1", processes="11:4096", grow=10)
    assert found == {"0": [None, "failed", "GPU 0: compute processes: the answer grew while it was read"]}


def test_numbers_of_another_world_are_nobodys(held):
    found = held("probe._sees_own_processes_only = True", processes="11:4096")
    assert found == {"0": [None, "unsupported", CONTAINER]}
    found = held("gpu_holders._WSL_DEVICE = gpu_holders.Path('/')", processes="11:4096")
    assert found == {"0": [None, "unsupported", WSL]}


def test_the_lists_spoil_no_other_value(driver):
    reason, _ = run_with(driver, HELD.format(before=""), denied="graphics,mps")
    assert reason == ""


# -- use


def test_use_of_two_boards_adds_up(used):
    """Process 11 keeps one board busy for 0.48 of the time and the other for 0.3, 12 holds memory and rests."""
    found = used(devices=2, use="11@0:48,11@1:30,13@1:70", processes="11:4096,12@0:100")
    assert known(found) == {"0": 0, "11": 0.78, "12": 0, "13": 0.7}
    assert {(status, reason) for _, status, reason in found.values()} == {("ok", "")}


def test_a_board_that_nobody_used_is_a_measured_zero(used):
    """The driver answers "not found" then, and so it does where the last use was long ago."""
    assert used(processes="11:4096") == {"0": [0, "ok", ""], "11": [0, "ok", ""]}
    assert known(used(processes="11:4096", use="11:48/5000")) == {"0": 0, "11": 0}


@pytest.mark.parametrize("ago_ms", [0, 500, 1050])
def test_a_board_that_takes_a_sample_a_second_does_not_flicker(used, ago_ms):
    """A reading every half second would find a new sample in every other one only."""
    assert known(used(use=f"11:95/{ago_ms}"))["11"] == 0.95


@pytest.mark.parametrize(
    ("asked_s_ago", "seen"),
    [(0.5, False), (2.9, True), (0, False), (-3600, False), (3600, True)],
    ids=["soon after", "since the reading before", "at once", "clock set back", "clock set forward"],
)
def test_use_is_of_the_time_since_the_reading_before(used, asked_s_ago, seen):
    """A reading may come seconds after the one before; this use was 2 s ago."""
    before = f"import time; probe._devices[0].use_asked_us = time.time_ns() // 1000 - int({asked_s_ago} * 1e6)"
    assert used(before, use="11:95/2000").get("11", [0])[0] == (0.95 if seen else 0)


@pytest.mark.parametrize(
    ("settings", "status", "why"),
    [
        ({"unsupported": "use"}, "unsupported", "use by process: not supported by this GPU"),
        ({"denied": "use@0"}, "denied", "use by process: the driver refuses it to this user"),
        ({"lost": "0@0"}, "failed", "power: the GPU is lost: it fell off the bus or hangs"),
        ({"no_handle": 0, "devices": 2}, "failed", "the GPU is lost: it fell off the bus or hangs"),
        ({"mig": 1}, "unsupported", NO_USE_IN_SLICES),
    ],
)
def test_use_that_is_not_known_is_not_zero(used, settings, status, why):
    found = used(**{"use": "11:48", "processes": "11:4096"} | settings)
    assert set(map(tuple, found.values())) == {(None, status, f"GPU 0: {why}")}


def test_use_that_cannot_be_is_refused_of_that_process(used):
    found = used(use="11:4294967295,12:40")
    assert found["11"] == [None, "failed", f"GPU 0: {IMPOSSIBLE_USE}"]
    assert found["12"] == [0.4, "ok", ""]


def test_a_client_of_mps_without_a_sample_is_not_known(used):
    """The server (9) may be who the driver counts it for; a client with a sample of its own has its use."""
    found = used(mps="11:4096,12:4096", processes="9:10", use="9:80,12:20")
    assert found["11"] == [None, "unsupported", f"GPU 0: {IN_MPS}"]
    assert (found["12"], found["9"], found["0"]) == ([0.2, "ok", ""], [0.8, "ok", ""], [0, "ok", ""])


def test_use_in_another_world_is_nobodys(used):
    assert used("probe._sees_own_processes_only = True", use="11:5") == {"0": [None, "unsupported", CONTAINER]}
    assert used("gpu_holders._WSL_DEVICE = gpu_holders.Path('/')", use="11:5") == {"0": [None, "unsupported", WSL]}


def test_memory_and_use_are_known_apart(held, used):
    lists = {"processes": "11:4096", "use": "11:48"}
    assert held(**lists, unsupported="use")["11"] == [4096, "ok", ""]
    assert used(**lists, denied="graphics")["0"] == [0, "ok", ""]


# -- from a process of its own


def test_a_list_that_hangs_is_stale_and_nobody_waits_for_it(driver, tmp_path):
    hang = tmp_path / "hang"
    code = PROCESS_SETUP + (
        f"hang = pathlib.Path({str(hang)!r}); probe = GpuProcess(); wait_for(good); one = asdict(probe.holders.of(7));"
        "at = probe.holders.t_ns; hang.touch(); found = wait_for(stale); two = asdict(probe.holders.of(7));"
        "later = probe.holders.t_ns; hang.unlink(); wait_for(good); three = asdict(probe.holders.of(7));"
        "probe.close(); print(json.dumps([one, two, three, later - at, found[0]['reason'], longest]))"
    )
    one, two, three, apart_ns, why, longest = run_with(driver, code, hang_processes=hang, processes="7:4096")
    assert (one["gpu_bytes"], three["gpu_bytes"]) == (4096, 4096)
    assert (two["gpu_bytes"], two["status"], two["reason"]) == (None, "failed", why)
    assert why.startswith("stale since")
    assert apart_ns > 10**9
    assert longest < 0.5, "it waited"


def test_between_two_answers_nothing_is_said(driver):
    code = PROCESS_SETUP + (
        "probe = GpuProcess(); wait_for(good); probe.read(1); first = probe.holders is None; probe.close();"
        "probe.read(5); print(json.dumps([first, probe.holders.t_ns, asdict(probe.holders.of(1))]))"
    )
    first, t_ns, holding = run_with(driver, code)
    assert first
    assert (t_ns, holding["gpu_bytes"], holding["reason"]) == (5, None, "the probe is closed")


def test_a_process_that_came_later_is_not_taken_for_who_had_its_number():
    tracked = [
        TrackedProcess(Process(key, pid, 1, 1, 0, "x"), -1, b"", (), 0, 0, since_ns)
        for key, pid, since_ns in ((1, 11, 50), (2, 12, 150), (3, 13, 50))
    ]
    holders = Holders(
        100, [Holding(0, 0, "ok", "", 0.0, "ok", ""), Holding(11, 4096, "ok", "", 0.5, "ok", ""), Holding(12, 9)]
    )
    assert gpu_part(tracked, holders) == (
        (GpuMemory(100, 1, 4096), GpuMemory(100, 3, 0)),
        (GpuUse(100, 1, 0.5), GpuUse(100, 3, 0.0)),
    )
    assert gpu_part(tracked, None) == ((), ())


# -- in a session


def stream():
    """Two processes: one holds more and more and is not known from 3 s to 4 s, the other ends after 3 s."""
    yield sessions.hello()
    for key in (1, 2):
        yield Process(key, 4241 + key, 1, 777, 0, "python train.py", "target" if key == 1 else "child RANK=1")
        yield VmaTable(key, 0, VMAS)
    for sample in range(30):
        at = sample * 200 * MS
        keys = (1, 2) if sample < 15 else (1,)
        windows = tuple(ProcessWindow(key, at, at + 200 * MS, rss_bytes=1 << 20) for key in keys)
        yield Window(sample, at, at + 200 * MS, 200 * MS, 0, windows)
        if sample % 5 == 0 and sample:
            second = sample // 5
            one = GpuMemory(at, 1, None, "failed", "stale") if second == 3 else GpuMemory(at, 1, (second // 2) * GIB)
            use = GpuUse(at, 1, None, "failed", "stale") if second == 3 else GpuUse(at, 1, second / 10)
            held = (one, *(GpuMemory(at, key, 0) for key in keys[1:]))
            yield Power((), held, (use, *(GpuUse(at, key, 0.0) for key in keys[1:])))
    yield End(6000 * MS, "target exited")


@pytest.fixture
def session(tmp_path):
    return write_session(tmp_path / "s.memtui", stream())


def test_a_session_keeps_each_change_and_answers_for_any_moment(session):
    reader = Session(session)
    kept = [(held.t_ns // (1000 * MS), held.process, held.gpu_bytes) for held in reader.devices.gpu_memory(0, 2**62)]
    assert kept == [(1, 1, 0), (1, 2, 0), (2, 1, GIB), (3, 1, None), (4, 1, 2 * GIB)]
    at = [reader.devices.gpu_memory_at(t * MS) for t in (999, 1000, 2999, 3500, 5900)]
    assert [{key: held.gpu_bytes for key, held in found.items()} for found in at] == [
        {}, {1: 0, 2: 0}, {1: GIB, 2: 0}, {1: None, 2: 0}, {1: 2 * GIB, 2: 0},
    ]  # fmt: skip
    reader.close()


def test_a_session_keeps_use_in_the_same_way(session):
    reader = Session(session)
    kept = [(use.t_ns // (1000 * MS), use.process, use.gpus_used) for use in reader.devices.gpu_use(0, 2**62)]
    assert kept == [(1, 1, 0.1), (1, 2, 0.0), (2, 1, 0.2), (3, 1, None), (4, 1, 0.4), (5, 1, 0.5)]
    found = reader.devices.gpu_use_at(3500 * MS)
    assert found == {1: GpuUse(3000 * MS, 1, None, "failed", "stale"), 2: GpuUse(1000 * MS, 2, 0.0)}
    assert reader.devices.gpu_use_at(999 * MS) == {}
    reader.close()


def test_a_session_keeps_counters(tmp_path):
    counted = {name: float(place) for place, name in enumerate(GPU_COUNTERS)}
    known = PowerReading(0, "GPU 0", "board", "nvml instant", 700.0, **counted)
    without = PowerReading(1, "GPU 0", "board", "nvml instant", 700.0, counters_reason="not supported by this GPU")
    path = write_session(tmp_path / "s.memtui", [sessions.hello(), Power((known, without)), *sessions.messages(5)])
    reader = Session(path)
    assert [r for r in reader.devices.power(0, 2) if r.power_w == 700.0] == [known, without]
    reader.close()


def test_a_replay_shows_it_at_the_moment_of_the_cursor(session):
    one = Presenter(Session(session), follow=False)
    one.processes_shown = True
    found = {}
    for second in (0.5, 1.5, 2.5, 3.5, 5.5):
        one.playhead.seek(one.playhead.origin_ns + int(second * 1e9))
        found[second] = [(row.key, row.gpu_bytes, row.gpu_reason) for row in one.view(5.0).processes.rows]
    assert found == {
        0.5: [(4242, None, "no reading yet"), (4243, None, "no reading yet")],
        1.5: [(4242, 0, ""), (4243, 0, "")],
        2.5: [(4242, GIB, ""), (4243, 0, "")],
        3.5: [(4242, None, "stale")],
        5.5: [(4242, 2 * GIB, "")],
    }
    one.reader.close()


def test_the_report_has_mean_and_maximum_of_the_windows(session):
    report = build_report(session)
    first, second = report.processes
    # At the ends of its windows: 5 of 0, 5 of 1 GiB, 5 of nothing known, 11 of 2 GiB; before the first answer, 4.
    assert first.gpu_bytes == pytest.approx((5 * 1 + 11 * 2) * GIB / 21)
    assert (first.gpu_max_bytes, first.gpu_reason) == (2 * GIB, "stale")
    assert (second.gpu_bytes, second.gpu_max_bytes, second.gpu_reason) == (0, 0, "")
    text = format_report(report)
    # Of the same windows: 5 of 0.1, 5 of 0.2, 5 of nothing known, 5 of 0.4, 6 of 0.5.
    assert first.gpus_used == pytest.approx((5 * 0.1 + 5 * 0.2 + 5 * 0.4 + 6 * 0.5) / 21)
    assert (first.gpus_used_reason, second.gpus_used, second.gpus_used_reason) == ("stale", 0, "")
    assert "GPU 1.29 GiB, max 2.00 GiB (not always known: stale), used 31.0 % (not always known: stale)" in text
    assert "GPU 0 B, max 0 B, used 0.0 %  python" in text


def test_a_session_without_any_answer_says_so(tmp_path):
    path = write_session(tmp_path / "s.memtui", sessions.messages(5))
    (process,) = build_report(path).processes
    assert (process.gpu_bytes, process.gpu_max_bytes) == (None, None)
    assert process.gpu_reason == "no reading in this session"
    assert (process.gpus_used, process.gpus_used_reason) == (None, "no reading in this session")


TARGET = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
sys.stdin.readline()
child.kill()
child.wait()
time.sleep(600)
"""


@pytest.mark.real_clock(alone=False)
def test_a_recording_of_a_tree_whose_child_ends(driver, tmp_path):
    """Through the whole of memtui: parent and child on two boards, the parent grows, the child ends."""
    lists, path = tmp_path / "lists", tmp_path / "s.memtui"
    steering = {"LD_LIBRARY_PATH": str(driver), "STANDIN_PROCESSES": str(lists), "STANDIN_DEVICES": "2"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}

    def say(text: str) -> None:
        new = tmp_path / "new"
        new.write_text(text)
        new.replace(lists)

    def wait_for(condition) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "it did not come"
            time.sleep(0.1)

    def held(key: int) -> list[int | None]:
        try:
            reader = Session(path)
        except Exception:
            return []
        found = [one.gpu_bytes for one in reader.devices.gpu_memory(0, 2**62) if one.process == key]
        reader.close()
        return found

    with subprocess.Popen([sys.executable, "-c", TARGET], **pipes) as parent:
        recording = None
        try:
            child = int(parent.stdout.readline())
            say(f"{parent.pid}@0:{GIB},{child}@1:4096,999999:77")
            use = {"STANDIN_USE": f"{parent.pid}@0:48,{parent.pid}@1:30,999999:9"}
            argv = ["record", str(parent.pid), "-o", str(path), "--interval", "0.1", "--tracker", "rss"]
            recording = subprocess.Popen(
                [sys.executable, "-m", "memtui", *argv], env=os.environ | steering | use, stdout=subprocess.DEVNULL
            )
            wait_for(lambda: held(1) == [GIB] and held(2) == [4096])
            say(f"{parent.pid}:{GIB},{child}@1:4096")
            wait_for(lambda: held(1) == [GIB, 2 * GIB])
            say(f"{parent.pid}:{GIB}")
            parent.stdin.write("end it\n")
            parent.stdin.flush()
            time.sleep(1.5)
        finally:
            if recording is not None:
                recording.terminate()
                recording.wait()
            parent.kill()
    assert held(1) == [GIB, 2 * GIB]
    assert held(2) in ([4096], [4096, 0])  # asked between the end of its context and its own end, it held nothing
    by_pid = {process["pid"]: process for process in json.loads(memtui("report", path, "--json").stdout)["processes"]}
    assert by_pid[parent.pid]["gpu_max_bytes"] == 2 * GIB
    assert GIB < by_pid[parent.pid]["gpu_bytes"] < 2 * GIB
    assert by_pid[child]["gpu_max_bytes"] == 4096
    assert [by_pid[pid]["gpus_used"] for pid in (parent.pid, child)] == [pytest.approx(0.78), 0]
    counted = json.loads(memtui("report", path, "--json").stdout)["gpu_counters"]
    assert [(gpu["device"], gpu["sm_active"]) for gpu in counted] == [
        ("GPU 0", pytest.approx(0.945)), ("GPU 1", pytest.approx(0.945))
    ]  # fmt: skip
    assert memtui("export", path, "--to", "csv", "-o", tmp_path / "out").returncode == 0
    rows = list(csv.DictReader((tmp_path / "out/gpu_memory.csv").read_text().splitlines()))
    assert [row["gpu_bytes"] for row in rows if row["pid"] == str(parent.pid)] == [str(GIB), str(2 * GIB)]
    assert {row["pid"] for row in rows} == {str(parent.pid), str(child)}, "of others nothing is kept"
    rows = list(csv.DictReader((tmp_path / "out/gpu_use.csv").read_text().splitlines()))
    assert [(row["pid"], row["gpus_used"]) for row in rows] == [(str(parent.pid), "0.78"), (str(child), "0.0")]


def test_the_page_has_it_and_says_why_it_has_not(session, tmp_path):
    (known,) = export(session, "html", tmp_path / "known")
    assert ">1.29 GiB<" in known.read_text()
    assert ">31.0 %<" in known.read_text()
    assert "Counters of GPUs" not in known.read_text()
    counted = dict.fromkeys(GPU_COUNTERS[:4], 0.125) | dict.fromkeys(GPU_COUNTERS[4:], 3 << 20)
    reading = PowerReading(0, "GPU 0", "board", "nvml", 700.0, **counted)
    refused = Power((reading,), (GpuMemory(0, 1, GIB),), (GpuUse(0, 1, None, "denied", "refused to this user"),))
    first, *others = sessions.messages(5)
    (counters,) = export(write_session(tmp_path / "c.memtui", [first, refused, *others]), "html", tmp_path / "c")
    for words in ("Counters of GPUs", ">12.5 %<", ">3.00 MiB/s<", "Use of GPUs n/a: refused to this user."):
        assert words in counters.read_text()
    without = write_session(tmp_path / "without.memtui", sessions.messages(5))
    (unknown,) = export(without, "html", tmp_path / "unknown")
    assert "GPU memory n/a: no reading in this session." in unknown.read_text()
