"""The real program in a real pseudo-terminal: it paints, it restores the terminal, it never spins on a lost one."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time

import psutil
import pytest

from memtui.core.errors import UserError
from memtui.tui import terminal
from tests.support.live import wait_until
from tests.support.repository import ROOT
from tests.support.terminals import LEAVE_ALTERNATE_SCREEN, Terminal

pytestmark = pytest.mark.real_clock(alone=False)


@pytest.fixture
def start():
    running: list[Terminal] = []

    def make(*words: str, **options) -> Terminal:
        running.append(Terminal(*words, **options))
        return running[-1]

    yield make
    for one in running:
        one.close()


def test_paints_and_quits(start):
    screen = start("replay", "120")
    screen.read(20, "half of all touches come back within")
    for words in ("train.py", "working set", "where and when", "reuse distance", "address ranges", "no RAPL zone"):
        screen.read(5, words)  # a paint comes in several pieces
    screen.send("q")
    assert screen.end() == 0
    assert screen.restored()


def test_ctrl_c_quits(start):
    screen = start("replay", "60")
    screen.read(20, "address ranges")
    screen.send("\x03")
    assert screen.end() == 0
    assert screen.restored()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_restores_the_terminal(start, number, code):
    screen = start("live", "60")
    screen.read(20, "LIVE")
    screen.process.send_signal(number)
    assert screen.end() == code
    assert screen.restored()


def test_it_goes_on_after_sigstop(start):
    """Which no handler hears of, as where sudo stops all that is in the foreground; SIGCONT may come twice."""
    screen = start("replay", "60")
    modes = termios.tcgetattr(screen.master)
    screen.read(20, "address ranges")
    pid = screen.process.pid
    threads = psutil.Process(pid).num_threads()
    for _ in range(3):
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGCONT)
        screen.read(1)
    assert psutil.Process(pid).num_threads() == threads, "keys are read once"
    screen.send("q")
    assert screen.end() == 0
    assert screen.restored()
    assert termios.tcgetattr(screen.master) == modes


@pytest.mark.parametrize("name", ["SIGCONT", "SIGTSTP"])
def test_a_signal_that_comes_while_output_is_queued(start, name):
    screen = start(name, module="tests.support.signal_while_writing")
    if name == "SIGTSTP":
        wait_until(lambda: psutil.Process(screen.process.pid).status() == psutil.STATUS_STOPPED)
        screen.process.send_signal(signal.SIGCONT)
    assert screen.end() == 0
    assert screen.restored()


@pytest.mark.parametrize("controlling", [True, False])
def test_a_lost_terminal_ends_it(start, controlling):
    """With a controlling terminal SIGHUP comes; without one nothing does, and only looking finds out."""
    screen = start("live", "60", controlling=controlling)
    screen.read(20, "LIVE")
    times = psutil.Process(screen.process.pid).cpu_times()
    os.close(screen.master)
    screen.master = -1
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        pid, status, usage = os.wait4(screen.process.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(0.05)
    else:
        pytest.fail("it stayed without a terminal")
    screen.process.returncode = os.waitstatus_to_exitcode(status)
    assert screen.process.returncode == 129
    # Textual's input thread spins on a terminal that is gone: a second of that is what looking once a second allows.
    assert usage.ru_utime + usage.ru_stime - times.user - times.system < 3


def test_small_terminal_says_what_it_needs(start):
    screen = start("replay", "60", columns=50, rows=12)
    screen.read(20, "60x16")
    screen.send("q")
    assert screen.end() == 0


def test_resize(start):
    screen = start("replay", "60", columns=80, rows=24)
    screen.read(20, "where and when")
    assert "address ranges" not in "\n".join(screen.screen.display)
    fcntl.ioctl(screen.master, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
    screen.screen.resize(36, 120)
    os.killpg(screen.process.pid, signal.SIGWINCH)
    screen.read(10, "address ranges")
    # tmux would put what still stands there above the prompt, folded.
    screen.send("q")
    assert screen.end() == 0
    assert 0 < screen.output.index(b"\x1b[2J") < screen.output.index(LEAVE_ALTERNATE_SCREEN)


def test_no_colour_at_all(start):
    screen = start("replay", "60", "none")
    screen.read(20, "half of all touches")
    assert not any(code in screen.output for code in (b"[38;", b";38;", b"[48;", b";48;"))
    screen.send("q")
    assert screen.end() == 0


def test_ascii_only(start):
    screen = start("replay", "60", "256", "ascii")
    screen.read(20, "half of all touches")
    assert "\n".join(screen.screen.display).isascii()


def test_refuses_without_a_terminal():
    done = subprocess.run(
        [sys.executable, "-c", "from memtui.tui.terminal import require_terminal; require_terminal()"],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert "memtui record" in done.stderr


def test_require_terminal_says_record(monkeypatch):
    monkeypatch.setattr(terminal.os, "isatty", lambda fd: fd == 2)
    with pytest.raises(UserError, match=r"stdin is not a terminal.*memtui record") as caught:
        terminal.require_terminal({"TERM": "xterm"})
    assert caught.value.code == 2
    monkeypatch.setattr(terminal.os, "isatty", lambda fd: True)
    terminal.require_terminal({"TERM": "xterm"})
    with pytest.raises(UserError, match="TERM"):
        terminal.require_terminal({"TERM": "dumb"})


@pytest.mark.parametrize(
    ("asked", "environ", "mode"),
    [
        ("auto", {"TERM": "xterm-256color"}, "256"),
        ("auto", {"TERM": "linux"}, "16"),
        ("auto", {"TERM": "xterm", "NO_COLOR": "1"}, "none"),
        ("256", {"TERM": "xterm", "NO_COLOR": "1"}, "256"),
        ("none", {"TERM": "xterm"}, "none"),
        ("truecolor", {"TERM": "xterm"}, "256"),
    ],
)
def test_color_mode(asked, environ, mode):
    assert terminal.color_mode(asked, environ) == mode


def test_prepare_sets_what_textual_reads():
    environ = {"TERM": "xterm", "NO_COLOR": "1", "LANG": "de_DE.ISO-8859-1"}
    settings = terminal.prepare(mouse=False, environ=environ)
    assert settings == terminal.Settings("none", True, False)
    assert environ["TEXTUAL_ANIMATIONS"] == "none"
    assert "NO_COLOR" not in environ


@pytest.mark.parametrize(
    ("environ", "needed"),
    [
        ({"TERM": "linux", "LANG": "en_US.UTF-8"}, True),  # its font has no braille, whatever the locale
        ({"TERM": "xterm", "LANG": "en_US.UTF-8"}, False),
        ({"TERM": "xterm"}, False),
        ({"TERM": "xterm", "LC_ALL": "de_DE.ISO-8859-1", "LANG": "en_US.UTF-8"}, True),
        ({"TERM": "xterm", "LC_ALL": "C", "LANG": "en_US.UTF-8"}, True),
    ],
)
def test_ascii_where_the_terminal_cannot_do_more(environ, needed):
    assert terminal.ascii_needed(environ) is needed
    assert terminal.prepare(environ=dict(environ)).ascii_only is needed


def test_hung_up():
    master, slave = pty.openpty()
    assert not terminal.hung_up(slave)
    os.close(master)
    assert terminal.hung_up(slave)
    os.close(slave)


def test_run_viewer_imports_no_textual_before_the_environment_is_set():
    code = "import sys, memtui.tui.app; sys.exit(any(m.split('.')[0] in ('textual', 'rich') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_first_picture_does_not_wait_for_the_import_of_later_ones():
    later = ("memtui.tui.screens.allocations", "memtui.reports.verdict.verdict", "memtui.tui.screens.help", "tomllib")
    code = f"import sys, memtui.tui.session_app; print([name for name in {later} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "[]\n"
