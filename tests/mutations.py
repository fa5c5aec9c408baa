"""Damages a session in ways that an accident or a stranger would: a new file for every seed, always the same one."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import zlib
from copy import deepcopy
from pathlib import Path
from typing import Any

PAGE = 8192
VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2**31, 2**42, 2**53, 2**62, 2**63 - 1, -(2**63), 1.5, float("inf"), -1e300, 5e-324),
    *("", "0", "text", "\x1b]52;c;eA==\x07", "[bold]x", "../../etc/passwd", "9" * 5000, "a\nb\x00c", "\u202e"),
    *(b"", b"\x00", b"x\x9c", bytes(100), zlib.compress(bytes(100)), None),
)
PLAIN: tuple[Any, ...] = (None, True, -1, 0, 2**70, 1e400, "", "x", [], {}, [[[]]], {"a": 1}, "\ud800")
SCHEMA = (
    "CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM meta; END",
    "CREATE VIEW v AS SELECT * FROM meta",
    "CREATE INDEX i ON sample(end_ns)",
    "CREATE TABLE more(x, y AS (x + 1))",
    "DROP TABLE event",
    "ALTER TABLE sample ADD COLUMN x",
    "ALTER TABLE process RENAME COLUMN pid TO kid",
    "DROP INDEX power_by_time",
)


def mutate(source: Path, target: Path, seed: int) -> str:
    """Write a damaged copy and return what was done to it."""
    chance = random.Random(seed)
    kind = chance.choice(
        ("bits", "bits", "bits", "cut", "pages", "header", "row", "row", "row", "blob", "blob", "meta")
    )
    if seed % 40 == 0:
        kind = "schema"
    if kind in ("bits", "cut", "pages", "header"):
        data = bytearray(source.read_bytes())
        _BYTES[kind](data, chance)
        target.write_bytes(data)
    else:
        shutil.copyfile(source, target)
        connection = sqlite3.connect(target)
        connection.execute("PRAGMA ignore_check_constraints=1")
        try:
            _SQL[kind](connection, chance)
            connection.commit()
        except (sqlite3.IntegrityError, OverflowError):
            pass  # one that SQLite itself refuses is not a danger
        finally:
            connection.close()
    return kind


def _bits(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 4, 64, 1000))):
        data[chance.randrange(100, len(data))] ^= 1 << chance.randrange(8)


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]
    if chance.random() < 0.5:  # and say that it is whole
        data[28:32] = (len(data) // PAGE).to_bytes(4, "big")


def _pages(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 4)):
        a, b = (chance.randrange(1, len(data) // PAGE) * PAGE for _ in range(2))
        match chance.randrange(4):
            case 0:
                data[a : a + PAGE], data[b : b + PAGE] = data[b : b + PAGE], data[a : a + PAGE]
            case 1:
                data[a : a + PAGE] = data[b : b + PAGE]
            case 2:
                data[a : a + PAGE] = chance.randbytes(PAGE)
            case _:
                data[a : a + 12] = chance.randbytes(12)


def _header(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(100)] = chance.randrange(256)
    data[chance.randrange(100, 400)] = chance.randrange(256)


def _row(connection: sqlite3.Connection, chance: random.Random) -> None:
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for _ in range(chance.randrange(1, 4)):
        table = chance.choice(tables)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        column, value = chance.choice(columns), chance.choice(VALUES)
        match chance.randrange(5):
            case 0:
                connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
            case 1:
                connection.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT {column} FROM {table} LIMIT 3)")
            case 2 if table != "meta":
                connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({','.join('?' * len(columns))})", [
                    chance.choice(VALUES) for _ in columns
                ])  # fmt: skip
            case _:
                key = columns[0]
                connection.execute(
                    f"UPDATE OR REPLACE {table} SET {column} = ? "
                    f"WHERE {key} IN (SELECT {key} FROM {table} LIMIT 1 OFFSET ?)",
                    (value, chance.randrange(20)),
                )


def _blob(connection: sqlite3.Connection, chance: random.Random) -> None:
    table = chance.choice(("page_set", "touch_sum", "vma_wss", "vma_rss", "vma_shared", "reuse", "reuse_checkpoint"))
    key = "sample" if table == "reuse_checkpoint" else "id"
    rows = connection.execute(f"SELECT {key}, data FROM {table} ORDER BY {key}").fetchall()
    for number, data in chance.sample(rows, min(len(rows), chance.choice((1, 100)))):
        head = 4 if table == "reuse_checkpoint" else 0
        raw = bytearray(zlib.decompress(data[head:]))
        match chance.randrange(5):
            case 0:
                raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            case 1:
                at = chance.randrange(len(raw)) & ~7
                raw[at : at + 8] = chance.choice((2**63, 2**64 - 1, 2**62, 0, 1)).to_bytes(8, "little")
            case 2:
                del raw[chance.randrange(len(raw)) :]
            case 3:
                raw += bytes(chance.choice((1, 8, 24, 4096)))
            case _:
                raw = bytearray(chance.choice((0, 10, 24, 1 << 22)))
        made = data[:head] + zlib.compress(bytes(raw), 1)
        connection.execute(f"UPDATE {table} SET data = ? WHERE {key} = ?", (made, number))


def _meta(connection: sqlite3.Connection, chance: random.Random) -> None:
    plain = {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM meta")}
    for _ in range(chance.randrange(1, 3)):
        place: Any = plain
        while isinstance(place, dict) and place:
            key = chance.choice(sorted(place))
            if not isinstance(place[key], dict) or not place[key] or chance.random() < 0.2:
                break
            place = place[key]
        if isinstance(place, dict) and place:
            if chance.random() < 0.2:
                del place[key]
            else:
                place[key] = deepcopy(chance.choice(PLAIN))
    connection.execute("DELETE FROM meta")
    rows = [(key, json.dumps(value)) for key, value in plain.items()]
    if chance.random() < 0.1:
        rows.append(("zzz", chance.choice(("{", "[" * 100_000, "1" * 10_000, "NaN"))))
    connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)


def _schema(connection: sqlite3.Connection, chance: random.Random) -> None:
    connection.execute(chance.choice(SCHEMA))


_BYTES = {"bits": _bits, "cut": _cut, "pages": _pages, "header": _header}
_SQL = {"row": _row, "blob": _blob, "meta": _meta, "schema": _schema}
