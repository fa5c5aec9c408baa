"""State found is state left: stopped targets, debuggers, a shell with job control, programs that mind interruptions."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from memtui.core.samples import ProcessWindow
from memtui.probes.pause.pauser import Pauser
from memtui.probes.pause.ptrace import NotPaused
from tests.conftest import LONG
from tests.support.blocking_calls import CALLS
from tests.support.live import needs_root, needs_tracker, start, stop, wait_until
from tests.support.paused import Counter, state, tasks, tracer
from tests.support.repository import ROOT
from tests.support.streams import sample

pytestmark = pytest.mark.real_clock

ROUNDS = 1000 if LONG else 100  # windows of the programs that mind interruptions
JOB_SECONDS = 60 if LONG else 4
IMPACT = ROOT / "docs/reference/impact.md"
# What the kernel does not restart after a pause (nor after SIGSTOP and SIGCONT): see signal(7).
INTERRUPTED = {"epoll_wait", "epoll_pwait", "semtimedop", "sigtimedwait", "io_getevents", "recv with SO_RCVTIMEO"}


@pytest.fixture
def counter():
    counter = Counter(2)
    yield counter
    counter.close()


@needs_root
@pytest.mark.parametrize("call", CALLS)
def test_which_calls_are_interrupted(call):
    words = [sys.executable, "-m", "tests.support.blocking_calls", call]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        try:
            assert child.stdout.readline() == "ready\n"
            time.sleep(0.1)
            with Pauser() as pauser:
                while state(child.pid) not in "ZX":
                    try:
                        with suppress(NotPaused), pauser.paused(child.pid):  # on a busy machine it may stop late
                            pass
                    except ProcessLookupError:
                        break
                    time.sleep(0.02)
            assert child.communicate(timeout=20)[0] == ("EINTR\n" if call in INTERRUPTED else "ok\n")
        finally:
            child.kill()


def test_the_documents_name_the_calls_that_are_interrupted():
    text = IMPACT.read_text()
    assert all(f"`{call.split()[-1]}`" in text for call in INTERRUPTED if call != "epoll_pwait")


@needs_root
def test_stopped_and_continued_during_a_pause(counter):
    with Pauser() as pauser:
        for _ in range(5):
            with pauser.paused(counter.pid):
                os.kill(counter.pid, signal.SIGSTOP)
            assert os.waitpid(counter.pid, os.WUNTRACED)[1] == signal.SIGSTOP << 8 | 0x7F, "its parent is told"
            assert state(counter.pid) == "T"
            with pauser.paused(counter.pid) as pause:
                assert pause.stopped
                os.kill(counter.pid, signal.SIGCONT)
            counter.assert_runs()
            with pauser.paused(counter.pid) as pause:
                assert not pause.stopped


@needs_tracker
def test_a_stopped_target_stays_stopped_through_windows(counter):
    os.kill(counter.pid, signal.SIGSTOP)
    os.waitpid(counter.pid, os.WUNTRACED)
    before = counter.counts()
    stream = sample(counter.pid, 1)
    wait_until(lambda: state(counter.pid) == "T")  # when it is let go, it goes back to its stop by itself
    assert counter.counts() == before, "it ran"
    assert len(stream.windows) > 10
    os.kill(counter.pid, signal.SIGCONT)
    counter.assert_runs()


def traces(pid: int) -> bool:
    return all(tracer(task) != "0" for task in tasks(pid))


@needs_tracker
@pytest.mark.parametrize("program", ["strace", "gdb"])
def test_a_debugger_keeps_its_hold(program, counter):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    words = {
        "strace": ["strace", "-f", "-o", "/dev/null", "-p", str(counter.pid)],
        "gdb": ["gdb", "-q", "-nx", "-p", str(counter.pid)],
    }[program]
    debugger = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: traces(counter.pid))
        if program == "gdb":
            counter.assert_stands()
        stream = sample(counter.pid, 1)
        assert traces(counter.pid), "it lost its hold"
        if program == "gdb":
            counter.assert_stands()
        else:
            counter.assert_runs()
        windows = stream.of_pid(counter.pid)
        assert windows
        assert {w.status for w in windows} == {"denied"}
        assert all(f"process {debugger.pid} traces it already" in w.reason for w in windows)
        assert all(w.pages is None for w in windows)
    finally:
        debugger.kill()
        debugger.communicate()
    wait_until(lambda: tracer(counter.pid) == "0")
    counter.assert_runs()
    assert "ok" in {w.status for w in sample(counter.pid, 1).of_pid(counter.pid)}, "afterwards it is observed again"


# Writes to each of 4096 pages of its own in every round, until it may read something, and adds up what it wrote.
_ROUNDS = """
import ctypes, hashlib, mmap, select, sys
memory = mmap.mmap(-1, 16 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
print(ctypes.addressof(ctypes.c_char.from_buffer(memory)), flush=True)
digest, view = hashlib.sha256(), memoryview(memory)[::4096]
def rounds():
    number = 0
    while number < 200 or not select.select([sys.stdin], [], [], 0.002)[0]:  # leaves the CPU to other tests
        number += 1
        view[:] = bytes([number % 251]) * len(view)
        if number <= 200:
            digest.update(view.tobytes())
rounds()
print(digest.hexdigest(), flush=True)
"""
_PAGES = 4096
# Where the dev extra put it: beside this Python, or elsewhere on PATH.
PY_SPY = shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
needs_py_spy = pytest.mark.skipif(PY_SPY is None, reason="py-spy is not installed")


class Rounds:
    """That program, as it runs while the context is entered. It has to end as it does when nobody watches it."""

    def __enter__(self) -> Rounds:
        words = [sys.executable, "-c", _ROUNDS]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid, self.first_page = self._process.pid, int(self._process.stdout.readline()) >> 12
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        output, _ = self._process.communicate(timeout=60)
        if kind is None:
            alone = subprocess.run(
                [sys.executable, "-c", _ROUNDS], stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            assert self._process.returncode == 0
            assert output.split() == alone.stdout.split()[1:]


def assert_all_pages(windows: list[ProcessWindow], first: int) -> None:
    """Each window between the first and the last that is called ``ok`` has all pages that the program writes to."""
    ok = [window for window in windows[1:-1] if window.status == "ok"]
    assert len(ok) >= 3
    for window in ok:
        assert window.pages is not None
        pages = window.pages.pages()
        assert ((pages >= first) & (pages < first + _PAGES)).sum() == _PAGES


@needs_tracker
@needs_py_spy
def test_a_profiler_that_pauses_nobody_and_memtui_do_not_mind_each_other(tmp_path):
    with Rounds() as target:
        flames = tmp_path / "flames.txt"
        words = [PY_SPY, "record", "--nonblocking", "-d", "3", "-r", "100", "-f", "raw", "-o", flames]
        with subprocess.Popen([*words, "-p", str(target.pid)], stderr=subprocess.DEVNULL) as profiler:
            windows = sample(target.pid, 3, interval_ns=200_000_000).of_pid(target.pid)
            profiler.wait(30)
    assert "rounds" in flames.read_text()
    assert {window.status for window in windows} == {"ok"}
    assert_all_pages(windows, target.first_page)


class Dumps(threading.Thread):
    """Has py-spy print the stacks of a process over and over; it pauses the process each time.

    Attributes:
        printed: dumps with the function that runs.
        refused: errors of the others.
    """

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._pid, self._done = pid, threading.Event()
        self.printed, self.refused = 0, []

    def run(self) -> None:
        while not self._done.wait(0.02):
            dump = subprocess.run([PY_SPY, "dump", "-p", str(self._pid)], capture_output=True, text=True)
            if dump.returncode == 0 and "rounds (" in dump.stdout:
                self.printed += 1
            else:
                self.refused.append(dump.stderr)

    def stop(self) -> None:
        self._done.set()
        self.join()


@needs_tracker
@needs_py_spy
def test_a_profiler_that_pauses_its_target_and_memtui_take_turns():
    with Rounds() as target:
        dumps = Dumps(target.pid)
        dumps.start()
        try:
            windows = sample(target.pid, 4, interval_ns=200_000_000).of_pid(target.pid)
        finally:
            dumps.stop()
        wait_until(lambda: tracer(target.pid) == "0")
        assert state(target.pid) not in "tT"
    assert dumps.printed > len(dumps.refused), dumps.refused[:1]
    lost = [window for window in windows if window.status != "ok"]
    assert len(lost) < len(windows) / 2
    assert all(window.reason for window in lost), "a window that is lost says why"
    assert all(window.pages is None for window in lost if window.status == "denied")
    assert_all_pages(windows, target.first_page)


# A sampling profiler (py-spy and others) stops its target for a moment, many times a second.
_PROFILER = """
import ctypes, os, sys, time
libc, pid, taken, refused, held_s = ctypes.CDLL(None, use_errno=True), int(sys.argv[1]), 0, 0, 0.0
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if os.geteuid() == 0:
    os.nice(-20)  # other tests do not keep it from a CPU while it holds the target
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    began = time.monotonic()
    if libc.ptrace(16, pid, None, None) == 0:
        os.waitpid(pid, 0x40000000); time.sleep(0.001); libc.ptrace(17, pid, None, None); taken += 1
        held_s += time.monotonic() - began
    else:
        refused += 1
    time.sleep(0.009)
print(taken, refused, held_s, flush=True)
"""


@needs_tracker
def test_beside_a_sampling_profiler():
    counter = Counter(1)
    words = [sys.executable, "-c", _PROFILER, str(counter.pid), "3"]
    profiler = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        profiler.stdout.readline()
        windows = sample(counter.pid, 2).of_pid(counter.pid)
        taken, refused, profiled_s = map(float, profiler.communicate(timeout=20)[0].split())
        # Windows 20 ms apart hold it for a tenth of the time, on a slow machine for a third; the profiler asks for 3 s.
        held_share = sum(w.paused_ns or 0 for w in windows) / 2e9
        assert refused / (taken + refused) < 2 * held_share + 0.1, "it is refused while a window holds the program"
        assert taken > 20
        # The first says that its marks could not be cleared before, if the profiler was there just then; one is
        # approximate where the machine's own DAMON took accessed bits.
        assert {w.status for w in windows} <= {"ok", "approximate", "denied", "not paused", "failed"}
        assert sum(w.status == "failed" for w in windows) <= 1
        lost_share = sum(w.status != "ok" for w in windows) / len(windows)
        assert lost_share < 2 * profiled_s / 3 + 0.1, "a window is refused while the profiler holds the program"
        wait_until(lambda: tracer(counter.pid) == "0")
        counter.assert_runs()
    finally:
        profiler.kill()
        counter.close()


class Tmux:
    """An interactive bash in a terminal of its own."""

    def __init__(self, folder: Path) -> None:
        self._words = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self._run("new-session", "-d", "-x", "160", "-y", "50", "bash --norc --noprofile -i")

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._words, *words], capture_output=True, text=True, check=True, timeout=20).stdout

    def type(self, text: str) -> None:
        self._run("send-keys", "-l", text)
        self._run("send-keys", "Enter")

    def press(self, key: str) -> None:
        self._run("send-keys", key)

    @property
    def text(self) -> str:
        return self._run("capture-pane", "-p")

    @property
    def shell(self) -> int:
        return int(self._run("display-message", "-p", "#{pane_pid}"))

    def foreground(self) -> int:
        """The process group that has the terminal."""
        return int(Path(f"/proc/{self.shell}/stat").read_text().rpartition(")")[2].split()[5])

    def close(self) -> None:
        subprocess.run([*self._words, "kill-server"], check=False, capture_output=True, timeout=20)


_JOB = """
import mmap, sys, threading, time
threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
file = open(sys.argv[1], "r+b")
count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
while True: count[0] += 1
"""


@needs_tracker
def test_a_foreground_job_of_a_shell(tmp_path):
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    job, session = tmp_path / "job.py", tmp_path / "s.memtui"
    job.write_text(_JOB)
    count = tmp_path / "count"
    count.write_bytes(bytes(8))
    tmux = Tmux(tmp_path)
    recording = None
    try:
        wait_until(lambda: "$" in tmux.text or "#" in tmux.text)
        tmux.type(f"{sys.executable} {job} {count}")
        wait_until(lambda: tmux.foreground() != tmux.shell)
        pid = tmux.foreground()
        recording = start("record", pid, "-o", session, "--interval", "0.02")
        end = time.monotonic() + JOB_SECONDS
        while time.monotonic() < end:
            assert tmux.foreground() == pid, "the shell took the terminal back"
            assert state(pid) != "T"
            time.sleep(0.01)
        assert "Stopped" not in tmux.text

        tmux.press("C-z")
        wait_until(lambda: "Stopped" in tmux.text)
        before = count.read_bytes()
        time.sleep(1)
        assert count.read_bytes() == before, "it was woken"
        tmux.type("bg")
        wait_until(lambda: count.read_bytes() != before)
        assert tmux.foreground() == tmux.shell
        time.sleep(0.5)
        before = count.read_bytes()
        wait_until(lambda: count.read_bytes() != before)
        tmux.type("fg")
        wait_until(lambda: tmux.foreground() == pid)
        time.sleep(0.5)
        tmux.press("C-c")
        wait_until(lambda: "KeyboardInterrupt" in tmux.text)
        tmux.type("echo exit-$?")
        wait_until(lambda: "exit-130" in tmux.text)
        assert tmux.text.count("Stopped") == 1
        recording.communicate(timeout=30)
        assert recording.returncode == 0, "the end of the target ends the recording"
    finally:
        if recording is not None and recording.poll() is None:
            stop(recording)
        tmux.close()


_GLOO = """
import os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
x, n = torch.ones(50_000), 0
go = torch.ones(1)
while True:
    dist.all_reduce(x); x.mul_(0.5); n += 1
    time.sleep(0.001)  # other tests want the CPUs, too
    assert torch.all(x == 1).item(), "a wrong sum"
    go[0] = 0 if sys.argv[2] == "0" and os.path.exists(sys.argv[3]) else 1
    dist.all_reduce(go, op=dist.ReduceOp.MIN)
    if n == 1 and sys.argv[2] == "0": print("ready", flush=True)
    if go.item() == 0: break
print(n, flush=True)
dist.destroy_process_group()
"""
_LOADER = """
import os, sys, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
class Numbers(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i): return torch.full((500,), float(i))
n = 0
while not os.path.exists(sys.argv[1]):
    seen = sum(batch[:, 0].sum().item() for batch in DataLoader(Numbers(), batch_size=20, num_workers=2))
    assert seen == 499500, seen
    n += 1
    if n == 1: print("ready", flush=True)
print(n, flush=True)
"""
_BOTH_RANKS = """
import subprocess, sys
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2], str(r), sys.argv[3]]) for r in (0, 1)]
sys.exit(max(r.wait() for r in ranks))
"""


@pytest.mark.slow
@needs_tracker
@pytest.mark.parametrize(("what", "together"), [
    pytest.param("gloo", False, id="gloo"),
    pytest.param("gloo", True, id="gloo, together"),
    pytest.param("DataLoader", False, id="DataLoader"),
    pytest.param("DataLoader", True, id="DataLoader, together"),
])  # fmt: skip
def test_training_survives(what, together, tmp_path):
    """1,000 windows with MEMTUI_LONG=1, a hundred otherwise."""
    pytest.importorskip("torch")
    enough = tmp_path / "enough"
    words = {
        "gloo": [_BOTH_RANKS, _GLOO, str(tmp_path / "meet"), str(enough)],
        "DataLoader": [_LOADER, str(enough)],
    }[what]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        windows, held, end = 0, 0, time.monotonic() + 600
        while windows < ROUNDS:
            stream = sample(child.pid, 2.5 if not LONG else 10, interval_ns=10_000_000, together=together)
            assert stream.returncode == 0, stream.errors
            windows += len(stream.windows)
            held += sum(w.status == "ok" for one in stream.windows for w in one.processes)
            assert child.poll() is None, child.stderr.read()
            assert time.monotonic() < end
        enough.touch()
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        assert int(out.split()[-1]) > 1
        assert held > windows, "several processes were held in most windows"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # its children hold the pipes, too
        child.communicate()
