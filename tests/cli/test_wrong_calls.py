"""Wrong calls of every command, as the parser has them: exit code, one line, nothing left behind, nothing hangs.

They run as an ordinary user, whom files without rights refuse; root makes itself one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from memtui.cli.parser import build_parser
from memtui.core.argtypes import leaves_of
from memtui.core.errors import BAD_INPUT
from tests.conftest import LONG
from tests.support import users
from tests.support.call_bench import Bench, fork_servers, listing
from tests.support.repository import ROOT
from tests.support.users import NOBODY, why_no_fork
from tests.support.wrong_calls import base_of, close_place, generated, is_input, make_place

EVERY = 1 if LONG else 3  # of the calls, in the order of options and their values
LEAVES = [leaf.prog.removeprefix("memtui ") for leaf in leaves_of(build_parser())]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    top = Path(tempfile.mkdtemp(prefix="memtui-wrong-"))
    root = os.geteuid() == 0
    uid = NOBODY if root and not why_no_fork() else os.geteuid()
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
            created = Bench(place, uid, uid != 0, servers)
            for call in islice(generated(place, created.rights), 0, None, EVERY):
                created.calls.setdefault(call.command, []).append(call)
            yield created
    finally:
        for name in ("closed", "sealed"):
            (place / name).chmod(0o700)
        shutil.rmtree(top, ignore_errors=True)


def test_the_gate_leaves_no_ordinary_user_out(monkeypatch):
    assert f"export {users.GATE}=1\n" in (ROOT / ".ci" / "run").read_text()
    monkeypatch.setattr(users, "why_not", lambda: "sudo is not installed")
    monkeypatch.delenv(users.GATE, raising=False)
    assert why_no_fork() == "sudo is not installed"
    monkeypatch.setenv(users.GATE, "1")
    with pytest.raises(pytest.fail.Exception, match="the gate needs another user for this: sudo is not installed"):
        why_no_fork()


def test_there_are_at_least_six_hundred(bench):
    assert set(bench.calls) == set(LEAVES)
    assert sum(map(len, bench.calls.values())) >= 600


def test_what_names_a_file_is_tried_with_wrong_files():
    """The kind of an option is known by its type."""
    code = {("place solve", "model")}  # FILE.py:function, which is read with --run alone
    untried = []
    for leaf in leaves_of(build_parser()):
        command = leaf.prog.removeprefix("memtui ")
        for action in leaf._actions:
            names = re.search("FILE|DIR|PATH|LOG|[.]toml", str(action.metavar))
            if names and not is_input(command, action) and (command, action.dest) not in code:
                untried.append((command, action.dest))
    assert untried == []


@pytest.mark.parametrize("command", LEAVES)
def test_wrong_calls(command, bench):
    calls, before = bench.calls[command], listing(bench.place)
    with ThreadPoolExecutor(len(bench.servers)) as pool:
        parts = [calls[n :: len(bench.servers)] for n in range(len(bench.servers))]
        failed = [line for part in pool.map(bench.wrong, parts, bench.servers) for line in part]
    assert not failed, f"{len(failed)} of {len(calls)}:\n" + "\n".join(failed)
    assert listing(bench.place) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="for root")
def test_root_is_refused_in_the_same_way(bench):
    """Some of the calls, other ones of each command; no file is closed to root."""
    calls, before = list(generated(bench.place, False))[:: 10 * EVERY], listing(bench.place)
    assert len(calls) > 60
    as_root = Bench(bench.place, 0, False, bench.servers)
    assert as_root.wrong(calls, bench.servers[0]) == []
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
        argv = (*command.split(), *base_of(command, "", bench.place))
        done = bench.run(argv, work / "here", work / "home", bench.servers[0])
        assert (done["code"], done["err"]) == (0, "")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def real(argv: list[str], folder: Path, uid: int) -> subprocess.CompletedProcess[str]:
    """The program itself, in a process of its own."""
    rights: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": []} if os.geteuid() == 0 and uid else {}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-m", "memtui", *argv]
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
