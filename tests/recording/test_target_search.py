"""Which process a name or a rank means."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from memtui.core.errors import UserError
from memtui.recording.target_search import find, names_of

NAME = f"train_{os.getpid()}"  # nothing else on this machine is called so
_WORKER = """
import os, sys, time
workers = int(sys.argv[1]) if len(sys.argv) > 1 else 0
for _ in range(workers):
    if os.fork() == 0: break
os.write(1, b"up\\n")
time.sleep(60)
"""


@pytest.fixture
def start(tmp_path) -> Iterator:
    """Starts a training that is a script of that name, with workers and an environment; its process."""
    with ExitStack() as stack:

        def start(name: str = NAME, workers: int = 0, **environ: str) -> subprocess.Popen[bytes]:
            script = tmp_path / f"{name}.py"
            script.write_text(_WORKER)
            clean = {name: value for name, value in os.environ.items() if "RANK" not in name}
            child = subprocess.Popen(
                [sys.executable, "-u", script, str(workers)],
                stdout=subprocess.PIPE,
                env=clean | environ,
                start_new_session=True,
            )
            stack.callback(_end, child)
            for _ in range(workers + 1):
                assert child.stdout.readline() == b"up\n"
            return child

        yield start


def _end(child: subprocess.Popen[bytes]) -> None:
    os.killpg(child.pid, 9)
    child.wait()
    child.stdout.close()


@pytest.mark.parametrize(
    ("title", "words", "names"),
    [
        ("python3", ["/usr/bin/python3", "-u", "/srv/train.py", "--lr", "1"], {"python3", "train.py", "train"}),
        ("pt_main_thread", ["python", "train.py"], {"pt_main_thread", "python", "train.py", "train"}),
        ("python", ["python", "-W", "ignore", "-X", "dev", "a.py"], {"python", "a.py", "a"}),
        ("python", ["python", "-m", "torch.distributed.run", "x.py"], {"python", "torch.distributed.run"}),
        ("python", ["python", "-c", "import train"], {"python"}),
        ("python", ["python", "-m"], {"python"}),
        ("python", ["python"], {"python"}),
        ("vim", ["vim", "train.py"], {"vim"}),
        ("bash", ["bash", "./run.sh"], {"bash", "run.sh"}),
        ("ended", [""], {"ended"}),
    ],
)
def test_what_a_process_is_called(title, words, names):
    assert names_of(title, words) == names


@pytest.mark.parametrize("text", [f"{NAME}.py", NAME], ids=["whole", "without its ending"])
def test_a_script_is_found_by_its_name(start, text):
    child = start()
    pid, notice = find(text, None)
    assert pid == child.pid
    assert str(child.pid) in notice
    assert NAME in notice


def test_a_part_of_the_command_line_does_where_no_name_fits(start, tmp_path):
    child = start()
    assert find(f"{tmp_path.name}/{NAME}".upper(), None)[0] == child.pid


def test_a_name_that_fits_goes_before_a_part_of_a_command_line(start):
    child = start()
    start(f"{NAME}_other")
    assert find(NAME, None)[0] == child.pid


def test_workers_with_the_name_of_their_parent_are_not_meant(start):
    child = start(workers=2)
    assert find(NAME, None)[0] == child.pid


def test_two_of_a_name_are_named(start):
    pids = {start().pid, start().pid}
    with pytest.raises(UserError) as refused:
        find(NAME, None)
    assert "is 2 processes; name one by its PID" in str(refused.value)
    assert all(str(pid) in str(refused.value) for pid in pids)


def test_a_rank_is_found_by_name_by_launcher_and_alone(start):
    rank = str(10_000 + os.getpid() % 900_000)
    children = {r: start(workers=1, RANK=r) for r in (rank, "3")}
    assert find(NAME, int(rank))[0] == children[rank].pid
    assert find(NAME, 3)[0] == children["3"].pid
    assert find(None, int(rank))[0] == children[rank].pid
    assert find(str(children["3"].pid), 3)[0] == children["3"].pid
    with pytest.raises(UserError, match=f"no process says RANK=3 .* PID {children[rank].pid} and the processes below"):
        find(str(children[rank].pid), 3)


def test_the_rank_below_a_launcher(tmp_path):
    """As torchrun does it: one parent without a rank, a child for each."""
    script = tmp_path / "worker.py"
    script.write_text(_WORKER)
    launcher = (
        "import os, subprocess, sys; [subprocess.Popen([sys.executable, sys.argv[1]], env=os.environ | {'RANK': r}) "
        "for r in '01']; import time; time.sleep(60)"
    )
    argv = [sys.executable, "-c", launcher, str(script)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert [child.stdout.readline() for _ in "01"] == [b"up\n"] * 2
        pids = {rank: find(str(child.pid), rank)[0] for rank in (0, 1)}
        for rank, pid in pids.items():
            assert f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert child.pid not in pids.values()
    finally:
        _end(child)


def test_nobody(start):
    with pytest.raises(UserError, match=r"no process is called 'no-such-training', nor has it"):
        find("no-such-training", None)
    with pytest.raises(UserError, match="no process says RANK=999999"):
        find(None, 999_999)
    with pytest.raises(UserError, match="empty name"):
        find("", None)


def test_memtui_itself_is_never_meant(start):
    """Its own command line has the name that it was given."""
    child = start()
    argv = [sys.executable, "-c", "import time; time.sleep(60)", "x", "-m memtui attach", f"{NAME}.py"]
    with subprocess.Popen(argv) as other:
        time.sleep(0.2)
        try:
            assert find(f"{NAME}.py", None)[0] == child.pid
        finally:
            other.kill()


def test_the_command_line_takes_a_name(start, tmp_path):
    start()
    argv = ["record", NAME, "-o", tmp_path / "s.memtui", "--duration", "0.5", "--tracker", "rss"]
    done = subprocess.run([sys.executable, "-m", "memtui", *map(str, argv)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert NAME in done.stderr
    assert (tmp_path / "s.memtui").exists()
