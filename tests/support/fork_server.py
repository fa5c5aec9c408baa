"""Runs command lines of memtui in forked children of one process that has imported it: a hundred a second.

``python -m tests.support.fork_server`` reads a JSON object a line and answers each with one. A call runs as the user,
in the folder and with the home that it names, without a terminal and without a standard input.
"""

from __future__ import annotations

import ctypes
import gc
import io
import json
import os
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36
_PRELOADED = (
    "memtui.cli.main", "memtui.bench.command", "memtui.reports.comparison.text", "memtui.reports.export",
    "memtui.training.command", "memtui.training.tune.command", "memtui.placement.command",
    "memtui.placement.profiling.command", "memtui.reports.report", "memtui.study.command", "memtui.formats.command",
    "memtui.reports.breakdown.command", "memtui.recording.supervisor.launch", "memtui.recording.supervisor.foreground",
    "memtui.study.calibration", "memtui.recording.client", "memtui.recording.target_search", "memtui.cli.config",
    "memtui.tui.watch", "pyarrow.parquet", "tomllib", "difflib", "encodings.idna", "pwd", "grp",
)  # fmt: skip


def main() -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what a call leaves running becomes this process's child
    for name in _PRELOADED:
        try:
            __import__(name)
        except ImportError:
            pass
    from memtui.cli.parser import build_parser

    build_parser()  # imports what each command adds to it
    gc.freeze()  # its collections touch no page that forked children share
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(json.dumps(_call(json.loads(line), libc)) + "\n")
        answers.flush()


def _call(asked: dict[str, Any], libc: ctypes.CDLL) -> dict[str, Any]:
    begin = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = _run(asked, out.fileno(), err.fileno(), libc)
            except BaseException as error:
                os.write(err.fileno(), f"fork server: {error!r}\n".encode())
            finally:
                os._exit(code)
        hung = not _ended(child, asked["seconds"])
        if hung:
            os.killpg(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
        left = _left()
        out.seek(0)
        err.seek(0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "out": out.read().decode("utf-8", "surrogateescape"),
            "err": err.read().decode("utf-8", "surrogateescape"),
            "hung": hung,
            "left": left,
            "peak_kib": used.ru_maxrss,
            "seconds": time.monotonic() - begin,
        }


def _ended(child: int, seconds: float) -> bool:
    fd = os.pidfd_open(child)
    try:
        return bool(select.select([fd], [], [], seconds)[0])
    finally:
        os.close(fd)


def _left() -> list[str]:
    """Processes of the call that run still, a moment later; they are ended."""
    deadline = time.monotonic() + 1.0
    while True:
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                return []
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    pids = [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    found = []
    for pid in pids:
        found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return found


def _run(asked: dict[str, Any], out: int, err: int, libc: ctypes.CDLL) -> int:
    """In the child: what the console script does."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd, to in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(fd, to)
    sys.stdin = os.fdopen(0, "r")
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb"), "utf-8")
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", buffering=0), "utf-8", "backslashreplace", write_through=True)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    if os.geteuid() == 0 and asked["uid"]:
        os.setgroups([])
        os.setresgid(asked["uid"], asked["uid"], asked["uid"])
        os.setresuid(asked["uid"], asked["uid"], asked["uid"])
        libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)  # as after an exec: its own /proc is its own
    from memtui.cli.main import main as memtui

    sys.argv = ["memtui", *asked["words"]]
    try:
        code = memtui()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    main()
