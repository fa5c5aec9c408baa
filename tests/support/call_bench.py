"""Calls of memtui without starting a process for each: forks of a server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memtui.core.errors import BAD_INPUT
from tests.support.wrong_calls import Call

SECONDS = 10.0


LONGEST = 2100


@dataclass
class Bench:
    """A place with things that are wrong, and a process that runs calls there."""

    place: Path
    uid: int
    rights: bool
    servers: list[subprocess.Popen[str]]
    sudo: dict[str, str] = field(default_factory=dict)  # what it would set
    calls: dict[str, list[Call]] = field(default_factory=dict)

    def wrong(self, calls: list[Call], server: subprocess.Popen[str]) -> list[str]:
        """What is wrong with each of them, one after another."""
        return [f"{call}\n    " + "\n    ".join(found) for call in calls if (found := self._of(call, server))]

    def _of(self, call: Call, server: subprocess.Popen[str]) -> list[str]:
        before, done, after = self.done(call.words, server)
        return wrong_with(done, before, after, call.names)

    def done(self, words: tuple[str, ...], server: subprocess.Popen[str]) -> tuple[set, dict[str, Any], set]:
        """What a call did, and what was below its folder before and after."""
        work = Path(tempfile.mkdtemp(dir=self.place.parent))
        try:
            for name in (".", "home", "here", "tmp"):
                (work / name).mkdir(exist_ok=True)
                os.chown(work / name, int(self.sudo.get("SUDO_UID", self.uid)), -1)
            before = listing(work)
            done = self.run(words, work / "here", work / "home", server)
            return before, done, listing(work)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def run(self, words: tuple[str, ...], folder: Path, home: Path, server: subprocess.Popen[str]) -> dict[str, Any]:
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "LANG": "C.UTF-8",
            "TMPDIR": str(home.parent / "tmp"),
            **self.sudo,
        }
        asked = {"words": words, "folder": str(folder), "environment": environment, "uid": self.uid, "seconds": SECONDS}
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())


@contextmanager
def fork_servers(count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that run calls."""
    words, pipe = [sys.executable, "-m", "tests.support.fork_server"], subprocess.PIPE
    servers = [subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) for _ in range(count)]
    try:
        yield servers
    finally:
        for server in servers:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.close()
            server.wait(10)
            server.stdout.close()


def listing(folder: Path) -> set[tuple[str, int, int]]:
    """Everything below, with size and time."""
    found = set()
    for root, names, files in os.walk(folder):
        for name in (*names, *files):
            status = os.lstat(Path(root, name))
            found.add((f"{root}/{name}", status.st_size, status.st_mtime_ns))
    return found


def wrong_with(done: dict[str, Any], before: set, after: set, names: tuple[str, ...]) -> list[str]:
    """What a call did that it should not have done."""
    found = []
    if done["hung"]:
        found.append("hung")
    elif done["code"] != BAD_INPUT:
        found.append(f"exit {done['code']}")
    if done["out"]:
        found.append(f"stdout: {done['out'][:200]!r}")
    lines = done["err"].split("\n")
    if len(lines) != 2 or lines[1] or not lines[0].startswith("memtui"):
        found.append(f"not one line: {done['err'][-600:]!r}")
    elif "(--debug shows where)" in lines[0] or "Traceback" in lines[0]:
        found.append(f"an error of memtui: {lines[0][:300]!r}")
    elif not any(name in lines[0] for name in names):
        found.append(f"a line that names none of {names!r}: {lines[0][:300]!r}")
    if any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in lines[0]) or len(lines[0]) > LONGEST:
        found.append(f"a line that is not fit for a terminal: {len(lines[0])} characters, {lines[0][:200]!r}")
    if done["left"]:
        found.append(f"processes left: {done['left']}")
    if before != after:
        found.append(f"left behind: {sorted(before ^ after)}")
    return found
