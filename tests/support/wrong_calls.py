"""Wrong command lines of memtui, generated from its parser: every option and word with values that cannot be right."""

from __future__ import annotations

import argparse
import itertools
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from memtui.bench.store import Database
from memtui.cli.parser import TAKE_PROGRAMS, build_parser
from memtui.core import argtypes
from memtui.core.argtypes import leaves_of
from memtui.core.text import printable
from memtui.recording.arguments import _token_file
from tests.support.bench_database import add, row
from tests.support.memory_logs import mxnet_log
from tests.support.placement_profiles import written
from tests.support.sessions import messages, write_session

LONG = "x" * 100_000
HOSTILE = "\x1b]52;c;eA==\x07\x1b[2J\n\u202e" + os.fsdecode(b"\xff\xfe")
_WORDS = ("", "nonsense", HOSTILE, LONG)
_NUMBERS = (*_WORDS, "-1", "nan", "1e999", "9" * 400, "½", "0x10")


@dataclass(frozen=True)
class Call:
    """A command line, which of its options or words is wrong, and how the answer may name it: in one of these ways."""

    command: str
    what: str
    words: tuple[str, ...]
    names: tuple[str, ...]

    def __str__(self) -> str:
        shown = [word if len(word) < 60 else f"{word[:20]}... ({len(word)})" for word in self.words]
        return f"memtui {' '.join(map(ascii, shown))}  [{self.what}]"


def make_place(place: Path) -> None:
    """Files and folders that are what nobody meant, and a few that are right."""
    write_session(place / "s.memtui", messages(20))
    written(place / "p.memtui")
    with closing(Database(place / "bench.db")) as database:
        add(database, row())
    (place / "grid.toml").write_text("name = 'fcReLu'\n[grid]\nbatch_size = [50, 100]\n")
    (place / "rnn.log").write_bytes(mxnet_log())
    (place / "folder").mkdir()
    (place / "full").mkdir()
    (place / "full" / "file").write_text("years of work\n")
    os.mkfifo(place / "pipe")
    (place / "pipe").chmod(0o666)
    os.mkfifo(place / "pipe.toml")
    (place / "loop").symlink_to("loop")
    (place / "nowhere").symlink_to("gone/gone")
    (place / "device").symlink_to("/dev/zero")
    (place / "empty").write_bytes(b"")
    (place / "garbage").write_bytes(bytes(range(256)) * 40)
    with (place / "endless").open("wb") as file:
        file.truncate(1 << 40)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(place / "socket"))


def close_place(place: Path) -> None:
    """What nobody but its owner may read, or not even that."""
    (place / "secret").write_text("[x]\n")
    (place / "closed").mkdir()
    (place / "sealed").mkdir()
    for name, mode in (("secret", 0), ("closed", 0), ("sealed", 0o555)):
        (place / name).chmod(mode)


def inputs(place: Path, rights: bool) -> list[str]:
    """What cannot be read as any file that memtui takes. ``rights``: with what is closed to this user."""
    names = ["none", "folder", "pipe", "loop", "nowhere", "device", "garbage", "endless", "socket", "full/file/x"]
    names += ["closed/x", "secret"] if rights else []
    return ["", *(str(place / name) for name in names), str(place / ("n" * 300)), HOSTILE, LONG]


def output_files(place: Path, rights: bool) -> list[str]:
    """Where no file can be made."""
    names = ["folder", "pipe", "loop", "socket", "full/file/x", "device", "none/none/x"]
    names += ["closed/x", "sealed/x"] if rights else []
    return ["", *(str(place / name) for name in names), str(place / ("n" * 300)), LONG]


def output_folders(place: Path, rights: bool) -> list[str]:
    """Where no folder can be made, or written into."""
    names = ["garbage", "pipe", "loop", "socket", "full/file/x", "device"]
    names += ["closed/x", "sealed/x", "sealed"] if rights else []
    return ["", *(str(place / name) for name in names), str(place / ("n" * 300)), LONG]


def base_of(command: str, dest: str, place: Path) -> list[str]:
    """Words that are right, so that one can be wrong."""
    session, profile, database = place / "s.memtui", place / "p.memtui", place / "bench.db"
    solve = [profile] if dest in ("limit", "ratio") else [profile, "--ratio", "1:1"]
    found: dict[str, list[object]] = {
        "attach": [] if dest == "pid" else ["1"],
        "record": [] if dest == "pid" else ["-o", "out.memtui"],
        "calibrate": [] if dest == "pid" else ["1"],
        "replay": [session],
        "stop": ["all"] if dest != "name" else [],
        "mark": ["text"],
        "report": [session],
        "export": [session, "--to", "json", "-o", "out"],
        "import": [place / "rnn.log", "-o", "out"],
        "breakdown": [place / "rnn.log", "--to", "svg", "-o", "out"],
        "tune": ["--resume", "x"] if dest == "resume" else [] if dest == "what" else [place / "grid.toml"],
        "bench": ["db", "info", "--db", database],
        "study": ["basic", "-o", "out"] if dest != "what" else [],
        "train": ["fcReLu", "--no-tui"] if dest != "network" else [],
        "compare": [session, session],
        "place profile": ["mlp", "-o", "out.memtui"],
        "place compare": [profile],
        "place solve": solve,
        "place show": [profile],
        "completion": [] if dest == "shell" else ["bash"],
    }
    if command == "bench" and dest in ("grid", "config", "space", "dtype", "mode", "cache", "weights", "device"):
        found["bench"] = ["relu", "--print-sbatch"]
    if command == "bench" and dest in ("db", "rest"):
        found["bench"] = ["db", "info"] if dest == "db" else ["db"]
    if command == "bench" and dest == "from_run":
        found["bench"] = ["predict", "fit", "--db", database]
    if command == "bench" and dest == "what":
        found["bench"] = []
    if command == "train" and dest == "data":
        found["train"] += ["--dataset-name", "mnist"]
    return [str(word) for word in found.get(command, [])]


# Words whose kind the parser does not know. None: everything is taken.
_TEXTS: dict[tuple[str, str], tuple[str, ...] | None] = {
    ("attach", "pid"): ("", "no-such-program-anywhere", "0", "-5", "1", "4194305", "9" * 30, HOSTILE),
    ("record", "pid"): ("", "no-such-program-anywhere", "0", "-5", "4194305", "9" * 30, HOSTILE, LONG),
    ("calibrate", "pid"): ("", "no-such-program-anywhere", "0", "-5", "4194305", "9" * 30, HOSTILE, LONG),
    ("stop", "name"): ("", "nobody", "4242", HOSTILE, LONG),
    ("mark", "text"): ("", LONG),
    ("mark", "session"): ("", "nobody", HOSTILE, LONG),
    ("breakdown", "title"): None,
    ("tune", "network"): None,  # the grid says which
    ("tune", "grid"): ("", "x", "=", "batch_size=", "batch_size=0,x", "nonsense=1", HOSTILE, LONG),
    ("tune", "set"): ("", "x", "=", "batch_size=x", "nonsense=1", "seed=" + "9" * 23, HOSTILE, LONG),
    ("bench", "what"): ("", "nonsense", "conv4d", "db", "compare", "resolution", HOSTILE, LONG),
    ("bench", "grid"): ("", "x", "=", "elements=", "elements=x", "nonsense=1", HOSTILE, LONG),
    ("bench", "from_run"): ("", "nonsense", HOSTILE, LONG),
    ("study", "what"): ("", "nonsense", "basics", HOSTILE, LONG),
    ("train", "network"): ("", "nonsense", "fcRelu", HOSTILE, LONG),
    ("train", "set"): ("", "x", "=", "batch_size=x", "batch_size=0", "nonsense=1", "seed=" + "9" * 23, HOSTILE, LONG),
    ("train", "learning_rate"): ("", "x", "0", "-1", "nan", "inf", HOSTILE, LONG),
    ("train", "batch_size"): ("", "x", "0", "-1", "9" * 23, "1.5", HOSTILE, LONG),
    ("train", "epochs"): ("", "x", "0", "-1", "9" * 23, "1.5", HOSTILE, LONG),
    ("train", "seed"): ("", "x", "-1", "9" * 23, "1.5", HOSTILE, LONG),
    ("place profile", "file"): ("", "nonsense", "none.py:f", "mlp:f", HOSTILE, LONG),
    ("place profile", "pools"): ("", "nonsense", "dram", "numa:99", "file:/nowhere", "emulated:x", HOSTILE, LONG),
    ("place solve", "model"): None,  # without --run it is not asked for
    # Nearly any word may be the name of a machine.
    **dict.fromkeys(
        ((command, "redfish") for command in ("demo", "attach", "run", "trace", "record", "train")),
        ("", "ftp://bmc", "http://bmc.example", "https://", "https://a:b@bmc", "https://bmc:x", HOSTILE, LONG),
    ),
}
_OUTPUTS = {"output", "html", "cache"}
_FOLDERS = {"export", "breakdown", "tune", "study"}
_FOLDER_INPUTS = {("study", "data"), ("train", "data"), ("tune", "resume")}


def is_input(command: str, action: argparse.Action) -> bool:
    """Whether an option, or word, names what is read."""
    key = command, action.dest
    return action.type in (argtypes.path, _token_file) or key in _FOLDER_INPUTS or key == ("tune", "what")


def wrong_values(command: str, action: argparse.Action, place: Path, rights: bool) -> list[str]:
    """Values that this option, or word, has to refuse."""
    key = command, action.dest
    if key in _TEXTS:
        return list(_TEXTS[key] or ())
    if action.dest == "output" and command in ("attach", "demo", "run", "trace"):
        return [""]  # without a terminal nothing else is looked at
    if action.type is argtypes.path and action.dest in _OUTPUTS and key != ("bench", "cache"):
        if command == "import":
            return [*output_files(place / "none" / "..", rights)[:1], *output_folders(place, rights)]
        return (output_folders if command in _FOLDERS else output_files)(place, rights)
    if action.dest in ("tensorboard", "measure"):
        return output_folders(place, rights)
    if is_input(command, action):
        return inputs(place, rights)
    if key == ("bench", "rest"):
        return [*_WORDS, "merge", "export", "info x"]
    if action.choices is not None or action.type is None:
        return list(_WORDS)
    return list(_NUMBERS)


def generated(place: Path, rights: bool) -> Iterator[Call]:
    """All of them. ``place``: of ``make_place``; ``rights``: this user is refused by what ``close_place`` closed."""
    seen: set[int] = set()
    for leaf in leaves_of(build_parser()):
        command = leaf.prog.removeprefix("memtui ")
        for action in leaf._actions:
            if not isinstance(action, argparse._HelpAction | argparse._VersionAction):
                # Commands share options; what their values are is tried with the first of them.
                found = _of_action(command, action, place, rights)
                yield from itertools.islice(found, 2) if id(action) in seen and action.dest != "output" else found
                seen.add(id(action))
        head, base, tail = command.split(), base_of(command, "", place), _tail(command, "")
        for extra in ("--nonsense", "--no-such=1", "-Z", *(["surplus"] if not _takes_many(leaf) else [])):
            yield Call(command, extra, (*head, *base, extra, *tail), (extra.partition("=")[0],))
    yield from _by_hand(place, rights)


def _by_hand(place: Path, rights: bool) -> Iterator[Call]:
    """What is wrong only together."""
    session, profile, database = (str(place / name) for name in ("s.memtui", "p.memtui", "bench.db"))

    def call(*words: str, says: str) -> Call:
        command = " ".join(words[:2]) if words[0] == "place" else words[0]
        return Call(command, "together", words, (says,))

    yield call("compare", session, says="one session")
    yield call("bench", "db", says="bench db info")
    yield call("bench", "db", "merge", str(place / "none"), "--db", "new.db", says="none")
    yield call("bench", "db", "merge", database, str(place / "garbage"), "--db", "new.db", says="garbage")
    yield call("bench", "db", "merge", database, "--db", database, says="bench.db")
    yield call("bench", "compare", database, str(place / "pipe"), says="pipe")
    yield call("place", "solve", profile, "--limit", "0", says="--limit")
    yield call("place", "solve", profile, says="--limit")
    yield call("record", "1", "--", "true", says="either a PID or a program")
    yield call("record", "-o", "", "--", "true", says="--output")
    yield call("record", "--", "no-such-program", says="no-such-program")
    yield call("report", session, "--html", "-", "--json", says="--html")
    yield call("breakdown", str(place / "rnn.log"), "--to", "svg", says="-o DIR")
    yield call("tune", "fcReLu", "--grid", "batch_size=50", "--jobs", "0", says="--jobs")
    saving = ("train", "fcReLu", "--no-tui", "--set", "save_model=true", "--set")
    tuning = ("tune", "fcReLu", "--grid", "batch_size=50,60", "--set", "save_model=true", "--set")
    restoring = ("train", "fcReLu", "--no-tui", "--set", "restore_model=true", "--set")
    for name in ("folder", "full/file/x", "pipe", *(("closed/x", "sealed/x") if rights else ())):
        yield call(*saving, f"save_model_path={place / name}", says=name)
        yield call(*tuning, f"save_model_path={place / name}", says=name)
        yield call("bench", "db", "export", str(place / name), "--db", database, says=name)
    for name in ("folder", "pipe", "none", "device", *(("closed/x", "secret") if rights else ())):
        yield call(*restoring, f"restore_model_path={place / name}", says=name)
        yield call("train", "x", "--dataset-name", "mnist", "--config", str(place / name), says=name)
        yield call("tune", "fcReLu", "--grid", "batch_size=50,60", "--config", str(place / name), says=name)
        yield call("bench", "compare", database, str(place / name), says=name)
        yield call("bench", "db", "merge", database, str(place / name), "--db", "new.db", says=name)
        yield call("place", "profile", f"{place / name}.py:f", "-o", "out.memtui", says=name)


def _of_action(command: str, action: argparse.Action, place: Path, rights: bool) -> Iterator[Call]:
    head, base, tail = command.split(), base_of(command, action.dest, place), _tail(command, action.dest)
    known = (*action.option_strings, action.dest, action.dest.replace("_", "-"), str(action.metavar))
    if not action.option_strings:
        if action.nargs not in ("?", "*"):
            yield Call(command, action.dest, tuple(head), known)
        for value in wrong_values(command, action, place, rights):
            own = [value] if not value.startswith("-") else ["--", value]
            words = (*head, *_without_words(command, action, base), *own, *tail)
            yield Call(command, action.dest, words, (*known, *_shown(value)))
        return
    flag = (
        action.option_strings[-1]
        if not isinstance(action, argparse.BooleanOptionalAction)
        else action.option_strings[0]
    )
    base = _without(base, action)
    if action.nargs == 0:
        yield Call(command, flag, (*head, *base, f"{flag}=1", *tail), known)
        return
    if action.nargs is None:
        yield Call(command, flag, (*head, *base, flag, *tail), known)
    for value in wrong_values(command, action, place, rights):
        yield Call(command, flag, (*head, *base, f"{flag}={value}", *tail), (*known, *_shown(value)))


def _shown(value: str) -> tuple[str, ...]:
    """How an answer shows a value: its begin as a terminal gets it, or the key that it has a value for."""
    key = printable(value.partition("=")[0])
    return (printable(value)[:20], *([f"{key} "] if key else []), "a mark", key + ";") if value.strip() else _EMPTY


_EMPTY = ("''", "empty", "a mark", "bench db")


def _tail(command: str, dest: str) -> list[str]:
    takes = command in TAKE_PROGRAMS and command != "study" and dest != "pid"
    return ["--", "true"] if takes else []


def _takes_many(leaf: argparse.ArgumentParser) -> bool:
    return any(action.nargs in ("+", "*", "?") for action in leaf._actions if not action.option_strings)


def _without(base: list[str], action: argparse.Action) -> list[str]:
    """The base without an option that is about to be wrong."""
    found, skip = [], False
    for word in base:
        if skip:
            skip = False
        elif word in action.option_strings:
            skip = action.nargs != 0
        else:
            found.append(word)
    return found


def _without_words(command: str, action: argparse.Action, base: list[str]) -> list[str]:
    """The base without the word that is about to be wrong: its options, and their values."""
    if not base or base[0].startswith("-") or action.dest in ("rest", "what", "network", "pid", "name", "shell"):
        return base
    at = next((at for at, word in enumerate(base) if word.startswith("-")), len(base))
    return base[at:]
