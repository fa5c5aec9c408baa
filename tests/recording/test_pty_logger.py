"""The terminal of a program: what it is like, where its output goes, and that the program outlives whatever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from memtui.recording.supervisor.exec_gate import GO
from memtui.recording.supervisor.program import Adopted, start_apart
from memtui.recording.supervisor.pty_logger import Log
from tests.support.live import gone, wait_until

pytestmark = pytest.mark.real_clock(alone=False)

SECONDS = 20


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "s.log"


def begin(log: Path, *command: str, limit: int = -1) -> tuple[Adopted, subprocess.Popen[bytes]]:
    """Start a program and let it pass the exec gate."""
    exec_gate_fd, go = os.pipe()
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    target, pty_logger = start_apart(command, exec_gate_fd, fd)
    if limit >= 0:
        psutil.Process(pty_logger.pid).rlimit(psutil.RLIMIT_FSIZE, (limit, psutil.RLIM_INFINITY))
    os.close(fd)
    os.close(exec_gate_fd)
    assert log.read_text() == "", "nothing runs before it is let through"
    os.write(go, GO)
    os.close(go)
    return target, pty_logger


def run(log: Path, *command: str) -> int:
    """Return its exit code, once its pty logger has ended too."""
    target, pty_logger = begin(log, *command)
    code = target.wait(SECONDS)
    assert pty_logger.wait(SECONDS) == 0
    return code


def python(source: str) -> tuple[str, str, str]:
    return sys.executable, "-c", source


def test_it_is_a_terminal_and_the_controlling_one(log):
    source = (
        "import json, os, sys\n"
        "tty = os.open('/dev/tty', os.O_RDWR)\n"
        "print(json.dumps({'ttys': [os.isatty(fd) for fd in range(3)], 'size': list(os.get_terminal_size()), 'read':"
        " sys.stdin.read(), 'pid': os.getpid(), 'group': os.getpgrp(), 'front': os.tcgetpgrp(tty),"
        " 'session': os.getsid(0), 'fds': sorted(map(int, os.listdir('/proc/self/fd')))[3:]}))"
    )
    assert run(log, *python(source)) == 0
    document = json.loads(log.read_bytes())
    assert document["ttys"] == [True] * 3
    assert document["read"] == "", "nobody types there"
    assert document["pid"] == document["group"] == document["front"] != document["session"]
    assert document["session"] != os.getsid(0)
    assert len(document["fds"]) <= 2, "its own /dev/tty and the folder it lists"
    columns, rows = document["size"]
    assert columns >= 40
    assert rows >= 10


def test_it_is_line_buffered_and_the_lines_are_as_printed(log):
    target, pty_logger = begin(log, *python("import time; print('now'); time.sleep(30)"))
    wait_until(lambda: log.read_bytes() == b"now\n", SECONDS, 0.02)
    target.kill()
    assert target.wait(SECONDS) == -signal.SIGKILL
    assert pty_logger.wait(SECONDS) == 0


@pytest.mark.parametrize(("program", "code"), [("exit 7", 7), ("kill -TERM $$", -15), ("kill -USR1 $$", -10), ("", 0)])
def test_the_exit_code_is_the_programs(program, code, log):
    assert run(log, "bash", "-c", program) == code


def test_it_hears_signals_as_any_program(log):
    argv = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]
    assert run(log, *argv) == 0
    assert log.read_text() == subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_a_program_that_cannot_be_executed_says_so(log, tmp_path):
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    assert run(log, str(tmp_path / "broken")) == 127
    assert "no such program" in log.read_text()


def test_all_of_much_output_arrives(log):
    assert run(log, "seq", "300000") == 0
    assert log.read_text() == "".join(f"{n}\n" for n in range(1, 300_001))


def test_what_it_leaves_behind_keeps_the_terminal(log):
    """A helper that ends after its program gets no hang-up, and its output arrives."""
    target, pty_logger = begin(log, "bash", "-c", "(trap 'echo hangup' HUP; sleep 1; echo late) & echo early")
    assert target.wait(SECONDS) == 0
    assert pty_logger.poll() is None
    assert pty_logger.wait(SECONDS) == 0
    assert log.read_text() == "early\nlate\n"


def test_a_program_that_leaves_its_terminal_is_not_hung_up_on(log, tmp_path):
    """It closes its terminal; the pty logger stays, and reads what is printed when the program opens it again."""
    out = tmp_path / "out"
    source = (
        f"exec >{out} 2>&1 </dev/null; trap 'echo hangup' HUP; sleep 1.5; echo here; echo again >/dev/tty; sleep 0.5"
    )
    target, pty_logger = begin(log, "bash", "-c", source)
    time.sleep(1)
    assert pty_logger.poll() is None
    assert target.wait(SECONDS) == 0
    assert pty_logger.wait(SECONDS) == 0
    assert out.read_text() == "here\n"
    assert log.read_text() == "again\n"


def test_it_is_not_found_by_the_words_of_its_program(log):
    target, pty_logger = begin(log, "sleep", "29.125")
    wait_until(lambda: psutil.Process(target.pid).cmdline() == ["sleep", "29.125"], SECONDS, 0.02)
    assert "29.125" not in " ".join(psutil.Process(pty_logger.pid).cmdline())
    target.kill()
    assert pty_logger.wait(SECONDS) == 0
    target.wait(SECONDS)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGTSTP])
def test_the_pty_logger_ignores_every_signal_that_ends_programs(number, log):
    target, pty_logger = begin(log, "bash", "-c", "sleep 1; echo alive")
    time.sleep(0.3)
    pty_logger.send_signal(number)
    assert target.wait(SECONDS) == 0
    assert pty_logger.wait(SECONDS) == 0
    assert log.read_text() == "alive\n"


def test_who_started_it_is_killed_and_all_goes_on(log):
    """The supervisor is killed at once; the program prints more than any buffer holds afterwards."""
    source = (
        "import os, signal, sys\n"
        "from memtui.recording.supervisor.exec_gate import GO\n"
        "from memtui.recording.supervisor.program import start_apart\n"
        "gate, go = os.pipe()\n"
        "log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)\n"
        "target, keeper = start_apart(['bash', '-c', 'sleep 1; seq 200000; sleep 1; echo end'], gate, log)\n"
        "os.write(go, GO)\n"
        "print(target.pid, keeper.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen([sys.executable, "-c", source, log], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        target, pty_logger = map(psutil.Process, map(int, starter.stdout.readline().split()))
    assert target.is_running()
    assert gone(target, SECONDS)
    assert gone(pty_logger, SECONDS)
    assert log.read_text() == "".join(f"{n}\n" for n in range(1, 200_001)) + "end\n"


def test_a_full_disk_does_not_stop_the_program(log):
    """The pty logger may write 1000 bytes for a while: what is missing is reported when there is room again."""
    target, pty_logger = begin(log, "bash", "-c", "sleep 0.5; seq 20000; sleep 2; echo end", limit=1000)
    wait_until(lambda: log.stat().st_size == 1000, SECONDS, 0.02)
    time.sleep(1)  # all of it was printed
    psutil.Process(pty_logger.pid).rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY,) * 2)
    assert target.wait(SECONDS) == 0
    assert pty_logger.wait(SECONDS) == 0
    whole = "".join(f"{n}\n" for n in range(1, 20_001))
    note = f"\n[memtui: {len(whole) - 1000} bytes of output are missing here: File too large]\n"
    assert log.read_text() == whole[:1000] + note + "end\n"


def test_a_log_that_never_has_room_is_no_matter():
    log = Log(os.open("/dev/full", os.O_WRONLY))
    for _ in range(3):
        log.write(b"x" * 10)
    assert not log.report_loss()
    assert log._lost == 30


def test_the_exec_gate_closes_when_nobody_opens_it(log):
    exec_gate_fd, go = os.pipe()
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    target, pty_logger = start_apart(["echo", "never"], exec_gate_fd, fd)
    for descriptor in (fd, exec_gate_fd, go):
        os.close(descriptor)
    assert target.wait(SECONDS) == 0
    assert pty_logger.wait(SECONDS) == 0
    assert log.read_text() == ""


def test_nothing_heavy_is_loaded(log):
    names = "{'numpy', 'psutil', 'sqlite3', 'textual', 'rich', 'json', 'subprocess', 'asyncio'}"
    source = f"import sys, memtui.recording.supervisor.pty_logger; print(sorted({names} & set(sys.modules)))"
    assert subprocess.run([*python(source)], capture_output=True, text=True, check=True).stdout == "[]\n"
