"""Wrong calls of every command, as the parser has them: exit code, one line, nothing left behind, nothing hangs.

They run as an ordinary user, whom files without rights refuse; root makes itself one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memtui.cli.config import leaves_of
from memtui.cli.main import COMMANDS
from memtui.cli.parser import build_parser
from memtui.core.errors import BAD_INPUT
from tests.users import why_not
from tests.wrong_calls import Call, base_of, close_place, generated, make_place

NOBODY = 65534
SECONDS = 10.0
LEAVES = [leaf.prog.removeprefix("memtui ") for leaf in leaves_of(build_parser(COMMANDS))]
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
    words, pipe = [sys.executable, "-m", "tests.fork_server"], subprocess.PIPE
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


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    top = Path(tempfile.mkdtemp(prefix="memtui-wrong-"))
    root = os.geteuid() == 0
    uid = NOBODY if root and not why_not() else os.geteuid()
    place = top / "place"
    for folder in (top, place):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    make_place(place)
    for path in (top, place, *place.rglob("*")):
        os.chown(path, uid, uid if uid == NOBODY else os.getegid(), follow_symlinks=False)
    close_place(place)
    try:
        with fork_servers(2) as servers:
            made = Bench(place, uid, uid != 0, servers)
            for call in generated(place, made.rights):
                made.calls.setdefault(call.command, []).append(call)
            yield made
    finally:
        for name in ("closed", "sealed"):
            (place / name).chmod(0o700)
        shutil.rmtree(top, ignore_errors=True)


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


def test_there_are_at_least_six_hundred(bench):
    assert set(bench.calls) == set(LEAVES)
    assert sum(map(len, bench.calls.values())) >= 600


@pytest.mark.parametrize("command", LEAVES)
def test_wrong_calls(command, bench):
    calls, before = bench.calls[command], listing(bench.place)
    with ThreadPoolExecutor(len(bench.servers)) as pool:
        parts = [calls[n :: len(bench.servers)] for n in range(len(bench.servers))]
        failed = [one for part in pool.map(bench.wrong, parts, bench.servers) for one in part]
    assert not failed, f"{len(failed)} of {len(calls)}:\n" + "\n".join(failed)
    assert listing(bench.place) == before


RIGHT = ("report", "export", "import", "breakdown", "bench", "compare", "place solve", "completion")


@pytest.mark.parametrize("command", RIGHT)
def test_what_is_around_the_wrong_is_right(command, bench):
    """Otherwise the calls above would be refused for another reason than the one they are there for."""
    work = Path(tempfile.mkdtemp(dir=bench.place.parent))
    try:
        for name in (".", "home", "here", "tmp"):
            (work / name).mkdir(exist_ok=True)
            os.chown(work / name, bench.uid, -1)
        words = (*command.split(), *base_of(command, "", bench.place))
        done = bench.run(words, work / "here", work / "home", bench.servers[0])
        assert (done["code"], done["err"]) == (0, "")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def real(words: list[str], folder: Path, uid: int) -> subprocess.CompletedProcess[str]:
    """The program itself, in a process of its own."""
    rights: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": []} if os.geteuid() == 0 and uid else {}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-m", "memtui", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60, check=False, **rights,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "x", "--config", "{place}/pipe"], "pipe: is not a file, but a pipe; name a plain file"),
        (["train", "fcReLu", "--set", "seed=99999999999999999999999"], "seed is at most 9223372036854775807"),
        (["train", "fcReLu", "--definitions", "{place}/device"], "is not a file, but a device"),
        (["record", "-o", "", "--", "true"], "argument -o/--output: must be a name, not nothing"),
        (["record", "1", "--interval"], "argument --interval: expected one argument"),
        (["bench", "db"], "what about the database? say bench db info"),
        (["bench", "db", "merge", "{place}/none", "--db", "new.db"], "none: No such file"),
        (["place", "solve", "{place}/p.memtui", "--limit", "0"], "argument --limit: must be above 0 bytes"),
        (["compare", "{place}/s.memtui"], "one session is held against nothing"),
    ],
)
def test_the_program_itself(words, says, bench):
    folder = Path(tempfile.mkdtemp(dir=bench.place.parent))
    os.chown(folder, bench.uid, -1)
    done = real([word.format(place=bench.place) for word in words], folder, bench.uid)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (BAD_INPUT, "", 1), done
    assert says in done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["report", "{place}/s.memtui", "--html", "{closed}/x.html"], "closed/x.html: cannot be written"),
        (["import", "{place}/rnn.log", "-o", "{closed}/x.memtui"], "cannot be"),
        (["tune", "{place}/grid.toml", "-o", "{closed}/x"], "no folder for the results can be made"),
        (["tune", "{closed}/grid.toml"], "closed/grid.toml: cannot be used"),
        (["train", "fcReLu", "--config", "{closed}/x.toml"], "closed/x.toml: cannot be read"),
        (["train", "fcReLu", "--definitions", "{closed}/x.py"], "closed/x.py: cannot be read"),
        (["train", "fcReLu", "--dataset-name", "mnist", "--data", "{closed}/x"], "closed/x"),
        (["train", "fcReLu", "--set", "save_model=true", "--set", "save_model_path={closed}/x"], "closed/x"),
        (["bench", "db", "info", "--db", "{closed}/x.db"], "closed/x.db: cannot be used"),
        (["bench", "compare", "{closed}/a.db", "{closed}/b.db"], "closed/a.db: cannot be used"),
        (["bench", "db", "merge", "{closed}/a.db", "--db", "new.db"], "closed/a.db: cannot be used"),
        (["bench", "db", "export", "{closed}/x.csv", "--db", "{place}/bench.db"], "closed/x.csv: cannot be written"),
        (["study", "basic", "-o", "{closed}/x"], "closed/x: cannot be used"),
    ],
)
def test_without_rights_it_is_said_who_is_denied_what(words, name, bench):
    if not bench.rights:
        pytest.skip("root is denied nothing, and cannot become somebody else here")
    folder = Path(tempfile.mkdtemp(dir=bench.place.parent))
    os.chown(folder, bench.uid, -1)
    done = real([word.format(place=bench.place, closed=bench.place / "closed") for word in words], folder, bench.uid)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (BAD_INPUT, "", 1), done
    assert name in done.stderr
    assert f"Permission denied (nobody may not enter {bench.place}/closed); " in done.stderr or bench.uid != NOBODY
    assert list(folder.iterdir()) == []
