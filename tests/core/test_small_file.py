"""Files that a user names: read with the rights of that user also where sudo started memtui, and within limits."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from memtui.bench.store import Database
from memtui.cli.parser import build_parser
from memtui.core.argtypes import leaves_of
from tests.support.bench_database import add, row
from tests.support.call_bench import Bench, fork_servers, listing, wrong_with
from tests.support.placement_profiles import written
from tests.support.sessions import messages, write_session
from tests.support.users import NOBODY, why_no_fork
from tests.support.wrong_calls import Call, base_of, is_input, make_place

MARKER = "the-line-of-root"
PEAK_KIB = 600 << 10  # a call that reads what it should not takes 1 GiB or more
TEXT = f"[{MARKER}]\n{MARKER} = 1\n"
# What another command would print of, if it could open it.
SECRET = {
    "secret.toml": TEXT,
    "secret.py": f"raise ValueError('{MARKER}')\n",
    "secret.log": f"step 1 {MARKER}\n",
    "grid.json": f'{{"{MARKER}": 1}}',
    "state.json": f'{{"{MARKER}": 1}}',
    "train-images-idx3-ubyte": MARKER,
    "data_batch_1.bin": MARKER,
}


@pytest.fixture(scope="module")
def borrowed() -> Iterator[Bench]:
    """Calls of a root that sudo lent to nobody."""
    if why := why_no_fork():
        pytest.skip(why)
    top = Path(tempfile.mkdtemp(prefix="memtui-files-"))
    place = top / "place"
    for folder in (top, place):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    make_place(place)
    for name, begin in (("sparse", b""), ("sparse.json", b'[{"'), ("sparse.py", b"#")):
        with (place / name).open("wb") as file:
            file.write(begin)
            file.truncate(10 << 30)
    (place / "of-zeros").mkdir()
    for name in ("grid.json", "data_batch_1.bin", "train-images-idx3-ubyte"):
        (place / "of-zeros" / name).symlink_to(place / "sparse")
    for path in (top, place, *place.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    closed = place / "of-root"
    closed.mkdir()
    for folder in (place, closed):
        for name, text in SECRET.items():
            (folder / name).write_text(text)
        write_session(folder / "secret.memtui", messages(3))
        written(folder / "secret-profile.memtui")
        with closing(Database(folder / "secret.db")) as database:
            add(database, row())
    for path in (*closed.iterdir(), *(place / name.name for name in closed.iterdir())):
        path.chmod(0o600)
    closed.chmod(0o700)
    try:
        with fork_servers(2) as servers:
            yield Bench(place, 0, True, servers, {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY), "SUDO_USER": "x"})
    finally:
        shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def sleeping() -> Iterator[int]:
    """A process of nobody's."""
    with subprocess.Popen(["sleep", "600"], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/") as process:
        yield process.pid
        process.kill()


def calls(place: Path, names: list[str], folders: list[str]) -> Iterator[Call]:
    """Every word and option that names what is read, and what names files in other ways."""
    paths = [str(place / name) for name in names]
    for leaf in leaves_of(build_parser()):
        command = leaf.prog.removeprefix("memtui ")
        for action in leaf._actions:
            if not is_input(command, action) or action.dest in ("output", "html", "tensorboard", "measure"):
                continue
            base = [] if action.dest == "resume" else base_of(command, action.dest, place)
            if not action.option_strings:
                base = [word for word in base if not word.startswith(str(place))]
                base += [str(place / "s.memtui")] * (command == "compare")
            in_folder = (command, action.dest) in (("study", "data"), ("train", "data"), ("tune", "resume"))
            for path in (str(place / name) for name in folders) if in_folder else paths:
                own = [action.option_strings[-1], path] if action.option_strings else [path]
                yield Call(command, action.dest, (*command.split(), *own, *base), (path,))
    database = str(place / "bench.db")
    for path in paths:
        yield Call("bench", "compare", ("bench", "compare", database, path), (path,))
        yield Call("bench", "merge", ("bench", "db", "merge", path, "--db", "new.db"), (path,))
        yield Call("train", "recorded", ("train", "x", "--no-tui", "-o", "s.memtui", "--config", path), (path,))
        yield Call("train", "defined", ("train", "x", "--no-tui", "-o", "s.memtui", "--definitions", path), (path,))
        yield Call("place profile", "own", ("place", "profile", f"{path}:f", "-o", "out.memtui"), (path, "no model"))


def calls_of_any_size(place: Path, names: list[str], pid: int) -> Iterator[Call]:
    """What is read in part, or by another program. ``pid``: of a process that can be observed."""
    for path in (str(place / name) for name in names):
        setting = f"restore_model_path={path}"
        yield Call("train", "weights", ("train", "fcReLu", "--set", "restore_model=true", "--set", setting), (path,))
        for kind in ("steps", "lines", "file"):
            yield Call("calibrate", kind, ("calibrate", str(pid), "--counter", f"{kind}={path}"), (path,))


def wrong(bench: Bench, found: list[Call], *, denied: bool) -> list[str]:
    """What is wrong with them, one line each."""

    def of_part(number: int) -> list[str]:
        failed = []
        for call in found[number :: len(bench.servers)]:
            before, done, after = bench.done(call.words, bench.servers[number])
            said = wrong_with(done, before, after, call.names)
            if MARKER in done["out"] + done["err"]:
                said.append(f"a line of root's file: {done['err'][:300]!r}")
            if done["peak_kib"] > PEAK_KIB:
                said.append(f"took {done['peak_kib'] >> 10} MiB")
            if denied and "Permission denied" not in done["err"] and "no model" not in done["err"]:
                said.append(f"was not denied: {done['err'][:300]!r}")
            failed += [f"{call}\n    " + "\n    ".join(said)] * bool(said)
        return failed

    before = listing(bench.place)
    with ThreadPoolExecutor(len(bench.servers)) as pool:
        failed = [one for part in pool.map(of_part, range(len(bench.servers))) for one in part]
    assert listing(bench.place) == before
    return failed


def test_what_only_root_may_read_is_not_read_for_a_user(borrowed, sleeping):
    names = ["secret.toml", "secret.py", "secret.memtui", "secret-profile.memtui", "secret.db", "of-root/secret.toml"]
    found = [
        *calls(borrowed.place, names, ["of-root"]),
        *calls_of_any_size(borrowed.place, names, sleeping),
    ]
    assert len(found) > 120
    failed = wrong(borrowed, found, denied=True)
    assert not failed, f"{len(failed)} of {len(found)}:\n" + "\n".join(failed)


def test_what_has_no_end_is_not_read(borrowed, sleeping):
    found = [
        *calls(borrowed.place, ["sparse", "sparse.json", "sparse.py", "device", "pipe"], ["of-zeros"]),
        *calls_of_any_size(borrowed.place, ["device", "pipe"], sleeping),
    ]
    assert len(found) > 80
    failed = wrong(borrowed, found, denied=False)
    assert not failed, f"{len(failed)} of {len(found)}:\n" + "\n".join(failed)
