"""PID namespaces, as containers have them: from the inside, from the outside, and by the number of either."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memtui.core.errors import UserError
from memtui.recording import targets
from memtui.session.session import Session
from tests.support.cli import memtui
from tests.support.live import assert_exact, needs_root, needs_tracker, pattern_argv

UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
PATTERN = pattern_argv("random", "--pages", 4000, "--touched", 1000)
can_unshare = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0,
    reason="PID namespaces cannot be made here",
)
pytestmark = [pytest.mark.real_clock, needs_root, can_unshare]


@contextmanager
def container() -> Iterator[tuple[dict, int]]:
    """A PID namespace whose first process is a pattern: what it says, and its number out here."""
    with subprocess.Popen([*UNSHARE, *PATTERN], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            truth = json.loads(child.stdout.readline())
            (outer,) = [int(p) for p in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]
            yield truth, outer
        finally:
            child.kill()


@needs_tracker
def test_inside_a_container(tmp_path):
    """On a number of the namespace, which names another process out here."""
    path = tmp_path / "s.memtui"
    script = (
        "import json, subprocess, sys\n"
        f"p = subprocess.Popen({list(PATTERN)!r}, stdout=subprocess.PIPE)\n"
        "line = p.stdout.readline().decode(); print(line, end='', flush=True)\n"
        "assert json.loads(line)['pid'] == p.pid < 20\n"
        "words = [sys.executable, '-m', 'memtui', 'record', str(p.pid), '--interval', '0.4', '--duration', '3']\n"
        f"done = subprocess.run([*words, '-o', {str(path)!r}], stdout=subprocess.DEVNULL)\n"
        "p.kill(); sys.exit(done.returncode)\n"
    )
    done = subprocess.run([*UNSHARE, sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert_exact(path, json.loads(done.stdout))


@needs_tracker
def test_the_first_process_of_a_container_from_inside(tmp_path):
    """As ``docker exec`` does it: PID 1 of a container may well be the training."""
    path = tmp_path / "s.memtui"
    with container() as (truth, outer):
        assert truth["pid"] == 1
        enter = ["nsenter", "--target", str(outer), "--pid", "--mount", sys.executable, "-m", "memtui"]
        words = ["record", "1", "--interval", "0.4", "--duration", "3", "-o", str(path)]
        done = subprocess.run([*enter, *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert_exact(path, truth)


@needs_tracker
def test_from_outside_by_the_number_out_here(tmp_path):
    path = tmp_path / "s.memtui"
    with container() as (truth, outer):
        done = memtui("record", outer, "--interval", "0.4", "--duration", "3", "-o", path)
        assert done.returncode == 0, done.stderr
        assert_exact(path, truth)


def numbered(wanted: int) -> list[str]:
    """A command that becomes ``sleep`` under a number that no process has out here."""
    source = (
        "import os, sys, time\n"
        "open('/proc/sys/kernel/ns_last_pid', 'w').write(sys.argv[1])\n"
        "pid = os.fork()\n"
        "if not pid: os.execvp('sleep', ['sleep', '60'])\n"
        "print(pid, flush=True); time.sleep(60)\n"
    )
    return [*UNSHARE, sys.executable, "-c", source, str(wanted - 1)]


@contextmanager
def sleeping_as(wanted: int) -> Iterator[None]:
    with subprocess.Popen(numbered(wanted), stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            if child.stdout.readline().strip() != str(wanted):
                pytest.skip("this kernel does not let a test choose a pid")
            time.sleep(0.1)
            yield
        finally:
            child.kill()


def free_number() -> int:
    last = int(Path("/proc/sys/kernel/pid_max").read_text()) - 2
    return next(pid for pid in range(last, 2, -1) if not Path(f"/proc/{pid}").exists() and not targets.pids_inside(pid))


def test_from_outside_by_the_number_inside(tmp_path):
    wanted, path = free_number(), tmp_path / "s.memtui"
    with sleeping_as(wanted):
        (outer,) = targets.pids_inside(wanted)
        done = memtui("record", wanted, "--tracker", "rss", "--duration", "1", "--interval", "0.1", "-o", path)
        assert done.returncode == 0, done.stderr
        assert f"PID {wanted} exists in a container only; out here it is {outer} (sleep 60)" in done.stderr
        reader = Session(path)
        assert reader.hello.target.pid == outer
        reader.close()
        with sleeping_as(wanted):
            both = targets.pids_inside(wanted)
            assert len(both) == 2
            done = memtui("record", wanted, "-o", tmp_path / "t.memtui")
            assert done.returncode == 2
            assert done.stderr.count("\n") == 1
            assert all(f"{pid} (sleep 60)" in done.stderr for pid in both)
            assert not (tmp_path / "t.memtui").exists()
    deadline = time.monotonic() + 10
    while targets.pids_inside(wanted) and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(UserError, match=f"no process has PID {wanted}"):
        targets.find_target(wanted)


def test_a_number_that_exists_out_here_means_that_process():
    with container() as (_, outer):
        assert targets.find_target(outer) == (outer, "")
        assert targets.find_target(os.getppid()) == (os.getppid(), "")


def test_numbers_of_nested_namespaces(tmp_path):
    """No process can pretend to another number by its name: the kernel escapes line breaks."""
    for pid, text in {
        "10": "Name:\tpython\nNSpid:\t10\t7\t1\n",
        "11": "Name:\tpython\\nNSpid:\\t11\\t7\nNSpid:\t11\n",
        "12": "Name:\told kernel\n",
        "self": "NSpid:\t10\t7\n",
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "status").write_text(text)
    (tmp_path / "13").mkdir()  # ended meanwhile
    assert targets.pids_inside(7, tmp_path) == targets.pids_inside(1, tmp_path) == [10]
    assert targets.pids_inside(11, tmp_path) == []


@needs_tracker
def test_a_reused_number_is_not_the_target(tmp_path):
    """The order names when the process began; a pidfd holds on to it from then on."""
    from memtui.core.samples import Options
    from memtui.recording.sampler.commands import SamplerConfig

    with subprocess.Popen(["sleep", "30"]) as child:
        try:
            order = SamplerConfig(child.pid, 1, Options(100_000_000)).to_line()
            words = [sys.executable, "-P", "-m", "memtui.recording.sampler"]
            done = subprocess.run(words, input=order, capture_output=True, timeout=30, check=False)
            assert done.returncode == 2
            assert done.stderr == f"process {child.pid} ended before it could be observed\n".encode()
        finally:
            child.send_signal(signal.SIGKILL)
