"""``memtui study`` on the command line: bad input, a real study at a tiny size, and every kind of end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import memtui as memtui_package
from memtui.core.json_fields import from_json
from memtui.core.page_sizes import PAGE_BYTES
from memtui.session.session import Session
from memtui.study.recorded_run import Trace
from memtui.study.runs import container
from memtui.study.runs.messages import RunResult
from memtui.study.studies.catalogue import STUDIES
from memtui.study.workloads.cifar import RECORD_BYTES, check_folder, read_images
from tests.support.cli import memtui, refused
from tests.support.in_process import memtui_here
from tests.support.live import needs_tracker
from tests.support.pages import Page
from tests.support.schemas import check
from tests.support.study_reports import assert_harmless
from tests.support.study_runs import STEPS, await_none, needs_figures, running
from tests.support.users import temporary_user

pytestmark = pytest.mark.real_clock(alone=False)


@pytest.fixture
def program(tmp_path) -> list[str]:
    """A training of a kind, until it is ended."""
    path = tmp_path / "steps.py"
    path.write_text(STEPS)
    return [sys.executable, str(path)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["basik"], "there is no study 'basik'; did you mean basic? there are basic, sample-time"),
        (["cpus", "--cpus", "4096"], "--cpus 4096: memtui may use"),
        (["basic", "--data", "/proc/self"], "has no data_batch_1.bin"),
        (["basic", "--data", "/no/such/folder"], "is not a folder"),
        (["basic", "--seconds", "3"], "--seconds is for a program of yours"),
        (["basic", "--", "no-such-program-here"], "no such program"),
        (["basic", "--data", "/tmp", "--", "true"], "your program has its own"),
        (["batch-size", "--", "true"], "write {batch} where it goes"),
        (["cpus", "--seed=-1"], "argument --seed: must be a whole number from 0"),
        (["cpus", "--cpus", "1"], "compares numbers of CPUs"),
    ],
)
@needs_figures
def test_bad_input_is_one_line(arguments, says, tmp_path):
    end = arguments.index("--") if "--" in arguments else len(arguments)
    refused(memtui_here("study", *arguments[:end], "-o", tmp_path, *arguments[end:]), says)


@needs_figures
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    refused(memtui("study", "basic", "-o", tmp_path / "file"), "cannot be written")


def test_the_list_says_how_long_each_takes():
    done = memtui("study", "list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(STUDIES)
    assert all("--quick" in line for line in done.stdout.splitlines() if "compares" not in line)
    document = json.loads(memtui("study", "list", "--json").stdout)
    check("study-list", document)
    assert [row["study"] for row in document["studies"]] == list(STUDIES)


@needs_figures
@needs_tracker
def test_a_program_that_ends_at_once_is_one_line_and_exit_1(tmp_path):
    done = memtui("study", "filters", "--quick", "--cpus", 1, "-o", tmp_path, "--", "sh", "-c", "echo no data; exit 3")
    assert done.returncode == 1
    assert "failed with status 3; it said: no data" in done.stderr.splitlines()[-1]
    done = memtui("study", "filters", "--quick", "--cpus", 1, "-o", tmp_path, "--", "true")
    assert done.returncode == 1
    assert "too soon for a window" in done.stderr.splitlines()[-1]


@needs_figures
@needs_tracker
def test_a_study_of_a_program_of_ones_own_is_done_once_and_reported_twice(tmp_path, program):
    """The real command on a real program: sessions, state and report; no run is done twice."""
    arguments = ["study", "filters", "--quick", "--cpus", 1, "--seconds", 1.5, "-o", tmp_path / "out", "--json"]
    program = [*program, "--token=hunter2"]
    done = memtui(*arguments, "--", *program, timeout=180)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    check("study", document)
    assert document["study"] == "filters"
    assert len(document["about"]["runs"]) == 4
    assert all(run["windows"] >= 5 for run in document["about"]["runs"])
    assert document["numbers"]["threads"]["1"]["lost"]["exec"]["wss_share"] > 0
    assert "4 runs, about" in done.stderr
    page = Page((tmp_path / "out/filters.html").read_text("utf-8"))
    assert_harmless(page)
    assert all(sentence in "".join(page.words) for sentence in document["conclusion"])
    await_none(program[1])
    for path in filter(Path.is_file, (tmp_path / "out").rglob("*")):
        assert b"hunter2" not in path.read_bytes(), path

    state = json.loads((tmp_path / "out/state.json").read_text())
    row = next(row for row in state["rows"].values() if row["run"]["filter"] == "none")
    trace = Trace(tmp_path / "out" / row["files"][0], from_json(RunResult, row))
    wss = float(np.median(trace.wss()))
    assert 4 << 20 <= wss <= 12 << 20  # its 4 MiB, and the interpreter
    merged = trace.merged(4)
    assert merged
    assert {pages.size_bytes >= wss for pages in merged} == {True}
    trace.close()

    again = memtui(*arguments, "--redact", "--", *program, timeout=60)
    assert again.returncode == 0
    assert "0 runs" in again.stderr
    assert "4 were done before" in again.stderr
    assert json.loads(again.stdout)["numbers"] == document["numbers"]
    assert program[1] not in again.stdout
    assert program[1] not in (tmp_path / "out/filters.html").read_text("utf-8")

    next(iter(state["rows"].values()))["windows"] = "many"
    (tmp_path / "out/state.json").write_text(json.dumps(state))
    spoilt = memtui(*arguments, "--", *program, timeout=60)
    assert spoilt.returncode == 2
    assert "is not a state of a study" in spoilt.stderr.splitlines()[-1]


@needs_figures
@needs_tracker
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_an_end_in_the_middle_leaves_no_process_and_loses_one_run_at_most(tmp_path, program, number):
    arguments = ["study", "filters", "--quick", "--cpus", 1, "--seconds", 2, "-o", tmp_path / "out", "--", *program]
    command = [sys.executable, "-m", "memtui", *map(str, arguments)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, **streams) as child:
        for line in child.stderr:
            if "2/4" in line:
                break
        while not running(program[1]):
            time.sleep(0.02)
        time.sleep(1.0)
        # ^C reaches every process in the foreground; a kill reaches one process.
        (os.killpg if number == signal.SIGINT else os.kill)(child.pid, number)
        child.communicate(timeout=30)
    assert child.returncode == (130 if number == signal.SIGINT else -number)
    await_none(program[1])
    await_none(str(tmp_path))
    assert len(json.loads((tmp_path / "out/state.json").read_text())["rows"]) == 1
    done = memtui(*arguments, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "3 runs" in done.stderr
    assert "1 were done before" in done.stderr


@pytest.mark.slow
@needs_figures
@needs_tracker
def test_what_a_program_leaves_behind_ends_with_its_run(tmp_path):
    name = f"left-{os.getpid()}-behind"
    script = f"(exec -a {name} sleep 300) & exec -a other sleep 3"
    arguments = ["study", "filters", "--quick", "--cpus", 1, "--seconds", 0.5, "-o", tmp_path]
    memtui(*arguments, "--", "bash", "-c", script, timeout=120)
    await_none(name)


@pytest.mark.slow
@needs_figures
@needs_tracker
def test_under_sudo_program_and_files_are_the_users(program):
    with temporary_user("ALL=(ALL:ALL) NOPASSWD: ALL") as user:
        script = user.home / "steps.py"
        print_user = "import os; print('uid', os.geteuid(), os.environ['HOME'], os.environ.get('MINE'), flush=True)"
        script.write_text(f"{print_user}\n{STEPS}")
        arguments = ["study", "filters", "--quick", "--cpus", "1", "--seconds", "1", "-o", user.home / "out", "--"]
        path = f"PYTHONPATH={Path(memtui_package.__file__).parents[1]}"
        python = [sys.executable, "-m", "memtui", *arguments, sys.executable, script]
        done = user.run("sudo", path, *python, MINE="kept")
        assert done.returncode == 0, done.stderr
        files = list((user.home / "out").rglob("*"))
        assert {path.name for path in files} >= {"filters.html", "filters.json", "state.json"}
        assert {path.stat().st_uid for path in files} == {user.uid}
        logs = [path.read_text() for path in files if path.suffix == ".log"]
        assert all(log.startswith(f"uid {user.uid} {user.home} kept\n") for log in logs), logs[0][:200]
        document = json.loads((user.home / "out/filters.json").read_text())
        assert {run["tracker"] for run in document["about"]["runs"]} == {"pagetable"}


@needs_tracker
@pytest.mark.skipif(bool(container.means().reason), reason=f"no container here: {container.means().reason}")
def test_a_program_in_a_container_is_seen_from_outside(tmp_path, program):
    from memtui.study.plan import CONTAINER, Run
    from memtui.study.runs.runner import perform

    run = Run("boxed", tuple(program), 1.0, place=CONTAINER, limit_s=1.5)
    cpu = min(os.sched_getaffinity(0))
    result = perform(run, tmp_path / "boxed", [cpu], container.means(), lambda word: None)
    assert result.steps > 5
    assert 0 <= result.others_cpus <= (os.cpu_count() or 1)
    trace = Trace(tmp_path / "boxed.memtui", result)
    assert trace.main is not None
    assert program[1] in trace.main.command
    assert float(np.median(trace.wss())) >= 4 << 20
    trace.close()
    await_none(program[1])


@pytest.mark.slow
@needs_tracker
def test_merged_windows_are_the_long_ones_on_a_pattern_that_repeats(tmp_path):
    """A ring of 256 pages every 0.2 s: windows of 0.4 s see all of it, and so do four of 0.1 s merged."""
    arguments = ("cycle", "--pages", "256", "--touched", "64", "--step-seconds", "0.05", "--duration", "4")
    sizes_by_interval = {}
    for interval in ("0.1", "0.4"):
        path = tmp_path / f"{interval}.memtui"
        pattern = (sys.executable, "-m", "memtui.study.workloads.access_patterns", *arguments)
        done = memtui("record", "--interval", interval, "--filter", "none", "-o", path, "--", *pattern)
        assert done.returncode == 0, done.stderr
        trace = Trace(path, RunResult())
        reader = Session(path)
        rows = [row for row in reader.vmas.rows(trace.main.key) if row.end - row.start == 256 * PAGE_BYTES]
        reader.close()
        sizes_by_interval[interval] = [_inside(pages, rows) for pages in trace.merged(4 if interval == "0.1" else 1)]
        trace.close()
    for sizes in sizes_by_interval.values():
        assert len(sizes) >= 4
    # The first and the last window may be cut; a busy machine may stretch a turn of the ring in a few others.
    assert np.median(sizes_by_interval["0.1"]) == np.median(sizes_by_interval["0.4"]) == 256


def _inside(pages, rows) -> int:
    numbers = pages.pages()
    return max(int(((numbers >= row.start >> 12) & (numbers < row.end >> 12)).sum()) for row in rows)


def test_cifar_files_are_read_as_they_are_distributed(tmp_path):
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (30, RECORD_BYTES), dtype=np.uint8)
    records[:, 0] %= 10
    records[:20].tofile(tmp_path / "data_batch_1.bin")
    records[20:].tofile(tmp_path / "data_batch_2.bin")
    records[:5].tofile(tmp_path / "test_batch.bin")
    images, labels = read_images(tmp_path, 25)
    assert images.shape == (25, 32, 32, 3)
    assert labels.tolist() == records[:25, 0].tolist()
    red, green = records[22, 1 : 1 + 1024], records[22, 1 + 1024 : 1 + 2048]
    np.testing.assert_allclose(images[22, :, :, 0].ravel(), red / 255, atol=1e-6)
    np.testing.assert_allclose(images[22, :, :, 1].ravel(), green / 255, atol=1e-6)
    assert len(read_images(tmp_path, 99, validation=True)[0]) == 5
    (tmp_path / "data_batch_2.bin").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="not whole records"):
        check_folder(tmp_path)


def test_the_bundled_network_trains_on_cifar_files(tmp_path):
    records = np.random.default_rng(0).integers(0, 10, (64, RECORD_BYTES), dtype=np.uint8)
    for name in ("data_batch_1.bin", "test_batch.bin"):
        records.tofile(tmp_path / name)
    command = [sys.executable, "-m", "memtui.study.workloads.numpy_cnn", "--epochs", "1", "--images", "500"]
    command += ["--batch-size", "32", "--validation-images", "8", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "64 images" in done.stdout
    assert "CIFAR-10, read" in done.stdout
    done = subprocess.run([*command[:-1], str(Path("/proc"))], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
