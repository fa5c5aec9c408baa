"""A laptop opens a server's session: report, export and replay use nothing that only Linux has."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from tests.support.repository import ROOT
from tests.support.sessions import messages, write_session

pytestmark = pytest.mark.real_clock(alone=False)

# Another system: no Linux modules and calls, no /proc and /sys, and none of memtui that measures.
# (numpy comes first: this one was built for Linux.)
ELSEWHERE = """
import os, signal, sys
import numpy
platform, blocked, absent, signals = {system!r}
def is_blocked(name):
    return any(name == b or name.startswith(b + ".") for b in blocked)
class Absent:
    def find_spec(self, name, path=None, target=None):
        if is_blocked(name):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
for name in filter(is_blocked, list(sys.modules)):
    del sys.modules[name]
linux = ("sched_", "pidfd_", "memfd_", "eventfd", "MFD_", "getres", "setres", "SCHED_", "CLONE_")
for name in [n for n in vars(os) if n.startswith((*linux, *absent))]:
    delattr(os, name)
for name in ("pidfd_send_signal", *signals):
    delattr(signal, name)
def refuse(event, arguments):
    if event == "open" and str(arguments[0]).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "No such file or directory", str(arguments[0]))
sys.addaudithook(refuse)
"""
LINUX = [
    *(
        "fcntl",
        "resource",
        "pwd",
        "grp",
        "spwd",
        "psutil",
        "pynvml",
        "memtui.probes",
        "memtui.recording.sampler",
    ),
    *(
        "memtui.recording.recorder",
        "memtui.recording.supervisor.launch",
        "memtui.recording.supervisor.sudo",
        "memtui.core.privilege",
        "memtui.core.capabilities",
    ),
    *(
        "memtui.recording.sampler.target_lock",
        "memtui.recording.registry",
        "memtui.recording.supervisor.exec_gate",
        "memtui.recording.supervisor.program",
        "memtui.recording.supervisor.pty_logger",
        "memtui.study.workloads",
    ),
]
FORMS = ("csv", "json", "svg", "html", "chrome", "perfetto")
POSIX = ["termios", "tty", "pty", "syslog"]
# What no other system has; and what Windows has not.
MAC = ("darwin", LINUX, (), ())
WINDOWS = (
    "win32",
    LINUX + POSIX,
    ("getuid", "geteuid", "getgid", "getegid", "uname", "O_NONBLOCK", "O_CLOEXEC", "fork", "openpty", "getpgid"),
    ("SIGHUP", "SIGKILL", "SIGCONT", "SIGTSTP", "SIGWINCH"),
)


def elsewhere(system: tuple, source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python source on a system that is not Linux, as far as its names go."""
    command = [sys.executable, "-c", f"{ELSEWHERE.format(system=system)}\n{source}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return write_session(tmp_path_factory.mktemp("server") / "s.memtui", messages(30))


def command(*words: object) -> str:
    return f"from memtui.cli.main import main\nsys.exit(main({[str(w) for w in words]!r}))"


@pytest.mark.parametrize("system", [MAC, WINDOWS], ids=["mac", "windows"])
@pytest.mark.parametrize("words", [("--json",), ("--redact",)])
def test_report(system, words, session, tmp_path):
    done = elsewhere(system, command("report", session, *words, "--debug"), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pagetable" in done.stdout


@pytest.fixture(scope="module")
def exported(session, tmp_path_factory):
    """Return what exports a session in every form on a system, all in one process there, into a folder of each form."""

    def on(system: tuple) -> Path:
        folder = tmp_path_factory.mktemp(system[0])
        argv = [["export", str(session), "--to", form, "-o", str(folder / form), "--debug"] for form in FORMS]
        done = elsewhere(system, f"from memtui.cli.main import main\nsys.exit(max(map(main, {argv!r})))", folder)
        # What takes longer than a second, as on a busy machine, says so.
        lines = [
            line for line in done.stderr.splitlines() if not re.fullmatch(r"memtui export: wrote .*, in .* s", line)
        ]
        assert (done.returncode, lines) == (0, [])
        return folder

    again = on(MAC)
    folders = {system[0]: on(system) for system in (MAC, WINDOWS)}
    return lambda system, form: (folders[system[0]] / form, again / form)


@pytest.mark.parametrize("system", [MAC, WINDOWS], ids=["mac", "windows"])
@pytest.mark.parametrize("form", FORMS)
def test_export(system, form, exported):
    out, again = exported(system, form)
    files = sorted(path.name for path in out.iterdir())
    assert files
    assert files == sorted(path.name for path in again.iterdir())
    for name in files:
        assert (out / name).read_bytes() == (again / name).read_bytes()


def test_replay(session, tmp_path):
    """The real screen, on Textual's driver without a terminal (its own for terminals needs termios)."""
    source = f"""
import asyncio
from pathlib import Path
from memtui.tui import app, terminal
terminal.prepare()
reader = app.open_session(Path({str(session)!r}))
assert not reader.alive
async def look():
    shown = app.MemtuiApp(lambda: reader, live=False)
    async with shown.run_test(size=(120, 36)) as pilot:
        from tests.support.screen_text import screen_text
        for _ in range(100):
            await pilot.pause(0.05)
            if "[heap]" in screen_text(shown):
                break
        print(screen_text(shown))
asyncio.run(look())
"""
    done = elsewhere(MAC, f"sys.path.insert(0, {str(ROOT)!r})\n{source}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[heap]" in done.stdout


@pytest.mark.parametrize("system", [MAC, WINDOWS], ids=["mac", "windows"])
def test_output(system, tmp_path):
    (tmp_path / "s.log").write_bytes(b"50%\r100%\nthe last words\n")
    source = """
from pathlib import Path
from memtui.tui.presenters.log_tail import OutputLog
log = OutputLog(Path("s.log"))
log.shown = True
log.resize(80, 20)
print(log.view().rows)
"""
    done = elsewhere(system, source, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "('100%', 'the last words')\n"


def test_the_block_blocks(tmp_path):
    """What this file relies on."""
    for source in (
        "import fcntl",
        "import psutil",
        "import memtui.recording.supervisor.launch",
        "os.sched_getaffinity",
        "open('/proc/stat')",
    ):
        assert elsewhere(MAC, source, tmp_path).returncode == 1, source
    for source in ("import termios", "os.geteuid", "signal.SIGHUP"):
        assert elsewhere(WINDOWS, source, tmp_path).returncode == 1, source
        assert elsewhere(MAC, source, tmp_path).returncode == 0, source


def test_page_sets_are_little_endian_on_any_machine():
    """The bytes of one page set, written out: what a machine of another byte order has to read and write."""
    pages = PageSet.from_pages(np.array([0x200 * 0x0102 + 1, 0x200 * 0x0102 + 65]))
    raw = zlib.decompress(pages.encode())
    assert raw[:12] == bytes([1, 0, 0, 0] + [0] * 8)
    assert raw[12:20] == bytes([2, 1, 0, 0, 0, 0, 0, 0])
    assert raw[20:36] == bytes([2, 0, 0, 0, 0, 0, 0, 0] * 2)
    assert PageSet.decode(zlib.compress(raw)).pages().tolist() == pages.pages().tolist()


def test_page_sets_of_the_other_byte_order_are_the_same_pages():
    """Arrays that lie in memory the other way round, as all do on such a machine."""
    pages = PageSet.from_pages(np.array([5, 77, 1000, 70_000]))
    turned = PageSet(
        *(a.astype(a.dtype.newbyteorder(">")) for a in (pages.blocks, pages.bits, pages.huge, pages.giant))
    )
    assert turned.encode() == pages.encode()
    assert turned.pages().tolist() == pages.pages().tolist()
