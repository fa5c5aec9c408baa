"""Recording real processes, end to end: the numbers against a known truth, and every way a recording can end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import short_targets
from memtui.recording.supervisor.foreground import NO_SAMPLE
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from tests.support import fault_library
from tests.support.cli import memtui
from tests.support.folders import names_in
from tests.support.live import (
    gone,
    held_threads,
    needs_root,
    needs_tracker,
    part,
    pattern,
    pattern_argv,
    runs,
    start,
    stop,
    truth_in,
    wait_for_samples,
    wait_until,
)
from tests.support.users import OTHER, can_run_as_other, unless_gate

pytestmark = pytest.mark.real_clock


@pytest.fixture
def session(tmp_path) -> Path:
    return tmp_path / "s.memtui"


@needs_tracker
def test_a_window_that_is_cut_into_parts_is_the_same_window(session):
    """A budget of half the time has a burst every few seconds."""
    with pattern("random", "--pages", 4_000, "--touched", 1_000, "--seed", 7, "--mode", "rw") as truth:
        words = ("--interval", 0.5, "--duration", 8, "--filter", "none", "--max-overhead", "50%")
        done = memtui("record", truth["pid"], "-o", session, *words)
        assert done.returncode == 0, done.stderr
    reader = Session(session)
    bursts = list(reader.reuse.bursts(0, reader.samples.newest))
    assert bursts, "no window was cut"
    for sample, process, parts in bursts:
        assert 0.004e9 < parts[-1].length_ns < 0.031e9
        seen, expected = truth_in(truth, reader.pages.page_set(sample, process))
        assert seen.tolist() == expected.tolist()
        assert parts[-1].distances.touches <= reader.pages.page_set(sample, process).page_count
    assert any(parts[-1].distances.touches for *_, parts in bursts), "on a busy machine a probe may see nothing"
    lengths_ns = reader.samples.end_ns - reader.samples.start_ns
    assert (lengths_ns[1:-1] >= 0.5e9).all()
    reader.close()


@needs_tracker
@pytest.mark.parametrize(("pages", "touched", "mode"), [
    (32, 16, "r"), (4_000, 1_000, "w"), (200_000, 100_000, "rw"),
    *[pytest.param(pages, touched, mode, marks=pytest.mark.slow) for pages, touched, mode in (
        (32, 16, "w"), (32, 16, "rw"), (4_000, 1_000, "r"), (4_000, 1_000, "rw"), (200_000, 100_000, "r"),
        (200_000, 100_000, "w"))],
])  # fmt: skip
def test_every_window_is_exactly_the_truth(mode, pages, touched, session):
    words = ("random", "--pages", pages, "--touched", touched, "--seed", 7, "--mode", mode)
    with pattern(*words) as truth:
        # A window must be longer than one round of the pattern under any load of the machine.
        done = memtui("record", truth["pid"], "-o", session, "--interval", 0.5, "--duration", 4, "--filter", "none")
        assert done.returncode == 0, done.stderr
    reader = Session(session)
    (process,) = reader.processes.all()
    whole = reader.samples.sample[:-1].tolist()  # the last window may be cut short by the end
    assert len(whole) >= 2  # of eight, where the machine is not busy
    for sample in whole:
        seen, expected = truth_in(truth, reader.pages.page_set(sample, process.key))
        assert seen.tolist() == expected.tolist(), f"sample {sample}"
    (row,) = [v for v in reader.vmas.rows() if v.start <= truth["start"] < v.end]
    _, ids, values = reader.vmas.wss(whole[1], whole[1])
    assert values[ids == row.id].sum() == touched * 4096
    reader.close()


@needs_tracker
def test_a_tree_with_births_and_deaths(session):
    source = (
        "import os, subprocess, sys, time\n"
        f"words = {pattern_argv('loop', '--pages', 500)}\n"
        "for _ in range(2):\n"
        "    child = subprocess.Popen(words, stdout=subprocess.DEVNULL); time.sleep(1.2); child.kill(); child.wait()\n"
    )
    done = memtui("record", "-o", session, "--interval", "0.1", "--json", "--", sys.executable, "-c", source)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["end"] == "target exited"
    roles = [p["role"] for p in report["processes"]]
    assert roles.count("child") >= 2
    reader = Session(session)
    keys = {p.key: p.pid for p in reader.processes.all()}
    assert len(keys) == len(reader.processes.all())
    for sample in reader.samples.sample.tolist():
        rows = reader.processes.samples(sample, sample)
        known = [r["wss_bytes"] for r in rows]
        if None not in known:
            tree, shared = reader.samples.wss_bytes[sample], sum(r["shared_bytes"] or 0 for r in rows)
            assert max(known) <= tree <= sum(known)
            assert shared or tree == sum(known)
            assert sum(known) - tree < max(shared, 1), "what is shared counts once, not never"
    reader.close()
    children = [p for p in report["processes"] if p["role"] == "child" and p["generation"] > 0]
    assert all(p["wss_bytes"] > 500 * 4096 for p in children if p["wss_bytes"] is not None)


@needs_tracker
def test_without_children_there_is_one_process(session):
    words = ["bash", "-c", "sleep 0.8 & sleep 1; true"]
    assert memtui("record", "-o", session, "--no-children", "--", *words).returncode == 0
    reader = Session(session)
    assert {p.pid for p in reader.processes.all()} == {reader.hello.target.pid}
    reader.close()


@needs_tracker
def test_exec_is_a_new_generation(session):
    source = (
        f"import os, time; time.sleep(1.5); os.execv({sys.executable!r}, ['x', '-c', 'import time; time.sleep(1)'])"
    )
    done = memtui("record", "-o", session, "--interval", "0.1", "--", sys.executable, "-c", source)
    assert done.returncode == 0, done.stderr
    reader = Session(session)
    generations = [(p.pid, p.generation) for p in reader.processes.all()]
    assert len({pid for pid, _ in generations}) == 1
    assert [g for _, g in generations] == [0, 1, 2], "the gate, the program, and the program it became"
    assert [e.kind for e in reader.events(0, 2**62)].count("exec") == 1, "that the program starts is not an event"
    reader.close()


def test_the_rss_tracker_says_why_there_is_no_working_set(session):
    with pattern("loop", "--pages", 100) as truth:
        options = ("--tracker", "rss", "--interval", "0.1", "--duration", "1", "--json")
        done = memtui("record", truth["pid"], "-o", session, *options)
        assert done.returncode == 0, done.stderr
        assert runs(truth["pid"])
    report = json.loads(done.stdout)
    assert report["wss_bytes"]["mean"] is None
    assert "resident" in report["wss_bytes"]["reason"]
    assert report["rss_bytes"]["median"] > 10 << 20
    assert report["overhead"]["paused_fraction"] == 0


def test_a_start_up_file_that_prints_is_no_trouble(session, tmp_path, monkeypatch):
    """Python runs it in every part of memtui, too."""
    (tmp_path / "sitecustomize.py").write_text("print('{welcome to the cluster}')")
    with pattern("loop", "--pages", 100) as truth:
        path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
        monkeypatch.setenv("PYTHONPATH", path)
        done = memtui("record", truth["pid"], "-o", session, "--tracker", "rss", "--no-sudo", "--duration", "0.5")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_recording_in_order(number, session):
    with pattern("loop", "--pages", 256) as truth:
        child = start("record", truth["pid"], "-o", session, "--interval", "0.05")
        wait_for_samples(session, 5).close()
        code, _, err = stop(child, number)
        assert runs(truth["pid"])
    assert code == (0 if number == signal.SIGINT else 128 + number), err
    reader = Session(session)
    assert reader.end is not None
    assert reader.end.kind == "stopped"
    reader.close()
    assert names_in(session.parent) == [session.name]


@pytest.mark.parametrize(
    "victim",
    ["memtui.recording.sampler", pytest.param("memtui.recording.recorder", marks=pytest.mark.slow), "memtui"],
)
def test_kill_9_of_any_part_frees_the_target(victim, session):
    """Rounds from MEMTUI_CHAOS (default 2) at random moments; 100 by hand are in docs/internals/measurements.md."""
    for round_ in range(int(os.environ.get("MEMTUI_CHAOS", "2"))):
        path = session.with_name(f"{round_}.memtui")
        with pattern("loop", "--pages", 5000) as truth:
            child = start("record", truth["pid"], "-o", path, "--interval", "0.02")
            sampler, recorder = (
                part(child.pid, "memtui.recording.sampler"),
                part(child.pid, "memtui.recording.recorder"),
            )
            reader = wait_for_samples(path, 3)
            begun_ns = time.monotonic_ns()
            time.sleep(0.7 + int.from_bytes(os.urandom(2), "big") / 65536 * 0.3)
            killed_ns = time.monotonic_ns()
            {"memtui.recording.sampler": sampler, "memtui.recording.recorder": recorder}.get(victim, child).send_signal(
                signal.SIGKILL
            )
            assert runs(truth["pid"]), f"round {round_}"
            assert gone(sampler), "an orphan sampler would watch for ever"
            assert gone(recorder)
            _, err = child.communicate(timeout=30)
            assert child.returncode == (-signal.SIGKILL if victim == "memtui" else 1), err
            assert err.count("\n") <= 1
            assert not held_threads(truth["pid"])
        reader.refresh()
        lengths = np.diff(reader.samples.end_ns)
        assert np.median(lengths) < 150_000_000, "it was to be killed between pauses every 20 ms, and not every 200"
        assert (reader.samples.paused_ns > 0).all()
        assert reader.samples.end_ns[-1] > max(begun_ns, killed_ns - 1_000_000_000), "more than a second was lost"
        last = int(reader.samples.sample[-1])
        assert reader.samples.sample.tolist() == list(range(last + 1))
        assert len(reader.reuse.between(last, last)) == len(reader.processes.samples(last, last))
        reader.close()
        assert memtui("report", path).returncode == 0


def test_a_target_that_ends_is_a_normal_end(session):
    done = memtui("record", "-o", session, "--json", "--", "sleep", "0.7")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["end"] == "target exited"


def test_a_killed_target_is_a_normal_end(session):
    with pattern("loop", "--pages", 256) as truth:
        child = start("record", truth["pid"], "-o", session, "--interval", "0.05")
        wait_for_samples(session, 3).close()
        os.kill(truth["pid"], signal.SIGKILL)
        _, err = child.communicate(timeout=20)
        assert child.returncode == 0, err
    reader = Session(session)
    assert reader.end is not None
    assert reader.end.kind == "target exited"
    reader.close()


def test_a_target_that_ends_in_its_first_window_is_a_failure_in_one_line(session):
    target = subprocess.Popen(["sleep", "100"])
    try:
        child = start("record", target.pid, "-o", session, "--interval", 60)
        # Its session begins with the process, which is observed then.
        wait_until(lambda: session.exists() and session.stat().st_size and _processes(session))
    finally:
        target.kill()
        target.wait()
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out) == (1, f"{session}\n")
    assert _of_the_recording(err) == [f"memtui record: {NO_SAMPLE}"]


def test_a_program_that_ends_in_its_first_window_has_its_exit_status_and_the_same_line(session):
    done = memtui("record", "-o", session, "--interval", 60, "--", "sh", "-c", "exit 7")
    assert (done.returncode, done.stdout) == (7, f"{session}\n")
    assert _of_the_recording(done.stderr) == [f"memtui record: {NO_SAMPLE}"]


def _processes(session: Path) -> int:
    try:
        reader = Session(session)
    except SessionError:
        return 0
    count = len(reader.processes.all())
    reader.close()
    return count


def _of_the_recording(errors: str) -> list[str]:
    """The lines on stderr, without the one that says who is root."""
    return [line for line in errors.splitlines() if "SUDO_UID" not in line]


@needs_tracker
@pytest.mark.parametrize("starts", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_programs_that_end_while_the_recording_starts(starts):
    """The first ones, the same at every run, of the 1,000 of ``python -m benchmarks.short_targets``."""
    outcomes, wrong = short_targets.watch(starts)
    assert wrong == []
    assert sum(outcomes.values()) == starts
    assert 0 < outcomes["recorded"] < starts, "some end before the recording has started"


def test_a_full_disk_keeps_what_was_there():
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "none", folder], check=False).returncode:
            pytest.skip("this container may not mount a tmpfs")
        try:
            path = Path(folder) / "s.memtui"
            with pattern("random", "--pages", 50_000, "--touched", 20_000, "--seed", 1) as truth:
                done = memtui("record", truth["pid"], "-o", path, "--interval", "0.02", "--duration", "20")
                assert runs(truth["pid"])
            assert done.returncode == 1
            *progress, error = done.stderr.splitlines()
            assert all("recording:" in line for line in progress), "one line after some seconds"
            assert "full" in error
            reader = Session(path)
            assert len(reader.samples) > 0
            reader.close()
            assert memtui("report", path).returncode == 0, "what was written is there"
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(scope="module")
def faults(tmp_path_factory) -> Path:
    return fault_library.build(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def allocations(faults, tmp_path_factory) -> int:
    """How often a recorder asks for memory that creates the tables, gets no message, and removes the file."""
    folder = tmp_path_factory.mktemp("allocations")
    words = [sys.executable, "-P", "-m", "memtui.recording.recorder", "--", str(folder / "s.memtui")]
    environment = fault_library.environment(faults, folder / "counts")
    assert subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, check=False).returncode == 1
    return json.loads((folder / "counts").read_text())["memory"]


@needs_tracker
def test_a_recorder_without_memory_ends_the_recording_and_harms_nobody(faults, allocations, session, tmp_path):
    number = allocations + 2400  # after some windows
    environment = fault_library.environment(faults, tmp_path / "counts", "memory", number=number, for_ever=True)
    with pattern("loop", "--pages", 256) as truth:
        child = start("record", truth["pid"], "-o", session, "--interval", "0.05", env=environment)
        sampler, recorder = (part(child.pid, f"memtui.recording.{name}") for name in ("sampler", "recorder"))
        _, err = child.communicate(timeout=60)
        assert runs(truth["pid"])
        assert not held_threads(truth["pid"])
        assert gone(sampler)
        assert gone(recorder)
    assert child.returncode == 1
    ended = f"{session}: the recording ended, and what was committed before can be read: Cannot allocate memory; "
    assert ended in err.splitlines()[-1]
    assert "Traceback" not in err
    reader = Session(session)
    assert len(reader.samples) > 0
    assert reader.end is None
    reader.close()
    assert memtui("report", session).returncode == 0


@needs_tracker
def test_a_recorder_that_fails_before_the_first_process_says_why(faults, allocations, session, tmp_path):
    """It has nothing to leave, and the sampler has nothing to say."""
    number = allocations + 1
    environment = fault_library.environment(faults, tmp_path / "counts", "memory", number=number, for_ever=True)
    with pattern("loop", "--pages", 256) as truth:
        done = memtui("record", truth["pid"], "-o", session, env=environment)
        assert runs(truth["pid"])
    assert done.returncode == 1
    says = f"memtui record: {session}: nothing was recorded: Cannot allocate memory; end something, or ask for less"
    assert says in done.stderr.splitlines()
    assert not session.exists()


@needs_root
def test_under_sudo_the_files_belong_to_the_user():
    if why := unless_gate(can_run_as_other()):
        pytest.skip(why)
    user = pwd.getpwnam(OTHER)
    home = Path(tempfile.mkdtemp())
    os.chown(home, user.pw_uid, user.pw_gid)
    path = home / "s.memtui"
    sudo = os.environ | {"SUDO_UID": str(user.pw_uid), "SUDO_GID": str(user.pw_gid), "SUDO_USER": OTHER}
    try:
        with pattern("loop", "--pages", 300) as truth:
            child = start("record", truth["pid"], "-o", path, "--duration", "3", "--interval", "0.1", env=sudo)
            owners = {
                name: part(child.pid, name).uids().effective
                for name in ("memtui.recording.sampler", "memtui.recording.recorder")
            }
            _, err = child.communicate(timeout=30)
            assert child.returncode == 0, err
        assert owners == {"memtui.recording.sampler": 0, "memtui.recording.recorder": user.pw_uid}
        assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (user.pw_uid, 0o600)
        as_user = {"user": OTHER, "group": "nogroup", "cwd": home}
        report = json.loads(memtui("report", path, "--json", **as_user).stdout)
        assert report["samples"] > 10
        if TRACKED_OK:
            assert report["wss_bytes"]["median"] >= 300 * 4096
        assert memtui("export", path, "--to", "csv", "-o", home / "out", **as_user).returncode == 0
        assert (home / "out" / "samples.csv").stat().st_uid == user.pw_uid
    finally:
        shutil.rmtree(home)


TRACKED_OK = not needs_tracker.args[0]


def test_a_recorder_whose_progress_nobody_reads_goes_on(tmp_path):
    """Behind a screen its output is not read; a pipe that runs full must not stop the recording."""
    from memtui.recording.wire import encode
    from tests.support.sessions import messages

    path = tmp_path / "s.memtui"
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x")
    os.set_blocking(write, True)
    words = [sys.executable, "-P", "-m", "memtui.recording.recorder", str(path)]
    stream = b"".join(map(encode, messages(20)))
    done = subprocess.run(words, input=stream, stdout=write, timeout=20, check=False)
    os.close(read)
    os.close(write)
    assert done.returncode == 0
    assert len(Session(path).samples) == 20


@needs_tracker
def test_a_stopped_target_stays_stopped_and_is_named(session):
    with pattern("loop", "--pages", 256) as truth:
        os.kill(truth["pid"], signal.SIGSTOP)
        done = memtui("record", truth["pid"], "-o", session, "--interval", "0.1", "--duration", "1")
        assert done.returncode == 0, done.stderr
        assert Path(f"/proc/{truth['pid']}/stat").read_text().split()[2] == "T"
    reader = Session(session)
    assert [e.text for e in reader.events(0, 2**62) if e.kind == "stopped"] == [
        f"pid {truth['pid']} was stopped (SIGSTOP or ^Z)"
    ]
    reader.close()


@pytest.mark.parametrize(("program", "status"), [("exit 7", 7), ("kill -9 $$", 137), ("true", 0)])
def test_the_programs_exit_status_is_told_on(program, status, session):
    assert memtui("record", "-o", session, "--", "bash", "-c", f"sleep 0.5; {program}").returncode == status


@needs_tracker
def test_ranges_are_mapped_until_the_end(session):
    source = (
        "import mmap, time; a = mmap.mmap(-1, 1 << 20); a[:] = b'1' * len(a); time.sleep(1); a.close(); time.sleep(1)"
    )
    done = memtui("record", "-o", session, "--interval", "0.1", "--filter", "none", "--", sys.executable, "-c", source)
    assert done.returncode == 0, done.stderr
    reader = Session(session)
    key, last = reader.processes.all()[-1].key, int(reader.samples.sample[-1])
    rows = reader.vmas.rows(key)
    assert not any(r.open for r in rows)
    assert {r.last_sample for r in rows if r.name in ("[heap]", "[stack]")} == {last}
    assert any(r.last_sample < last for r in rows), "the mapping that was closed ended before"
    reader.close()
