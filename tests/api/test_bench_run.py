"""Measurements that a program asks for."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

import memtui
from memtui.api import bench_run
from memtui.api.bench_run import measured
from memtui.bench.store import Database
from memtui.core.errors import UserError

pytest.importorskip("pandas", reason="pandas is not installed")

SHORT = {"windows": 2, "seconds": 0.05, "warm_up": 0.1, "threads": 1}


def test_a_row_for_each_configuration_that_is_measured_now(tmp_path, capsys):
    path = tmp_path / "bench.db"
    first = memtui.bench.run("relu", grid={"elements": [1024, 4096]}, database=path, **SHORT)
    assert sorted(first.p_elements) == [1024, 4096]
    assert first.call_ns.notna().all()
    assert capsys.readouterr().err
    second = memtui.bench.run("relu", grid={"elements": (1024, 2048)}, database=path, progress=False, **SHORT)
    assert list(second.p_elements) == [2048]
    assert capsys.readouterr().err == ""
    assert len(list(Database(path, writable=False).rows())) == 3


def test_values_are_written_as_the_command_line_takes_them(monkeypatch, tmp_path):
    commands = []

    class Ended:
        returncode, stderr = 2, iter(["memtui bench: measuring\n", "memtui bench: that is wrong\n"])

        def __init__(self, command, **_):
            commands.append(command)

        __enter__ = __iter__ = lambda self: self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(subprocess, "Popen", Ended)
    with pytest.raises(UserError, match=r"^that is wrong$"):
        measured(
            "conv2d",
            {"cin": [1, 2], "bias": True, "p": "same"},
            {"space": None, "warm_up": 2},
            quick=True,
            database=tmp_path / "b.db",
            progress=False,
        )
    assert commands == [
        [
            *(sys.executable, "-m", "memtui", "bench", "conv2d", "--no-tui", "--quick", "--grid", "cin=1,2"),
            *("--grid", "bias=true", "--grid", "p=same", "--warm-up", "2", "--db", str(tmp_path / "b.db")),
        ]
    ]


def test_a_cell_that_is_interrupted_ends_it(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_run, "print", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt):
        memtui.bench.run("relu", grid={"elements": list(range(1000, 1100))})
    assert not [child for child in psutil.Process().children() if "bench" in child.cmdline()]


def test_what_the_command_line_refuses_is_an_error_with_its_line(capsys):
    with pytest.raises(UserError, match="relux"):
        memtui.bench.run("relux", progress=False)
    with pytest.raises(UserError, match=r"^relu has no parameter n"):
        memtui.bench.run("relu", grid={"n": 1}, progress=False)
