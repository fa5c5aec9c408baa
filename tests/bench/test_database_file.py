"""Databases of measurements that somebody damaged, or made to harm: a result or one line, and nothing hangs."""

from __future__ import annotations

import faulthandler
import os
import random
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from memtui.bench.database_file import DatabaseError
from memtui.bench.store import Database
from memtui.cli.main import main
from memtui.core.errors import UserError
from memtui.placement.profiling.cache import Cache
from tests.support.bench_database import CONFIGURATIONS, add, row
from tests.support.users import NOBODY, ran_as_nobody

MUTATIONS = int(os.environ.get("MEMTUI_MUTATIONS", "60"))  # of the kinds that are drawn by chance
SECONDS = 20  # a call that takes so long hangs
FOR_EVER = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "bench.db"
    with closing(Database(path)) as database:
        add(database, *(row(one) for one in CONFIGURATIONS))
    return path


def flip(path: Path, chance: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    path.write_bytes(raw)


def cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


def one_page_for_another(path: Path, chance: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    pages = len(raw) // 4096
    first, second = chance.randrange(pages), chance.randrange(1, pages)
    raw[second * 4096 : (second + 1) * 4096] = raw[first * 4096 : (first + 1) * 4096]
    path.write_bytes(raw)


def garbage_beside(path: Path, chance: random.Random) -> None:
    name = path.with_name(path.name + chance.choice(("-wal", "-shm", "-journal")))
    name.write_bytes(chance.randbytes(chance.choice((1, 32, 4096, 40000))))


def changed(script: str) -> Callable[[Path, random.Random], None]:
    """By statements, in a file whose schema may be written."""

    def change(path: Path, _: random.Random) -> None:
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA writable_schema=1")
            file.executescript(script)
            file.commit()

    return change


def in_place_of(table: str) -> str:
    """A view that never ends in the place of a table, with the same columns."""
    columns = "key, op, text" if table == "configuration" else "*"
    view = f"CREATE VIEW {table} AS {FOR_EVER} {'n AS key, n AS op, n AS text' if columns != '*' else 'n'} FROM t"
    return f"DROP TABLE {table}; {view};"


BY_CHANCE = (flip, flip, flip, cut, one_page_for_another, garbage_beside)
TABLES = ("device", "environment", "configuration", "run", "measurement", "window", "meta")
BY_HAND = {
    **{f"a view for {table}": in_place_of(table) for table in TABLES},
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON device BEGIN DELETE FROM measurement; END;",
    "an endless trigger": f"CREATE TRIGGER t AFTER INSERT ON run BEGIN INSERT INTO meta {FOR_EVER} n, n FROM t; END;",
    "an index with code": "CREATE INDEX i ON window(abs(calls));",
    "a generated column": "ALTER TABLE run ADD COLUMN more AS (zeroblob(1000000000));",
    "a check": "UPDATE sqlite_master SET sql = replace(sql, 'kind TEXT', 'kind TEXT CHECK(randomblob(9) > 1)');",
    "a table more": "CREATE TABLE more(x);",
    "no schema": "DELETE FROM sqlite_master;",
    "pages of one in another": "UPDATE sqlite_master SET rootpage = 2;",
    "a page that is not there": "UPDATE sqlite_master SET rootpage = 99999;",
    "a schema that is none": "UPDATE sqlite_master SET sql = 'CREATE NONSENSE' WHERE name = 'run';",
    "another application": "PRAGMA application_id = 1;",
    "a newer format": "PRAGMA user_version = 99;",
    "an older format": "PRAGMA user_version = 1;",
    "format 0": "PRAGMA user_version = 0;",
    "texts for numbers": "UPDATE measurement SET call_ns = 'fast', windows = 'many';",
    "numbers for texts": "UPDATE measurement SET status = x'00ff', flags = 7; UPDATE device SET name = x'80';",
    "no duration": "UPDATE window SET calls = 0, wall_ns = 0;",
    "a negative one": "UPDATE window SET calls = -1; UPDATE measurement SET t_wall_ns = -5;",
    "half a number": "UPDATE window SET block_ns = x'01020304', yard_ns = x'01020304';",
    "no numbers": "UPDATE window SET block_ns = x'000000000000f87f', yard_ns = x'000000000000f87f';"
    "UPDATE measurement SET yard_limit_ns = 1;",
    "beyond all numbers": "UPDATE measurement SET call_ns = 9e999, energy_j = -9e999, seconds = 9e999;",
    "no JSON": "UPDATE configuration SET text = '{'; UPDATE environment SET text = '';",
    "JSON of another shape": "UPDATE configuration SET text = '[]'; UPDATE environment SET text = '[1]' WHERE id = 1;",
    "deep JSON": "UPDATE environment SET text = replace(hex(zeroblob(100000)), '0', '[');",
    "half a character": "UPDATE environment SET text = '{\"a\": \"\\ud800\"}';",
    "another configuration": "UPDATE configuration SET text = '{\"op\":\"linear\"}';",
    "an escape": "UPDATE device SET name = char(27) || '[2J'; UPDATE configuration SET op = char(27) || ']0;x';",
    "measured nowhere": "DELETE FROM device; DELETE FROM environment;",
    "in no run": "DELETE FROM run;",
    "a number for everything": "UPDATE device SET id = 1 << 62;",
}  # fmt: skip


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """End everything, loudly, where it takes longer: an exception would wait for SQLite, too."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def calls(path: Path, whole: Path, folder: Path) -> list[list[str]]:
    """What is done with a database; the last of them writes into it."""
    return [
        ["bench", "db", "info", "--db", str(path)],
        ["bench", "db", "export", str(folder / "x.csv"), "--db", str(path)],
        ["bench", "db", "merge", str(path), "--db", str(folder / "new.db")],
        ["bench", "compare", str(path), str(whole)],
        ["bench", "compare", str(whole), str(path)],
        ["bench", "predict", "fit", "--db", str(path)],
        ["bench", "db", "merge", str(whole), "--db", str(path)],
    ]


def wrong(change: Callable[[Path, random.Random], None], chance: random.Random, whole: Path, folder: Path, capsys):
    """What was wrong with the calls on a changed database."""
    result = []
    path = folder / "bench.db"
    for number in range(len(calls(path, whole, folder))):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copyfile(whole, path)
        change(path, random.Random(chance.getstate()[1][0]))
        argv = calls(path, whole, folder)[number]
        with within(SECONDS):
            code = main([*argv, "--no-config"])
        out, err = capsys.readouterr()
        lines = err.splitlines()
        if code not in (0, 1, 2) or (code and len(lines) != 1) or "--debug" in err or "Traceback" in err:
            result.append(f"{' '.join(argv[:3])}: exit {code}, {err[-300:]!r}")
        if any(ord(char) < 32 and char != "\n" for char in out + err):
            result.append(f"{' '.join(argv[:3])}: not fit for a terminal: {out + err!r}")
    chance.random()
    return result


@pytest.mark.parametrize("name", BY_HAND)
def test_a_database_that_was_made_to_harm(name, whole, tmp_path, capsys):
    assert wrong(changed(BY_HAND[name]), random.Random(1), whole, tmp_path / "x", capsys) == []


@pytest.mark.parametrize("part", range(4))
def test_a_database_that_was_damaged(part, whole, tmp_path, capsys):
    result = []
    for number in range(part, MUTATIONS, 4):
        change = BY_CHANCE[number % len(BY_CHANCE)]
        result += [f"{number}, {change.__name__}: {one}" for one in wrong(
            change, random.Random(number), whole, tmp_path / "x", capsys
        )]  # fmt: skip
    assert result == []


def test_a_view_is_told_from_a_table(whole, tmp_path, capsys):
    """With the columns of the table, it would be asked, and never end."""
    path = tmp_path / "bench.db"
    shutil.copyfile(whole, path)
    changed(in_place_of("configuration"))(path, random.Random(1))
    with within(SECONDS):
        assert main(["bench", "db", "info", "--db", str(path)]) == 2
    assert "its tables are not those of format 3" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["file", "folder", "both"])
@pytest.mark.parametrize("log", [False, True])
def test_what_may_not_be_written_can_be_read(closed, log, whole, request):
    folder = Path(tempfile.mkdtemp(prefix="memtui-disk-"))  # in a place that others may enter
    request.addfinalizer(lambda: (folder.chmod(0o700), shutil.rmtree(folder)))
    folder.chmod(0o755)
    path = folder / "bench.db"
    shutil.copyfile(whole, path)
    if log:
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA journal_mode=WAL")
    if closed != "folder":
        path.chmod(0o444)
    if closed != "file":
        folder.chmod(0o555)
    before = sorted(one.name for one in folder.iterdir())
    for one in (folder, path):
        os.chown(one, NOBODY if os.geteuid() == 0 else -1, -1)

    def read() -> None:
        with closing(Database(path, writable=False)) as database:
            assert database.counts()["measurement"] == len(list(database.rows())) == 3

    assert ran_as_nobody(read)
    assert closed == "file" or sorted(one.name for one in folder.iterdir()) == before


def test_a_reader_leaves_nothing_beside_and_changes_nothing(whole, tmp_path):
    path = tmp_path / "bench.db"
    shutil.copyfile(whole, path)
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode=WAL")
    with closing(Database(path, writable=False)) as database:
        assert len(list(database.rows())) == 3
    assert [one.name for one in tmp_path.iterdir()] == ["bench.db"]
    before = path.read_bytes()
    with closing(Database(path, writable=False)) as database:
        assert len(list(database.rows())) == 3
        with pytest.raises(DatabaseError, match="cannot be written"):
            database.device("cpu", "x", "")
    assert [one.name for one in tmp_path.iterdir()] == ["bench.db"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", [*BY_HAND, "nothing"])
def test_a_reader_leaves_what_is_not_a_database_of_ours_as_it_is(name, whole, tmp_path):
    """Also where it says that it has a log, and has none: that of a database of ours is changed in its header."""
    path = tmp_path / "bench.db"
    shutil.copyfile(whole, path)
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode=WAL")
    with suppress(sqlite3.DatabaseError):  # it damages the file for the statements that follow, too
        changed(BY_HAND.get(name, ""))(path, random.Random(1))
    before = path.read_bytes()
    assert before[18:20] == b"\x02\x02", "it has no log"
    refused = ""
    with within(SECONDS):
        try:
            Database(path, writable=False).close()
        except DatabaseError as error:
            refused = str(error)
    assert [one.name for one in tmp_path.iterdir()] == ["bench.db"]
    assert (path.read_bytes() == before) == bool(refused)
    assert refused or name not in ("a view for device", "a trigger", "an index with code", "another application")


def test_a_pipe_beside_does_not_hold_us(whole, tmp_path):
    for end in ("-wal", "-shm", "-journal"):
        path = tmp_path / f"of{end}.db"
        shutil.copyfile(whole, path)
        os.mkfifo(path.with_name(path.name + end))
        for writable in (False, True):
            with within(SECONDS), pytest.raises(DatabaseError, match="beside it is not a file"):
                Database(path, writable=writable)


@dataclass(frozen=True)
class Fields:
    """A key or a value of a cache."""

    number: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


@pytest.mark.parametrize("number", range(12))
def test_a_cache_that_was_damaged(number, tmp_path):
    path = tmp_path / "cache.db"
    with Cache(path) as cache:
        cache.put([(Fields(n), Fields(n / 2)) for n in range(200)])
    before = path.read_bytes()
    for again in range(10):
        path.write_bytes(before)
        BY_CHANCE[number % 5](path, random.Random(100 * number + again))
        with within(SECONDS):
            message = ""
            try:
                with Cache(path) as cache:
                    for n in range(200):
                        cache.get(Fields(n))
                    cache.put([(Fields(-1), Fields(2))])
            except UserError as error:
                message = str(error)
        assert "\n" not in message


@pytest.mark.parametrize("kind", ["view", "trigger", "pipe", "device"])
def test_a_cache_that_was_made_to_harm(kind, tmp_path):
    path = tmp_path / "cache.db"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        Cache(path).__exit__()
        script = {
            "view": f"DROP TABLE measured; CREATE VIEW measured AS {FOR_EVER} n AS key, n AS what, n AS value FROM t;",
            "trigger": "CREATE TRIGGER t AFTER INSERT ON measured BEGIN DELETE FROM measured; END;",
        }[kind]
        changed(script)(path, random.Random(1))
    with within(SECONDS), pytest.raises(UserError) as caught:
        Cache(path)
    assert "is not a file" in str(caught.value) or "is not a cache" in str(caught.value)
