"""The sampler that a rule of sudo lets a user start watches that user's processes, and no others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.core.samples import Event, Hello, Process
from memtui.probes import process_owner
from memtui.probes.process_owner import NotOwn, check_owner
from memtui.recording.sampler.commands import SamplerState, budget_command
from tests.support.live import needs_tracker, pattern, runs, wait_until
from tests.support.streams import Stream, finish, order_for
from tests.support.users import NO_PASSWORD, own_process, temporary_user

pytestmark = pytest.mark.real_clock

SAMPLER = [sys.executable, "-I", "-m", "memtui.recording.sampler", "--tell", "--own"]
MINE = os.geteuid()


def process(proc: Path, *, uids: str = "", gids: str = "5\t5\t5\t5", held: str = "0") -> Path:
    """A process as the kernel shows it; its folder belongs to who runs the test."""
    mine = f"{MINE}\t{MINE}\t{MINE}\t{MINE}"
    (proc / "7").mkdir(exist_ok=True)
    (proc / "7" / "status").write_text(f"Name:\tx\nUid:\t{uids or mine}\nGid:\t{gids}\nCapPrm:\t{held:0>16}\n")
    return proc


def test_what_a_user_could_trace_passes(tmp_path):
    check_owner(7, MINE, process(tmp_path))


@pytest.mark.parametrize("place", range(4))
def test_each_of_the_four_numbers_has_to_be_the_users(place, tmp_path):
    numbers = [str(MINE)] * 4
    numbers[place] = str(MINE + 1)
    with pytest.raises(NotOwn, match="belongs to another user"):
        check_owner(7, MINE, process(tmp_path, uids="\t".join(numbers)))
    groups = ["5"] * 4
    groups[place] = "6"
    with pytest.raises(NotOwn, match="has rights that its user has not"):
        check_owner(7, MINE, process(tmp_path, gids="\t".join(groups)))


def test_rights_that_a_program_has_by_its_file(tmp_path, monkeypatch):
    with pytest.raises(NotOwn, match="has rights"):
        check_owner(7, MINE, process(tmp_path, held="400"))
    process(tmp_path)
    whole = os.stat
    monkeypatch.setattr(
        process_owner.os, "stat", lambda path, **_: os.stat_result((*whole(path)[:4], MINE + 1, *whole(path)[5:]))
    )
    with pytest.raises(NotOwn, match="has rights"):
        check_owner(7, MINE, tmp_path)
    assert not process_owner.looks_own(7, MINE, tmp_path)


def test_one_that_has_ended_or_says_nothing(tmp_path):
    with pytest.raises(ProcessLookupError):
        check_owner(8, MINE, tmp_path)
    (process(tmp_path) / "7" / "status").write_text("Name:\tx\n")
    with pytest.raises(NotOwn):
        check_owner(7, MINE, tmp_path)
    assert not process_owner.looks_own(8, MINE, tmp_path)


@pytest.mark.parametrize(("asked", "given"), [(None, 250_000), (10_000, 10_000), (900_000, 250_000)])
def test_there_is_always_a_budget(asked, given):
    state = SamplerState(10**9, asked, most_overhead_ppm=250_000)
    assert state.max_overhead_ppm == given
    state = SamplerState(10**9, 1, most_overhead_ppm=250_000)
    state.receive(budget_command(asked))
    assert state.max_overhead_ppm == given
    assert not state.stop


def through_sudo(user, pid: int, seconds: float = 2) -> Stream:
    """The sampler of a user who may start it so, and no other command, as root."""
    order = order_for(pid, max_overhead_ppm=None, duration_ns=int(seconds * 1e9), interval_ns=50_000_000)
    child = subprocess.Popen(
        [*user.words(), "sudo", "-n", "--", *SAMPLER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(order.to_line())
    child.stdin.flush()
    child.stdout.readline()  # READY
    return finish(child)


@needs_tracker
def test_an_own_process_is_watched_within_limits():
    rule = f"ALL=(root) NOPASSWD: {' '.join(SAMPLER)}"
    with temporary_user(rule) as user, own_process(user, "loop", "--pages", 300) as truth:
        stream = through_sudo(user, truth["pid"])
        (hello,) = stream.of(Hello)
        assert hello.options.max_overhead_ppm == 250_000
        assert hello.tracker == "pagetable"
        assert "ok" in {w.status for w in stream.of_pid(truth["pid"])}
        assert user.run("sudo", "-n", "--", *SAMPLER[:-1]).returncode != 0, "all processes are another right"


@needs_tracker
def test_anothers_process_is_not():
    with temporary_user(NO_PASSWORD) as user, pattern("loop", "--pages", 300) as truth:
        stream = through_sudo(user, truth["pid"])
        assert (stream.returncode, stream.windows) == (2, [])
        assert stream.errors == f"process {truth['pid']} belongs to another user\n"
        assert runs(truth["pid"])


@needs_tracker
def test_a_child_that_has_become_another_is_left_out():
    """By a copy of sleep that is root's and set-user-ID: born later, and by exec in a process that is watched."""
    with temporary_user(NO_PASSWORD) as user:
        shutil.copy(shutil.which("sleep") or "", user.home / "sleep")
        (user.home / "sleep").chmod(0o4755)
        source = (
            "import os, subprocess, sys, time\n"
            "pid = os.fork()\n"
            "if not pid:\n    time.sleep(5)\n    os.execv(sys.argv[1], ['sleep', '20.25'])\n"
            "time.sleep(4.5)\n"
            "child = subprocess.Popen([sys.argv[1], '20.25'])\n"
            "print(pid, child.pid, flush=True)\n"
            "time.sleep(20)"
        )
        target = user.start(sys.executable, "-c", source, user.home / "sleep")
        try:
            wait_until(lambda: Path(f"/proc/{target.pid}").stat().st_uid == user.uid, 5)
            stream = through_sudo(user, target.pid, 6)
            assert target.stdout is not None
            became, born = map(int, target.stdout.readline().split())
            assert Path(f"/proc/{became}").stat().st_uid == 0
            assert {p.pid for p in stream.of(Process)} >= {target.pid, became}
            assert stream.of_pid(born) == []
            windows = stream.of_pid(became)
            assert windows[0].status in ("ok", "failed", "approximate")
            assert (windows[-1].status, windows[-1].paused_ns, windows[-1].pages) == ("denied", 0, None)
            events = [
                event.text for event in stream.of(Event) if f"process {born} belongs to another user" in event.text
            ]
            assert len(events) == 1
        finally:
            subprocess.run(["pkill", "-9", "-u", "0", "-f", r"sleep 20\.25$"], check=False)
            target.kill()
            target.communicate()


def test_without_sudo_it_says_what_it_is_for():
    done = subprocess.run(SAMPLER, input=b"", capture_output=True, env={"PATH": os.defpath}, check=False)
    assert done.returncode == 2
    assert done.stderr == b"--own is for sudo, which says whose processes are watched (SUDO_UID)\n"
