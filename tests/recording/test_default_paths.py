"""The name of a session that nobody named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.recording.supervisor.default_paths import session_name
from tests.support.live import wait_until


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        ((sys.executable, "{folder}/train model.py", "--lr", "3"), "train"),  # a blank ends a name
        ((sys.executable, "{folder}/train.py"), "train.py"),
        ((sys.executable, "-c", "input()"), f"{Path(sys.executable).name}-c"),
        (("cat",), "cat"),
    ],
)
def test_a_session_is_named_after_its_program(tmp_path, argv, name):
    for script in ("train.py", "train model.py"):
        (tmp_path / script).write_text("print('ready', flush=True)\ninput()")
    words = [word.format(folder=tmp_path) for word in argv]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        try:
            wait_until(Path(f"/proc/{child.pid}/cmdline").read_bytes)  # exec is under way
            assert session_name(child.pid) == f"{name}-{child.pid}"
        finally:
            child.kill()


def test_of_a_process_without_a_command_line_the_pid_is_all():
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert session_name(child.pid) == str(child.pid)
    child.wait()
    assert session_name(child.pid) == str(child.pid)
