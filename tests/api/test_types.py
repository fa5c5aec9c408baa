"""The types of what programs call, as a type checker sees them in a program of a user."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.repository import ROOT

pytest.importorskip("mypy", reason="mypy is not installed")

PROGRAM = """
import memtui

with memtui.open("run.memtui", redact=True) as session:
    names: list[str] = session.names
    session.refresh()
    frame = session.windows.to_pandas()
    columns: tuple[str, ...] = session.table("samples").columns
    count: int = len(session.pages)
    first: int = int(session.pages(0).as_array()[0, 0])
    for row in session.marks:
        text: object = row["text"]
    share = session.heatmap(bins=(10, 20), pid=1).share.mean()
    distance = session.reuse_distance(0.5)
    if distance is not None:
        upper: float = distance.upper
    axes = session.plot.working_set()
with memtui.record(interval=0.5) as recording:
    latest = recording.latest
    if latest is not None and latest.wss_bytes is not None:
        size: int = latest.wss_bytes + 1
plan = memtui.placement.solve("profile.memtui", limit_bytes=1 << 30)
time_ns: float = plan.predicted_ns
costs = memtui.bench.run("conv2d", grid={"cin": [64, 128], "p": "same"}, quick=True)
try:
    memtui.open_tune("folder").to_arrow()
except memtui.UserError as error:
    code: int = error.code
with memtui.trace(every=5):
    memtui.mark("epoch 1")
"""
WRONG = """
import memtui

memtui.open(3)
memtui.record(every=2)
plan = memtui.placement.solve("profile.memtui", ratio=0.5)
session = memtui.open("run.memtui")
session.window
memtui.bench.runs
"""


@pytest.mark.slow
def test_a_program_of_a_user_is_typed_and_what_is_wrong_in_it_is_found(tmp_path):
    for name, text in (("right", PROGRAM), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=False)
    lines = re.findall(r"^.*/(\w+)\.py:(\d+): error", done.stdout, re.MULTILINE)
    assert {(name, int(line)) for name, line in lines} == {("wrong", line) for line in (4, 5, 6, 8, 9)}, done.stdout
