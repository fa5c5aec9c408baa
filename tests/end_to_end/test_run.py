"""``memtui run`` as a user and as a batch system meet it: its program's terminal and signals, and what dies there."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from memtui.core.errors import UserError
from memtui.recording import client
from memtui.recording.registry import Running, find_all
from memtui.session.session import Session
from tests.support.cli import memtui, refused
from tests.support.live import TRACKER, gone, own_state, part, pattern, runs, start, stop, wait_for_samples
from tests.support.terminals import terminals

pytestmark = pytest.mark.real_clock(alone=False)

START_SECONDS = 90
OPTIONS = (*TRACKER, "--interval", "0.1")
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]
# Counts until a file appears; a signal that it does not die of is told.
COUNTS = (
    "import os, signal, sys, time\n"
    "for number in eval(sys.argv[2]): signal.signal(number, lambda number, _: print('heard', number))\n"
    "n = 0\n"
    "while not os.path.exists(sys.argv[1]): n += 1; print('count', n); time.sleep(0.05)\n"
    "print('end')\n"
)


@pytest.fixture
def state(tmp_path, monkeypatch):
    with own_state(tmp_path / "state", monkeypatch) as state:
        yield state


@pytest.fixture
def terminal(state):
    with terminals() as start:
        yield start


class Started:
    """A counting program under ``memtui run`` on a terminal."""

    def __init__(self, terminal, state: Path, tmp_path: Path, hears: tuple[int, ...] = ()) -> None:
        self.path, self.log, self.flag = tmp_path / "s.memtui", tmp_path / "s.memtui.log", tmp_path / "flag"
        words = [sys.executable, "-c", COUNTS, self.flag, repr(tuple(map(int, hears)))]
        self.screen = terminal("run", *OPTIONS, "-o", self.path, "--", *words)
        self.screen.read(START_SECONDS, until="LIVE")
        self.wait_for(lambda: "count 3\n" in self.output)
        (self.running,) = find_all(state)
        assert isinstance(self.running, Running)
        self.program = psutil.Process(self.running.pid)
        self.keeper = psutil.Process(os.getsid(self.running.pid))
        assert "memtui.recording.supervisor.pty_logger" in self.keeper.cmdline()

    @property
    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def wait_for(self, condition: Callable[[], object], seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"it did not come\n{self.screen.text}\n{self.output[-500:]}"
            self.screen.read(0.05)

    def prints(self, seconds: float = 20) -> bool:
        """Whether more arrives in the log."""
        before = self.output.count("count")
        self.wait_for(lambda: self.output.count("count") > before + 5, seconds)
        return True

    def finish(self) -> None:
        """Let the program end by itself."""
        self.flag.touch()
        assert gone(self.program, 20)
        assert gone(self.keeper, 20), "the keeper stays behind"
        assert self.output.endswith("end\n")


@pytest.fixture
def started(terminal, state, tmp_path):
    made: list[Started] = []

    def make(*hears: int) -> Started:
        made.append(Started(terminal, state, tmp_path, hears))
        return made[-1]

    yield make
    for one in made:
        if one.program.is_running():
            one.program.kill()


def test_the_program_is_on_a_terminal_and_its_output_on_the_screen(state, terminal, tmp_path):
    source = (
        "import os, sys, time\n"
        "print([os.isatty(fd) for fd in range(3)], os.get_terminal_size().columns, repr(sys.stdin.read()))\n"
        "for n in range(40): print(f'\\r{n}% of the bar', end=''); sys.stdout.flush(); time.sleep(0.1)\n"
        "print('\\nthe last words', end='')\n"
    )
    screen = terminal("run", *OPTIONS, "-o", tmp_path / "s.memtui", "--", sys.executable, "-c", source)
    screen.read(START_SECONDS, until="LIVE")
    screen.send("o")
    screen.read(10, until="│[True, True, True] 118 ''")
    screen.read(20, until="the last words")
    assert screen.text.count("of the bar") == 1
    assert "39% of the bar" in screen.text
    screen.read(20, until="ended")
    screen.send("q")
    assert screen.end(20) == 0
    log = tmp_path / "s.memtui.log"
    assert log.read_bytes().endswith(b"39% of the bar\nthe last words")
    assert log.stat().st_mode & 0o777 == 0o600
    again = terminal("replay", tmp_path / "s.memtui", columns=80, rows=24)
    again.read(START_SECONDS, until="where and when")
    again.send("o")
    again.read(10, until="the last words")
    again.send("q")
    assert again.end(20) == 0


@pytest.mark.parametrize("victim", ["viewer", "supervisor", "memtui.recording.sampler", "memtui.recording.recorder"])
def test_kill_9_of_any_part_leaves_the_program_and_its_output(victim, started):
    run = started()
    viewer = psutil.Process(run.screen.process.pid)
    supervisor = psutil.Process(run.running.memtui_pid)
    assert supervisor.ppid() == viewer.pid
    sampler, recorder = (part(viewer.pid, f"memtui.recording.{name}") for name in ("sampler", "recorder"))
    {
        "viewer": viewer,
        "supervisor": supervisor,
        "memtui.recording.sampler": sampler,
        "memtui.recording.recorder": recorder,
    }[victim].kill()
    if victim == "supervisor":
        assert gone(sampler)
        assert gone(recorder)
    assert run.prints()
    assert run.program.status() != psutil.STATUS_STOPPED
    if victim == "viewer":
        assert run.screen.process.wait(20) == -signal.SIGKILL
        assert memtui("stop", run.running.id).returncode == 0
        assert run.prints()
    else:
        run.screen.read(20, until="ended")
        run.screen.send("q")
        assert run.screen.end(20) == 1
    run.finish()


def test_all_of_memtui_killed_at_once(started):
    run = started()
    viewer = psutil.Process(run.screen.process.pid)
    others = {run.program.pid, run.keeper.pid}
    for one in [*viewer.children(recursive=True), viewer]:
        if one.pid not in others:
            one.kill()
    run.screen.process.wait(20)
    os.close(run.screen.master)
    run.screen.master = -1
    before = run.output.count("count")
    time.sleep(1)
    assert run.output.count("count") > before + 5
    run.flag.touch()
    assert gone(run.program, 20)
    assert gone(run.keeper, 20)
    assert run.output.endswith("end\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_passed_on_and_its_end_is_the_end(number, started):
    run = started()
    run.screen.process.send_signal(number)
    assert run.screen.end(30) == 128 + number
    assert run.screen.restored()
    assert gone(run.program)
    assert gone(run.keeper)
    said = run.screen.text.replace("\n", "")
    assert f"session: {run.path}" in said
    assert "from elsewhere" not in said
    reader = Session(run.path)
    assert reader.end is not None
    assert reader.end.kind == "target exited"
    reader.close()


def test_signals_that_the_program_takes_are_no_end(started):
    run = started(*SIGNALS)
    for number in SIGNALS:
        run.screen.process.send_signal(number)
        run.wait_for(lambda number=number: f"heard {int(number)}\n" in run.output)
    samples = len(wait_for_samples(run.path, 1).samples)
    wait_for_samples(run.path, samples + 5).close()
    assert run.prints()
    run.flag.touch()
    assert run.screen.end(30) == 0, "nobody may be there to press q"
    assert run.screen.restored()


def test_a_program_that_outlived_its_recording_is_signalled_too(state, terminal, tmp_path):
    words = (*OPTIONS, "--duration", 4, "-o", tmp_path / "s.memtui", "--", "sleep", 60)
    screen = terminal("run", *words)
    screen.read(START_SECONDS, until="LIVE")
    (running,) = find_all(state)
    program = psutil.Process(running.pid)
    screen.read(20, until="ended")
    screen.read(1)  # its supervisor has ended, too
    screen.process.send_signal(signal.SIGTERM)
    assert screen.end(20) == 128 + signal.SIGTERM
    assert gone(program)


def test_children_in_its_group_hear_the_signal_too(state, terminal, tmp_path):
    words = "trap 'echo parent' TERM; (trap 'echo child; exit' TERM; while :; do sleep 0.1; done) & wait; wait; exit 9"
    screen = terminal("run", *OPTIONS, "-o", tmp_path / "s.memtui", "--", "bash", "-c", words)
    screen.read(START_SECONDS, until="LIVE")
    time.sleep(0.5)
    screen.process.send_signal(signal.SIGTERM)
    assert screen.end(30) == 9
    assert {"child", "parent"} <= set((tmp_path / "s.memtui.log").read_text().split())


@pytest.mark.parametrize("how", ["hup", "vanish", "d"])
def test_a_terminal_that_goes_detaches(how, started):
    run = started()
    if how == "vanish":
        os.close(run.screen.master)
        run.screen.master = -1
        assert run.screen.process.wait(20) == 129
    elif how == "hup":
        run.screen.process.send_signal(signal.SIGHUP)
        assert run.screen.end(20) == 129
    else:
        run.screen.send("d")
        assert run.screen.end(20) == 0
    before = run.output.count("count")
    samples = len(wait_for_samples(run.path, 1).samples)
    wait_for_samples(run.path, samples + 10).close()
    assert run.output.count("count") > before
    assert memtui("stop", run.running.id).returncode == 0
    run.flag.touch()
    assert gone(run.program, 20)
    assert gone(run.keeper, 20)
    assert run.output.endswith("end\n")


def test_a_second_screen_shows_the_output_and_passes_nothing_on(started, terminal):
    run = started()
    again = terminal("attach", run.running.pid, columns=80, rows=24)
    again.read(START_SECONDS, until="LIVE")
    again.send("o")
    again.read(10, until="│count ")
    again.process.send_signal(signal.SIGTERM)
    assert again.end(20) == 143
    assert again.restored()
    assert run.prints()
    client.send_request(run.running, "signal", name="SIGTERM")
    assert gone(run.program)
    run.screen.read(20, until="ended")  # nobody signalled this screen: it stays
    run.screen.send("q")
    assert run.screen.end(20) == 143


def test_quitting_leaves_the_program_and_its_output(started):
    run = started()
    run.screen.send("q")
    assert run.screen.end(20) == 0
    assert f"the program that was started runs on as PID {run.running.pid}" in run.screen.text
    before = run.output.count("count")
    time.sleep(1)
    assert run.output.count("count") > before + 5
    run.finish()


def test_what_is_there_is_not_overwritten(state, terminal, tmp_path):
    (tmp_path / "s.memtui.log").write_text("mine")
    screen = terminal("run", *OPTIONS, "-o", tmp_path / "s.memtui", "--", "true")
    assert screen.end(START_SECONDS) == 2
    assert "--force" in screen.text.replace("\n", "")
    assert (tmp_path / "s.memtui.log").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("s.")] == ["s.memtui.log"]
    screen = terminal("run", *OPTIONS, "-o", tmp_path / "s.memtui", "--force", "--", "bash", "-c", "echo new; sleep 2")
    screen.read(START_SECONDS, until="ended")
    screen.send("q")
    assert screen.end(20) == 0
    assert (tmp_path / "s.memtui.log").read_text() == "new\n"


# Without a screen


@pytest.mark.parametrize("number", SIGNALS[1:])
def test_record_passes_signals_on_to_its_program(number, tmp_path):
    path = tmp_path / "s.memtui"
    child = start("record", *OPTIONS, "-o", path, "--", "sleep", "60")
    wait_for_samples(path, 3).close()
    code, _, err = stop(child, number)
    assert code == 128 + number, err
    reader = Session(path)
    assert reader.end is not None
    assert reader.end.kind == "target exited"
    reader.close()


def test_record_goes_on_when_its_program_takes_the_signal(tmp_path):
    path, flag = tmp_path / "s.memtui", tmp_path / "flag"
    hears = repr(tuple(map(int, SIGNALS)))
    child = start("record", *OPTIONS, "-o", path, "--", sys.executable, "-u", "-c", COUNTS, flag, hears)
    wait_for_samples(path, 3).close()
    for number in SIGNALS[1:]:
        child.send_signal(number)
        samples = len(wait_for_samples(path, 1).samples)
        wait_for_samples(path, samples + 5).close()
    flag.touch()
    out, err = child.communicate(timeout=30)
    assert child.returncode == 0, err
    for number in SIGNALS[1:]:
        assert f"heard {int(number)}\n" in out
    assert not (tmp_path / "s.memtui.log").exists(), "its output goes where that of memtui goes"


def test_the_script_around_record_is_not_signalled(tmp_path):
    """A batch script, memtui and the program are one process group."""
    path = tmp_path / "s.memtui"
    words = [sys.executable, "-m", "memtui", "record", *OPTIONS, "-o", str(path), "--", "sleep", "60"]
    script = f"trap 'echo hit' USR1; {shlex.join(words)} >/dev/null & wait $!; echo status $?"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
        wait_for_samples(path, 3).close()
        (recording,) = [p for p in psutil.Process(shell.pid).children() if "memtui" in p.cmdline()]
        recording.send_signal(signal.SIGUSR1)
        out, _ = shell.communicate(timeout=30)
    assert out == f"status {128 + signal.SIGUSR1}\n"


def test_a_process_nobody_here_started_is_never_signalled(state, tmp_path):
    path = tmp_path / "s.memtui"
    with pattern("loop", "--pages", 256) as truth:
        child = start("record", truth["pid"], *OPTIONS, "-o", path)
        wait_for_samples(path, 3).close()
        (running,) = find_all(state)
        with pytest.raises(UserError, match="only a program that memtui started is signalled"):
            client.send_request(running, "signal", name="SIGTERM")
        with pytest.raises(UserError, match="name must be one of SIGINT, SIGTERM, SIGUSR1, SIGUSR2"):
            client.send_request(running, "signal", name="SIGKILL")
        assert runs(truth["pid"])
        code, _, err = stop(child, signal.SIGTERM)
        assert code == 143, err
        assert runs(truth["pid"])


def test_a_program_that_is_not_there(tmp_path):
    refused(memtui("record", "-o", tmp_path / "s.memtui", "--", "no-such-program"), "no such program")


def test_the_demo_ends_with_memtui_however_that_comes(state, terminal):
    """Its training has a keeper, too, and neither stays behind."""
    screen = terminal("demo", *OPTIONS, "--network", "numpy")
    screen.read(START_SECONDS, until="LIVE")
    (running,) = find_all(state)
    training, keeper = psutil.Process(running.pid), psutil.Process(os.getsid(running.pid))
    screen.send("o")
    screen.read(20, until="output of the program")
    screen.read(20, until="epoch")
    os.kill(running.memtui_pid, signal.SIGKILL)
    assert gone(training)
    assert gone(keeper)
    screen.read(20, until="ended")
    screen.send("q")
    assert screen.end(20) == 1
