"""Databases of measurements with known rows."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import replace

from memtui.bench.configuration import make
from memtui.bench.result import Conditions, Visit, evaluate
from tests.support.bench_readings import PLAN, series, windows

CONFIGURATIONS = [make("linear", {"m": m}) for m in (1, 2, 3)]


ENVIRONMENT = {"torch": "2.13.0", "threads": 2}


def row(configuration=CONFIGURATIONS[0], **changes):
    conditions = Conditions(states=({"sm_mhz": 1000},) * 3)
    visit = Visit(tuple(windows()), series(lambda t: 250.0), conditions, walked_bytes=1000, copies=8)
    found = evaluate(configuration, PLAN, visit)
    return replace(found, **changes)


def add(database, *rows, name="here"):
    device = database.device("cpu", name, "")
    environment = database.environment(ENVIRONMENT)
    run = database.start_run(PLAN, 60.0, "")
    for one in rows:
        database.add(one, run, device, environment)
    return device, environment


def of_another_version(path, configuration, op):
    """Let a configuration be of an operator that another version of memtui knows."""
    text = configuration.text.replace(f'"{configuration.op}"', f'"{op}"')
    key = hashlib.sha256(text.encode()).hexdigest()
    with closing(sqlite3.connect(path)) as file:
        query = "UPDATE configuration SET key = ?, op = ?, text = ? WHERE key = ?"
        assert file.execute(query, (key, op, text, configuration.key)).rowcount == 1
        file.execute("UPDATE measurement SET configuration = ? WHERE configuration = ?", (key, configuration.key))
        file.commit()
